"""Wordings of the test set, none of which training has: linters, checkers, runners and people in words of their own."""

from random import Random

from quant.tadpole.wordings import Fault

_LINE = "-" * 66


def _told(f: Fault) -> str:
    """What the newest Python says."""
    if f.family == "import" and f.statement.startswith("import "):
        return f"NameError: name '{f.wrong}' is not defined. Did you forget to import '{f.wrong}'?"
    if f.family in ("attr", "attr_stale"):
        hint = f". Did you mean: '{f.right}'?" if f.family == "attr" else ""
        return f"AttributeError: '{f.owner}' object has no attribute '{f.wrong}'{hint}"
    hint = f". Did you mean: '{f.right}'?" if f.family in ("name", "self") else ""
    return f"NameError: name '{f.wrong}' is not defined{hint}"


def _renamed(r: Random, f: Fault) -> str:
    return r.choice((
        f"In the last commit {f.wrong} became {f.right}, except in {f.path} at line {f.line}.",
        f"{f.path} line {f.line} still says `{f.wrong}`, which is `{f.right}` since the renaming.",
        f"[undefined] {f.wrong} at {f.path}:{f.line} -- new name: {f.right}",
    ))  # fmt: skip


def _checked(r: Random, f: Fault) -> str:
    p, n, c, w = f.path, f.line, f.column, f.wrong
    if f.family in ("attr", "attr_stale"):
        return r.choice((
            f'{p}:{n}:{c} - error: Cannot access attribute "{w}" for class "{f.owner}"; perhaps "{f.right}"',
            f"************* Module {p.removesuffix('.py').replace('/', '.')}\n{p}:{n}:{c - 1}: E1101: Instance of "
            f"'{f.owner}' has no '{w}' member; maybe '{f.right}'? (no-member)\n\n{_LINE}\n"
            "Your code has been rated at 6.67/10",
        ))  # fmt: skip
    return r.choice((
        f"F821 Undefined name `{w}`\n --> {p}:{n}:{c}\n  |\n{n} | {f.source}\n  |\n",
        f'{p}:{n}:{c} - error: "{w}" is not defined (reportUndefinedVariable)\n1 error, 0 warnings',
        f"************* Module {p.removesuffix('.py').replace('/', '.')}\n{p}:{n}:{c - 1}: E0602: Undefined variable "
        f"'{w}' (undefined-variable)\n\n{_LINE}\nYour code has been rated at 5.83/10",
        f"::error file={p},line={n},col={c}::undefined name '{w}'",
    ))  # fmt: skip


def _run(r: Random, f: Fault, error: str) -> str:
    return r.choice((
        f"======================================================================\nERROR: {f.test} ({f.case}.{f.test})\n"
        f"{'-' * 70}\nTraceback (most recent call last):\n  File \"/ci/work/tests/{f.case.split('.')[0]}.py\", line 8, "
        f"in {f.test}\n    self.assertEqual({f.call}, {f.expected})\n"
        f"  File \"{f.path}\", line {f.line}, in {f.function}\n"
        f"    {f.source}\n{error}\n\n{'-' * 70}\nRan 3 tests in 0.004s\n\nFAILED (errors=1)",
        f"    def {f.function}(...):\n>       {f.source}\nE       {error}\n\n{f.path}:{f.line}: {error.split(':')[0]}\n"
        f"=========================== short test summary info ============================\n"
        f"FAILED tests/{f.case.split('.')[0]}.py::{f.test} - {error}",
        f"The nightly job stopped with\n\n    {error}\n\nin {f.path}, line {f.line}.",
    ))  # fmt: skip


def _asserted(r: Random, f: Fault) -> str:
    e, g, fn, p = f.expected, f.got, f.function, f.path
    return r.choice((
        f"We expect {e} of {f.call}, and {fn} ({p}) answers {g}.",
        f"{p}: the docstring of {fn} promises something else.\n\n{f.test} ({f.case}.{f.test}) ... FAIL\n\n{f.error}",
        f">       self.assertEqual({f.call}, {e})\nE       {f.error}\n\n"
        f"tests/{f.case.split('.')[0]}.py:9: AssertionError\n"
        f"The culprit is {fn} from {p}.",
        f"A customer says that {fn} is off.\nModule: {p}\n{f.error}",
        f"======================================================================\nFAIL: {f.test} ({f.case}.{f.test})\n"
        f"{'-' * 70}\n{f.error}\n\n{'-' * 70}\nRan 3 tests in 0.002s\n\nFAILED (failures=1)\n\n(code: {p}, {fn})",
    ))  # fmt: skip


def _returned(r: Random, f: Fault) -> str:
    if f.unused and r.random() < 0.5:
        return (
            f"F841 Local variable `{f.right}` is assigned to but never used\n --> {f.path}:{f.unused}:5\n\n"
            f"and {f.function} answers {f.got} where {f.expected} is right"
        )
    return r.choice((
        f"{f.path}, line {f.line}: the caller gets {f.wrong}, what it needs is {f.right}",
        f"Review of {f.path}: in {f.function} (line {f.line}) the result is {f.right}, yet {f.wrong} is returned.",
        f"{f.path}:{f.line}: note: `return {f.wrong}` looks wrong, `{f.right}` is computed for it",
    ))  # fmt: skip


_FRAMES = (
    "{}", "{}", "{}",
    "Red since this morning.\n\n{}",
    "Log of job 4711:\n{}",
    "{}\n\nCan be seen on every machine.",
    "Version 2.3, Debian 12\n\n{}",
    "hey, this one is for you:\n\n{}",
)  # fmt: skip


def word(r: Random, f: Fault) -> tuple[str, bool]:
    """The text of an issue; whether it says what is right does not matter here."""
    if f.family in ("op", "off"):
        plain = f.error.startswith("AssertionError") or r.random() < 0.3
        text = _asserted(r, f) if plain else _run(r, f, f.error)
    elif f.family == "ret":
        text = _returned(r, f)
    elif f.family in ("stale", "attr_stale"):
        text = _renamed(r, f)
    else:
        text = _checked(r, f) if r.random() < 0.4 else _run(r, f, _told(f))
    return r.choice(_FRAMES).format(text).strip(), True
