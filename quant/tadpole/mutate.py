"""One-line bugs in a piece of Python, found by its syntax tree: what could be wrong, and the line that would say so."""

import ast
import builtins
import keyword
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from quant.tadpole.words import misspell

_OWNERS = {
    **dict.fromkeys(("append", "pop", "sort", "extend", "insert", "reverse"), "list"),
    **dict.fromkeys(("get", "items", "keys", "values", "setdefault", "update"), "dict"),
    **dict.fromkeys(("strip", "split", "lower", "upper", "join", "startswith", "endswith", "replace"), "str"),
    **dict.fromkeys(("title", "splitlines", "isdigit", "rstrip", "lstrip", "capitalize", "zfill"), "str"),
    **dict.fromkeys(("add", "discard"), "set"),
}
_SWAPS = {
    "+": ("-",), "-": ("+",), "*": ("+", "/"), "/": ("*",), "//": ("%", "/"), "%": ("//",),
    "+=": ("-=",), "-=": ("+=",), "==": ("!=",), "!=": ("==",), "<": (">",), ">": ("<",), "<=": (">=",), ">=": ("<=",),
    "and": ("or",), "or": ("and",),    "in": ("not in",), "not in": ("in",), "**": ("*",),
}  # fmt: skip
# What a wrong sign may have been: the same table backwards.
_REPAIRS = {sign: tuple(right for right, wrong in _SWAPS.items() if sign in wrong) for sign in [*_SWAPS, "/"]}
_STRICT = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


@dataclass(frozen=True)
class Mutation:
    """A line of a text made wrong."""

    family: str
    line: int  # index of the line
    text: str  # the wrong line
    wrong: str = ""
    right: str = ""
    owner: str = ""  # the type that an AttributeError names
    function: str = ""  # the function it stands in


