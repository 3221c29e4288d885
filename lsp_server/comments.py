"""`TODO`, `FIXME` and `XXX` in the comments of any language: found by a small scanner, not by a parser.

The scanner knows strings and comments only. It starts some hundred lines above the cursor, so that a code action
stays within its time in a file of any size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from lsp_server.positions import without_end

MAX_LINES_UP = 1_000
MAX_LINES_DOWN = 20
_MAX_LINE_CHARS = 2_000
_MARKER = re.compile(r"(?<![\w-])(?:TODO|FIXME|XXX)(?!\w)")
_DECORATION = re.compile(r"^[\s*#/;%!-]*")
_CLOSING = re.compile(r"\s*(?:\*/|-->|\"\"\"|'''|-\}|\]\]|\|#)\s*$")


@dataclass(frozen=True, slots=True)
class Marker:
    """A comment that asks for work: its lines (from 0, both inside it) and its words on one line."""

    first: int
    last: int
    text: str


@dataclass(frozen=True, slots=True)
class _Syntax:
    """`line` and `block` open comments; `strings` are patterns of what hides them."""

    line: tuple[str, ...] = ()
    block: tuple[tuple[str, str], ...] = ()
    strings: tuple[str, ...] = ()
    docstrings: bool = False
    needs_space: bool = False


_DOUBLE = r'"(?:\\.|[^"\\\n])*"'
_SINGLE = r"'(?:\\.|[^'\\\n])*'"
_CHARACTER = r"'(?:\\[^'\n]{1,10}|[^'\\\n])'"
_BACKTICK = r"`[^`]*`"
_C_BLOCK = (("/*", "*/"),)
_HTML_BLOCK = (("<!--", "-->"),)

_HASH = _Syntax(("#",), (), (_DOUBLE, _SINGLE), needs_space=True)
_PYTHON = _Syntax(("#",), (), (_DOUBLE, _SINGLE), docstrings=True)
_C = _Syntax(("//",), _C_BLOCK, (_DOUBLE, _CHARACTER))
_SCRIPT = _Syntax(("//",), _C_BLOCK, (_DOUBLE, _SINGLE, _BACKTICK))
_GO = _Syntax(("//",), _C_BLOCK, (_DOUBLE, _CHARACTER, _BACKTICK))
_PHP = _Syntax(("//", "#"), _C_BLOCK, (_DOUBLE, _SINGLE))
_CSS = _Syntax((), _C_BLOCK, (_DOUBLE, _SINGLE))
_SQL = _Syntax(("--",), _C_BLOCK, (_DOUBLE, _SINGLE))
_LUA = _Syntax(("--",), (("--[[", "]]"),), (_DOUBLE, _SINGLE))
_HASKELL = _Syntax(("--",), (("{-", "-}"),), (_DOUBLE,))
_LISP = _Syntax((";",), (("#|", "|#"),), (_DOUBLE,))
_TEX = _Syntax(("%",))
_ERLANG = _Syntax(("%",), (), (_DOUBLE, _SINGLE))
_MARKUP = _Syntax((), _HTML_BLOCK)
_PAGE = _Syntax(("//",), (*_C_BLOCK, *_HTML_BLOCK), (_DOUBLE, _SINGLE, _BACKTICK), needs_space=True)
_ANY = _Syntax(
    ("#", "//", "--", ";", "%"), (*_C_BLOCK, *_HTML_BLOCK), (_DOUBLE, _SINGLE), docstrings=True, needs_space=True
)

_BY_SUFFIX = {
    suffix: syntax
    for suffixes, syntax in (
        ("py pyi pyx", _PYTHON),
        ("sh bash zsh fish rb pl yaml yml toml r jl nix mk cmake tcl ps1 conf cfg ex exs", _HASH),
        ("c h cc cpp cxx hpp hh java rs swift kt kts scala cs dart zig m mm proto groovy", _C),
        ("js mjs cjs jsx ts tsx mts cts", _SCRIPT),
        ("go", _GO),
        ("php", _PHP),
        ("css scss less", _CSS),
        ("sql ada adb ads vhd vhdl", _SQL),
        ("lua", _LUA),
        ("hs elm", _HASKELL),
        ("el lisp cl clj cljs scm rkt asm s ini", _LISP),
        ("tex sty", _TEX),
        ("erl hrl", _ERLANG),
        ("html htm xml svg md markdown xhtml", _MARKUP),
        ("vue svelte", _PAGE),
    )
    for suffix in suffixes.split()
}


def marker_at(lines: Sequence[str], line: int, name: str) -> Marker | None:
    """The comment with a marker that covers a line (from 0); the suffix of `name` tells the language."""
    if not 0 <= line < len(lines):
        return None
    for at in range(line, max(-1, line - MAX_LINES_DOWN), -1):
        if _MARKER.search(lines[at], 0, _MAX_LINE_CHARS):
            found = _marker_on(lines, at, _BY_SUFFIX.get(name.rpartition(".")[2].lower(), _ANY))
            return found if found is not None and found.last >= line else None
    return None


def _marker_on(lines: Sequence[str], line: int, syntax: _Syntax) -> Marker | None:
    first, last = max(0, line - MAX_LINES_UP), min(len(lines), line + MAX_LINES_DOWN)
    window = [without_end(text)[:_MAX_LINE_CHARS] for text in lines[first:last]]
    start = sum(len(text) + 1 for text in window[: line - first])
    end = start + len(window[line - first])
    text = "\n".join(window)
    comment = _comment_with_marker(text, start, end, syntax)
    if comment is None and first > 0:  # what stands above the window is not known
        comment = _comment_with_marker(text[start:], 0, end - start, syntax)
    if comment is None:
        return None
    own, is_block = comment
    words, at = [own[0]], line
    for more in own[1:] if is_block else _next_comments(lines, line, syntax):
        content = _words(more)
        if not content or _MARKER.search(more) or len(words) >= MAX_LINES_DOWN:
            break
        words.append(content)
        at += 1
    return Marker(line, at, " ".join(word for word in (_words(words[0]), *words[1:]) if word))


def _comment_with_marker(text: str, start: int, end: int, syntax: _Syntax) -> tuple[list[str], bool] | None:
    """The lines of the comment from its marker in `text[start:end]`, and whether it is a block."""
    for found in _scanner(syntax).finditer(text):
        if found.start() > end:
            return None
        kind = found.lastgroup
        if kind == "string" or found.end() <= start:
            continue
        marker = _MARKER.search(text, max(start, found.start()), min(end, found.end()))
        if marker is not None:
            return text[marker.start() : found.end()].split("\n"), kind == "block"
    return None


def _next_comments(lines: Sequence[str], line: int, syntax: _Syntax) -> list[str]:
    """The lines below that are nothing but line comments."""
    found = []
    for text in lines[line + 1 : line + 1 + MAX_LINES_DOWN]:
        if not text.lstrip().startswith(syntax.line):  # no token starts nothing
            break
        found.append(without_end(text)[:_MAX_LINE_CHARS])
    return found


def _words(text: str) -> str:
    return " ".join(_CLOSING.sub("", _DECORATION.sub("", text)).split())


@cache
def _scanner(syntax: _Syntax) -> re.Pattern[str]:
    before = r"(?:(?<=\s)|(?<![\s\S]))" if syntax.needs_space else r"(?<!\\)"
    block = [f"{re.escape(a)}[\\s\\S]*?(?:{re.escape(b)}|\\Z)" for a, b in syntax.block]
    if syntax.docstrings:
        block.append(r'(?<![^\n])[ \t]*[rRuU]?(?:"""[\s\S]*?(?:"""|\Z)|' + r"'''[\s\S]*?(?:'''|\Z))")
    strings = [*syntax.strings]
    if syntax.docstrings:
        strings[:0] = [r'"""(?:\\.|[^\\])*?(?:"""|\Z)', r"'''(?:\\.|[^\\])*?(?:'''|\Z)"]
    parts = []
    if block:
        parts.append(f"(?P<block>{'|'.join(block)})")
    if strings:
        parts.append(f"(?P<string>{'|'.join(strings)})")
    if syntax.line:
        parts.append(f"(?P<line>{before}(?:{'|'.join(map(re.escape, syntax.line))})[^\\n]*)")
    return re.compile("|".join(parts))
