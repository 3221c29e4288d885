"""The process that reads runs and measures: the model worker with one more method.

`calibrate` answers with a notification a matrix. Nothing heavy is imported before the protocol has left file
descriptor 1.
"""

from __future__ import annotations

from typing import BinaryIO

from agent.errors import ModelQueryError, ModelUnavailable
from agent.ipc.messages import to_base64
from agent.model.worker import Worker
from agent.model.worker import main as serve
from agent.types import JsonObject

COMMAND = "from quant.calibrate_worker import main; main()"


def main() -> None:
    """Serve until stdin ends."""
    serve(CalibrateWorker)


class CalibrateWorker(Worker):
    """Reads once."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        super().__init__(requests, answers)
        self._methods["calibrate"] = self._calibrate

    def _calibrate(self, params: JsonObject) -> JsonObject:
        try:
            from agent.model.engine_context import DecodeAbortedError, LoadedModel
        except (ImportError, OSError) as error:
            raise ModelUnavailable(
                f"llama-cpp-python is not there or does not load: {error}",
                "Install it; it is compiled once, which takes some minutes. The README says how.",
            ) from error
        from agent.model.gguf_header import read_header
        from agent.model.model_facts import read_facts
        from quant.calibrate_library import Observer, observe
        from quant.calibrate_text import cut_evenly, render_all

        header = read_header(params["model"])
        model = LoadedModel(params["model"], n_gpu_layers=None, repack=False, on_progress=self._on_load)
        try:
            texts = render_all(params["sources"], read_facts(header), model.vocab)
            cuts = cut_evenly([min(len(text), params["n_ctx"]) for text in texts], params["most_tokens"])
            texts = [text[:n] for text, n in zip(texts, cuts, strict=True) if n]
            observer = Observer(params["matrices"])
            total = sum(map(len, texts))
            self._notify("tokens", done=0, total=total)
            observe(
                model,
                texts,
                observer,
                n_ctx=params["n_ctx"],
                n_threads=params["n_threads"],
                abort=self._abort,
                on_tokens=lambda n: self._notify("tokens", done=n, total=total),
            )
        except DecodeAbortedError:
            raise ModelQueryError("the calibration was stopped") from None
        finally:
            model.close()
        for name, sums in observer.sums.items():
            self._notify("matrix", name=name, sums=to_base64(sums.tobytes()), count=observer.counts[name])
        return {"n_texts": len(texts), "n_tokens": total, "n_batches": observer.n_batches}

    def _on_load(self, share: float) -> bool:
        self._notify("loading", share=share)
        return not self._abort.is_set()
