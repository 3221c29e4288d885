"""Text to tokens and back, with the vocabulary of a loaded model."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from agent.model.chat_format import Part, find_breaks, tag_pattern
from agent.model.engine_library import lib

_CONTROL, _USER_DEFINED = 1 << 3, 1 << 4  # llama_token_attr


class Vocab:
    """The vocabulary of one model. `raw` is the library's pointer; the model must outlive it."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.n_tokens = int(lib.llama_vocab_n_tokens(raw))
        self._pieces: dict[int, bytes] = {}
        self._buffer = ctypes.create_string_buffer(256)
        self._tags = tag_pattern(self._tag_texts())

    def _tag_texts(self) -> Iterable[str]:
        """Control tokens, and other whole tokens that are tags: text that is not ours must not become one."""
        for token in range(self.n_tokens):
            attributes = int(lib.llama_vocab_get_attr(self._raw, token))
            if attributes & (_CONTROL | _USER_DEFINED):
                text = self.piece(token).decode("utf-8", "replace")
                if attributes & _CONTROL or text.lstrip().startswith("<"):
                    yield text

    def is_end(self, token: int) -> bool:
        """Whether the token ends a turn. There may be several such tokens."""
        return bool(lib.llama_vocab_is_eog(self._raw, token))

    @property
    def ends(self) -> list[str]:
        """The texts of the tokens that end a turn, the model's own end of text first."""
        eos = int(lib.llama_vocab_eos(self._raw))
        others = [token for token in range(self.n_tokens) if token != eos and self.is_end(token)]
        return [self.piece(token).decode("utf-8", "replace") for token in (eos, *others) if token >= 0]

    @property
    def bos(self) -> str:
        """The text of the token that begins a document; "" where the vocabulary has none of its own."""
        token = int(lib.llama_vocab_bos(self._raw))
        is_control = token >= 0 and int(lib.llama_vocab_get_attr(self._raw, token)) & _CONTROL
        return self.piece(token).decode("utf-8", "replace") if is_control else ""

    def tokenize(self, text: str) -> list[int]:
        """Tokens of text in which control tokens count as such."""
        data = text.encode("utf-8", "replace")
        n_most = len(data) + 16
        while True:
            tokens = (lib.llama_token * n_most)()
            n = int(lib.llama_tokenize(self._raw, data, len(data), tokens, n_most, False, True))
            if n >= 0:
                return list(tokens[:n])
            n_most = -n

    def tokenize_parts(self, parts: Iterable[Part]) -> list[int]:
        """Tokens of a prompt; in text that is not trusted no control token comes about."""
        tokens: list[int] = []
        for piece in find_breaks(parts, self._tags):
            tokens += self.tokenize(piece)
        return tokens

    def piece(self, token: int) -> bytes:
        """The bytes of one token; they may end in the middle of a character."""
        known = self._pieces.get(token)
        if known is not None:
            return known
        n = int(lib.llama_token_to_piece(self._raw, token, self._buffer, len(self._buffer), 0, True))
        if n < 0:
            self._buffer = ctypes.create_string_buffer(-n)
            n = int(lib.llama_token_to_piece(self._raw, token, self._buffer, len(self._buffer), 0, True))
        data = self._buffer.raw[:n]
        self._pieces[token] = data
        return data
