"""A run: jail, private view, tools, model, trajectory and loop, put together and closed in order."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from agent.changes.changeset import assemble
from agent.changes.diff import sections
from agent.changes.proposals import Proposal, ProposalStore
from agent.check import TEST_TIMEOUT_S, check, proposed_states
from agent.errors import (
    ContextTooLarge,
    FrogError,
)
from agent.fingerprint import fingerprint
from agent.jail.risk import flag
from agent.jail.session import JailSession, open_session
from agent.jail.spec import JailLimits, JailSpec
from agent.loop import LoopOutcome, run_loop
from agent.models import choose_model, limits_of
from agent.prompt import SYSTEM_PROMPT, PromptFile, load_prompt_file, system_prompt, user_prompt
from agent.protocols import ChatModel
from agent.remarks import demonstration_notes, file_notes, issue_notes
from agent.resume import check_resumable, replay
from agent.run_facts import RunFacts, internal_error, reason_of
from agent.steered import forced_notes
from agent.summary import SummarizedModel
from agent.tasks import settle, together
from agent.tools.bundle import runner_bundle
from agent.tools.host import ToolHost
from agent.tools.schemas import TOOLS
from agent.trajectory import Trajectory, TrajectoryWriter, read_trajectory, trajectories_dir
from agent.types import (
    ChangeSet,
    ExitReason,
    FileState,
    JsonObject,
    Limits,
    ModelInfo,
    Note,
    RunError,
    RunEvent,
    RunFinished,
    RunResult,
    RunSpec,
    RunStarted,
    TestOutcome,
    TestsFinished,
    TurnFinished,
)
from agent.worktree.baseline import Baseline
from agent.worktree.collect import collect
from agent.worktree.comparison import Collected
from agent.worktree.ignore import ignore_rules
from agent.worktree.installed import installed_modules

_log = logging.getLogger(__name__)

Closer = Callable[[], Awaitable[None]]


class Run:
    """One run. `execute` once; `cancel` at any time, from the same event loop.

    A `model` that is handed in is opened but never closed: it belongs to the caller.
    """

    def __init__(self, spec: RunSpec, on_event: Callable[[RunEvent], None], *, model: ChatModel | None = None) -> None:
        self._spec = spec
        self._on_event = on_event
        self._given_model = model
        self._facts = RunFacts(ModelInfo(kind=spec.model.kind, name=spec.model.name or spec.model.path or "default"))
        self._trajectory = TrajectoryWriter(trajectories_dir() / f"{spec.run_id}.jsonl")
        self._closers: list[Closer] = []
        self._touched: set[str] = set()
        self._baseline: Baseline | None = None
        self._unsaved: dict[str, FileState | None] = {}
        self._is_cancelled = False
        self._work: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Stop generating and kill every jailed process; the result is then `cancelled`, with no proposal."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        if self._work is not None:
            self._work.cancel()

    async def execute(self) -> RunResult:
        """Do the run. Trouble is in the result; the exception is CancelledError, when the caller is cancelled."""
        began = time.monotonic()
        error: RunError | None = None
        reason = ExitReason.CANCELLED
        if not self._is_cancelled:
            self._work = asyncio.create_task(self._do(), name=f"run {self._spec.run_id}")
            was_interrupted = await settle(self._work, self.cancel)
            reason, error = self._judge(self._work)
        else:
            was_interrupted = False
        await settle(asyncio.create_task(self._close()), self.cancel)
        if self._baseline is not None:
            self._baseline.close()
        result = self._result(reason, error, time.monotonic() - began)
        self._emit(RunFinished(result=result))
        self._trajectory.close()
        if was_interrupted:
            raise asyncio.CancelledError
        return result

    def _trajectory_path(self) -> str | None:
        return str(self._trajectory.path) if self._trajectory.is_open else None

    # --- the work, in order ------------------------------------------------------------------------------

    async def _do(self) -> None:
        spec = self._spec
        resumed = None if spec.resume_from is None else read_trajectory(spec.resume_from)
        if resumed is not None:
            check_resumable(resumed)
        wording = None if spec.prompt_file is None else load_prompt_file(spec.prompt_file)
        jail_spec = self._jail_spec()
        for note in issue_notes(spec.issue.text):
            self.note(note)
        baseline = self._baseline = Baseline(jail_spec.workspace, spec.buffers)
        self._unsaved = {path: baseline.state_of(path)[0] for path in spec.buffers}
        model = self._given_model or choose_model(spec, self.note)
        if self._given_model is None:
            self._closers.append(model.close)
        (limits, info), session, workspace_hash = await together(
            self._open_model(model), self._open_jail(jail_spec), asyncio.to_thread(fingerprint, jail_spec.workspace)
        )
        host = ToolHost(session.reader, session.writer, on_touch=self._remember, moved=session.moved)
        self._closers.append(host.close)
        await host.start()
        if self._unsaved:
            await host.seed(self._unsaved)
        system, schemas = _instructions(session.info.root or jail_spec.workspace, info, wording, resumed)
        self._trajectory.open(replace(spec, limits=limits), info, schemas, workspace_hash)
        self._emit(
            RunStarted(
                run_id=spec.run_id, model=info, jail=session.info, limits=limits, trajectory=self._trajectory_path()
            )
        )
        self._facts.outcome = await self._converse(model, host, limits, info, system, schemas, resumed)
        for note in forced_notes(self._facts.forced):
            self.note(note)
        view = await session.stop()
        try:
            collected = await asyncio.to_thread(collect, view, baseline)
        finally:
            os.close(view.upper_fd)
        for note in session.notes:
            self.note(note)
        changes = await asyncio.to_thread(_judged, collected, jail_spec.workspace, spec.issue.text)
        for note in (*changes.notes, *file_notes([*self._touched, *(change.path for change in changes.changes)])):
            self.note(note)
        if info.demonstration:
            for note in demonstration_notes(changed=bool(changes.changes)):
                self.note(note)
        await self._check_after(jail_spec, changes)
        self._facts.changes = changes
        if self._trajectory.error is not None:
            self.note(f"The trajectory is incomplete: {self._trajectory.error}.")

    async def _open_model(self, model: ChatModel) -> tuple[Limits, ModelInfo]:
        spec = self._spec
        limits = limits_of(spec)
        info = await model.open(limits)
        self._facts.model = info
        if info.demonstration:
            self.note("demonstration model, replace it with `frog-lsp model pull`")
        for note in info.notes:
            self.note(note)
        wanted, got = spec.limits.context_tokens, info.context_tokens
        if got is None or got >= wanted:
            return limits, info
        if spec.context_is_explicit:
            raise ContextTooLarge(
                f"a context of {wanted} tokens does not fit", f"The largest that fits is {got}.", largest=got
            )
        if not info.demonstration and not any("context" in note.lower() for note in info.notes):
            self.note(f"The context was lowered from {wanted} to {got} tokens.")
        return replace(limits, context_tokens=got, tokens_per_turn=min(limits.tokens_per_turn, got)), info

    async def _open_jail(self, jail_spec: JailSpec) -> JailSession:
        """Run the tests on the snapshot in a jail that is thrown away, then start the jail of the run."""
        spec = self._spec
        session = await open_session(jail_spec, runner_bundle(), backend=spec.jail.backend)
        self._closers.append(session.close)
        self._facts.jail = session.info
        for note in session.notes:
            self.note(note)
        if not spec.test_command:
            self.note("Tests: not checked, since no test command was given.")
        elif session.info.backend == "files":
            self.note("Tests: not checked, since there is no Bash in this jail.")
        else:
            self._facts.tests_before = await self._check(jail_spec, "before", self._unsaved)
        return session

    async def _converse(
        self,
        model: ChatModel,
        host: ToolHost,
        limits: Limits,
        info: ModelInfo,
        system: str,
        schemas: tuple[JsonObject, ...],
        resumed: Trajectory | None,
    ) -> LoopOutcome:
        chat = model
        if not info.demonstration:  # the tiny model writes no summaries
            chat = SummarizedModel(model, self._spec.issue, limits.context_tokens, self)
        user = user_prompt(self._spec.issue) if resumed is None else resumed.user
        self._trajectory.message("system", system)
        self._trajectory.message("user", user)
        await chat.begin(system, schemas, user)
        n_steps = 0 if resumed is None else await replay(resumed, chat, host, self, system, schemas)
        try:
            return await run_loop(chat, host, self, limits, n_steps=n_steps)
        except Exception as error:  # a bug of ours: what was done until then is still the proposal
            _log.exception("the loop of run %s failed", self._spec.run_id)
            return LoopOutcome(
                exit_reason=ExitReason.TOOL_ERROR,
                final_message="",
                n_steps=self._facts.n_steps,
                usage=self._facts.usage,
                error=internal_error(error),
            )

    async def _check_after(self, jail_spec: JailSpec, changes: ChangeSet) -> None:
        if self._facts.tests_before is None:
            return
        if not changes.changes:
            self.note("Tests: not checked after the run, since nothing was changed.")
            return
        if not all(change.applied_by_default for change in changes.changes):
            self.note("The tests after the run include flagged changes, which are not applied by default.")
        states = self._unsaved | proposed_states(changes)
        self._facts.tests_after = await self._check(jail_spec, "after", states)

    async def _check(self, jail_spec: JailSpec, phase: Any, states: dict[str, FileState | None]) -> TestOutcome | None:
        command = self._spec.test_command or ""
        try:
            outcome = await check(
                jail_spec,
                self._facts.jail.backend,
                states,
                command,
                self._closers.append,
                min(TEST_TIMEOUT_S, self._spec.limits.time_s),
            )
        except FrogError as error:
            self.note(f"Tests {phase}: not checked, since the jail failed: {error.message}")
            return None
        self._emit(TestsFinished(phase=phase, command=command, outcome=outcome))
        return outcome

    # --- the end -----------------------------------------------------------------------------------------

    def _judge(self, work: asyncio.Task[None]) -> tuple[ExitReason, RunError | None]:
        if self._is_cancelled or work.cancelled():
            self._facts.changes = ChangeSet()
            return ExitReason.CANCELLED, None
        error = work.exception()
        outcome = self._facts.outcome
        if error is None:
            assert outcome is not None
            return outcome.exit_reason, outcome.error
        if not isinstance(error, FrogError):
            _log.error("run %s failed", self._spec.run_id, exc_info=error)
            return outcome.exit_reason if outcome else ExitReason.TOOL_ERROR, internal_error(error)
        return reason_of(error), RunError(kind=error.kind, message=error.message, hint=error.hint)

    async def _close(self) -> None:
        for outcome in await asyncio.gather(*(closer() for closer in self._closers), return_exceptions=True):
            if isinstance(outcome, BaseException):
                _log.error("run %s did not close cleanly", self._spec.run_id, exc_info=outcome)

    def _result(self, reason: ExitReason, error: RunError | None, elapsed_s: float) -> RunResult:
        result = self._facts.result(self._spec, reason, error, elapsed_s, self._trajectory_path())
        if result.changes.changes:
            try:
                ProposalStore().save(Proposal.of(self._spec, result))
            except (FrogError, OSError) as trouble:
                note = f"The proposal could not be kept: {trouble}"
                result = replace(result, notes=(*result.notes, note))
        return result

    # --- events ------------------------------------------------------------------------------------------

    def record(self, event: RunEvent) -> None:
        """Take an event of the loop: this object is its Recorder."""
        if isinstance(event, TurnFinished):
            self._facts.n_steps, self._facts.usage = event.step, self._facts.usage + event.turn.usage
            self._facts.forced += event.turn.forced
        self._emit(event)

    def _remember(self, path: str) -> None:
        """Keep the base of a file before a tool touches it; `path` is as the model wrote it."""
        assert self._baseline is not None
        root = self._baseline.workspace
        relative = os.path.relpath(os.path.normpath(os.path.join(root, path)), root)
        if "\0" not in path and relative != "." and not relative.startswith(".."):
            self._baseline.remember(relative)
            self._touched.add(relative)

    def note(self, text: str) -> None:
        """Keep what a person should know for the result, and show it now; the same text counts once."""
        if text not in self._facts.notes:
            self._facts.notes.append(text)
            self._emit(Note(text=text))

    def _emit(self, event: RunEvent) -> None:
        self._trajectory.record(event)
        try:
            self._on_event(event)
        except Exception:
            _log.exception("an event of run %s was not shown", self._spec.run_id)

    def _jail_spec(self) -> JailSpec:
        spec = self._spec
        return JailSpec(
            workspace=spec.workspace,
            read_only_paths=spec.jail.read_only_paths,
            python=spec.jail.python,
            limits=JailLimits(wall_s=int(spec.limits.time_s) + 3600),
        ).checked()


def _judged(collected: Collected, workspace: str, issue: str) -> ChangeSet:
    """The changes with their flags. In a large proposal this takes seconds: not on the event loop of an editor."""
    changes = assemble(collected.deltas, collected.notes)
    flagged = flag(changes, workspace, ignore_rules(workspace), installed_modules(workspace), issue)
    sections(flagged)  # kept there for whoever asks
    return flagged


def _instructions(
    workspace: str, info: ModelInfo, wording: PromptFile | None, resumed: Trajectory | None
) -> tuple[str, tuple[JsonObject, ...]]:
    """The system prompt and the tools: the model's own, else the user's wording, else ours."""
    schemas = info.tools or (wording.tools if wording else None) or TOOLS
    if resumed is not None:
        return resumed.system, schemas
    own = info.system_prompt or (wording.system if wording else SYSTEM_PROMPT)
    return system_prompt(workspace, own), schemas
