"""The output of a failing test, a traceback, a compiler or a linter: recognised, and told so that it fits an issue."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsp_server.quotes import cut_line, cut_middle, plain, size_of, without_root

MAX_LOOKED_AT_CHARS = 16 * 1024
"""A longer text is recognised by its beginning and its end."""
MAX_OUTPUT_LINE_CHARS = 500
MAX_FRAMES = 12
_MAX_READ_BYTES = 256 * 1024
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_NOT_OURS = frozenset({"site-packages", "dist-packages", "node_modules", ".venv", "venv", ".tox", ".cargo", "vendor"})

_PATH = r"(?:[A-Za-z]:)?[^\s:\"'()\[\]<>|*]+"
_TESTS: tuple[tuple[str, str], ...] = (
    ("pytest", r"^=+ (?:FAILURES|ERRORS|short test summary info) =+$|^E {2,}\S|^(?:FAILED|ERROR) \S+\.py(?:::|\s|$)"),
    ("unittest", r"^(?:FAIL|ERROR): \w+ \(|^FAILED \((?:failures|errors|unexpected)"),
    ("cargo test", r"^test \S+ \.\.\. FAILED$|^thread '[^'\n]*'(?: \(\d+\))? panicked at |^test result: FAILED"),
    ("go test", r"^[ \t]*--- FAIL: |^FAIL\t\S|^goroutine \d+ \[|^[ \t]+\S+_test\.go:\d+: "),
    ("jest", r"^[ \t]*● \S|^[ \t]*FAIL\s+\S+\.[cm]?[jt]sx?\b|^Test Suites: .*\bfailed\b"),
    ("node", r"^[ \t]*not ok \d+|^[ \t]*✖ \S|^[ \t]+at (?:.* \()?(?:file://|node:)?\S+:\d+:\d+\)?$"),
    (
        "Python",
        r"^(?:[ \t]*\+ Exception Group )?Traceback \(most recent call last\):$"
        r"|^[ \t]*File \"[^\"\n]+\", line \d+(?:, in .|$)",
    ),
)
_CHECKS: tuple[tuple[str, str], ...] = (
    ("the linter", rf"^{_PATH}:\d+:\d+: [A-Z]{{1,5}}\d+:? |^[A-Z]{{1,5}}\d{{2,5}} .*\n[ \t]*--> {_PATH}:\d+:\d+"),
    ("rustc", rf"^(?:error|warning)(?:\[E\d+\])?: .*\n[ \t]*--> {_PATH}:\d+:\d+"),
    ("eslint", r"^[ \t]+\d+:\d+\s+(?:error|warning)\s+\S"),
    ("mypy", rf"^{_PATH}\.pyi?:\d+(?::\d+)*: (?:error|note): "),
    (
        "the compiler",
        rf"^{_PATH}:\d+(?::\d+)?: (?:fatal )?(?:error|warning): |^{_PATH}\(\d+,\d+\): error "
        rf"|^[ \t]*{_PATH}:\d+:\d+ - error",
    ),
)
_KINDS = [(name, re.compile(pattern, re.MULTILINE), True) for name, pattern in _TESTS] + [
    (name, re.compile(pattern, re.MULTILINE), False) for name, pattern in _CHECKS
]
_FRAME = re.compile(
    rf"File \"(?P<py>[^\"\n]+)\", line (?P<pyline>\d+)(?:, in (?P<where>\S+))?"
    rf"|(?<![^\s:\"'()\[\]<>|*])(?:file://)?(?P<path>{_PATH}\.[A-Za-z]\w{{0,7}})(?::(?P<line>\d+)\b|\((?P<tsline>\d+),\d+\))"
    r"|^(?P<alone>/?[\w./@+-]+\.\w{1,8})$"
    r"|^[ \t]+(?P<lint>\d+):\d+\s+(?:error|warning)\s",
    re.MULTILINE,
)
_TELLING = re.compile(
    r"^E\s|^>\s|\b\w*(?:Error|Exception|Warning)\b|\berror\b|\bFAIL|\bFailed\b|\bfailed\b|panicked"
    r"|^panic:|^[ \t]*●|^[ \t]*✖|not ok|\bassert|\b[Ee]xpected|\b[Rr]eceived|\b[Aa]ctual|^[ \t]*-->"
    r"|^(?:left|right|\s+left|\s+right): |^---? "
)
_HEADLINES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^FAILED (?P<it>\S+::.+)$",
        r"^E {2,}(?P<it>\S.*)$",
        r"^(?P<it>(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit|Warning)\b(?::.*)?)$",
        r"^(?:FAIL|ERROR): (?P<it>.+)$",
        r"^[ \t]*--- FAIL: (?P<it>.+)$",
        r"^test (?P<it>\S+) \.\.\. FAILED$",
        r"^[ \t]*● (?P<it>.+)$",
        r"^[ \t]*not ok \d+ -? ?(?P<it>.+)$",
        r"^panic: (?P<it>.+)$",
        r"^[ \t]*(?P<it>\w*Error\b(?: \[\w+\])?: .+)$",
        rf"^(?P<it>{_PATH}:\d+(?::\d+)?: (?!note: ).+)$",
        r"^(?P<it>error(?:\[E\d+\])?: .+)$",
        r"^[ \t]+\d+:\d+\s+error\s+(?P<it>.+)$",
        rf"^(?P<it>{_PATH}\(\d+,\d+\): error .+)$",
    )
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What wrote the output, and whether that is a test (or a crash) rather than a compiler or a linter."""

    tool: str
    is_test: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in a file that the output names; `line` counts from 1, `where` is the function if it is told."""

    path: str
    line: int
    where: str


def without_ansi(text: str) -> str:
    """The text without colours and other sequences of terminals."""
    return _ANSI.sub("", text).replace("\r\n", "\n")


def recognise(text: str) -> Failure | None:
    """What kind of failure an output shows, None for any other text."""
    if len(text) > MAX_LOOKED_AT_CHARS:
        text = text[: MAX_LOOKED_AT_CHARS // 2] + "\n" + text[-MAX_LOOKED_AT_CHARS // 2 :]
    text = without_ansi(text)
    return next((Failure(name, is_test) for name, pattern, is_test in _KINDS if pattern.search(text)), None)


def describe_failure(
    text: str, failure: Failure, roots: Sequence[str], is_file: Callable[[str], bool], n_bytes: int
) -> str:
    """An issue that quotes the output. `is_file` says whether a relative path is a file of the workspace."""
    text = plain(without_root(without_ansi(cut_middle(text, _MAX_READ_BYTES)), roots)).strip("\n")
    lines = text.split("\n")
    frames = own_frames(text, is_file)
    what = "failing test" if failure.is_test else "reported problem"
    parts = [f"Fix this {what}: {_headline(text) or lines[0].strip()}"[:300]]
    if frames:
        named = "\n".join(f"- {f.path}, line {f.line}" + (f", in {f.where}" if f.where else "") for f in frames)
        parts.append(f"In this project the output of {failure.tool} names:\n{named}")
    left = n_bytes - size_of("\n\n".join(parts)) - 64
    parts.append(f"The output of {failure.tool}:\n\n{_shortened(lines, {f.path for f in frames}, left)}")
    return "\n\n".join(parts)


def own_frames(text: str, is_file: Callable[[str], bool]) -> list[Frame]:
    """The places in files of the workspace, in the order of the output, each once; of many the last."""
    found: dict[tuple[str, int], Frame] = {}
    known: dict[str, bool] = {}
    current = ""
    for match in _FRAME.finditer(text):
        if match["alone"]:
            current = match["alone"]
            continue
        path = match["py"] or match["path"] or current
        line = match["pyline"] or match["line"] or match["tsline"] or match["lint"]
        path = path.removeprefix("./")
        if path not in known and len(known) < 1_000:
            known[path] = _is_own(path) and is_file(path)
        if known.get(path) and len(line) < 9:
            key = (path, int(line))
            found[key] = Frame(path, int(line), match["where"] or (found[key].where if key in found else ""))
    return list(found.values())[-MAX_FRAMES:]


def _is_own(path: str) -> bool:
    parts = path.split("/")
    return bool(path) and bool(parts[0]) and ".." not in parts and not _NOT_OURS.intersection(parts)


def _headline(text: str) -> str:
    """What failed first, in the tool's own words; `""` where no line says it."""
    found = next((match for pattern in _HEADLINES if (match := pattern.search(text))), None)
    return "" if found is None else " ".join(found["it"].split())


