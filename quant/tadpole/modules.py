"""Projects made of templates: a module, its tests, and one bug that was really run."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from quant.tadpole import code, scatter, templates, wordings
from quant.tadpole.mutate import Mutation, guesses, imported, mutations
from quant.tadpole.project import TEST_COMMAND, THINK, Attempt, Project, think_line, think_lines
from quant.tadpole.words import Names, Split

Template = tuple[str, tuple[str, ...]]
Wording = Callable[[Random, wordings.Fault], tuple[str, bool]]
TRAINING = templates.blocks(templates.TRAINING)
KINDS = ("name", "attr", "stale", "import", "self", "ret", "op", "off")
_PLACE = re.compile(r"\$([A-Za-z]\d?)|@(\d)")
_LINES = (6, 44)
_MOST_ATTEMPTS = 3


@dataclass(frozen=True)
class Source:
    """A module that is right, and the expressions of its tests by the function that they are about."""

    text: str
    tests: dict[str, list[str]]


def _fill(random: Random, names: Names, template: Template) -> tuple[list[str], str, str, list[str]]:
    """Imports, code, the name of what is tested, test expressions."""
    code_text, tests = template
    made: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        key = match[1] or match[2]
        if key not in made:
            if match[2]:
                made[key] = str(random.randint(4, 11))
            elif key[0] == "C":
                made[key] = "".join(part.capitalize() for part in names.new(0.2).split("_"))
            elif key[0] in "FG":
                noun = names.new(0.2)
                made[key] = f"{random.choice(code.VERBS)}_{noun}" if random.random() < 0.6 else noun
            else:
                made[key] = names.new(0.25)
        return made[key]

    text = _PLACE.sub(value, code_text)
    filled = [_PLACE.sub(value, test) for test in tests]
    lines = text.split("\n")
    head = [line for line in lines if line.startswith(("import ", "from "))]
    body = [line for line in lines if line not in head]
    if random.random() < 0.2:
        body = [line for line in body if not line.strip().startswith('"""')]
    tested = next((made[k] for k in ("C", "F") if k in made), "")
    return head, "\n".join(body).strip("\n"), tested, filled


def assemble(random: Random, names: Names, pool: Sequence[Template], wanted: str) -> Source:
    """A module of some templates."""
    head, bodies, tests = [], [], {}
    if (wanted == "import" and random.random() < 0.75) or random.random() < 0.15:
        head.append(f"import {random.choice(code.MODULES)}")
    for template in random.sample(pool, random.choice((1, 2, 2, 3, 3, 4))):
        imports, body, tested, expressions = _fill(random, names, template)
        head += imports
        bodies.append(body)
        tests[tested] = expressions
    topic = names.word().capitalize()
    doc = [f'"""{topic} {random.choice(("functions", "code", "and more", "in a few lines"))}."""', ""]
    parts = ["\n".join([*(doc if random.random() < 0.6 else []), *sorted(set(head))]).strip("\n"), *bodies]
    gap = random.choice(("\n\n", "\n\n\n", "\n\n\n"))
    return Source(gap.join(part for part in parts if part) + "\n", tests)


def outcome(text: str, expression: str) -> str:
    """What an expression gives in a module: its repr, or `Type: message` after an exclamation mark."""
    space: dict[str, object] = {"__name__": "module"}
    try:
        exec(compile(text, "module", "exec"), space)  # noqa: S102 - our own templates
        return repr(eval(expression, space))  # noqa: S307
    except Exception as error:
        return f"!{type(error).__name__}: {error}"


_RIGHT_ERROR = {"name": "!NameError", "stale": "!NameError", "self": "!NameError", "import": "!NameError",
                "attr": "!AttributeError"}  # fmt: skip


def _equal(got: str, expected: str) -> bool:
    """Whether two literals are equal, as 50 and 50.0 are."""
    try:
        return bool(ast.literal_eval(got) == ast.literal_eval(expected))
    except (ValueError, SyntaxError):
        return False


