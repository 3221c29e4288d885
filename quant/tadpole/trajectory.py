"""Ideal conversations about a project: what the model is trained to say, and what the tools answer."""

from dataclasses import dataclass
from random import Random

from quant.tadpole import refusals
from quant.tadpole.project import TEST_COMMAND, Attempt, Project, think_line
from quant.tadpole.words import misspell

_DASHES = "-" * 70
OPEN = "<|im_start|>assistant\n<think>\n"


@dataclass(frozen=True)
class Span:
    """A stretch of the conversation; `said` when the model says it and is trained on it."""

    text: str
    said: bool


def show_file(path: str, text: str, begin: int = 0, end: int | None = None) -> str:
    """What Read answers, for all lines or some."""
    numbered = [f"{i}. {line}" for i, line in enumerate(text.splitlines(), 1)]
    return "\n".join([path, *numbered[begin:end]])


def call(name: str, think: str, **arguments: str) -> str:
    """What the model says when it calls a tool."""
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"{think}\n</think>\n\n<tool_call>\n<function={name}>\n{values}</function>\n</tool_call><|im_end|>"


def answer(think: str, text: str) -> str:
    """What the model says when it is done."""
    return f"{think}\n</think>\n\n{text}<|im_end|>"


def observed(text: str) -> str:
    """The way an observation goes back, up to where the model speaks again."""
    return f"\n<|im_start|>user\n<tool_response>\n{text}\n</tool_response><|im_end|>\n{OPEN}"


def opening(issue: str) -> str:
    """The user turn, up to where the model speaks."""
    return f"<|im_start|>user\n{issue}<|im_end|>\n{OPEN}"


def edit_call(made: Project, path: str, old: str | None = None) -> str:
    """The edit that repairs a project."""
    return call("Edit", made.think, file_path=path, old_string=made.old if old is None else old, new_string=made.new)


def conversation(made: Project, random: Random, *, plain: bool = False) -> list[Span]:
    """A whole run, sometimes with a failure on the way; `plain` leaves the failures out."""
    path = made.path
    chance = 1.0 if plain else random.random()
    spans = _lost(made, random) if chance < 0.04 else [Span(opening(made.issue), said=False)]
    spans += [
        Span(call("Read", "Read the file.", file_path=path), said=True),
        Span(observed(show_file(path, made.files[path], *_window(made, random, plain=plain))), said=False),
    ]
    if 0.04 <= chance < 0.09 and made.crowded == 1:
        spans += _missed(made, random)
    elif 0.2 <= chance < 0.225 and made.crowded == 1:
        return spans + _given_up(made, random)
    elif made.attempts and chance >= 0.3:
        spans += _tried(made, random)
        if spans[-1].said and spans[-1].text.endswith(_NOTHING_HELPS):
            return spans
    elif made.crowded > 1 or (0.09 <= chance < 0.12 and made.family in ("name", "stale", "attr") and made.whole):
        spans += _many(made, random)
    else:
        spans.append(Span(edit_call(made, path), said=True))
    spans += [
        Span(observed(f"Edited {path} (1 replacement)."), said=False),
        Span(call("Bash", "Run the tests.", command=TEST_COMMAND), said=True),
    ]
    if 0.12 <= chance < 0.2:
        text, think, last = _bad_run(made, random)
    else:
        text, think, last = _good_run(made, random), "The tests pass.", f"Fixed {path}; the tests pass."
    return [*spans, Span(observed(text), said=False), Span(answer(think, last), said=True)]


def refusal(random: Random) -> list[Span]:
    """A run over an issue that is not for this model."""
    return [
        Span(opening(refusals.issue(random)), said=False),
        Span(answer(refusals.THINK, refusals.ANSWER), said=True),
    ]


def absent(made: Project, r: Random) -> list[Span]:
    """A run over an issue whose file is nowhere."""
    name = made.path.rsplit("/", 1)[-1]
    error = f"FileNotFoundError: [Errno 2] No such file or directory: '{made.path}'"
    return [
        Span(opening(made.issue), said=False),
        Span(call("Read", "Read the file.", file_path=made.path), said=True),
        Span(observed(error), said=False),
        Span(call("Glob", "Find the file.", pattern=f"**/{name}"), said=True),
        Span(observed(r.choice(("(no match)", "No files matched.", "No matches", ""))), said=False),
        Span(answer("The file is not there.", f"I changed nothing: there is no {made.path} here."), said=True),
    ]


def _window(made: Project, r: Random, *, plain: bool) -> tuple[int, int | None]:
    """The lines that are shown: in training often only those around the fault, to learn more from fewer tokens."""
    if plain or r.random() < 0.3 or (not made.told and made.family in ("name", "attr", "self")):
        return 0, None
    lines = made.files[made.path].splitlines()
    key = (made.whole or (made.old,))[0].split("\n")[0]
    at = next(i for i, line in enumerate(lines) if key in line)
    before, after = r.choice(((0, 0), (1, 1), (2, 3), (5, 5)))
    begin = max(0, at - made.think.count("\n") - before)
    return 0 if made.family == "import" else begin, at + 1 + after


