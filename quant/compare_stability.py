"""Turns of recorded runs asked for again, of one model, through the product's own path.

That is `WorkerModel`, its worker process, its sampling, its steering and its parser. Each turn is generated with the
call guard; where the guard changed something it is generated again without it, from the same seed: up to the first
repair both are the same tokens, so where there was none the turn counts for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from agent.errors import ModelQueryError
from agent.model.client import WorkerModel, WorkerOptions
from agent.model.keeper import WorkerKeeper
from agent.model.locate import ModelFile
from agent.types import Limits, Turn
from quant.compare_turns import Prompt, Tally, judge, was_repaired
from quant.transcripts import Conversation


@dataclass(slots=True)
class Stability:
    """The turns of one model. `raw`: what it says; `repaired`: what comes of it under the call guard."""

    raw: Tally = field(default_factory=Tally)
    repaired: Tally = field(default_factory=Tally)
    n_repaired_turns: int = 0
    notes: tuple[str, ...] = ()


async def measure(
    file: ModelFile,
    conversations: Sequence[Conversation],
    prompts: Sequence[Prompt],
    seeds: Sequence[int],
    limits: Limits,
    *,
    options: WorkerOptions | None = None,
    on_turn: Callable[[int], None] = lambda _: None,
) -> Stability:
    """Ask for every prompt with every seed. Raises ModelUnavailable, ContextTooLarge, ModelQueryError.

    `on_turn` gets the number of turns done so far.
    """
    found, keeper = Stability(), WorkerKeeper()
    asker = Asker(file, keeper, limits, options or WorkerOptions())
    try:
        for prompt in prompts:
            conversation = conversations[prompt.conversation]
            for seed in seeds:
                repaired = raw = await asker.ask(conversation, prompt.step, seed, repairs=True)
                if was_repaired(repaired):
                    found.n_repaired_turns += 1
                    raw = await asker.ask(conversation, prompt.step, seed, repairs=False)
                found.repaired.add(prompt, judge(repaired, conversation.tools))
                found.raw.add(prompt, judge(raw, conversation.tools))
                on_turn(found.raw.n_turns)
    finally:
        await keeper.close()
    found.notes = tuple(asker.notes)
    return found


class Asker:
    """Asks one model for single turns; `notes` are what it says of itself when it is opened."""

    def __init__(self, file: ModelFile, keeper: WorkerKeeper, limits: Limits, options: WorkerOptions) -> None:
        self._file, self._keeper, self._limits, self._options = file, keeper, limits, options
        self.notes: list[str] = []

    async def ask(self, conversation: Conversation, step: int, seed: int, *, repairs: bool) -> Turn:
        """Turn `step` of a conversation, generated anew. A conversation is always opened anew, so that nothing that
        was generated before decides how its history is tokenised; what is in memory is not read again."""
        options = replace(self._options, repairs_calls=repairs)
        model = WorkerModel(self._file, seed=seed, context_is_explicit=True, options=options, keeper=self._keeper)
        try:
            info = await model.open(self._limits)
            self.notes += [note for note in info.notes if note not in self.notes]
            await model.begin(conversation.system, conversation.tools, conversation.user)
            for earlier in conversation.steps[:step]:
                await model.recall(earlier.turn, earlier.observations)
            return await model.generate([], lambda _: None, lambda *_: None)
        except ModelQueryError as error:
            raise ModelQueryError(f"{self._file.name}: {error.message}", error.hint) from error
        finally:
            await model.close()