def _failing(good: Source, bad: str, family: str) -> tuple[str, str, str, str] | None:
    """The first test that fails as the family should: what is tested, expression, expected, got."""
    for tested, expressions in good.tests.items():
        for expression in expressions:
            expected = outcome(good.text, expression)
            if expected.startswith("!"):
                continue
            got = outcome(bad, expression)
            if got != expected and not _equal(got, expected):
                right = _RIGHT_ERROR.get(family)
                if (right and not got.startswith(right)) or (not right and got.startswith("!NameError")):
                    return None
                return tested, expression, expected, got
    return None


def _without_import(good: str, random: Random) -> tuple[str, Mutation, str, str] | None:
    """Take out an import that is used: the text, the bug, the anchor of the edit and what replaces it."""
    lines = good.split("\n")
    used = [(n, at) for n, at in imported(good).items() if len(re.findall(rf"\b{n}\b", good)) > 1]
    if not used:
        return None
    name, at = random.choice(used)
    gone = lines[at]
    if gone.startswith("from") and "," in gone:
        return None
    rest = lines[:at] + lines[at + 1 :]
    text = re.sub(r"\n{4,}", "\n\n\n", "\n".join(rest)).lstrip("\n")
    tree = ast.parse(text)
    heads = [n.lineno for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    if heads:
        anchor = text.split("\n")[heads[0] - 1]
        new = f"{anchor}\n{gone}"
    else:
        first = next(n for n in tree.body if not isinstance(n, ast.Expr))
        decorated = getattr(first, "decorator_list", None)
        anchor = text.split("\n")[(decorated[0].lineno if decorated else first.lineno) - 1]
        new = f"{gone}\n\n\n{anchor}"
    use = next((i for i, line in enumerate(text.split("\n")) if re.search(rf"\b{name}\b", line)), None)
    if use is None or text.count(anchor) != 1:
        return None
    function = next((ln for ln in reversed(text.split("\n")[: use + 1]) if ln.strip().startswith("def ")), "def f(")
    mutation = Mutation("import", use, gone, name, name, function=function.split("def ")[1].split("(")[0])
    return text, mutation, anchor, new


def _unused(m: Mutation, bad: str) -> int:
    """The line that binds the right value where nothing uses it any more."""
    lines = bad.split("\n")
    start = next((i for i in range(m.line, -1, -1) if lines[i].strip().startswith("def ")), 0)
    inside = lines[start : m.line + 1]
    at = [i for i, line in enumerate(inside) if re.search(rf"\b{m.right}\b", line)]
    return start + at[0] + 1 if len(at) == 1 and re.match(rf"\s+{m.right} = ", inside[at[0]]) else 0


def make(
    seed: int,
    split: Split = "train",
    wanted: str | None = None,
    pool: Sequence[Template] = TRAINING,
    wording: Wording = scatter.word,
) -> Project:
    """The project of a seed."""  # fmt: skip
    random = Random(f"tadpole-modules-{split}-{seed}")
    kind = wanted or random.choice(KINDS)
    while True:
        names = Names(random, split)
        source = assemble(random, names, pool, kind)
        if not _LINES[0] <= source.text.count("\n") <= _LINES[1]:
            continue
        made = build(random, names, source, kind, wording)
        if made is not None:
            return made


def build(random: Random, names: Names, good: Source, kind: str, wording: Wording) -> Project | None:
    """Put one bug of a kind into a module; None where none fits."""
    if kind == "import":
        gone = _without_import(good.text, random)
        if gone is None:
            return None
        bad, m, old, new = gone
    else:
        kinds = ("attr", "attr_stale") if kind == "attr" else (kind,)
        found = [m for m in mutations(good.text, random, [names.new() for _ in range(3)]) if m.family in kinds]
        if not found:
            return None
        m = random.choice(found)
        lines = good.text.split("\n")
        right = lines[m.line]
        bad = "\n".join([*lines[: m.line], m.text, *lines[m.line + 1 :]])
        old, new = m.text.strip(), right.strip()
    failing = _failing(good, bad, kind)
    if failing is None or bad.count(old) != 1:
        return None
    return _project(random, names, good, (bad, m, kind), (old, new), failing, wording)


def _error(got: str, expected: str) -> str:
    """What a test says of an outcome that is not the expected one."""
    return got[1:] if got.startswith("!") else f"AssertionError: {got} != {expected}"


def _attempts(
    random: Random, bad: str, m: Mutation, edit: tuple[str, str], failing: tuple[str, str, str, str]
) -> tuple[Attempt, ...]:
    """Edits of the same function that do not help, each of a line that occurs once, as does what replaces it."""
    _, expression, expected, _ = failing
    lines = bad.split("\n")
    out: list[Attempt] = []
    found = guesses(bad, random, m)
    random.shuffle(found)
    for guess in found:
        old, new = lines[guess.line].strip(), guess.text.strip()
        text = "\n".join([*lines[: guess.line], guess.text, *lines[guess.line + 1 :]])
        if (old, new) == edit or old == new or bad.count(old) != 1 or text.count(new) != 1:
            continue
        if new in (attempt.new for attempt in out):
            continue
        got = outcome(text, expression)
        if got == expected or _equal(got, expected) or len(got) > 120:
            continue
        out.append(Attempt(think_lines(lines, guess.line), old, new, _error(got, expected)))
        if len(out) == _MOST_ATTEMPTS:
            break
    return tuple(out)


def _project(
    random: Random, names: Names, good: Source, bug: tuple[str, Mutation, str], edit: tuple[str, str],
    failing: tuple[str, str, str, str], wording: Wording,
) -> Project:  # fmt: skip
    bad, m, kind = bug
    tested, expression, expected, got = failing
    module, folder = names.new(0.3), names.new(0)
    path = random.choice((f"{module}.py", f"{folder}/{module}.py", f"{folder}/{module}.py", f"src/{module}.py"))
    case = "".join(part.capitalize() for part in module.split("_")) + "Test"
    wrong_line = bad.split("\n")[m.line]
    error = _error(got, expected)
    fault = wordings.Fault(
        m.family, path, m.line + 1, max(wrong_line.find(m.wrong), 0) + 1, wrong_line.strip(), m.function,
        f"test_{tested.lower()}", f"test_{module}.{case}", expression, error, expected, got, m.wrong, m.right, m.owner,
        m.text, _unused(m, bad) if kind == "ret" else 0,
    )  # fmt: skip
    issue, told = wording(random, fault)
    crowded = 1
    old, new = edit
    if kind in ("name", "attr", "stale"):
        crowded = bad.count(m.wrong)
        old, new = m.wrong, m.right
    if kind in ("op", "off") or (kind == "ret" and not told):
        think = think_lines(bad.split("\n"), m.line)
    else:
        think = THINK.get(kind) or think_line(bad.split("\n"), m.line)
    attempts = () if told or kind not in ("op", "off", "ret") else _attempts(random, bad, m, (old, new), failing)
    test_path = f"tests/test_{module}.py"
    files = {path: bad, test_path: _tests(path, case, good)}
    fixed = bad.replace(*edit)
    return Project(
        files,
        issue,
        TEST_COMMAND,
        kind,
        files | {path: fixed},
        path,
        old,
        new,
        think,
        len(good.tests),
        edit,
        crowded,
        told,
        attempts,
    )


def _tests(path: str, case: str, good: Source) -> str:
    dotted = path.removesuffix(".py").replace("/", ".")
    lines = ["import unittest", "", f"from {dotted} import *", "", "", f"class {case}(unittest.TestCase):"]
    for tested, expressions in good.tests.items():
        lines.append(f"    def test_{tested.lower()}(self):")
        values = [(e, outcome(good.text, e)) for e in expressions]
        lines += [f"        self.assertEqual({e}, {v})" for e, v in values if not v.startswith("!")] or ["        pass"]
        lines.append("")
    return "\n".join([*lines, "", 'if __name__ == "__main__":', "    unittest.main()"]) + "\n"
