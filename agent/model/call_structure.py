"""Where the calls of a turn begin and end: a reading of the tags that leaves the least unexplained.

Values are raw text and may hold any tag, so a closing tag counts only where the structure says so. Every
way to read the tags has a cost (a missing closer, a stray tag, a block that is no call); the cheapest wins,
and of equals the one whose values end first. The cost of the rest is computed once for each tag, from the
end to the beginning, so the time is linear in the text.
"""

from __future__ import annotations

from typing import Any, Literal

from agent.model.call_tags import (
    BadBlock,
    Block,
    Mark,
    Segment,
    Tag,
    Text,
    Think,
    begins_line,
    find_brace,
    find_marks,
    is_mention,
    read_json_call,
)

_INFINITE = 1 << 60
_BAD_BLOCK = 1  # a `<tool_call>` with no call in it: reported, and no reason to read its neighbours otherwise
_MISSING_CALL_END = 100  # the next call follows at once
_MISSING_CLOSER = 200
_PROSE_FOLLOWS = 200  # `</function>` with text behind it
_STRAY = 300  # a closing tag in the text: a value before it ended too early
_OPEN_BLOCK = 500  # a call whose last value has no end
_PASSES_CLOSERS = 600  # a value holds `</function></tool_call>`, less than the strays that it would leave
_SWALLOWS_CALL = 100_000  # what can be read as the next call is never part of a value

_Step = Literal["end", "think", "text", "stray", "call", "quote", "json", "bad"]


class _CheapestEnd:
    """The cheapest end of a value that begins at the current mark; marks are passed from right to left.

    A pair of `<tool_call>` and `</tool_call>` within the value is free. One half of a pair is paid for: the value
    may have swallowed the next call, or passed its own closers.
    """

    def __init__(self, marks: list[Mark]) -> None:
        self.best = (_INFINITE, -1)
        self._saved: list[tuple[int, int]] = []
        self._paired: set[int] = set()
        stack: list[int] = []
        for i, mark in enumerate(marks):
            if mark.tag is Tag.CALL:
                stack.append(i)
            elif mark.tag is Tag.CALL_END and stack:
                self._paired.update((stack.pop(), i))

    def offer(self, cost: int, i: int) -> None:
        """The value may end at mark `i`."""
        if cost <= self.best[0]:
            self.best = (cost, i)

    def pass_closer(self, i: int, penalty: int) -> None:
        """From here to the left a value lies inside the pair, until its opener is passed."""
        if i in self._paired:
            self._saved.append(self.best)
        self.best = (self.best[0] + penalty, self.best[1])

    def pass_opener(self, i: int, penalty: int) -> None:
        """To the left of it, an end beyond the pair costs what it cost there."""
        self.best = (self.best[0] + penalty, self.best[1])
        if i in self._paired and (outside := self._saved.pop())[0] < self.best[0]:
            self.best = outside