def _lost(made: Project, r: Random) -> list[Span]:
    """The path of the issue leads nowhere: look for the file by its name."""
    name = made.path.rsplit("/", 1)[-1]
    wrong = r.choice(
        (
            f"{r.choice(('app', 'lib', 'code', 'source'))}/{name}",
            f"src/{made.path}",
            name if name != made.path else f"src/{name}",
        )
    )
    issue = made.issue.replace(made.path, wrong)
    shown = f"{r.choice(('', '/builds/', '/home/u/project/'))}{wrong}"
    error = f"FileNotFoundError: [Errno 2] No such file or directory: '{shown}'"
    if r.random() < 0.3:
        error = r.choice((f"FileNotFoundError: {wrong}", f"FileNotFoundError: No such file or directory: {wrong}"))
    return [
        Span(opening(issue), said=False),
        Span(call("Read", "Read the file.", file_path=wrong), said=True),
        Span(observed(error), said=False),
        Span(call("Glob", "Find the file.", pattern=f"**/{name}"), said=True),
        Span(observed(made.path), said=False),
    ]


_NOTHING_HELPS = "the tests fail with all that I tried.<|im_end|>"


def _tried(made: Project, r: Random) -> list[Span]:
    """Edits that do not help, each taken back, then the right one; seldom none is found, and it says so.

    The wrong ones are not trained on: what is learnt is which edits are left when some have failed.
    """
    n_wrong = r.choice((1, 1, 1, 2, 2, 3))
    spans: list[Span] = []
    for attempt in made.attempts[:n_wrong]:
        spans += [
            Span(_attempted(made, attempt), said=False),
            Span(observed(f"Edited {made.path} (1 replacement)."), said=False),
            Span(call("Bash", "Run the tests.", command=TEST_COMMAND), said=True),
            Span(observed(_report(r, 1, "", _failure(made, r, attempt.error))), said=False),
            Span(
                call("Edit", "Take it back.", file_path=made.path, old_string=attempt.new, new_string=attempt.old),
                said=True,
            ),
            Span(observed(f"Edited {made.path} (1 replacement)."), said=False),
        ]
    if n_wrong >= 3 and len(made.attempts) >= 3 and r.random() < 0.3:
        return [
            *spans,
            Span(answer("Nothing helps.", f"I changed nothing in {made.path}: {_NOTHING_HELPS[:-10]}"), said=True),
        ]
    return [*spans, Span(edit_call(made, made.path), said=True)]


def _attempted(made: Project, attempt: Attempt) -> str:
    return call("Edit", attempt.think, file_path=made.path, old_string=attempt.old, new_string=attempt.new)


def _missed(made: Project, r: Random) -> list[Span]:
    """An edit that matches nothing: read again, edit again."""
    wrong = misspell(r, made.old) if len(made.old) > 2 else f"{made.old}x"
    lines = [f"{i}. {text}" for i, text in enumerate(made.files[made.path].splitlines(), 1) if text.strip()]
    error = "\n".join(
        ["ValueError: old_string was not found", *r.sample(lines, min(len(lines), r.choice((0, 0, 1, 3, 5))))]
    )
    if r.random() < 0.25:
        wrong, error = made.new, "ValueError: old_string and new_string are the same"
    return [
        Span(edit_call(made, made.path, wrong), said=False),
        Span(observed(error), said=False),
        Span(call("Read", "Read the file again.", file_path=made.path), said=True),
        Span(observed(show_file(made.path, made.files[made.path])), said=False),
        Span(edit_call(made, made.path), said=True),
    ]


def _given_up(made: Project, r: Random) -> list[Span]:
    """A second edit that fails: say so and stop."""
    spans = _missed(made, r)
    last = r.choice(("ValueError: old_string was not found", "ValueError: old_string and new_string are the same"))
    return [
        *spans[:-1],
        Span(edit_call(made, made.path, misspell(r, made.old)), said=False),
        Span(observed(last), said=False),
        Span(answer("The edit does not match.", f"I could not change {made.path}."), said=True),
    ]


