"""The process that reads two models' logits: the model worker with two more methods.

`look` compares the vocabularies and makes the tokens; `score` reads both models. Nothing heavy is imported before the
protocol has left file descriptor 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from agent.errors import FrogError, ModelQueryError, ModelUnavailable
from agent.ipc.messages import from_base64, to_base64
from agent.model.worker import Worker
from agent.model.worker import main as serve
from agent.types import JsonObject

if TYPE_CHECKING:
    from quant.compare_metrics import Array, TokenScores
    from quant.compare_score import Pair
    from quant.compare_tokens import Passage

COMMAND = "from quant.compare_worker import main; main()"
_VALUES = ("kl", "nll_a", "nll_b")


def main() -> None:
    """Serve until stdin ends."""
    serve(ComparisonWorker)


class ComparisonWorker(Worker):
    """Knows the two files after `look`."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        super().__init__(requests, answers)
        self._methods |= {"look": self._look, "score": self._score}
        self._pair: Pair | None = None

    def _look(self, params: JsonObject) -> JsonObject:
        """Whether one text is the same tokens to both models, and how many tokens lie before each turn."""
        try:
            from quant.compare_score import ModelInput, Pair
        except (ImportError, OSError) as error:
            raise ModelUnavailable(
                f"llama-cpp-python is not there or does not load: {error}",
                "Install it; it is compiled once, which takes some minutes. The README says how.",
            ) from error
        from quant.transcripts import read_conversations

        models = [ModelInput(**item) for item in params["models"]]
        self._pair = Pair.look(models[0], models[1], read_conversations(params["sources"]), self._abort)
        return {
            "difference": self._pair.difference,
            "n_before": self._pair.n_before,
            "n_tokens": [len(passage.tokens) for passage in self._pair.passages],
            "prompts_agree": self._pair.prompts_agree,
            "n_vocabulary": self._pair.n_vocabulary,
        }

    def _score(self, params: JsonObject) -> JsonObject:
        """Read both models; each passage is answered with a notification as soon as it is done."""
        from agent.model.engine_context import DecodeAbortedError
        from quant.compare_score import Reading

        if self._pair is None:
            raise ModelQueryError("nothing was looked at", "Look first.")
        reading = Reading(
            self._pair,
            context=params["context"],
            most_tokens=params["most_tokens"],
            n_threads=params["n_threads"],
            repack=params["repack"],
            on_read=lambda done, total: self._notify("read", done=done, total=total),
            on_passage=self._passage,
        )
        try:
            if params["spool_dir"] is None:
                reading.together()
                return {"n_cut": 0}
            return {"n_cut": reading.in_turn(params["spool_dir"], params["spool_bytes"])}
        except DecodeAbortedError:
            raise ModelQueryError("the comparison was stopped") from None
        except ValueError as error:
            raise ModelQueryError(f"the models cannot be compared: {error}", "One of the files is broken.") from error
        except OSError as error:
            raise FrogError(
                f"A's logits cannot be kept on disk: {error}", f"Make room in {params['spool_dir']}."
            ) from error

    def _passage(self, passage: Passage, said: Sequence[bool], scores: TokenScores) -> None:
        self._notify(
            "passage",
            name=passage.name,
            n_tokens=len(passage.tokens),
            said=to_base64(bytes(said)),
            same_top=to_base64(bytes(map(int, scores.same_top))),
            **{name: to_base64(getattr(scores, name).tobytes()) for name in _VALUES},
        )


def read_scores(params: JsonObject) -> tuple[TokenScores, Array]:
    """The scores of a `passage` notification, and which of its tokens the model said."""
    import numpy as np

    from quant.compare_metrics import TokenScores

    values = {name: np.frombuffer(from_base64(params[name]), dtype=np.float64) for name in _VALUES}
    flags = [np.frombuffer(from_base64(params[name]), dtype=np.uint8).astype(bool) for name in ("same_top", "said")]
    return TokenScores(same_top=flags[0], **values), flags[1]
