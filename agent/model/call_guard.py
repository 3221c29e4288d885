"""Where a turn stands while it is written, token by token, and how to put it right where it leaves the structure.

There is no grammar: a value is free text, and nothing is ever put into one. The structure around it is closed or
repaired at the model's own tokens, before it goes on. Works on bytes, since a token may end inside a character. Pure.

What is repaired:
- a call begun inside thinking: the thought is closed before it;
- text behind `<tool_call>` or `<function=NAME>` that is no part of a call: the next tag is put in its place;
- a name that is none of the tools: the nearest by `nearest_name`; else it stays, and the tool answers "Unknown tool";
- a parameter that opens at the start of a line while another is open: only a key that the function knows, that was
  not given yet, and in a value that has no other tag of the format (then it is text about the format);
- the end of the turn inside a call: the closing tags that are missing;
- at the end, what still cannot be read: closed where it breaks off, or made a call that is answered "Unknown tool".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from agent.model.call_structure import read_structure
from agent.model.call_tags import BadBlock, read_json_call
from agent.model.tool_names import nearest_name

CLOSE_THOUGHT = b"\n</think>\n\n"
NO_NAME = b"invalid"
"""The name of a call that was given none."""

_CLOSE_CALL = b"\n</tool_call>"
_CLOSE_FUNCTION = b"\n</function>" + _CLOSE_CALL
_CLOSE_PARAMETER = b"\n</parameter>"
_CLOSE_VALUE = _CLOSE_PARAMETER + _CLOSE_FUNCTION
_OPEN_FUNCTION = b"\n<function="
_MOST_NAME_BYTES = 64
_MOST_SPACE_BYTES = 64
_LOOK_BACK = 200

_OUTSIDE = re.compile(rb"<tool_call>|</?think>")
_TO_FUNCTION = re.compile(rb"\s*<function=")
_TO_JSON = re.compile(rb"\s*\{")
_TO_PARAMETER = re.compile(rb"\s*<parameter=")
_TO_FUNCTION_END = re.compile(rb"\s*</function>")
_TO_CALL_END = re.compile(rb"\s*</tool_call>")
_TO_CALL = re.compile(rb"\s*<tool_call>")
_IN_VALUE = re.compile(rb"</parameter>|\n<parameter=([^<>\n]{1,64})>")
_FORMAT_TAG = re.compile(rb"<(?:tool_call>|function=|parameter=)")
# A value's own end: whole closing tags of what lies around it, or the beginning of its own.
_LOOSE_END = re.compile(
    rb"(?:\r?\n)?(?:</parameter>\s*)?(?:(?:</function>|</tool_call>)\s*)+\Z"
    rb"|(?:\r?\n)?</pa(?:r(?:a(?:m(?:e(?:t(?:e(?:r>?)?)?)?)?)?)?)?\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Bytes `start` to `end` of the turn, the offered token included, become `text`. `kind` is a stable word.

    `ends` says that the turn is over with it.
    """

    kind: str
    start: int
    end: int
    text: bytes
    ends: bool = False


class Mode(Enum):
    """Where the last byte lies."""

    THOUGHT = auto()
    PROSE = auto()
    CALL = auto()  # behind `<tool_call>`
    JSON = auto()
    NAME = auto()
    BODY = auto()  # behind `<function=NAME>`
    KEY = auto()
    VALUE = auto()
    CLOSED = auto()  # behind a `</parameter>` that may end the value
    DONE = auto()  # behind `</function>`


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """`start` is where the text of this mode begins, `opened` where the tag before it does, `call` where `<tool_call>`
    does; `value` is where the open value begins; all in bytes. `outside` is the mode that the call interrupts."""

    mode: Mode
    start: int = 0
    opened: int = 0
    call: int = 0
    value: int = -1
    outside: Mode = Mode.PROSE
    function: str = ""
    keys: frozenset[str] = frozenset()