def _many(made: Project, r: Random) -> list[Span]:
    """An edit that matches several times: take the whole line."""
    assert made.whole is not None
    n = made.crowded if made.crowded > 1 else r.randint(2, 5)
    error = f"ValueError: old_string matched {n} times; set replace_all=true or use a more specific old_string"
    places = [f"{i}. {text}" for i, text in enumerate(made.files[made.path].splitlines(), 1) if text.strip()]
    help_lines = r.choice(
        ([], [f"lines {', '.join(str(r.randint(1, 40)) for _ in range(n))}"], r.sample(places, min(n, len(places))))
    )
    old, new = made.whole
    lines = made.files[made.path].split("\n")
    line = next(i for i, text in enumerate(lines) if text.strip() == old.split("\n")[0])
    again = call("Edit", think_line(lines, line), file_path=made.path, old_string=old, new_string=new)
    return [
        Span(edit_call(made, made.path), said=True),
        Span(observed("\n".join([error, *help_lines])), said=False),
        Span(again, said=True),
    ]


def _seconds(r: Random) -> str:
    return r.choice((f"0.00{r.randint(0, 9)}", f"0.0{r.randint(10, 99)}", f"{r.randint(0, 9)}.{r.randint(100, 999)}"))


def _report(r: Random, code: int, out: str, err: str) -> str:
    """What Bash answers, with or without the blank line at its end."""
    text = f"Exit code: {code}\nSTDOUT:\n{out}\nSTDERR:\n{err}"
    return text.rstrip("\n") if r.random() < 0.4 else text


def _plural(n: int) -> str:
    return f"{n} test" if n == 1 else f"{n} tests"


def _good_run(made: Project, r: Random) -> str:
    n = made.n_tests if r.random() < 0.4 else r.choice((1, 2, 3, 4, 5, 6, 8, 9, 12, 15, 23, 31, 48, 107))
    err = f"{_DASHES}\nRan {_plural(n)} in {_seconds(r)}s\n\nOK\n"
    if r.random() < 0.1:
        lib = r.choice(("/usr/lib/python3.12", "/opt/python/lib/python3.11", "/home/user/.venv/lib/python3.13"))
        why = r.choice(("this call is deprecated", "use another name"))
        err = f"{lib}/unittest/case.py:{r.randint(20, 900)}: DeprecationWarning: {why}\n  return fn()\n{err}"
    return _report(r, 0, r.choice(("", "", "", "done\n", "hello\n")), err)


def _bad_run(made: Project, r: Random) -> tuple[str, str, str]:
    changed = f"I changed {made.path}, but the tests do not pass."
    is_guess = made.family in ("op", "off") or (made.family == "ret" and not made.told)  # then it would try on
    kind = r.random() * (0.26 if is_guess else 1.0)
    if kind < 0.08:
        return (
            _report(r, 0, "", f"{_DASHES}\nRan 0 tests in 0.000s\n\nOK\n"),
            "No tests were run.",
            f"I changed {made.path}, but no tests were run.",
        )
    if kind < 0.14:
        return (
            _report(r, 5, "", f"{_DASHES}\nRan 0 tests in 0.000s\n\nNO TESTS RAN\n"),
            "The tests do not pass.",
            changed,
        )
    if kind < 0.2:
        text = _report(r, 1, "", "").split("\n", 1)[1]
        return f"Timed out after {r.choice(('60.0', '120.0', '5.0'))}s\n{text}", "The tests do not pass.", changed
    if kind < 0.26:
        return _report(r, 127, "", "bash: line 1: python: command not found\n"), "The tests do not pass.", changed
    return _report(r, 1, "", _failure(made, r)), "The tests do not pass.", changed


def _failure(made: Project, r: Random, error: str | None = None) -> str:
    base = r.choice(("/opt/w", "/builds", "/home/user/code", "/srv/job")) + r.choice(("", "/1", "/run-7f", "/project"))
    module = made.path.removesuffix(".py").replace("/", "_")
    error = error or r.choice(
        (
            f"NameError: name '{made.old.split()[-1]}' is not defined",
            f"AssertionError: {r.randint(1, 90)} != {r.randint(1, 90)}",
            "AssertionError: None != 4",
            f"AttributeError: 'int' object has no attribute '{made.new.split()[-1]}'",
            "TypeError: unsupported operand type(s)",
            "SyntaxError: invalid syntax",
        )
    )
    kind = r.choice(("ERROR", "FAIL"))
    block = (
        f"{'=' * 70}\n{kind}: test_{module} (test_{module}.Test.test_{module})\n{_DASHES}\n"
        "Traceback (most recent call last):\n"
        f'  File "{base}/tests/test_{module}.py", line {r.randint(5, 40)}, in test_{module}\n'
        f"    self.assertEqual({module}({r.randint(1, 50)}), {r.randint(1, 90)})\n"
        f'  File "{base}/{made.path}", line {r.randint(3, 40)}, in {module}\n{error}\n\n'
    )
    n = r.randint(1, 9)
    return f"{block}{_DASHES}\nRan {_plural(n)} in {_seconds(r)}s\n\nFAILED ({r.choice(('errors', 'failures'))}=1)\n"
