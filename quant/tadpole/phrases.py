"""How people and tools word the trouble: many ways to say the same thing."""

from dataclasses import dataclass
from random import Random

from quant.tadpole.code import Bug


@dataclass(frozen=True)
class Place:
    """Where a fault shows itself."""

    path: str
    line: int
    function: str
    source: str  # the faulty line without its indentation
    test: str  # the name of the test method
    case: str  # the dotted test class


def _own_message(bug: Bug) -> str | None:
    """What Python itself says (3.12 and later, with its suggestion); None where it cannot know."""
    w, x = bug.wrong, bug.right
    if bug.family == "import":
        return f"NameError: name '{w}' is not defined. Did you forget to import '{w}'?"
    if bug.family == "attr":
        return f"AttributeError: '{bug.owner}' object has no attribute '{w}'. Did you mean: '{x}'?"
    if bug.family in ("name", "self"):
        return f"NameError: name '{w}' is not defined. Did you mean: '{x}'?"
    return None


def _message(r: Random, bug: Bug) -> str:
    w, x, owner = bug.wrong, bug.right, bug.owner
    if bug.family == "import":
        return r.choice(
            (
                f"NameError: name '{w}' is not defined. Did you forget to import '{w}'?",
                f"NameError: name '{w}' is not defined. Did you forget to import '{w}'?",
                f"name '{w}' is not defined. Did you forget to import '{w}'?",
                f"name '{w}' is not defined, the import is missing",
                f"undefined name '{w}', import it",
                f"F821 Undefined name `{w}`: import {w} is missing",
                f'"{w}" is not defined; add the import',
            )
        )
    if bug.family in ("attr", "attr_stale"):
        base = f"'{owner}' object has no attribute '{w}'"
        if bug.family == "attr_stale":
            return r.choice(
                (
                    f"AttributeError: {base}. It was renamed to '{x}'.",
                    f"AttributeError: {base}, it is called '{x}' now",
                    f"{base}; use '{x}'",
                    f'Cannot access attribute "{w}" for class "{owner}", renamed to "{x}"',
                    f"`{w}` was renamed to `{x}` in `{owner}`",
                )
            )
        return r.choice(
            (
                f"AttributeError: {base}. Did you mean: '{x}'?",
                f"AttributeError: {base}. Did you mean: '{x}'?",
                f"{base}. Did you mean: '{x}'?",
                f'"{owner}" has no attribute "{w}"; maybe "{x}"?  [attr-defined]',
                f'Cannot access attribute "{w}" for class "{owner}", did you mean "{x}"?',
                f"Instance of '{owner}' has no '{w}' member; maybe '{x}'? (no-member)",
            )
        )
    if bug.family == "stale":
        return r.choice(
            (
                f"NameError: name '{w}' is not defined. It was renamed to '{x}'.",
                f"name '{w}' is not defined, it is called '{x}' now",
                f"undefined name '{w}', renamed to '{x}'",
                f"`{w}` was renamed to `{x}`, but one place was forgotten",
                f"F821 Undefined name `{w}` (renamed to `{x}`)",
                f"NameError: name '{w}' is not defined. Use '{x}'.",
                f"the old name {w} is still used, it should be {x}",
            )
        )
    if bug.family == "ret":
        return r.choice(
            (
                f"it returns {w} instead of {x}",
                f"it returns '{w}' instead of '{x}'",
                f"returns `{w}`, should return `{x}`",
                f"wrong value returned: {w} instead of {x}",
                f"it gives back {w}, not {x}",
                f"'{w}' is returned, but it should be '{x}'",
            )
        )
    if bug.family == "self":
        return r.choice(
            (
                f"NameError: name '{w}' is not defined. Did you mean: '{x}'?",
                f"NameError: name '{w}' is not defined. Did you mean: '{x}'?",
                f"name '{w}' is not defined. Did you mean: '{x}'?",
                f"F821 Undefined name `{w}`, should be `{x}`",
                f"undefined name '{w}', use '{x}'",
            )
        )
    return r.choice(
        (
            f"NameError: name '{w}' is not defined. Did you mean: '{x}'?",
            f"NameError: name '{w}' is not defined. Did you mean: '{x}'?",
            f"NameError: name '{w}' is not defined. Did you mean: '{x}'?",
            f"name '{w}' is not defined. Did you mean: '{x}'?",
            f"undefined name '{w}', did you mean '{x}'?",
            f"F821 Undefined name `{w}`. Did you mean `{x}`?",
            f'"{w}" is not defined, should be "{x}"',
            f'Name "{w}" is not defined; maybe "{x}"?  [name-defined]',
            f"Undefined variable '{w}', it should be '{x}' (undefined-variable)",
            f"`{w}` is misspelt, it should be `{x}`",
            f"typo: {w} should be {x}",
        )
    )


