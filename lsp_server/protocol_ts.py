"""The parameters and results of our commands as TypeScript, made from `messages.py`: `frog-lsp schema protocol`."""

from __future__ import annotations

import inspect
import types
import typing
from typing import Any, Literal, NotRequired

from lsp_server import messages

_WORDS = {shape: name for name, shape in vars(messages).items() if typing.get_origin(shape) is Literal}
_PRIMITIVES: dict[Any, str] = {str: "string", int: "number", float: "number", bool: "boolean", Any: "unknown"}


def typescript() -> str:
    """The whole file."""
    shapes = [shape for shape in vars(messages).values() if typing.is_typeddict(shape)]
    parts = [
        "// Made by `frog-lsp schema protocol` from lsp_server/messages.py. Change it there.\n",
        *(f"export type {name} = {_literal(shape)};\n" for shape, name in _WORDS.items()),
        *(_interface(shape) for shape in shapes),
        _commands(),
    ]
    return "\n".join(parts)


def _literal(shape: Any) -> str:
    return " | ".join(f'"{value}"' for value in typing.get_args(shape))


def _interface(shape: Any) -> str:
    if not typing.get_type_hints(shape):
        return "\n".join([*_comment(shape), f"export type {shape.__name__} = Record<string, never>;\n"])
    lines = [*_comment(shape), f"export interface {shape.__name__} {{"]
    for name, annotation in typing.get_type_hints(shape, include_extras=True).items():
        is_optional = typing.get_origin(annotation) is NotRequired
        inner = typing.get_args(annotation)[0] if is_optional else annotation
        lines.append(f"  {name}{'?' if is_optional else ''}: {_type(inner)};")
    return "\n".join([*lines, "}\n"])


def _comment(shape: Any) -> list[str]:
    said = inspect.getdoc(shape) or ""
    lines = said.replace("*/", "* /").split("\n")
    if len(lines) == 1:
        return [f"/** {lines[0]} */"]
    return ["/**", *(f" * {line}".rstrip() for line in lines), " */"]


def _type(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is types.NoneType:
        return "null"
    if typing.is_typeddict(annotation):
        return str(annotation.__name__)
    if origin is Literal:
        return _WORDS.get(annotation) or _literal(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type(part) for part in inner)
    if origin is list:
        item = _type(inner[0])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if origin is dict:
        return f"Record<{_type(inner[0])}, {_type(inner[1])}>"
    return _PRIMITIVES[annotation]


def _commands() -> str:
    """Each command with what it takes and gives; the second follows the name of the command."""
    rows = [f'  "{name}": [{shape.__name__}, {_result(name)}];' for name, shape in messages.COMMANDS.items()]
    head = "/** What each command of the server takes and what it answers. */"
    return "\n".join([head, "export interface Commands {", *rows, "}\n"])


def _result(name: str) -> str:
    if name == "frog.runs":
        return f"{messages.RunRow.__name__}[]"
    return str(getattr(messages, name.removeprefix("frog.").capitalize() + "Result").__name__)
