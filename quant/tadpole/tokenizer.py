"""The tokenizer: byte-level BPE learnt so that an identifier has the same tokens wherever it stands.

Merges are learnt on a finer split than the one used (letters apart from what precedes them), so that no merge joins a
space, bracket, dot, underscore or quote with a letter. Frequent words of prose get one late merge with their space.
Run as a module, it writes a `tokenizer.json`.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from quant.tadpole import code, prompt
from quant.tadpole.generator import sample
from quant.tadpole.model_file import Vocabulary
from quant.tadpole.trajectory import conversation
from quant.tadpole.words import NOUNS, PREFIXES

# How llama.cpp splits text for the pre-tokenizer "qwen35".
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FINE = r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|[\r\n]+|[ \t]+"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "\n</think>\n\n"]
MERGES = 240  # learnt from identifiers and punctuation
_FREQUENT = 0.012  # a word in this share of the conversations is prose or syntax, and becomes one token
_LETTERS = re.compile(r"[A-Za-z]+")


def _marks() -> list[str]:
    functions = [tool["function"] for tool in prompt.TOOLS]
    parameters = sorted({key for f in functions for key in f["parameters"]["properties"]})
    names = [f"<function={f['name']}>\n" for f in functions] + [f"<parameter={key}>\n" for key in parameters]
    return [*names, "\n</parameter>\n", "</function>\n"]


def _prefix_pieces() -> list[str]:
    """The constant system turn, cut into a few tokens: the heading, each tool, the text, the end of the tools.

    The text is a token apart from the tag before it: it reaches the template as a value, and no tag may reach into it.
    """
    inner = prompt.prefix().removeprefix("<|im_start|>").removesuffix("<|im_end|>\n")
    pieces = []
    for tool in prompt.TOOLS:
        line = json.dumps(tool, ensure_ascii=False) + "\n"
        before, inner = inner.split(line, 1)
        pieces += [before, line]
    closing = inner.removesuffix(prompt.SYSTEM_PROMPT)
    return [piece for piece in [*pieces, prompt.SYSTEM_PROMPT, closing] if piece]


def added_tokens() -> list[str]:
    """All tokens that are matched as a whole."""
    return [*CONTROL, *TAGS, *_marks(), *_prefix_pieces()]


def _corpus(n: int) -> Iterator[str]:
    for seed in range(n):
        made = sample(10_000_000 + seed)
        yield "".join(span.text for span in conversation(made, Random(seed)))


def train(n: int = 3000) -> Tokenizer:
    """Learn the merges from generated conversations."""
    added = added_tokens()
    tags = re.compile("|".join(map(re.escape, sorted(added, key=len, reverse=True))))
    texts = [tags.sub(" 0 ", text) for text in _corpus(n)]
    prose = _prose(texts)
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = _splits(SPLIT, FINE)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + MERGES, initial_alphabet=alphabet, max_token_length=72, show_progress=False
    )
    keep = set(prose)
    base.train_from_iterator((_LETTERS.sub(lambda m: "0" if m[0] in keep else m[0], text) for text in texts), trainer)
    state = json.loads(base.to_str())["model"]
    vocabulary: dict[str, int] = state["vocab"]
    merges = [(left, right) for left, right in state["merges"]]
    for word in prose:
        _make_whole(word, vocabulary, merges)
    names = {*PREFIXES, *code.VERBS, *code.MODULES}
    for word in prose:
        if (
            len(word) >= 4
            and word not in names
            and not any(noun.startswith(word) for noun in NOUNS)
            and f"Ġ{word}" not in vocabulary
        ):
            merges.append(("Ġ", word))
            vocabulary[f"Ġ{word}"] = len(vocabulary)
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.pre_tokenizer = _splits(SPLIT)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(text, special=text in CONTROL, normalized=False) for text in added])
    return made


def load(path: Path) -> Tokenizer:
    """Read a `tokenizer.json`."""
    return Tokenizer.from_file(str(path))


def vocabulary(made: Tokenizer, size: int) -> Vocabulary:
    """The tokens as a model file holds them, filled up to a size."""
    ids = {index: text for text, index in made.get_vocab().items()}
    added = set(added_tokens())
    texts, kinds = [], []
    for index in range(size):
        text = ids.get(index)
        kind = gguf.TokenType.NORMAL
        if text is None:
            kind = gguf.TokenType.UNUSED
        elif text in CONTROL:
            kind = gguf.TokenType.CONTROL
        elif text in added:
            kind = gguf.TokenType.USER_DEFINED
        texts.append(f"[unused{index}]" if text is None else text)
        kinds.append(int(kind))
    merges = json.loads(made.to_str())["model"]["merges"]
    return Vocabulary(texts, kinds, [merge if isinstance(merge, str) else " ".join(merge) for merge in merges])


def rebuild(made: Vocabulary) -> Tokenizer:
    """The tokenizer of a vocabulary: the same ids for every text."""
    by_kind: dict[int, list[int]] = {}
    for index, kind in enumerate(made.kinds):
        by_kind.setdefault(kind, []).append(index)
    base = {made.texts[i]: i for i in by_kind[gguf.TokenType.NORMAL]}
    merges = [(left, right) for left, right in (merge.split(" ") for merge in made.merges)]
    out = Tokenizer(models.BPE(vocab=base, merges=merges))
    out.pre_tokenizer = _splits(SPLIT)
    out.decoder = decoders.ByteLevel()
    for i in sorted(by_kind[gguf.TokenType.CONTROL] + by_kind[gguf.TokenType.USER_DEFINED]):
        text = made.texts[i]
        out.add_tokens([AddedToken(text, special=text in CONTROL, normalized=False)])
        if out.token_to_id(text) != i:
            raise ValueError(f"token {i} would become {out.token_to_id(text)}")
    return out


def _splits(*patterns: str) -> pre_tokenizers.PreTokenizer:
    parts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _prose(texts: list[str]) -> list[str]:
    """The words that belong to the language of issues, tools and Python, most frequent first."""
    seen: Counter[str] = Counter()
    for text in texts:
        seen.update(set(_LETTERS.findall(text)))
    nouns = set(NOUNS) | {f"{noun}s" for noun in NOUNS}
    return [
        word
        for word, count in seen.most_common()
        if count >= _FREQUENT * len(texts) and len(word) > 1 and word.lower() not in nouns
    ]


def _make_whole(word: str, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> None:
    """Add the merges that are missing for a word to be one token."""
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    parts = list(word)
    while len(parts) > 1:
        pairs = [(ranks.get((a, b), len(merges)), i) for i, (a, b) in enumerate(pairwise(parts))]
        rank, i = min(pairs)
        if rank == len(merges):
            i = 0
            merges.append((parts[0], parts[1]))
            vocabulary.setdefault(parts[0] + parts[1], len(vocabulary))
            ranks[merges[-1]] = rank
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def main() -> None:
    """Write the tokenizer."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    made = train()
    out: Path = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    made.save(str(out))
    print(made.get_vocab_size(), "tokens")


if __name__ == "__main__":
    main()
