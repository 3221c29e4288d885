"""Which tool a name that is none of them surely means; pure."""

from __future__ import annotations

from collections.abc import Iterable

_DROPPED = str.maketrans("", "", "-_ .\"'")
_SUFFIXES = ("file", "files", "tool", "command")
_FEWEST_LETTERS = 4  # of a tool's name, for a slip of one letter: shorter words are too near to one another


def nearest_name(name: str, tools: Iterable[str]) -> str | None:
    """The one tool that `name` means, None where it is one already or where that is not sure.

    Sure is: the same letters in another case or with `_`, `-`, `.`, blanks and quotes; the same with "file", "files",
    "tool" or "command" behind (`read_file`); one letter too many, one missing, or two exchanged. A letter that is
    another is not enough: `Head` is no `Read`.
    """
    names = list(tools)
    if name in names:
        return None
    plain = name.translate(_DROPPED).lower()
    forms = {plain, *(plain.removesuffix(suffix) for suffix in _SUFFIXES)}
    same = [tool for tool in names if tool.lower() in forms]
    near = same or [tool for tool in names if len(tool) >= _FEWEST_LETTERS and _is_slip(plain, tool.lower())]
    return near[0] if len(near) == 1 else None


def _is_slip(a: str, b: str) -> bool:
    """Whether one letter is too many or missing, or two neighbours are exchanged."""
    if len(a) == len(b):
        at = next((i for i in range(len(a)) if a[i] != b[i]), len(a))
        return a[at : at + 2] == b[at : at + 2][::-1] != "" and a[at + 2 :] == b[at + 2 :]
    short, long = sorted((a, b), key=len)
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))