_LEADS = (
    "",
    "",
    "",
    "",
    "The tests fail.\n",
    "The tests fail:\n",
    "A test fails.\n",
    "One test is red:\n",
    "Please fix this:\n",
    "Fix this error:\n",
    "I get this error:\n",
    "Something is broken.\n",
    "This does not work any more:\n",
    "Bug report:\n",
    "Since the last change the tests fail:\n",
    "Running the tests gives an error.\n",
    "Can you fix this?\n\n",
    "Fix the bug.\n\n",
)
_TAILS = (
    "",
    "",
    "",
    "",
    "\nPlease fix it.",
    "\nFAILED (errors=1)",
    "\n\nThanks!",
    "\n\nRan 3 tests in 0.002s\n\nFAILED (errors=1)",
    "\n",
)


def _located(r: Random, place: Place, bug: Bug, message: str) -> str:
    p, n = place.path, place.line
    kind = r.randrange(12)
    if kind < 4:
        return r.choice((f"{p}:{n}: {message}", f"{p}:{n}:{r.randint(5, 30)}: {message}", f"{p}:{n} {message}"))
    if kind < 6:
        return r.choice(
            (
                f"{p}, line {n}: {message}",
                f"{p} line {n}: {message}",
                f"In {p}, line {n}: {message}",
                f"In {p}: {message}",
                f"{p}: {message}",
            )
        )
    if kind < 9:
        at = place.source.find(bug.wrong)
        mark = f"\n    {' ' * at}{'^' * len(bug.wrong)}" if at >= 0 and r.random() < 0.5 else ""
        return f'  File "{p}", line {n}, in {place.function}\n    {place.source}{mark}\n{message}'
    if kind == 9:
        return f"ERROR: {place.test} ({place.case}.{place.test})\n{message}\n({p}, line {n})"
    if kind == 10:
        return f"{message} ({p}:{n})"
    return r.choice(
        (f"{message}\nThe file is {p}.", f"{message}\nin {p}, line {n}", f"{place.test} in {p} line {n}: {message}")
    )


def _assertion(r: Random, place: Place, bug: Bug) -> str:
    f, p = place.function, place.path
    error = f"AssertionError: {bug.got} != {bug.expected}"
    where = r.choice(
        (
            f"{f} in {p} returns the wrong value.",
            f"{p}: {f} is wrong.",
            f"{p}: {f} gives a wrong result.",
            f"Fix {f} in {p}.",
            f"The result of {f} ({p}) is wrong.",
            f"{p}: {f} does not do what its docstring says.",
        )
    )
    body = r.choice((f"\n{error}", f"\nFAIL: {place.test} ({place.case}.{place.test})\n{error}", f" {error}", ""))
    return where + body


def word_issue(r: Random, place: Place, bug: Bug, *, own: bool) -> str:
    """The text of an issue about one bug; `own` keeps to Python's own messages where there are any."""
    own_message = _own_message(bug) if own else None
    if own_message is not None:
        text = _located(r, place, bug, own_message)
    elif bug.family == "op":
        text = _assertion(r, place, bug)
    elif bug.family == "ret":
        text = _located(r, place, bug, _message(r, bug))
        if r.random() < 0.4:
            text = r.choice((f"{place.function} fails. ", f"{place.test} fails: ")) + text
    else:
        text = _located(r, place, bug, _message(r, bug))
    lead, tail = r.choice(_LEADS), r.choice(_TAILS)
    if text.startswith(" ") and not lead:
        lead = "The tests fail:\n"  # the first line of an issue loses its indentation
    return f"{lead}{text}{tail}".rstrip()
