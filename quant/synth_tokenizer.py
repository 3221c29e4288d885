"""The tokenizer files of a made checkpoint, in the form of Hugging Face's `tokenizers`; pure."""

from __future__ import annotations

from typing import Any

from quant.synth_vocabulary import CONTROL_TYPE, NORMAL_TYPE, USER_DEFINED_TYPE, Vocabulary

SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen3.5 splits a text before byte-pair encoding: what llama.cpp calls the pre-tokenizer `qwen35`."""

_NOT_SPECIAL = ("<|fim_", "<|repo_", "<|file_")  # look like control tokens and are not marked as such


def tokenizer_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """`tokenizer.json`: the ranks, the merges and the added tokens. Fillers are left to `vocab_size` of the config."""
    pairs = list(enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": text, **_flags(text, kind)}
            for i, (text, kind) in pairs
            if kind in (CONTROL_TYPE, USER_DEFINED_TYPE)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT_PATTERN}, "behavior": "Isolated", "invert": False},
                _byte_level(),
            ],
        },
        "post_processor": _byte_level(),
        "decoder": _byte_level(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, (text, kind) in pairs if kind == NORMAL_TYPE},
            "merges": [merge.split(" ") for merge in vocabulary.merges],
        },
    }


def tokenizer_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """`tokenizer_config.json`; the chat template lies in a file of its own."""
    pairs = zip(vocabulary.tokens, vocabulary.types, strict=True)
    added = [(i, text, kind) for i, (text, kind) in enumerate(pairs) if kind in (CONTROL_TYPE, USER_DEFINED_TYPE)]
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): {"content": text, **_flags(text, kind)} for i, text, kind in added},
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 262_144,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def _flags(text: str, kind: int) -> dict[str, bool]:
    special = kind == CONTROL_TYPE and not text.startswith(_NOT_SPECIAL)
    return {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special}


def _byte_level() -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
