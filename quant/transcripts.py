"""Conversations of an agent out of trajectories, and the tokens that a model reads and says in them.

What calibrates a model and what compares two is the same text: recorded runs, rendered with the model's own template
exactly as a run does it. Pure but for reading the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.errors import UsageError
from agent.model.chat_format import ChatFormat, Part
from agent.model.wire_parts import wire_parts
from agent.trajectory import Restart, Step, Trajectory, read_trajectory, trajectories_dir
from agent.types import JsonObject

BUNDLED, RECORDED = "bundled", "recorded"
"""Sources that are words: the runs that are in the package, and the user's own in the state folder."""

BUNDLED_RUNS = Path(__file__).parent / "bundled_runs"
_HINT = "Give a trajectory, a folder of them, `recorded` (your own runs) or `bundled`; `frog-lsp runs` lists your own."


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation as the model saw it: a run, or the part of one after a new beginning."""

    name: str
    system: str
    tools: tuple[JsonObject, ...]
    user: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The tokens of a conversation. `turns`: (begin, end) of what the model said, each with its end mark.

    `tokens[:begin]` is the prompt of a turn.
    """

    name: str
    tokens: tuple[int, ...]
    turns: tuple[tuple[int, int], ...]


class Tokenizer(Protocol):
    """What `agent.model.engine_vocab.Vocab` does here: tokens in which no foreign text becomes a control token."""

    def tokenize_parts(self, parts: Iterable[Part]) -> list[int]:
        """Tokens of a prompt."""
        ...


def read_conversations(
    sources: Sequence[str], *, on_skip: Callable[[str], None] = lambda _: None
) -> list[Conversation]:
    """The conversations of files, folders and the words above, in order, each only once.

    In a folder, files that are no trajectories are passed over, and `on_skip` gets what is wrong with each. Raises
    UsageError for a file that cannot be read, and where nothing is found.
    """
    found: dict[tuple[object, ...], Conversation] = {}
    for source in sources:
        for name, trajectory in _read(source, on_skip):
            for conversation in conversations_of(name, trajectory):
                found.setdefault(_content(conversation), conversation)
    if not found:
        raise UsageError(f"there is no run with a turn of a model in {', '.join(sources) or 'nothing'}", _HINT)
    return list(found.values())


def conversations_of(name: str, trajectory: Trajectory) -> Iterator[Conversation]:
    """The conversations of one trajectory: each new beginning starts another, with the turns that it kept."""
    tools = tuple(trajectory.header.get("tools") or ())
    user, steps, number = trajectory.user, list[Step](), 1
    played: list[Step] = []
    for entry in (*trajectory.entries, None):
        if isinstance(entry, Step):
            steps.append(entry)
            played.append(entry)
            continue
        if steps:
            label = name if number == 1 else f"{name}#{number}"
            yield Conversation(name=label, system=trajectory.system, tools=tools, user=user, steps=tuple(steps))
        if isinstance(entry, Restart):
            user, steps, number = entry.user, played[max(0, len(played) - entry.n_kept) :], number + 1


def render(
    conversation: Conversation,
    chat: ChatFormat,
    tokenizer: Tokenizer,
    *,
    system: str | None = None,
    tools: Sequence[JsonObject] | None = None,
) -> Rendered:
    """The tokens of a conversation as a run makes them.

    `system` and `tools` take the place of the recorded ones, for a model that knows only its own. Raises
    ModelFileError where the template cannot render it.
    """
    prefix = chat.prefix(
        conversation.system if system is None else system,
        conversation.tools if tools is None else tools,
        conversation.user,
    )
    tokens = tokenizer.tokenize_parts(prefix.system) + tokenizer.tokenize_parts(prefix.user)
    turns: list[tuple[int, int]] = []
    for i, step in enumerate(conversation.steps):
        begin = len(tokens)
        text = "".join(part.text for part in chat.turn(step.turn))
        tokens += tokenizer.tokenize_parts(wire_parts(text))
        follows = tokenizer.tokenize_parts(chat.suffix(step.observations))
        turns.append((begin, len(tokens) + 1))  # what follows begins with the end mark
        tokens += follows if i + 1 < len(conversation.steps) else follows[:1]
    return Rendered(name=conversation.name, tokens=tuple(tokens), turns=tuple(turns))


def _content(conversation: Conversation) -> tuple[object, ...]:
    """What tells two conversations apart: all but names, times and counts."""
    turns = (
        (step.turn.reasoning, step.turn.content, repr(step.turn.calls), *(item.text for item in step.observations))
        for step in conversation.steps
    )
    return (conversation.system, conversation.user, *turns)


def _read(source: str, on_skip: Callable[[str], None]) -> Iterator[tuple[str, Trajectory]]:
    path = {BUNDLED: BUNDLED_RUNS, RECORDED: trajectories_dir()}.get(source) or Path(source).expanduser()
    if source == RECORDED and not path.exists():
        return
    if not path.is_dir():
        yield path.stem, read_trajectory(path)
        return
    for file in sorted(path.glob("*.jsonl")):
        try:
            yield file.stem, read_trajectory(file)
        except UsageError as error:
            on_skip(error.message)
