"""Notes that a person should know of a run: what the model was not trained for, and what was left unchecked."""

from __future__ import annotations

import re
from collections.abc import Iterable


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# The model was trained on Python and English (its card).
_OTHER_LANGUAGES = _set(
    ".c .cc .cpp .cs .dart .erl .ex .go .h .hpp .hs .java .jl .js .jsx .kt .lua .m .ml .mjs .php .pl .r .rb .rs .scala "
    ".sh .sql .swift .ts .tsx .vue .zig"
)
_ENGLISH = _set(
    "a an and are as at be but by can does for from has have if in instead is it no not of on or should than that the "
    "then there this to use was when where which will with"
)
# German, French, Spanish, Italian, Portuguese, Dutch: short words that English has not.
_FOREIGN = _set(
    "aber als auch auf das dass dem den der des die ein eine einer einen für ist im mit nicht oder sich sind soll und "
    "von wenn wird zu zum au aux avec ce cette dans de du elle est et il la le les lorsque ne pas pour que qui sur un "
    "une al cuando como con debe del el en es esta está las los para pero por se si una y che come da della di gli ma "
    "non nel per più quando sono ao com não em já mas o os ou são uma het een niet van wordt zijn"
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|^(?: {4}|\t|>>>|Traceback|  File )[^\n]*", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]+")
_FEWEST_WORDS = 6


def is_english(text: str) -> bool:
    """Whether the prose of an issue seems to be English; in doubt (few words) yes."""
    prose = _CODE.sub(" ", text)
    words = [word.lower() for word in _WORD.findall(prose)]
    letters = "".join(words)
    if letters and sum(not letter.isascii() for letter in letters) > 0.2 * len(letters):
        return False
    if len(words) < _FEWEST_WORDS:
        return True
    n_english, n_foreign = sum(word in _ENGLISH for word in words), sum(word in _FOREIGN for word in words)
    return n_foreign < 3 or n_english * 1.5 >= n_foreign


def other_sources(paths: Iterable[str]) -> list[str]:
    """The paths that are source files of another language than Python, sorted."""
    return sorted({path for path in paths if path[path.rfind(".") :].lower() in _OTHER_LANGUAGES and "." in path})


def issue_notes(text: str) -> list[str]:
    """What to say about an issue."""
    if is_english(text):
        return []
    return ["The issue does not seem to be English; the model was trained on English."]


def file_notes(paths: Iterable[str]) -> list[str]:
    """What to say about the files of a run."""
    others = other_sources(paths)
    if not others:
        return []
    named = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    return [f"Files that are not Python: {named}; the model was trained on Python."]


def demonstration_notes(*, changed: bool) -> list[str]:
    """What to say of a run of the bundled model: what it is for, where it changed nothing."""
    if changed:
        return []
    return [
        "The demonstration model only repairs one-line bugs in small Python files, from an issue with an error and its "
        "file and line, or with a failed test."
    ]
