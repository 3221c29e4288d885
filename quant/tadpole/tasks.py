"""The test set: 200 tasks whose files, names, templates and wordings training never has.

The first are written by hand (`handwritten/*.txt`): a module, its tests, and bugs as the right line and the wrong one,
each with its issue, where `{n}` is the number of the faulty line. The others come from `heldout.py`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from quant.tadpole import heldout, heldout_wordings, modules, templates

FOLDER = Path(__file__).parent / "handwritten"
KINDS = ("name", "self", "import", "ret", "op", "off")
N_TASKS = 200
SAMPLE = 10  # every tenth task: the twenty of the tests
_POOL = templates.blocks(heldout.TEMPLATES)
_LINES = (10, 40)
_AGAIN = 1000
_OF = {"attr": "name", "stale": "name"}


@dataclass(frozen=True)
class Task:
    """One broken project, and what a repair may touch."""

    name: str
    kind: str
    files: dict[str, str]
    issue: str
    path: str
    line: int  # index of the faulty line; where an import is missing, of its first use
    by_hand: bool
    right: str  # the file without the bug

    def is_clean(self, text: str) -> bool:
        """Whether a text of the faulty file differs in the faulty line only, or by an import and blank lines."""
        before, after = self.files[self.path].split("\n"), text.split("\n")
        if self.kind != "import":
            return len(before) == len(after) and all(
                a == b for i, (a, b) in enumerate(zip(before, after, strict=True)) if i != self.line
            )
        left = [line for line in before if line.strip()]
        grown = [line for line in after if line.strip()]
        extra = [i for i, line in enumerate(grown) if re.match(r"(import|from) \w+", line) and line not in left]
        return len(extra) == 1 and grown[: extra[0]] + grown[extra[0] + 1 :] == left


def _read(path: Path) -> list[Task]:
    head, *parts = re.split(r"^---- (\w+)\n", path.read_text("utf-8"), flags=re.MULTILINE)
    first, code = head.split("\n", 1)
    target = first.removeprefix("path: ")
    sections = list(zip(parts[::2], parts[1::2], strict=True))
    tests = sections[0][1]
    out = []
    for number, (kind, text) in enumerate(sections[1:], 1):
        right, wrong, issue = text.split("\n", 2)
        lines = code.split("\n")
        at = lines.index(right.removeprefix("- "))
        wrong = wrong[2:]
        if kind == "import":
            bad = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines[:at] + lines[at + 1 :]))
            name = right.split()[-1]
            at = next(i for i, line in enumerate(bad.split("\n")) if re.search(rf"\b{name}\b", line))
        else:
            bad = "\n".join([*lines[:at], wrong, *lines[at + 1 :]])
        files = {target: bad, f"tests/test_{Path(target).stem}.py": tests}
        issue = issue.replace("{n}", str(at + 1)).strip()
        out.append(Task(f"{path.stem}-{number}", _OF.get(kind, kind), files, issue, target, at, True, code))
    return out


def by_hand() -> list[Task]:
    """The tasks that were written by hand."""
    return [task for path in sorted(FOLDER.glob("*.txt")) for task in _read(path)]


def generated(seed: int, kind: str) -> Task:
    """A task of the templates that training never has."""
    wanted = ("name", "attr", "stale")[seed // len(KINDS) % 3] if kind == "name" else kind
    made = modules.make(seed, "demo", wanted, _POOL, heldout_wordings.word)
    while not _LINES[0] <= made.files[made.path].count("\n") <= _LINES[1]:
        seed += _AGAIN
        made = modules.make(seed, "demo", wanted, _POOL, heldout_wordings.word)
    bad, good = made.files[made.path].split("\n"), made.fixed[made.path].split("\n")
    line = next((i for i, (a, b) in enumerate(zip(bad, good, strict=False)) if a != b), 0)
    return Task(f"{kind}-{seed}", kind, made.files, made.issue, made.path, line, False, made.fixed[made.path])


def all_tasks() -> list[Task]:
    """The 200, the kinds about equally often, sorted by kind and then mixed."""
    out = by_hand()
    count = {kind: sum(task.kind == kind for task in out) for kind in KINDS}
    seed = 0
    while len(out) < N_TASKS:
        kind = min(KINDS, key=lambda k: count[k])
        out.append(generated(seed, kind))
        count[kind] += 1
        seed += 1
    return sorted(out, key=lambda task: (KINDS.index(task.kind), sum(task.name.encode()) * 7919 % 1009, task.name))


def sample() -> list[Task]:
    """Twenty of them, always the same."""
    return all_tasks()[::SAMPLE]
