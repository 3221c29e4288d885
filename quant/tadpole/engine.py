"""Greedy decoding with llama.cpp, for the checks of this folder only."""

from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np


class Engine:
    """One model file, one sequence."""

    def __init__(self, path: Path, n_context: int = 4096, n_threads: int = 1) -> None:
        """Load the file."""
        self._llama = llama_cpp.Llama(str(path), n_ctx=n_context, n_batch=512, n_threads=n_threads, verbose=False)
        self._raw: Any = self._llama.ctx
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._llama.model)
        self.n_vocabulary = llama_cpp.llama_vocab_n_tokens(self._vocabulary)
        self.metadata: dict[str, str] = self._llama.metadata

    def tokens(self, text: str) -> list[int]:
        """Tokenise, control tokens included."""
        return list(self._llama.tokenize(text.encode(), add_bos=False, special=True))

    def text(self, tokens: list[int]) -> str:
        """The text of tokens."""
        return b"".join(self._piece(token) for token in tokens).decode(errors="replace")

    def _piece(self, token: int) -> bytes:
        size = 4096
        buffer = (llama_cpp.llama_cpp.ctypes.c_char * size)()  # type: ignore[attr-defined]
        n = llama_cpp.llama_token_to_piece(self._vocabulary, token, buffer, size, 0, True)
        return bytes(buffer[:n])

    def clear(self) -> None:
        """Forget the sequence."""
        self._llama.reset()
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._raw), True)

    def feed(self, tokens: list[int]) -> None:
        """Decode tokens."""
        self._llama.eval(tokens)

    def logits(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """What may come next."""
        pointer = llama_cpp.llama_get_logits_ith(self._raw, -1)
        return np.ctypeslib.as_array(pointer, shape=(self.n_vocabulary,)).copy()

    def is_end(self, token: int) -> bool:
        """Whether a token ends the turn."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocabulary, token))

    def say(self, limit: int = 400) -> tuple[str, bool]:
        """Generate a turn; the end token is sampled but not decoded. The flag says whether it came."""
        said: list[int] = []
        while len(said) < limit:
            token = int(self.logits().argmax())
            if self.is_end(token):
                return self.text(said), True
            said.append(token)
            self.feed([token])
        return self.text(said), False