class CallGuard:
    """Follows one turn. `offer` and `end` say what to change; whoever asks then calls `restart` with the new text.

    `keys_by_tool` holds the argument names of each tool. Where `repairs` is false it only follows.
    """

    def __init__(
        self, keys_by_tool: Mapping[str, frozenset[str]], *, opens_thinking: bool = True, repairs: bool = True
    ) -> None:
        self._keys = dict(keys_by_tool)
        self._first = _Place(mode=Mode.THOUGHT if opens_thinking else Mode.PROSE)
        self._repairs = repairs
        self.text = bytearray()
        self._place = self._first
        self._scan = 0

    @property
    def mode(self) -> Mode:
        """Where the turn stands."""
        return self._place.mode

    @property
    def section(self) -> int:
        """Where the text of the mode begins."""
        return self._place.start

    @property
    def settled(self) -> int:
        """Up to here nothing is put right any more, as long as the turn goes on."""
        place = self._place
        match place.mode:
            case Mode.CALL | Mode.NAME | Mode.JSON:
                return place.call
            case Mode.BODY | Mode.CLOSED | Mode.DONE:
                return place.start
            case Mode.KEY:
                return place.opened
            case Mode.VALUE:
                if loose := _LOOSE_END.search(self.text, max(place.value, len(self.text) - _LOOK_BACK)):
                    return loose.start()
                line = self.text.rfind(b"\n", max(place.start, len(self.text) - _MOST_NAME_BYTES - 14))
                return line if line >= 0 and bytes(self.text[line + 1 : line + 2]) in (b"", b"<") else len(self.text)
            case Mode.THOUGHT | Mode.PROSE:
                tag = self.text.rfind(b"<", max(0, len(self.text) - len(b"<tool_call>")))
                return tag if tag >= 0 else len(self.text)

    def wants_mark(self, piece: bytes) -> bool:
        """Whether it may be necessary to come back to where the turn is now, before `piece`."""
        place = self._place
        if not self._repairs:
            return False
        if place.mode in (Mode.THOUGHT, Mode.PROSE):
            return piece.lstrip().startswith(b"<tool_call") or piece == b"<"
        if place.mode is Mode.CALL:
            return place.start == len(self.text)
        if place.mode is Mode.VALUE and self._fresh_keys():
            return piece.startswith(b"<") and self.text.endswith(b"\n")
        return False

    def may_want_mark(self, before: bytes, piece: bytes) -> bool:
        """Whether `wants_mark` may say yes to `piece`, somewhere ahead, behind a token with the text `before`."""
        is_tag = piece.lstrip().startswith(b"<tool_call") or piece == b"<"
        return self._repairs and (is_tag or (piece.startswith(b"<") and before.endswith(b"\n")))

    def offer(self, piece: bytes) -> Rewrite | None:
        """Take the text of the next token, or say what is to be instead; then nothing was taken."""
        size, place, scan = len(self.text), self._place, self._scan
        self.text += piece
        found = self._settle()
        if found is None:
            return None
        del self.text[size:]
        self._place, self._scan = place, scan
        return found

    def restart(self, text: bytes) -> None:
        """The turn is `text` now; nothing in it is put right."""
        repairs, self._repairs = self._repairs, False
        self.text = bytearray(text)
        self._place, self._scan = self._first, 0
        self._settle()
        self._repairs = repairs

    def end(self) -> Rewrite | None:
        """The model ends the turn here: what is to be put right before it ends (asked again, until there is nothing),
        or (`ends` false) goes on."""
        if not self._repairs:
            return None
        return self._close() or self._mend()

    # --- following ---------------------------------------------------------------------------------------

    def _settle(self) -> Rewrite | None:
        while True:
            before = self._place
            found = self._step(before)
            if found is not None:
                return found
            if self._place is before:
                return None

    def _go(self, mode: Mode, start: int, **more: object) -> None:
        self._place = replace(self._place, mode=mode, start=start, **more)  # type: ignore[arg-type]
        self._scan = start

    def _step(self, place: _Place) -> Rewrite | None:
        match place.mode:
            case Mode.THOUGHT | Mode.PROSE:
                return self._step_outside(place)
            case Mode.CALL:
                return self._step_call(place)
            case Mode.JSON:
                return self._step_json(place)
            case Mode.NAME:
                return self._step_name(place)
            case Mode.BODY:
                return self._step_body(place)
            case Mode.KEY:
                return self._step_key(place)
            case Mode.VALUE:
                return self._step_value(place)
            case Mode.CLOSED:
                return self._step_closed(place)
            case Mode.DONE:
                return self._step_done(place)

    def _step_outside(self, place: _Place) -> Rewrite | None:
        found = _OUTSIDE.search(self.text, self._scan)
        if found is None:
            self._scan = max(place.start, len(self.text) - 11)
            return None
        start, end, tag = found.start(), found.end(), found.group()
        if tag == b"</think>":
            self._go(Mode.PROSE, end)
        elif tag == b"<think>":
            opens = place.mode is Mode.THOUGHT or not self._line(start).strip()
            self._go(Mode.THOUGHT if opens else Mode.PROSE, end if opens else place.start)
            self._scan = end
        elif place.mode is Mode.THOUGHT and self._repairs and not self._line(start).strip():
            return self._close_thought(start)
        else:
            self._go(Mode.CALL, end, call=start, outside=place.mode, value=-1, function="", keys=frozenset())
        return None

    def _step_call(self, place: _Place) -> Rewrite | None:
        if found := _TO_FUNCTION.match(self.text, place.start):
            if place.outside is Mode.THOUGHT and self._repairs:
                return self._close_thought(place.call)
            self._go(Mode.NAME, found.end(), opened=place.start)
        elif found := _TO_JSON.match(self.text, place.start):
            self._go(Mode.JSON, found.end() - 1, opened=place.start)
        elif not self._may_be(place.start, b"<function="):
            if self._is_mention(place):
                self._go(place.outside, place.start)
            elif self._repairs:
                return Rewrite(kind="structure", start=place.start, end=len(self.text), text=_OPEN_FUNCTION)
            else:
                self._go(Mode.PROSE, place.start)
        return None

    def _step_json(self, place: _Place) -> Rewrite | None:
        found = _TO_CALL_END.search(self.text, max(place.start, self._scan - 12))
        self._scan = len(self.text)
        if found is None:
            return None
        if self._repairs and not self._reads_json(place, found.start()):
            return Rewrite(kind="structure", start=place.opened, end=len(self.text), text=_OPEN_FUNCTION)
        self._go(Mode.PROSE, found.end())
        return None

    def _step_name(self, place: _Place) -> Rewrite | None:
        end = self._end_of_name(place)
        if end < 0:
            return None
        name = bytes(self.text[place.start : end])
        is_whole = end < len(self.text) and self.text[end : end + 1] == b">"
        wanted = nearest_name(name.decode("utf-8", "replace"), self._keys)
        good = wanted.encode() if wanted is not None else name if _is_name(name) else NO_NAME
        if self._repairs and (good != name or not is_whole):
            return Rewrite(
                kind="name", start=place.start, end=end + 1 if is_whole else len(self.text), text=good + b">"
            )
        if not is_whole:
            self._go(Mode.PROSE, place.start)
            return None
        function = name.decode("utf-8", "replace").strip().strip("\"'").strip()
        self._go(Mode.BODY, end + 1, function=function)
        return None

    def _step_body(self, place: _Place) -> Rewrite | None:
        if found := _TO_PARAMETER.match(self.text, place.start):
            self._go(Mode.KEY, found.end(), opened=place.start)
        elif found := _TO_FUNCTION_END.match(self.text, place.start):
            self._go(Mode.DONE, found.end(), opened=place.start)
        elif not self._may_be(place.start, b"<parameter=", b"</function>"):
            if not self._repairs:
                self._go(Mode.PROSE, place.start)
            elif self._may_be(place.start, b"</tool_call>") or _TO_CALL_END.match(self.text, place.start):
                return Rewrite(kind="close", start=place.start, end=place.start, text=b"\n</function>")
            else:
                return Rewrite(kind="structure", start=place.start, end=len(self.text), text=b"\n<parameter=")
        return None

    def _step_key(self, place: _Place) -> Rewrite | None:
        end = self._end_of_name(place)
        if end < 0:
            return None
        key = bytes(self.text[place.start : end])
        is_whole = end < len(self.text) and self.text[end : end + 1] == b">"
        if self._repairs and not (is_whole and _is_name(key)):
            good = key if _is_name(key) else self._likely_key(place)
            return Rewrite(
                kind="name", start=place.start, end=end + 1 if is_whole else len(self.text), text=good + b">"
            )
        name = key.decode("utf-8", "replace").strip().strip("\"'").strip()
        at = end + is_whole
        self._go(Mode.VALUE, at, opened=place.opened, value=at, keys=place.keys | {name})
        return None

    def _step_value(self, place: _Place) -> Rewrite | None:
        while found := _IN_VALUE.search(self.text, self._scan):
            if found[1] is None:
                self._go(Mode.CLOSED, found.end(), opened=found.start())
                return None
            if self._repairs and self._is_next_parameter(place, found.start(), found[1]):
                return Rewrite(kind="parameter", start=found.start(), end=found.start(), text=_CLOSE_PARAMETER)
            self._scan = found.end()
        self._scan = max(self._scan, len(self.text) - _MOST_NAME_BYTES - 14)
        return None

    def _step_closed(self, place: _Place) -> Rewrite | None:
        if found := _TO_PARAMETER.match(self.text, place.start):
            self._go(Mode.KEY, found.end(), opened=place.start)
        elif found := _TO_FUNCTION_END.match(self.text, place.start):
            self._go(Mode.DONE, found.end(), opened=place.start)
        elif not self._may_be(place.start, b"<parameter=", b"</function>"):
            self._back_to_value(place)
        return None

    def _step_done(self, place: _Place) -> Rewrite | None:
        if found := _TO_CALL_END.match(self.text, place.start):
            self._go(Mode.PROSE, found.end())
        elif found := _TO_CALL.match(self.text, place.start):
            if self._repairs:
                return Rewrite(kind="close", start=place.start, end=place.start, text=_CLOSE_CALL)
            self._go(Mode.PROSE, place.start)
        elif not self._may_be(place.start, b"</tool_call>", b"<tool_call>"):
            if place.value >= 0:
                self._back_to_value(place)
            elif self._repairs:
                return Rewrite(kind="close", start=place.start, end=place.start, text=_CLOSE_CALL)
            else:
                self._go(Mode.PROSE, place.start)
        return None

    def _back_to_value(self, place: _Place) -> None:
        """What looked like the end of the value was a part of it."""
        self._go(Mode.VALUE, place.value)
        self._scan = place.start

    # --- the end of the turn -----------------------------------------------------------------------------

    def _close(self) -> Rewrite | None:
        place, size = self._place, len(self.text)
        kind = "close"
        match place.mode:
            case Mode.THOUGHT | Mode.PROSE:
                return None
            case Mode.CALL:
                return Rewrite(kind="structure", start=place.start, end=size, text=_OPEN_FUNCTION)
            case Mode.JSON:
                if self._reads_json(place, size):
                    return Rewrite(kind=kind, start=size, end=size, text=_CLOSE_CALL, ends=True)
                return Rewrite(kind="structure", start=place.opened, end=size, text=_OPEN_FUNCTION)
            case Mode.NAME:
                name = bytes(self.text[place.start :])
                wanted = nearest_name(name.decode("utf-8", "replace"), self._keys)
                good = wanted.encode() if wanted is not None else name if _is_name(name) else NO_NAME
                return Rewrite(kind=kind, start=place.start, end=size, text=good + b">" + _CLOSE_FUNCTION, ends=True)
            case Mode.KEY:
                return Rewrite(kind=kind, start=place.opened, end=size, text=_CLOSE_FUNCTION, ends=True)
            case Mode.BODY | Mode.CLOSED:
                return Rewrite(kind=kind, start=place.start, end=size, text=_CLOSE_FUNCTION, ends=True)
            case Mode.DONE:
                return Rewrite(kind=kind, start=place.start, end=size, text=_CLOSE_CALL, ends=True)
            case Mode.VALUE:
                loose = _LOOSE_END.search(self.text, place.value)
                start = loose.start() if loose else size
                return Rewrite(kind=kind, start=start, end=size, text=_CLOSE_VALUE, ends=True)

    def _mend(self) -> Rewrite | None:
        """The first block that cannot be read: closed where it breaks off, else made a call without a name."""
        bad = _bad_blocks(self.text)
        if not bad:
            return None
        start, end = bad[0]
        for closing in (_CLOSE_CALL, _CLOSE_FUNCTION, _CLOSE_VALUE):
            if len(_bad_blocks(self.text[:end] + closing + b"\n" + self.text[end:])) < len(bad):
                return Rewrite(kind="close", start=end, end=end, text=closing + b"\n", ends=True)
        at = start + len(b"<tool_call>")
        whole = _OPEN_FUNCTION + NO_NAME + b">" + _CLOSE_FUNCTION + b"\n"
        return Rewrite(kind="structure", start=at, end=at, text=whole, ends=True)

    # --- looking -----------------------------------------------------------------------------------------

    def _may_be(self, start: int, *tags: bytes) -> bool:
        """Whether the text from `start` may still become one of the tags, behind white space."""
        if len(self.text) - start > _MOST_SPACE_BYTES + 16:
            return False
        rest = bytes(self.text[start:]).lstrip()
        return any(tag.startswith(rest) for tag in tags)

    def _line(self, at: int) -> bytes:
        """What stands on its line before `at`, behind the last tag."""
        return bytes(self.text[max(0, at - _LOOK_BACK) : at]).rpartition(b"\n")[2].rpartition(b">")[2]

    def _is_mention(self, place: _Place) -> bool:
        """A `<tool_call>` in the middle of a line of prose is talked about, not made."""
        return self._line(place.call).strip() != b"" and not self.text.startswith((b"\n", b"\r"), place.start)

    def _end_of_name(self, place: _Place) -> int:
        """Where a name or key ends, at its `>` or what cannot be in it; -1 while it may go on."""
        for at in range(place.start, len(self.text)):
            if self.text[at] in b"<>\n\r" or at - place.start >= _MOST_NAME_BYTES:
                return at
        return -1

    def _close_thought(self, at: int) -> Rewrite:
        closing = CLOSE_THOUGHT[1:] if self.text[:at].endswith(b"\n") else CLOSE_THOUGHT
        return Rewrite(kind="thought", start=at, end=at, text=closing)

    def _is_next_parameter(self, place: _Place, at: int, key: bytes | bytearray) -> bool:
        """Whether a tag in a value opens the next parameter, and is no text about the format."""
        is_fresh = bytes(key).decode("utf-8", "replace") in self._fresh_keys()
        return is_fresh and _FORMAT_TAG.search(self.text, place.value, at + 1) is None

    def _fresh_keys(self) -> frozenset[str]:
        return self._keys.get(self._place.function, frozenset()) - self._place.keys

    def _likely_key(self, place: _Place) -> bytes:
        fresh = sorted(self._keys.get(place.function, frozenset()) - place.keys)
        return fresh[0].encode() if len(fresh) == 1 else NO_NAME

    def _reads_json(self, place: _Place, end: int) -> bool:
        text = bytes(self.text[place.start : end]).decode("utf-8", "replace")
        found = read_json_call(text, 0)
        return found is not None and text[found[1] :].strip() == ""


def _is_name(name: bytes) -> bool:
    return name.decode("utf-8", "replace").strip().strip("\"'").strip() != "" and not name.isspace()


def _bad_blocks(text: bytes | bytearray) -> list[tuple[int, int]]:
    """The blocks that are no calls, in bytes: read as Latin-1, where a byte is a character."""
    segments = read_structure(bytes(text).decode("latin-1"), {})
    return [
        (item.start, item.end - (len("</tool_call>") if item.closed else 0))
        for item in segments
        if isinstance(item, BadBlock)
    ]
