"""A run of many rounds in a small window, on a real llama.cpp: it writes summaries, goes on, ends, and is resumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.loop import LoopOutcome, run_loop
from agent.model.chat_format import ChatFormat
from agent.model.sampling import Sampling
from agent.model.tool_calls import parse
from agent.protocols import OnPrefill, OnText
from agent.resume import replay
from agent.summary import SummarizedModel
from agent.trajectory import Restart, TrajectoryWriter, read_trajectory
from agent.types import (
    ConversationRestarted,
    ExitReason,
    Issue,
    JsonObject,
    Limits,
    ModelInfo,
    Observation,
    RunEvent,
    RunSpec,
    ToolCall,
    Turn,
)
from tests.model.test_turns_repaired import END, Script, call
from tests.model.tiny import TEMPLATE

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.usefixtures("require_model")]

WINDOW = 2048
ROUNDS = 40
SUMMARY_MARK = "context window is nearly full"
ISSUE = Issue(text="The numbers are wrong.")
SYSTEM = "Fix the issue. " * 10


class Played:
    """A `ChatModel`: a real conversation in which each turn is sampled from a script, made by what was asked."""

    def __init__(self, engine: Any) -> None:
        from agent.model.engine_chat import Conversation

        chat = ChatFormat(TEMPLATE, bos=engine.vocab.bos, ends=engine.vocab.ends)
        self._engine = engine
        self._chat = Conversation(engine, chat, Sampling(temperature=0.0))
        self.n_rounds = self.n_summaries = 0
        self.n_read: list[int] = []
        self.longest = 0

    async def open(self, limits: Limits) -> ModelInfo:
        return ModelInfo(kind="worker", name="played")

    async def begin(self, system: str, tools: Sequence[JsonObject], user: str) -> None:
        self._chat.begin(system, tools, user, 1)

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        self._chat.recall(turn, observations)

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        if any(SUMMARY_MARK in item.text for item in observations):
            made = (0, 1)
            said = f"Short.\n</think>\n\nSummary {self.n_summaries + 1}: {self.n_rounds} rounds are done."
        elif self.n_rounds < ROUNDS:
            made = (1, 0)
            said = "Go on.\n</think>\n\n" + call("Bash", command=f"echo {self.n_rounds + 1}")
        else:
            made = (0, 0)
            said = "Enough.\n</think>\n\nAll rounds are done."
        tokens = self._engine.vocab.tokenize(said)
        self._chat._sampler = Script(tokens, self._engine.vocab.tokenize(END)[0])  # type: ignore[assignment]
        reply = self._chat.generate(
            observations, max_tokens=600, thought_tokens=None, on_text=on_text, on_prefill=on_prefill
        )
        assert reply.raw == said or (made == (0, 1) and reply.forced)  # a summary may be asked for where room is short
        self.n_rounds, self.n_summaries = self.n_rounds + made[0], self.n_summaries + made[1]
        self.n_read.append((reply.usage.evaluated_tokens or 0) + (reply.usage.redecoded_tokens or 0))
        self.longest = max(self.longest, reply.context_tokens)
        parsed = parse(reply.raw)
        return Turn(
            reasoning=parsed.reasoning,
            content=parsed.content,
            calls=parsed.calls,
            raw=reply.raw,
            usage=reply.usage,
            context_tokens=reply.context_tokens,
        )

    async def close(self) -> None:
        self._chat.close()


class Bash:
    async def execute(self, call: ToolCall) -> Observation:
        number = int(str(call.arguments["command"]).split()[1])
        size = 5000 if number % 20 == 0 else 150
        return Observation(tool="Bash", text=f"Exit code: 0\nSTDOUT:\n{number} {'x' * size}")


class Written:
    """A recorder that writes a trajectory; it can be interrupted."""

    def __init__(self, path: Path) -> None:
        self.events: list[RunEvent] = []
        self.trajectory = TrajectoryWriter(path)
        self.trajectory.open(
            RunSpec(run_id=path.stem, workspace=str(path.parent), issue=ISSUE),
            ModelInfo(kind="worker", name="x"),
            (),
            None,
        )
        self.trajectory.message("system", SYSTEM)
        self.trajectory.message("user", ISSUE.text)

    def record(self, event: RunEvent) -> None:
        self.events.append(event)
        self.trajectory.record(event)

    @property
    def restarts(self) -> list[ConversationRestarted]:
        return [event for event in self.events if isinstance(event, ConversationRestarted)]


@pytest.fixture
def engine(tiny_path: Path) -> Iterator[Any]:
    from agent.model.engine import Engine
    from agent.model.engine_context import LoadedModel

    model = LoadedModel(str(tiny_path), n_gpu_layers=None, repack=True, on_progress=lambda _: True)
    made = Engine(model, n_ctx=WINDOW, n_threads=1)
    yield made
    made.close()
    model.close()


async def run(model: Played, recorder: Written, *, max_steps: int = 150, resume: Path | None = None) -> LoopOutcome:
    chat = SummarizedModel(model, ISSUE, WINDOW, recorder)
    await chat.begin(SYSTEM, (), ISSUE.text)
    n_steps = 0
    if resume is not None:
        n_steps = await replay(read_trajectory(resume), chat, Bash(), recorder, SYSTEM, ())
        model.n_rounds = n_steps
    limits = Limits(context_tokens=WINDOW, max_steps=max_steps)
    outcome = await run_loop(chat, Bash(), recorder, limits, n_steps=n_steps)
    recorder.trajectory.close()
    return outcome


async def test_forty_rounds_fit_a_window_of_eight(engine: Any, tmp_path: Path) -> None:
    model, written = Played(engine), Written(tmp_path / "a.jsonl")
    outcome = await run(model, written)
    assert (outcome.exit_reason, outcome.final_message) == (ExitReason.AGENT, "All rounds are done.")
    assert outcome.n_steps == ROUNDS + 1
    assert model.longest <= WINDOW
    assert 4 <= model.n_summaries == len(written.restarts) <= 20
    assert all(f"Summary {i}: " in event.user for i, event in enumerate(written.restarts, 1))
    assert sum(event.n_kept > 0 for event in written.restarts) >= len(written.restarts) - 3
    # What lies before the issue is read once: behind a restart there are only the summary and the turns that stay.
    system = len(engine.vocab.tokenize(SYSTEM))
    assert max(model.n_read[1:]) < WINDOW - system
    trajectory = read_trajectory(tmp_path / "a.jsonl")
    restarts = [entry for entry in trajectory.entries if isinstance(entry, Restart)]
    assert [(entry.user, entry.n_kept) for entry in restarts] == [(e.user, e.n_kept) for e in written.restarts]


@pytest.mark.parametrize("n_before", [6, 25])
async def test_such_a_run_is_resumed(engine: Any, tmp_path: Path, n_before: int) -> None:
    first, written = Played(engine), Written(tmp_path / "a.jsonl")
    assert (await run(first, written, max_steps=n_before)).exit_reason is ExitReason.MAX_TURNS
    second, again = Played(engine), Written(tmp_path / "b.jsonl")
    outcome = await run(second, again, resume=tmp_path / "a.jsonl")
    assert (outcome.exit_reason, outcome.n_steps) == (ExitReason.AGENT, ROUNDS + 1)
    assert again.restarts[: len(written.restarts)] == written.restarts
    assert second.longest <= WINDOW
