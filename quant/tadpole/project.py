"""A small broken project, and what is known about it."""

from dataclasses import dataclass

TEST_COMMAND = "python -m unittest discover -s tests -q"
THINK = {
    "name": "A name is misspelt.",
    "stale": "An old name is still used.",
    "attr": "The attribute has a wrong name.",
    "import": "An import is missing.",
}


@dataclass(frozen=True)
class Attempt:
    """An edit after which the tests still fail."""

    think: str
    old: str
    new: str
    error: str  # what the test says then


@dataclass(frozen=True)
class Project:
    """A workspace with one bug, and what is known about it."""

    files: dict[str, str]
    issue: str
    test_command: str
    family: str
    fixed: dict[str, str]
    path: str  # the file with the bug
    old: str  # the edit that repairs it
    new: str
    think: str  # what there is to say before that edit
    n_tests: int
    whole: tuple[str, str] | None = None  # the same edit, with the whole line
    crowded: int = 1  # how often `old` occurs: where it is more than once, the whole line is needed
    told: bool = True  # whether the issue says what is right
    attempts: tuple[Attempt, ...] = ()  # edits that look as likely, where the issue does not say which is right


def think_line(buggy: list[str], line: int) -> str:
    """A line as Read shows it: its number is what it is found by."""
    return f"{line + 1}. {buggy[line]}"


def think_lines(buggy: list[str], line: int) -> str:
    """A function down to its faulty line, as Read shows it."""
    start = next(i for i in range(line, -1, -1) if buggy[i].strip().startswith("def "))
    return "\n".join(think_line(buggy, i) for i in range(start, line + 1))
