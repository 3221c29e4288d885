"""The chat template of a model file: foreign code, compiled and rendered in the sandbox of jinja2.

The sandbox keeps a template from reaching out, not from running for ever or filling the memory: `template_process`
does. Here is what both sides of that process share.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent.errors import ModelFileError

HINT = "Use an instruction-tuned model with tool use in its chat template, such as `frog-lsp model pull` gets."
MOST_CHARACTERS = 4 << 20
"""Of a rendered prompt: conversations are put in afterwards, and the tools are a few thousand."""


class Renderer(Protocol):
    """A template that can be rendered."""

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text. Raises ModelFileError."""
        ...


class Template:
    """A template in this process: for those that were tried, and for the process that tries them.

    Raises ModelFileError where it cannot be compiled.
    """

    def __init__(self, source: str, *, today: datetime | None = None) -> None:
        def now(layout: str) -> str:
            return (today or datetime.now().astimezone()).strftime(layout)

        with _foreign_code():
            self._template = _environment(now).from_string(source)

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text. Raises ModelFileError, also where it is too long."""
        with _foreign_code():
            text = self._template.render(**variables)
        if len(text) > MOST_CHARACTERS:
            raise ModelFileError(
                f"the chat template of the model writes {len(text):,} characters for a few words", HINT
            )
        return text


@contextlib.contextmanager
def _foreign_code() -> Iterator[None]:
    """Anything may come out of a template: whatever it is, it is an error of the file."""
    try:
        yield
    except Exception as error:
        what = str(error) or type(error).__name__
        raise ModelFileError(f"the chat template of the model cannot be used: {what}", HINT) from error


def _environment(now: Callable[[str], str]) -> jinja2.Environment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = now
    return made


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
