"""How linters, type checkers, test runners and people word a bug: the wordings of training.

Nothing here may occur among the wordings of the test set (`heldout_wordings.py`); a test compares them.
"""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Fault:
    """What there is to tell about a bug."""

    family: str
    path: str
    line: int  # counted from 1
    column: int
    source: str  # the faulty line without its indentation
    function: str
    test: str
    case: str
    call: str  # the expression of the failing test
    error: str  # what Python says: "IndexError: list index out of range", "AssertionError: 3 != 4"
    expected: str
    got: str
    wrong: str = ""
    right: str = ""
    owner: str = ""
    statement: str = ""  # the import that is missing
    unused: int = 0  # the line where the right value is bound, where nothing else uses it


def message(r: Random, f: Fault, *, hint: bool) -> str:
    """One line of a tool about a name that is wrong; with `hint` it says what is right."""
    w, x, owner = f.wrong, f.right, f.owner
    if f.family == "import":
        forgot = f" Did you forget to import '{w}'?" if f.statement == f"import {w}" else ""
        return r.choice((
            f"NameError: name '{w}' is not defined.{forgot}" if forgot else f"NameError: name '{w}' is not defined",
            f"NameError: name '{w}' is not defined",
            f"F821 Undefined name `{w}`",
            f"undefined name '{w}'",
            f'Name "{w}" is not defined  [name-defined]',
            f"{w} is used but never imported",
            f"`{f.statement}` is missing",
        ))  # fmt: skip
    if f.family == "stale":
        return r.choice((
            f"NameError: name '{w}' is not defined. It is called '{x}' now.",
            f"F821 Undefined name `{w}` ({x} was meant)",
            f"{w} was renamed to {x}, this place was forgotten",
            f"undefined name '{w}': use '{x}'",
        ))  # fmt: skip
    if f.family == "attr_stale":
        return r.choice((
            f"AttributeError: '{owner}' object has no attribute '{w}', use '{x}'",
            f'"{owner}" has no attribute "{w}"  [attr-defined] (now "{x}")',
            f"{owner}.{w} was renamed to {owner}.{x}",
        ))  # fmt: skip
    if f.family == "attr":
        if not hint:
            return r.choice((
                f"AttributeError: '{owner}' object has no attribute '{w}'",
                f'"{owner}" has no attribute "{w}"  [attr-defined]',
            ))  # fmt: skip
        return r.choice((
            f"AttributeError: '{owner}' object has no attribute '{w}'. Did you mean: '{x}'?",
            f'"{owner}" has no attribute "{w}"; maybe "{x}"?  [attr-defined]',
            f"E1101: Instance of '{owner}' has no '{w}' member; maybe '{x}'? (no-member)",
        ))  # fmt: skip
    if not hint:
        return r.choice((
            f"NameError: name '{w}' is not defined",
            f"F821 Undefined name `{w}`",
            f"undefined name '{w}'",
            f'Name "{w}" is not defined  [name-defined]',
            f"E0602: Undefined variable '{w}' (undefined-variable)",
        ))  # fmt: skip
    return r.choice((
        f"NameError: name '{w}' is not defined. Did you mean: '{x}'?",
        f"NameError: name '{w}' is not defined. Did you mean: '{x}'?",
        f"F821 Undefined name `{w}`, probably `{x}`",
        f'Name "{w}" is not defined; did you mean "{x}"?',
        f"{w} should be {x}",
    ))  # fmt: skip


def _at(r: Random, f: Fault, text: str) -> str:
    p, n, c = f.path, f.line, f.column
    return r.choice((
        f"{p}:{n}:{c}: {text}",
        f"{p}:{n}: {text}",
        f"{p}:{n}: error: {text}",
        f"{p}:{n}:{c} - {text}",
        f"{p}:{n}:{c}: {text}\nFound 1 error.",
        f"{p}:{n}: error: {text}\nFound 1 error in 1 file (checked 2 source files)",
        f"{text}\n  at {p}:{n}",
        f"{p} ({n}): {text}",
    ))  # fmt: skip


