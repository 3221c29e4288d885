"""The process that quantizes: the model worker with three more methods. llama.cpp may end it; then the parent says so.

`look` lets llama.cpp plan without writing and gives the type of each tensor; `sample` measures what types cost some
rows of each matrix; `quantize` writes. Nothing heavy is imported before the protocol has left file descriptor 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from agent.errors import ModelFileError, ModelUnavailable
from agent.model.worker import Worker
from agent.model.worker import main as serve
from agent.types import JsonObject

if TYPE_CHECKING:
    from quant.quantize_library import Quantizer

COMMAND = "from quant.quantize_worker import main; main()"


def main() -> None:
    """Serve until stdin ends."""
    serve(QuantizeWorker)


class QuantizeWorker(Worker):
    """Holds the importance matrix that was asked for last."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        super().__init__(requests, answers)
        self._methods |= {"look": self._look, "sample": self._sample, "quantize": self._quantize}
        self._quantizer: Quantizer | None = None

    def _library(self, params: JsonObject) -> Quantizer:
        try:
            from quant.quantize_library import Quantizer
        except (ImportError, OSError) as error:
            raise ModelUnavailable(
                f"llama-cpp-python is not there or does not load: {error}",
                "Install it; it is compiled once, which takes some minutes. The README says how.",
            ) from error
        if self._quantizer is None or self._quantizer.imatrix != params["imatrix"]:
            self._quantizer = Quantizer(params["imatrix"])
        return self._quantizer

    def _look(self, params: JsonObject) -> JsonObject:
        quantizer = self._library(params)
        return {"kinds": quantizer.look(_request(params)), "build": quantizer.build}

    def _sample(self, params: JsonObject) -> JsonObject:
        from quant.quantize_sample import sample

        means = self._library(params).means
        errors = {}
        for name, found in sample(params["source"], params["kinds"], means):
            errors[name] = found
            self._notify("tensor", name=name)
        return {"errors": errors}

    def _quantize(self, params: JsonObject) -> JsonObject:
        quantizer = self._library(params)
        quantizer.quantize(_request(params), params["target"], on_tensor=lambda name: self._notify("tensor", name=name))
        return {}


def _request(params: JsonObject) -> Any:
    from quant.quantize_library import Request

    if not isinstance(params.get("source"), str):
        raise ModelFileError("no file is named")
    return Request(
        source=params["source"],
        file_type=params["file_type"],
        overrides=tuple((name, kind) for name, kind in params["overrides"]),
        requantize=params["requantize"],
        n_threads=params["n_threads"],
        metadata=params["metadata"],
    )