def _shortened(lines: Sequence[str], own: set[str], n_bytes: int) -> str:
    """The lines, of a long output those that tell most: errors, own files, the end, the beginning."""
    shown = [cut_line(line, MAX_OUTPUT_LINE_CHARS) for line in lines]
    sizes = [size_of(line) + 1 for line in shown]
    if sum(sizes) <= n_bytes:
        return "\n".join(shown)
    chosen: set[int] = set()
    room = n_bytes - 48
    for at in _by_worth(lines, own):
        # A gap can take a line of its own on both sides.
        if at not in chosen and room - sizes[at] - 48 >= 0:
            chosen.add(at)
            room -= sizes[at] + (0 if at - 1 in chosen or at + 1 in chosen else 48)
    made: list[str] = []
    before = -1
    for at in [*sorted(chosen), len(lines)]:
        if at > before + 1:
            made.append(f"[… {at - before - 1:,} lines are left out here …]")
        if at < len(lines):
            made.append(shown[at])
        before = at
    return "\n".join(made)


def _by_worth(lines: Sequence[str], own: set[str]) -> list[int]:
    last = len(lines)
    names = re.compile("|".join(map(re.escape, sorted(own)))) if own else None
    places = [at for at in range(last) if names is not None and names.search(lines[at])]
    telling = [at for at in range(last) if _TELLING.search(lines[at][:MAX_OUTPUT_LINE_CHARS])]
    order = [at for at in range(last) if lines[at].startswith("[… ")]  # what was left out before
    order += [*range(last - 1, max(-1, last - 11), -1), *range(min(3, last))]
    for at in reversed(places):
        order += [at, *(near for near in (at + 1, at + 2) if near < last)]
    order += reversed(telling)
    order += [near for at in reversed(telling) for near in (at - 1, at + 1) if 0 <= near < last]
    return order
