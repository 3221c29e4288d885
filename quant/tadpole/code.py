"""Small functions and classes, with tests that hold for them and places where one bug each can be put."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from quant.tadpole.words import Names, misspell

TAB = "    "
ARITHMETIC = {"plus": "+", "minus": "-", "times": "*"}
COMPARISONS = {"more than": ">", "less than": "<", "at least": ">=", "at most": "<="}
_APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}


VERBS = ("get", "find", "count", "total", "compute", "check", "make", "apply", "add", "update", "show", "is", "to")


@dataclass(frozen=True)
class Bug:
    """One line made wrong, and the shortest edit that makes it right again."""

    family: str
    line: int  # index into the lines of the piece
    text: str  # the wrong line
    old: str
    new: str
    wrong: str
    right: str
    owner: str = ""  # the type that an AttributeError names
    expected: str = ""  # what the failing assertion shows
    got: str = ""


@dataclass
class Piece:
    """A function or a class of a generated module."""

    name: str  # the function that the issue may name
    exported: str  # what the tests import
    lines: list[str]
    tests: list[tuple[str, str]]  # (expression, the literal it equals)
    bugs: list[Bug] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)


def replace_name(line: str, name: str, other: str) -> str:
    """Replace the first whole occurrence of a name in a line."""
    return re.sub(rf"\b{re.escape(name)}\b", other, line, count=1)


class Maker:
    """Makes pieces out of one stream of random numbers and one set of names."""

    def __init__(self, random: Random, names: Names) -> None:
        """Keep the sources of chance."""
        self.random = random
        self.names = names
        self.hints = random.random() < 0.25  # whether this module has type hints

    def function_name(self) -> str:
        """A verb and a noun, or a noun alone."""
        noun = self.names.new(0.15)
        return f"{self.random.choice(VERBS)}_{noun}" if self.random.random() < 0.7 else noun

    def header(self, name: str, parameters: list[tuple[str, str]], result: str) -> str:
        """The `def` line, with hints where the module has them."""
        if not self.hints:
            return f"def {name}({', '.join(p for p, _ in parameters)}):"
        shown = ", ".join(p if not hint else f"{p}: {hint}" for p, hint in parameters)
        return f"def {name}({shown}) -> {result}:"

    def slips(self, piece: Piece, line: int, *names: str) -> None:
        """Add a misspelling and a stale name for each of the names in a line."""
        for name in names:
            text = piece.lines[line]
            wrong = misspell(self.random, name)
            piece.bugs.append(Bug("name", line, replace_name(text, name, wrong), wrong, name, wrong, name))
            stale = self.names.new()
            piece.bugs.append(Bug("stale", line, replace_name(text, name, stale), stale, name, stale, name))

    def method_slip(self, piece: Piece, line: int, method: str, owner: str) -> None:
        """Add a misspelt method of a built-in type."""
        wrong = misspell(self.random, method)
        text = piece.lines[line].replace(f".{method}(", f".{wrong}(")
        piece.bugs.append(Bug("attr", line, text, wrong, method, wrong, method, owner))

    def operator(
        self, piece: Piece, line: int, left: str, op: str, right: str, pool: dict[str, str], a: int, b: int
    ) -> None:
        """Add a wrong operator between two operands; `a` and `b` are the operands of the first test."""
        text = piece.lines[line]
        for wrong in pool.values():
            got = _APPLY[wrong](a, b)
            if wrong == op or got == _APPLY[op](a, b):
                continue
            old, new = f"{left} {wrong} {right}", f"{left} {op} {right}"
            piece.bugs.append(
                Bug("op", line, text.replace(new, old), old, new, wrong, op, "", repr(_APPLY[op](a, b)), repr(got))
            )


def combine(m: Maker) -> Piece:
    """Two values and one operator."""
    r, a, b, name = m.random, m.names.new(), m.names.new(), m.function_name()
    word = r.choice(list(ARITHMETIC))
    op = ARITHMETIC[word]
    x, y = r.randint(9, 60), r.randint(3, 8)
    lines = [m.header(name, [(a, "int"), (b, "int")], "int"), f'{TAB}"""Return {a} {word} {b}."""']
    if r.random() < 0.5:
        lines.append(f"{TAB}return {a} {op} {b}")
        total = ""
    else:
        total = m.names.new()
        lines += [f"{TAB}{total} = {a} {op} {b}", f"{TAB}return {total}"]
    piece = Piece(name, name, lines, [(f"{name}({x}, {y})", repr(_APPLY[op](x, y)))])
    m.slips(piece, 2, a, b)
    m.operator(piece, 2, a, op, b, ARITHMETIC, x, y)
    if total:
        m.slips(piece, 3, total)
        for wrong in (a, b):
            piece.bugs.append(Bug("ret", 3, f"{TAB}return {wrong}", f"return {wrong}", f"return {total}", wrong, total))
    return piece


def compare(m: Maker) -> Piece:
    """A value and a limit."""
    r, a, name, k = m.random, m.names.new(), m.function_name(), m.random.randint(2, 40)
    word = r.choice(list(COMPARISONS))
    op = COMPARISONS[word]
    tests = [(f"{name}({v})", repr(_APPLY[op](v, k))) for v in (k, k + 1, k - 1)]
    lines = [
        m.header(name, [(a, "int")], "bool"),
        f'{TAB}"""Tell whether {a} is {word} {k}."""',
        f"{TAB}return {a} {op} {k}",
    ]
    piece = Piece(name, name, lines, tests)
    m.slips(piece, 2, a)
    m.operator(piece, 2, a, op, str(k), COMPARISONS, k, k)
    return piece


def accumulate(m: Maker) -> Piece:
    """A loop that adds up a list."""
    r, name = m.random, m.function_name()
    many, one, total = m.names.new(0), m.names.new(0), m.names.new()
    if r.random() < 0.5:
        many = f"{one}s"
    values = [r.randint(3, 30) for _ in range(3)]
    doc = r.choice((f"Add up all {many}.", f"Return the sum of {many}.", f"Sum the {many} one by one."))
    lines = [
        m.header(name, [(many, "list[int]")], "int"),
        f'{TAB}"""{doc}"""',
        f"{TAB}{total} = 0",
        f"{TAB}for {one} in {many}:",
        f"{TAB}{TAB}{total} += {one}",
        f"{TAB}return {total}",
    ]
    piece = Piece(name, name, lines, [(f"{name}({values})", repr(sum(values)))])
    m.slips(piece, 3, many)
    m.slips(piece, 4, one)
    m.slips(piece, 5, total)
    piece.bugs.append(Bug("ret", 5, f"{TAB}return {one}", f"return {one}", f"return {total}", one, total))
    return piece


def keep(m: Maker) -> Piece:
    """A loop that keeps what passes a limit."""
    r, name, k = m.random, m.function_name(), m.random.randint(3, 20)
    one, kept = m.names.new(0), m.names.new()
    many = f"{one}s" if r.random() < 0.5 else m.names.new(0)
    word = r.choice(list(COMPARISONS))
    op = COMPARISONS[word]
    values = [k, k + 2, k - 1, k + 5]
    lines = [
        m.header(name, [(many, "list[int]")], "list[int]"),
        f'{TAB}"""Keep the {many} that are {word} {k}."""',
        f"{TAB}{kept} = []",
        f"{TAB}for {one} in {many}:",
        f"{TAB}{TAB}if {one} {op} {k}:",
        f"{TAB}{TAB}{TAB}{kept}.append({one})",
        f"{TAB}return {kept}",
    ]
    piece = Piece(name, name, lines, [(f"{name}({values})", repr([v for v in values if _APPLY[op](v, k)]))])
    m.slips(piece, 3, many)
    m.slips(piece, 4, one)
    m.slips(piece, 5, one)
    m.slips(piece, 6, kept)
    m.method_slip(piece, 5, "append", "list")
    piece.bugs.append(Bug("ret", 6, f"{TAB}return {many}", f"return {many}", f"return {kept}", many, kept))
    return piece


def extremes(m: Maker) -> Piece:
    """Two values of a list, one of them returned."""
    r, name = m.random, m.function_name()
    many, x, y = m.names.new(), m.names.new(), m.names.new()
    functions: dict[str, Callable[[list[int]], int]] = {"min": min, "max": max, "sum": sum, "len": len}
    fx, fy = r.sample(sorted(functions), 2)
    values = r.sample(range(5, 40), 4)
    want, other, f = (x, y, fx) if r.random() < 0.5 else (y, x, fy)
    lines = [
        m.header(name, [(many, "list[int]")], "int"),
        f'{TAB}"""Work out {x} and {y}, and return {want}."""',
        f"{TAB}{x} = {fx}({many})",
        f"{TAB}{y} = {fy}({many})",
        f"{TAB}return {want}",
    ]
    piece = Piece(name, name, lines, [(f"{name}({values})", repr(functions[f](values)))])
    m.slips(piece, 2, many)
    m.slips(piece, 3, many)
    m.slips(piece, 4, want)
    piece.bugs.append(Bug("ret", 4, f"{TAB}return {other}", f"return {other}", f"return {want}", other, want))
    return piece


def text(m: Maker) -> Piece:
    """A chain of two string methods."""
    r, name = m.random, m.function_name()
    a, clean = m.names.new(), m.names.new()
    first = r.choice(("strip", "lower", "title"))
    second = r.choice(("upper", "swapcase", "capitalize"))
    sample = f" {m.names.word()} {m.names.word()} "
    lines = [
        m.header(name, [(a, "str")], "str"),
        f'{TAB}"""{r.choice(("Tidy", "Show", "Print", "Format"))} {a} for people."""',
        f"{TAB}{clean} = {a}.{first}()",
        f"{TAB}return {clean}.{second}()",
    ]
    result: str = getattr(getattr(sample, first)(), second)()
    piece = Piece(name, name, lines, [(f"{name}({sample!r})", repr(result))])
    m.slips(piece, 2, a)
    m.slips(piece, 3, clean)
    m.method_slip(piece, 2, first, "str")
    m.method_slip(piece, 3, second, "str")
    return piece


def lookup(m: Maker) -> Piece:
    """A dictionary and a key."""
    r, name, k = m.random, m.function_name(), m.random.randint(0, 9)
    table, key, found = m.names.new(), m.names.new(), m.names.new()
    word = m.names.word()
    value = r.randint(10, 60)
    lines = [
        m.header(name, [(table, "dict"), (key, "str")], "int"),
        f'{TAB}"""Look up {key} in {table}; {k} when it is missing."""',
        f"{TAB}{found} = {table}.get({key}, {k})",
        f"{TAB}return {found}",
    ]
    piece = Piece(name, name, lines, [(f"{name}({{{word!r}: {value}}}, {word!r})", repr(value))])
    m.slips(piece, 2, table, key)
    m.slips(piece, 3, found)
    piece.bugs.append(Bug("ret", 3, f"{TAB}return {key}", f"return {key}", f"return {found}", key, found))
    piece.bugs.append(Bug("ret", 3, f"{TAB}return {table}", f"return {table}", f"return {found}", table, found))
    return piece


def record(m: Maker) -> Piece:
    """A class with two attributes and one or two methods."""
    r, cls = m.random, m.names.new(0).capitalize()
    a, b, method = m.names.new(), m.names.new(), m.function_name()
    word = r.choice(list(ARITHMETIC))
    op = ARITHMETIC[word]
    x, y, z = r.randint(9, 60), r.randint(3, 8), r.randint(2, 9)
    init = m.header("__init__", [("self", ""), (a, "int"), (b, "int")], "None")
    lines = (
        [f"class {cls}:", f'{TAB}"""{r.choice(("A", "One"))} {cls.lower()} with {a} and {b}."""', ""]
        if r.random() < 0.7
        else [f"class {cls}:"]
    )
    lines += [f"{TAB}{init}", f"{TAB}{TAB}self.{a} = {a}", f"{TAB}{TAB}self.{b} = {b}", ""]
    lines.append(f"{TAB}{m.header(method, [('self', '')], 'int')}")
    lines.append(f'{TAB}{TAB}"""Return {a} {word} {b}."""')
    at = len(lines)
    lines.append(f"{TAB}{TAB}return self.{a} {op} self.{b}")
    made = f"{cls}({x}, {y})"
    piece = Piece(method, cls, lines, [(f"{made}.{method}()", repr(_APPLY[op](x, y)))])
    m.operator(piece, at, f"self.{a}", op, f"self.{b}", ARITHMETIC, x, y)
    for name in (a, b):
        for family, wrong in (("attr", misspell(r, name)), ("attr_stale", m.names.new())):
            wrong_line = replace_name(lines[at], name, wrong)
            piece.bugs.append(Bug(family, at, wrong_line, wrong, name, wrong, name, cls))
    bare = lines[at].replace(f"self.{a}", a)
    piece.bugs.append(Bug("self", at, bare, f"return {a}", f"return self.{a}", a, f"self.{a}"))
    if r.random() < 0.5:
        other, c = m.function_name(), m.names.new()
        lines += ["", f"{TAB}{m.header(other, [('self', ''), (c, 'int')], 'int')}", f'{TAB}{TAB}"""Add {c} to {b}."""']
        at = len(lines)
        lines += [f"{TAB}{TAB}self.{b} += {c}", f"{TAB}{TAB}return self.{b}"]
        piece.tests.append((f"{made}.{other}({z})", repr(y + z)))
        m.slips(piece, at, c)
        piece.bugs.append(
            Bug("self", at + 1, f"{TAB}{TAB}return {b}", f"return {b}", f"return self.{b}", b, f"self.{b}")
        )
        for family, wrong in (("attr", misspell(r, b)), ("attr_stale", m.names.new())):
            piece.bugs.append(Bug(family, at + 1, f"{TAB}{TAB}return self.{wrong}", wrong, b, wrong, b, cls))
    return piece


_CALLS: tuple[tuple[str, str, str, Callable[[int, int], object]], ...] = (
    ("math", "math.floor({a} / {k})", "Round {a} down to steps of {k}.", lambda a, k: a // k),
    ("math", "math.ceil({a} / {k})", "Round {a} up to steps of {k}.", lambda a, k: -(-a // k)),
    ("json", "json.dumps([{a}, {k}])", "Write {a} and {k} as JSON.", lambda a, k: f"[{a}, {k}]"),
    ("os", 'os.path.join("{w}", str({a}))', "The place where {a} is kept.", lambda a, _k: f"w/{a}"),
    (
        "re",
        're.sub("[0-4]", "{k}", str({a}))',
        "Hide the small digits of {a}.",
        lambda a, k: re.sub("[0-4]", str(k), str(a)),
    ),
    ("string", "string.ascii_lowercase[{a} % 26]", "A letter for {a}.", lambda a, _k: chr(97 + a % 26)),
    ("statistics", "statistics.median([{a}, {k}, {k}])", "The median of {a} and {k}.", lambda _a, k: k),
    ("operator", "operator.add({a}, {k})", "Add {k} to {a}.", lambda a, k: a + k),
    ("textwrap", "textwrap.shorten(str({a}), {k} + 20)", "A short form of {a}.", lambda a, _k: str(a)),
    ("datetime", "datetime.timedelta(days={a}).days + {k}", "The days in {a}, and {k} more.", lambda a, k: a + k),
    ("calendar", "calendar.isleap({a} * {k} * 0 + 2024)", "A leap year for {a}.", lambda _a, _k: True),
    ("itertools", "list(itertools.repeat({a}, 2))", "Repeat {a} twice.", lambda a, _k: [a, a]),
    ("functools", "functools.reduce(max, [{a}, {k}])", "The larger of {a} and {k}.", lambda a, k: max(a, k)),
    ("collections", "len(collections.Counter(str({a})))", "Count the digits of {a}.", lambda a, _k: len(set(str(a)))),
    ("copy", "copy.copy([{a}, {k}])", "A copy of {a} and {k}.", lambda a, k: [a, k]),
    ("decimal", "int(decimal.Decimal({a}) + {k})", "Add {k} to {a} exactly.", lambda a, k: a + k),
    ("fractions", "fractions.Fraction({a}, 1) + {k}", "Add {k} to {a} as a fraction.", lambda a, k: a + k),
    ("heapq", "heapq.nsmallest(1, [{a}, {k}])", "The smaller of {a} and {k}.", lambda a, k: [min(a, k)]),
    ("random", "len(random.sample(range({a} + {k}), 2))", "Draw two numbers below {a}.", lambda _a, _k: 2),
    ("time", "time.gmtime({a} * {k}).tm_year", "The year of {a}.", lambda _a, _k: 1970),
)
MODULES = tuple(sorted({module for module, *_ in _CALLS}))


def library(m: Maker, avoid: frozenset[str] = frozenset()) -> Piece:
    """A call of a module of the standard library."""
    r, name, a = m.random, m.function_name(), m.names.new()
    module, call, doc, apply = r.choice([c for c in _CALLS if c[0] not in avoid])
    k, x = r.randint(2, 9), r.randint(10, 90)
    expression = call.format(a=a, k=k, w="w")
    lines = [m.header(name, [(a, "int")], "object"), f'{TAB}"""{doc.format(a=a, k=k)}"""']
    if r.random() < 0.6:
        lines.append(f"{TAB}return {expression}")
    else:
        made = m.names.new()
        lines += [f"{TAB}{made} = {expression}", f"{TAB}return {made}"]
    piece = Piece(name, name, lines, [(f"{name}({x})", repr(apply(x, k)))], imports=[f"import {module}"])
    m.slips(piece, 2, a)
    if len(lines) == 4:
        m.slips(piece, 3, made)
        piece.bugs.append(Bug("ret", 3, f"{TAB}return {a}", f"return {a}", f"return {made}", a, made))
    piece.bugs.append(Bug("import", 2, lines[2], "", "", module, module))
    return piece


MAKERS: tuple[Callable[[Maker], Piece], ...] = (
    combine,
    combine,
    compare,
    accumulate,
    keep,
    extremes,
    text,
    lookup,
    record,
    record,
    record,
    library,
    library,
)
