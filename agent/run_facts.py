"""What is known of a run at any moment, and the result that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.changes.diff import patch
from agent.errors import FrogError, JailUnavailable, ModelQueryError, ModelUnavailable, UsageError, WorkspaceError
from agent.loop import LoopOutcome
from agent.types import (
    ChangeSet,
    ExitReason,
    Forced,
    JailInfo,
    ModelInfo,
    RunError,
    RunResult,
    RunSpec,
    TestOutcome,
    Usage,
)


@dataclass(slots=True)
class RunFacts:
    """What is known so far, whatever happens to the run."""

    model: ModelInfo
    jail: JailInfo = field(default_factory=lambda: JailInfo(backend="none"))
    outcome: LoopOutcome | None = None
    changes: ChangeSet = field(default_factory=ChangeSet)
    tests_before: TestOutcome | None = None
    tests_after: TestOutcome | None = None
    notes: list[str] = field(default_factory=list)
    n_steps: int = 0
    usage: Usage = field(default_factory=Usage)
    forced: list[Forced] = field(default_factory=list)

    def result(
        self, spec: RunSpec, reason: ExitReason, error: RunError | None, elapsed_s: float, trajectory: str | None
    ) -> RunResult:
        """The result, as if the run had ended now."""
        outcome = self.outcome
        return RunResult(
            run_id=spec.run_id,
            exit_reason=reason,
            final_message=outcome.final_message if outcome else "",
            n_steps=outcome.n_steps if outcome else self.n_steps,
            usage=outcome.usage if outcome else self.usage,
            elapsed_s=elapsed_s,
            model=self.model,
            jail=self.jail,
            changes=self.changes,
            patch=patch(self.changes),
            test_command=spec.test_command,
            tests_before=self.tests_before,
            tests_after=self.tests_after,
            trajectory=trajectory,
            notes=tuple(self.notes),
            error=error,
        )


def reason_of(error: FrogError) -> ExitReason:
    """The exit reason of a run that came to an error before its loop."""
    if isinstance(error, ModelQueryError):
        return ExitReason.LLM_QUERY_ERROR
    if isinstance(error, (JailUnavailable, WorkspaceError)):
        return ExitReason.JAIL_UNAVAILABLE
    if isinstance(error, (ModelUnavailable, UsageError)):  # a model that was not asked for rightly
        return ExitReason.MODEL_UNAVAILABLE
    return ExitReason.TOOL_ERROR


def internal_error(error: BaseException) -> RunError:
    """A bug of ours, in the words of `--json`."""
    return RunError(kind="internal", message=f"{type(error).__name__}: {error}", hint="Please report it.")
