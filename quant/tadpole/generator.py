"""Generated projects, each with one small bug: for training, and with words never trained on for demonstrations.

Standard library only; the same seed gives the same project.
"""

from pathlib import Path
from random import Random

from quant.tadpole import code, phrases
from quant.tadpole.project import TEST_COMMAND, THINK, Project, think_line, think_lines
from quant.tadpole.words import Names, Split, misspell

# The families of bugs and their shares.
FAMILIES = {"name": 20, "attr": 16, "stale": 14, "import": 14, "self": 12, "ret": 14, "op": 10}
DEMO_FOLDER = Path(__file__).parent / "demo"


def project(seed: int, split: Split = "demo", family: str | None = None) -> Project:
    """Make the project of a seed; the demonstration split has words that training never saw."""
    random = Random(f"tadpole-{split}-{seed}")
    wanted = family or random.choices(list(FAMILIES), list(FAMILIES.values()))[0]
    while True:
        made = _attempt(random, split, wanted)
        if made is not None:
            return made


def sample(seed: int, family: str | None = None) -> Project:
    """Make a project of the training split."""
    return project(seed, "train", family)


def demo_project() -> Project:
    """The bundled project of the plain demonstration."""
    workspace = DEMO_FOLDER / "workspace"
    files = {p.relative_to(workspace).as_posix(): p.read_text("utf-8") for p in sorted(workspace.rglob("*.py"))}
    path, old, new = "depot/parcel.py", "lenght", "length"
    fixed = files | {path: files[path].replace(old, new)}
    issue = (DEMO_FOLDER / "ISSUE.md").read_text("utf-8").strip()
    return Project(files, issue, TEST_COMMAND, "attr", fixed, path, old, new, "", 3)


def _attempt(random: Random, split: Split, family: str) -> Project | None:
    names = Names(random, split)
    maker = code.Maker(random, names)
    pieces = [random.choice(code.MAKERS)(maker) for _ in range(random.choice((1, 2, 2, 2, 3)))]
    kinds = ("attr", "attr_stale") if family == "attr" else (family,)
    sites = [(piece, bug) for piece in pieces for bug in piece.bugs if bug.family in kinds]
    if not sites:
        return None
    piece, bug = random.choice(sites)
    head = _imports(random, pieces, always=family == "import")
    good = _module(random, names, head, pieces)
    edit = _drop_import(good, head, bug.wrong) if family == "import" else _put(good, piece, bug)
    if edit is None:
        return None
    buggy, old, new, line = edit
    text, right = "\n".join(buggy) + "\n", "\n".join(good) + "\n"
    if text.count(old) != 1 or text.replace(old, new) != right:
        return None
    return _project(random, names, pieces, (piece, bug), (text, right), (old, new), line, buggy, own=split == "demo")


def _imports(random: Random, pieces: list[code.Piece], *, always: bool) -> list[str]:
    lines = [line for piece in pieces for line in piece.imports]
    if always or random.random() < 0.3:
        lines.append(random.choice([f"import {m}" for m in code.MODULES]))
    return sorted(set(lines))


def _module(random: Random, names: Names, head: list[str], pieces: list[code.Piece]) -> list[str]:
    topic = names.word().capitalize()
    topic = f"{topic} {random.choice(('helpers', 'tools', 'functions', 'rules'))}"
    lines = [f'"""{topic}."""', ""] if random.random() < 0.6 else []
    lines += head
    for piece in pieces:
        lines += [""] * random.choice((1, 2, 2)) if lines and lines[-1] else [""] if lines else []
        lines += piece.lines
    return lines


def _put(good: list[str], piece: code.Piece, bug: code.Bug) -> tuple[list[str], str, str, int] | None:
    start = next(i for i in range(len(good)) if good[i : i + len(piece.lines)] == piece.lines)
    buggy = list(good)
    buggy[start + bug.line] = bug.text
    return buggy, bug.old, bug.new, start + bug.line


def _drop_import(good: list[str], head: list[str], module: str) -> tuple[list[str], str, str, int] | None:
    """Take an import out; it must not be the first, since the edit adds it after the first."""
    gone = f"import {module}"
    if len(head) < 2 or gone != head[1]:
        return None
    buggy = list(good)
    buggy.remove(gone)
    line = next(i for i, text in enumerate(buggy) if f"{module}." in text)
    return buggy, head[0], f"{head[0]}\n{gone}", line


def _project(
    random: Random,
    names: Names,
    pieces: list[code.Piece],
    site: tuple[code.Piece, code.Bug],
    texts: tuple[str, str],
    edit: tuple[str, str],
    line: int,
    buggy: list[str],
    *,
    own: bool,
) -> Project | None:
    piece, bug = site
    folder, module = names.new(0), names.new(0.3)
    path = random.choice((f"{module}.py", f"{folder}/{module}.py", f"{folder}/{module}.py", f"src/{module}.py"))
    dotted = path.removesuffix(".py").replace("/", ".")
    case = f"{module.title().replace('_', '')}Test"
    tests, n_tests = _tests(dotted, case, pieces)
    test_path = f"tests/test_{module}.py"
    source = buggy[line].strip()
    place = phrases.Place(path, line + 1, piece.name, source, f"test_{piece.name}", f"test_{module}.{case}")
    family = "attr" if bug.family == "attr_stale" else bug.family
    whole = None if family == "import" else (source, texts[1].split("\n")[line].strip())
    if whole is not None and family in ("self", "op") and texts[0].count(source) == 1:
        edit = whole  # what stands around a short piece is easier to copy than to leave out
    return Project(
        files={path: texts[0], test_path: tests},
        issue=phrases.word_issue(random, place, bug, own=own),
        test_command=TEST_COMMAND,
        family=family,
        fixed={path: texts[1], test_path: tests},
        path=path,
        old=edit[0],
        new=edit[1],
        think=_think(family, buggy, line),
        n_tests=n_tests,
        whole=whole,
    )


def _think(family: str, buggy: list[str], line: int) -> str:
    return think_lines(buggy, line) if family == "op" else THINK.get(family) or think_line(buggy, line)


def _tests(dotted: str, case: str, pieces: list[code.Piece]) -> tuple[str, int]:
    lines = ["import unittest", "", f"from {dotted} import {', '.join(sorted(p.exported for p in pieces))}", "", ""]
    lines.append(f"class {case}(unittest.TestCase):")
    for piece in pieces:
        lines.append(f"    def test_{piece.name}(self):")
        lines += [f"        self.assertEqual({expression}, {value})" for expression, value in piece.tests]
        lines.append("")
    lines += ["", 'if __name__ == "__main__":', "    unittest.main()"]
    return "\n".join(lines) + "\n", len(pieces)


__all__ = ["FAMILIES", "TEST_COMMAND", "Project", "demo_project", "misspell", "project", "sample"]