class _Reading:
    """The table of costs, filled from the last mark to the first, and the choices behind them."""

    def __init__(self, text: str, keys_by_function: dict[str, frozenset[str]]) -> None:
        self.text = text
        self.known = keys_by_function
        self.marks = find_marks(text)
        self.tags = [mark.tag for mark in self.marks]
        n = len(self.marks)
        self.touches = [text[self.marks[i].end : self.marks[i + 1].start].strip() == "" for i in range(n - 1)] + [False]
        self.top = [0] * n
        self.step: list[tuple[_Step, int]] = [("end", n)] * n
        self.after = [_INFINITE] * n
        self.function_end = [(_INFINITE, n)] * n
        self.value = [(_INFINITE, -1)] * n
        self.closes = [False] * n  # whether the function that goes on after this mark has its `</function>`
        self.json: dict[int, tuple[dict[str, Any], int]] = {}
        self._bad_end = n - 1
        self._thought_ends = False
        self._fresh_keys = self._find_fresh_keys()
        self._ends = _CheapestEnd(self.marks)
        for i in range(n - 2, -1, -1):
            self._fill(i)

    def tag(self, i: int) -> Tag:
        return self.tags[i]

    def next_is(self, i: int, *tags: Tag) -> bool:
        """Whether one of `tags` follows mark `i` after white space alone."""
        return self.touches[i] and self.tags[i + 1] in tags

    def _find_fresh_keys(self) -> frozenset[int]:
        """Parameter openers at the start of a line whose key the function knows and is given only there."""
        fresh: set[int] = set()
        keys, openers = frozenset[str](), dict[str, list[int]]()
        for i, mark in enumerate(self.marks):
            if mark.tag is Tag.PARAMETER:
                openers.setdefault(mark.name, []).append(i)
            elif mark.tag is Tag.END or (mark.tag is Tag.FUNCTION and self.next_is(i, Tag.PARAMETER)):
                for key, found in openers.items():
                    if key in keys and len(found) == 1 and begins_line(self.text, self.marks[found[0]]):
                        fresh.add(found[0])
                keys, openers = self.known.get(mark.name, frozenset()), {}
        return frozenset(fresh)

    def _fill(self, i: int) -> None:
        tag = self.tag(i)
        if tag is Tag.PARAMETER:
            self._fill_value(i)
        elif tag is Tag.FUNCTION:
            self._fill_after(i)
        elif tag is Tag.PARAMETER_END:
            self._fill_after(i)
            self._ends.offer(self.after[i], i)
        elif tag is Tag.FUNCTION_END:
            self._fill_function_end(i)
            self._ends.offer(_MISSING_CLOSER + self.function_end[i][0], i)
        self._fill_top(i)
        if tag is Tag.CALL:
            self._ends.pass_opener(i, _SWALLOWS_CALL if self._is_whole_call(i) else 0)
        elif tag is Tag.CALL_END:
            closes = self.tag(i - 1) is Tag.FUNCTION_END and self.touches[i - 1]
            self._ends.pass_closer(i, _PASSES_CLOSERS if i and closes else 0)
        if tag in (Tag.CALL, Tag.CALL_END, Tag.THINK_END):
            self._bad_end = i

    def _is_whole_call(self, i: int) -> bool:
        step, then = self.step[i]
        return step == "call" or (step == "json" and (self.tag(then - 1) is Tag.CALL_END or self.tag(then) is Tag.END))

    def _fill_value(self, i: int) -> None:
        j = i + 1
        if j in self._fresh_keys and self.tag(j + 1) is Tag.PARAMETER_END and self.value[j][1] == j + 1:
            self.value[i], self.closes[i] = (_MISSING_CLOSER + self.value[j][0], j), self.closes[j]
            return
        best = self._ends.best
        if best[1] >= 0 and best[0] < _INFINITE:
            self.value[i], self.closes[i] = best, self.closes[best[1]]

    def _fill_after(self, i: int) -> None:
        """After `<function=…>` or `</parameter>`: a parameter, the end of the function, or the end of the turn."""
        if self.next_is(i, Tag.PARAMETER):
            self.after[i], self.closes[i] = self.value[i + 1][0], self.closes[i + 1]
        elif self.next_is(i, Tag.FUNCTION_END):
            self.after[i], self.closes[i] = self.function_end[i + 1][0], True
        elif self.tag(i) is Tag.FUNCTION:
            return
        elif self.next_is(i, Tag.END):
            self.after[i] = 0
        elif self.next_is(i, Tag.CALL_END):
            self.after[i] = _MISSING_CLOSER + self.top[i + 2]
        elif self.next_is(i, Tag.CALL):
            self.after[i] = _MISSING_CLOSER + self.top[i + 1]

    def _fill_function_end(self, i: int) -> None:
        self.closes[i] = True
        if self.next_is(i, Tag.CALL_END):
            self.function_end[i] = (self.top[i + 2], i + 2)
        elif self.next_is(i, Tag.END):
            self.function_end[i] = (0, i + 1)
        elif self.next_is(i, Tag.CALL):
            self.function_end[i] = (_MISSING_CALL_END + self.top[i + 1], i + 1)
        elif self.next_is(i, Tag.FUNCTION) and self.step[i + 1][0] == "call":
            self.function_end[i] = (self.top[i + 1], i + 1)
        else:
            self.function_end[i] = (_PROSE_FOLLOWS + self.top[i + 1], i + 1)

    def _fill_top(self, i: int) -> None:
        tag, passed = self.tag(i), self.top[i + 1]
        if tag is Tag.THINK_END:
            self.top[i], self.step[i], self._thought_ends = passed, ("think", i + 1), True
        elif tag is Tag.THINK:
            opens = (
                (i == 0 and self.text[: self.marks[0].start].isspace())
                or self.marks[i].start == 0
                or (self._thought_ends and begins_line(self.text, self.marks[i]))
            )
            self.top[i], self.step[i] = passed, ("think" if opens else "text", i + 1)
        elif tag is Tag.FUNCTION:
            # A known function without `<tool_call>` is a call if it closes, another one is text as a whole.
            if self.closes[i] and self.after[i] <= passed:
                self.top[i], self.step[i] = self.after[i], ("call" if self.marks[i].name in self.known else "quote", i)
            else:
                self.top[i], self.step[i] = passed, ("text", i + 1)
        elif tag is Tag.CALL:
            self._fill_call(i)
        else:
            self.top[i], self.step[i] = passed + _STRAY, ("stray", i + 1)

    def _fill_call(self, i: int) -> None:
        mark = self.marks[i]
        bad = _BAD_BLOCK + self.top[self._bad_end + (self.tag(self._bad_end) is Tag.CALL_END)]
        if self.next_is(i, Tag.FUNCTION) and self.next_is(i + 1, Tag.PARAMETER):
            bad += _OPEN_BLOCK
        self.top[i], self.step[i] = bad, ("bad", self._bad_end)
        if self.next_is(i, Tag.FUNCTION):
            if self.after[i + 1] <= bad:
                self.top[i], self.step[i] = self.after[i + 1], ("call", i + 1)
        elif (brace := find_brace(self.text, mark.end)) >= 0:
            self._fill_json(i, brace)
        elif is_mention(self.text, mark):
            self.top[i], self.step[i] = self.top[i + 1], ("text", i + 1)

    def _fill_json(self, i: int, brace: int) -> None:
        found = read_json_call(self.text, brace)
        if found is None:
            return
        value, end = found
        j = i + 1
        while self.marks[j].start < end:
            j += 1
        closes = self.tag(j) in (Tag.CALL_END, Tag.END) and self.text[end : self.marks[j].start].strip() == ""
        then = j + 1 if closes and self.tag(j) is Tag.CALL_END else j
        cost = self.top[then] + (0 if closes else _MISSING_CALL_END)
        self.top[i], self.step[i] = cost, ("json", then)
        self.json[i] = (value, self.marks[j].end if closes else end)

    def segments(self) -> list[Segment]:
        """Walk the choices from the first mark to the last."""
        out: list[Segment] = []
        i, text_start, last = 0, 0, len(self.marks) - 1

        def cut(at: int, resume: int) -> None:
            nonlocal text_start
            if at > text_start:
                out.append(Text(text_start, at))
            text_start = resume

        while i < last:
            mark, (step, then) = self.marks[i], self.step[i]
            if step == "think":
                cut(mark.start, mark.end)
                out.append(Think(mark.start, mark.tag is Tag.THINK_END))
            elif step == "call":
                values, i, end = self._walk(then)
                cut(mark.start, end)
                out.append(Block(mark.start, self.marks[then].name, tuple(values)))
                continue
            elif step == "quote":
                _, i, _ = self._walk(then)
                continue
            elif step == "json":
                value, end = self.json[i]
                cut(mark.start, end)
                out.append(Block(mark.start, "", json=value))
            elif step == "bad":
                closed = self.tag(then) is Tag.CALL_END
                end = self.marks[then].end if closed else self.marks[then].start
                cut(mark.start, end)
                out.append(BadBlock(mark.start, end, closed))
                then += closed
            elif step == "stray" and mark.tag is Tag.CALL_END:
                cut(mark.start, mark.end)
            i = then
        cut(len(self.text), len(self.text))
        return out

    def _walk(self, i: int) -> tuple[list[tuple[str, int, int]], int, int]:
        """Read one function from its opener: its values, the next mark, the offset where its block ends."""
        values: list[tuple[str, int, int]] = []
        while True:
            if self.next_is(i, Tag.PARAMETER):
                i += 1
                while True:  # a value that ends at the next opener is followed by that parameter's own value
                    j = self.value[i][1]
                    values.append((self.marks[i].name, self.marks[i].end, self.marks[j].start))
                    i = j
                    if self.tag(j) is not Tag.PARAMETER:
                        break
                if self.tag(i) is Tag.PARAMETER_END:
                    continue
            elif self.next_is(i, Tag.FUNCTION_END):
                i += 1
            elif self.next_is(i, Tag.CALL_END):
                return values, i + 2, self.marks[i + 1].end
            else:
                return values, i + 1, self.marks[i].end
            then = self.function_end[i][1]
            return values, then, self.marks[i + 1 if self.next_is(i, Tag.CALL_END) else i].end


def read_structure(text: str, keys_by_function: dict[str, frozenset[str]]) -> list[Segment]:
    """Split a turn into text, thinking marks, calls and blocks that are no calls, in order.

    `keys_by_function` holds the argument names of the functions that may be called without `<tool_call>`.
    """
    return _Reading(text, keys_by_function).segments()