def _trace(r: Random, f: Fault, error: str) -> str:
    kind = r.randrange(4)
    at = f.source.find(f.wrong)
    mark = f"\n    {' ' * at}{'^' * len(f.wrong)}" if f.wrong and at >= 0 and r.random() < 0.5 else ""
    frame = f'  File "{f.path}", line {f.line}, in {f.function}\n    {f.source}{mark}'
    if kind == 0:
        return f"Traceback (most recent call last):\n{frame}\n{error}"
    if kind == 1:
        return f"ERROR: {f.test} ({f.case}.{f.test})\n{'-' * 70}\nTraceback (most recent call last):\n{frame}\n{error}"
    if kind == 2:
        return f">   {f.source}\nE   {error}\n\n{f.path}:{f.line}: {error.split(':')[0]}"
    return f"{error}\n{f.path}:{f.line}: in {f.function}\n    {f.source}"


def _failure(r: Random, f: Fault) -> str:
    """A test that fails: the function and its file, and what came out."""
    e, g = f.expected, f.got
    if not f.error.startswith("AssertionError") and r.random() < 0.7:
        return _trace(r, f, f.error)
    said = r.choice((
        f"{f.call} is {g}, but it should be {e}.",
        f"{f.call} gives {g} instead of {e}.",
        f"FAIL: {f.test} ({f.case}.{f.test})\n{f.error}",
        f"E   {f.error}\nFAILED tests/{f.case.split('.')[0]}.py::{f.test}",
        f"    self.assertEqual({f.call}, {e})\n{f.error}",
        f"Expected {e}, got {g}.",
        f.error,
    ))  # fmt: skip
    where = r.choice((
        f"{f.function} in {f.path} is wrong:",
        f"{f.path}: {f.function} is wrong.",
        f"Wrong result of {f.function} in {f.path}.",
        f"{f.function} ({f.path}) does not do what it says.",
        f"The test of {f.function} in {f.path} fails.",
        f"{f.path}, {f.function}:",
        f"See {f.function} in {f.path}.",
    ))  # fmt: skip
    return f"{where}\n{said}" if r.random() < 0.75 or said.startswith(" ") else f"{said}\n{where}"


def _returned(r: Random, f: Fault) -> tuple[str, bool]:
    w, x = f.wrong, f.right
    if f.unused and r.random() < 0.45:
        text = r.choice((
            f"F841 Local variable `{x}` is assigned to but never used",
            f"local variable '{x}' is assigned to but never used",
            f"W0612: Unused variable '{x}' (unused-variable)",
        ))  # fmt: skip
        text = f"{f.path}:{f.unused}:{r.choice((5, 9))}: {text}"
        return (f"{text}\n{f.error}" if r.random() < 0.4 else text), False
    if r.random() < 0.35:
        return _failure(r, f), False
    text = r.choice((
        f"{f.function} returns {w}, it should return {x}",
        f"wrong return value: {w}, not {x}",
        f"returns `{w}` where `{x}` is meant",
        f"should return '{x}' and not '{w}'",
    ))  # fmt: skip
    return _at(r, f, text), True


LEADS = (
    *("",) * 6,
    "Tests are failing:\n",
    "I get:\n",
    "Could you look at this?\n",
    "This came up in the build:\n\n",
    "Output of the linter:\n",
    "From the type checker:\n",
    "$ python -m unittest\n",
    "$ pytest -q\n",
    "Broken since yesterday.\n",
    "Help, this fails.\n\n",
)
TAILS = (
    *("",) * 6,
    "\n\nFAILED (failures=1)",
    "\n1 failed in 0.02s",
    "\nPlease repair it.",
    "\n\nIt worked last week.",
    "\nFound 1 error.",
)


def word(r: Random, f: Fault) -> tuple[str, bool]:
    """The text of an issue, and whether it names what is wrong and what is right."""
    told = True
    if f.family in ("op", "off"):
        text, told = _failure(r, f), False
    elif f.family == "ret":
        text, told = _returned(r, f)
    else:
        told = r.random() < {"name": 0.6, "attr": 0.85, "self": 0.65}.get(f.family, 1.0)
        line = message(r, f, hint=told)
        text = _trace(r, f, line) if "Error: " in line and r.random() < 0.8 else _at(r, f, line)
    lead, tail = r.choice(LEADS), r.choice(TAILS)
    if text.startswith(" ") and not lead:
        lead = "A test fails:\n"  # the first line of an issue loses its indentation
    return f"{lead}{text}{tail}".rstrip(), told