class _Finder:
    def __init__(
        self, text: str, random: Random, fresh: list[str], swaps: Mapping[str, tuple[str, ...]] = _SWAPS
    ) -> None:
        self.swaps = swaps
        self.lines = text.split("\n")
        self.random = random
        self.fresh = fresh
        self.tree = ast.parse(text)
        self.modules = {
            a.asname or a.name: n.lineno - 1
            for n in self.tree.body
            if isinstance(n, (ast.Import, ast.ImportFrom))
            for a in n.names
        }

    def change(self, line: int, begin: int, end: int, new: str) -> str:
        text = self.lines[line]
        return text[:begin] + new + text[end:]

    def functions(self) -> Iterator[tuple[ast.FunctionDef, str]]:
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                yield node, ""
            elif isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef):
                        yield inner, node.name

    def find(self) -> Iterator[Mutation]:
        for function, owner in self.functions():
            local = [a.arg for a in function.args.args if a.arg != "self"]
            local += [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            has_while = any(isinstance(n, ast.While) for n in ast.walk(function))
            for node in ast.walk(function):
                if not isinstance(node, (ast.expr, ast.stmt)) or node.lineno != node.end_lineno:
                    continue
                line = node.lineno - 1
                if isinstance(node, ast.Name):
                    yield from self._names(node, line, function.name, local)
                elif isinstance(node, ast.Attribute):
                    yield from self._attributes(node, line, function.name, owner, local)
                elif isinstance(node, ast.Return):
                    yield from self._returns(node, line, function.name, local)
                if not has_while:
                    yield from self._operators(node, line, function.name)
                    yield from self._steps(node, line, function.name)

    def _names(self, node: ast.Name, line: int, function: str, local: list[str]) -> Iterator[Mutation]:
        if not isinstance(node.ctx, ast.Load) or node.id not in local or len(node.id) < 4:
            return
        for family, wrong in (("name", misspell(self.random, node.id)), ("stale", self.random.choice(self.fresh))):
            if wrong not in local:
                text = self.change(line, node.col_offset, node.col_offset + len(node.id), wrong)
                yield Mutation(family, line, text, wrong, node.id, function=function)

    def _attributes(
        self, node: ast.Attribute, line: int, function: str, owner: str, local: list[str]
    ) -> Iterator[Mutation]:
        if not isinstance(node.ctx, ast.Load) or node.end_col_offset is None or len(node.attr) < 3:
            return
        end, begin = node.end_col_offset, node.end_col_offset - len(node.attr)
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        kind = owner if own else _OWNERS.get(node.attr, "")
        if kind and not (isinstance(node.value, ast.Name) and node.value.id in self.modules):
            wrong = misspell(self.random, node.attr)
            yield Mutation("attr", line, self.change(line, begin, end, wrong), wrong, node.attr, kind, function)
        if own and node.attr not in local:
            wrong = self.random.choice(self.fresh)
            yield Mutation("attr_stale", line, self.change(line, begin, end, wrong), wrong, node.attr, kind, function)
            text = self.change(line, begin - 5, end, node.attr)
            yield Mutation("self", line, text, node.attr, f"self.{node.attr}", function=function)

    def _returns(self, node: ast.Return, line: int, function: str, local: list[str]) -> Iterator[Mutation]:
        if isinstance(node.value, ast.Name):
            for wrong in dict.fromkeys(local):
                if wrong != node.value.id:
                    text = self.change(line, node.value.col_offset, node.value.col_offset + len(node.value.id), wrong)
                    yield Mutation("ret", line, text, wrong, node.value.id, function=function)

    def _operators(self, node: ast.AST, line: int, function: str) -> Iterator[Mutation]:
        for begin, end, sign in self._signs(node, line):
            for wrong in self.swaps.get(sign, ()):
                yield Mutation("op", line, self.change(line, begin, end, wrong), wrong, sign, function=function)
            if sign in _STRICT:
                wrong = _STRICT[sign]
                yield Mutation("off", line, self.change(line, begin, end, wrong), wrong, sign, function=function)

    def _signs(self, node: ast.AST, line: int) -> Iterator[tuple[int, int, str]]:
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.BinOp):
            pairs = [(node.left, node.right)]
        elif isinstance(node, ast.Compare):
            pairs = list(zip([node.left, *node.comparators], node.comparators, strict=False))
        elif isinstance(node, ast.BoolOp):
            pairs = list(zip(node.values, node.values[1:], strict=False))
        elif isinstance(node, ast.AugAssign):
            pairs = [(node.target, node.value)]
        for left, right in pairs:
            if left.end_col_offset is None:
                continue
            gap = self.lines[line][left.end_col_offset : right.col_offset]
            sign = gap.strip("() ")
            begin = left.end_col_offset + gap.find(sign)
            if sign:
                yield begin, begin + len(sign), sign

    def _steps(self, node: ast.AST, line: int, function: str) -> Iterator[Mutation]:
        def made(begin: int, end: int | None, new: str) -> Mutation:
            return Mutation("off", line, self.change(line, begin, end or begin, new), function=function)

        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            if isinstance(node.right, ast.Constant) and node.right.value == 1 and node.left.end_col_offset is not None:
                yield made(node.left.end_col_offset, node.end_col_offset, "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            last = node.args[min(1, len(node.args) - 1)]
            if isinstance(last, (ast.Name, ast.Call)) and last.end_col_offset is not None:
                yield made(last.end_col_offset, None, " - 1")
                yield made(last.end_col_offset, None, " + 1")
            if len(node.args) > 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value in (0, 1):
                yield made(node.args[0].col_offset, node.args[0].end_col_offset, str(1 - node.args[0].value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "enumerate":
            if len(node.args) == 2 and node.args[0].end_col_offset is not None:
                yield made(node.args[0].end_col_offset, node.args[1].end_col_offset, "")
        elif isinstance(node, ast.Subscript):
            yield from self._subscripts(node.slice, made)

    def _subscripts(self, index: ast.expr, made: Callable[[int, int | None, str], Mutation]) -> Iterator[Mutation]:
        if isinstance(index, ast.Constant) and index.value == 0:
            yield made(index.col_offset, index.end_col_offset, "1")
        elif isinstance(index, ast.UnaryOp) and ast.unparse(index) == "-1":
            yield made(index.col_offset, index.end_col_offset, "-2")
        elif isinstance(index, ast.Slice):
            for bound in (index.lower, index.upper):
                if isinstance(bound, ast.Name):
                    yield made(bound.end_col_offset or 0, None, " - 1")
                    yield made(bound.end_col_offset or 0, None, " + 1")
                elif isinstance(bound, ast.Constant) and bound.value == 1:
                    yield made(bound.col_offset, bound.end_col_offset, "2")


def mutations(text: str, random: Random, fresh: list[str]) -> list[Mutation]:
    """All bugs that a text could have, but missing imports; `fresh` are names that it does not use."""
    known = {*keyword.kwlist, *dir(builtins)}
    return [m for m in _Finder(text, random, fresh).find() if m.wrong not in known or m.family in ("op", "off")]


def guesses(text: str, random: Random, wrong: Mutation) -> list[Mutation]:
    """What one may try who looks for a bug of this kind in its function: one line each, the right one among them."""
    kinds = ("ret",) if wrong.family == "ret" else ("op", "off")
    found = _Finder(text, random, [wrong.wrong], _REPAIRS).find()
    return [m for m in found if m.function == wrong.function and m.family in kinds]


def imported(text: str) -> dict[str, int]:
    """The names that a text imports, with the line of each."""
    return _Finder(text, Random(0), []).modules
