"""What shows that the test set is unseen: words, shapes of functions and wordings of issues, compared with training."""

import ast
import builtins
import hashlib
import keyword
import re
import sys
from collections.abc import Iterator
from random import Random

from quant.tadpole import code, modules, refusals
from quant.tadpole.generator import project
from quant.tadpole.project import Project
from quant.tadpole.tasks import Task
from quant.tadpole.words import PREFIXES, TRAIN_NOUNS

_KNOWN = {*keyword.kwlist, *dir(builtins), "self", *code.VERBS, *PREFIXES}
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def identifiers(text: str) -> set[str]:
    """The names that a module makes: functions, classes, parameters, variables and attributes of its own."""
    out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            out.add(node.name)
        elif isinstance(node, ast.arg):
            out.add(node.arg)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            out.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in out - _KNOWN if not name.startswith("__") and len(name) > 2}


def seen_identifiers(text: str) -> set[str]:
    """Those that training could make: every word of the name is one of its own."""
    train = {*TRAIN_NOUNS, *(f"{noun}s" for noun in TRAIN_NOUNS), *PREFIXES, *code.VERBS}
    return {name for name in identifiers(text) if set(re.findall("[a-z]+", name.lower())) <= train}


def shapes(text: str) -> set[str]:
    """A hash of each function of more than one statement, with its names and docstring taken out."""
    out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if len(body) == 1 and len(list(ast.walk(body[0]))) < 12:  # `return a + b` is anybody's
                continue
            copy = ast.parse(
                "def f():\n" + "\n".join(f"    {line}" for b in body for line in ast.unparse(b).split("\n"))
            )
            out.add(hashlib.sha256(_anonymous(copy).encode()).hexdigest())
    return out


def _anonymous(tree: ast.Module) -> str:
    order: dict[str, str] = {}
    for node in ast.walk(tree):
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and name not in dir(builtins) and name not in sys.stdlib_module_names:
                setattr(node, field, order.setdefault(name, f"v{len(order)}"))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            node.attr = order.get(node.attr, node.attr)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, str)):
            node.value = 0
    return ast.dump(tree)


def skeleton(issue: str, files: dict[str, str]) -> str:
    """The wording of an issue: paths, numbers and every name of the files taken out, and what stands in quotes."""
    for path in files:
        issue = issue.replace(path, "PATH").replace(path.removesuffix(".py").replace("/", "."), "PATH")
    names = {name for text in files.values() for name in _NAME.findall(text)} - {"line", "in", "name", "the", "is"}
    text = _NAME.sub(lambda m: "N" if m[0] in names else m[0], issue)
    text = re.sub(r"(['\"`]).*?\1", "Q", text)
    return re.sub(r"[\d\W_]+", " ", re.sub(r"^(\s+\S.*|>.*)$", "", text, flags=re.MULTILINE)).strip()


def training(n: int) -> Iterator[Project]:
    """Projects of the training."""
    for seed in range(n):
        yield project(seed, "train") if seed % 3 == 0 else modules.make(seed, "train")


def violations(tasks: list[Task], n: int) -> list[str]:
    """What a test set has in common with `n` projects of the training; nothing, when it is unseen."""
    wordings = {skeleton(refusals.issue(Random(seed)), {}) for seed in range(n)}
    known_shapes: set[str] = set()
    texts: set[str] = set()
    for made in training(n):
        wordings.add(skeleton(made.issue, made.files))
        known_shapes |= shapes(made.fixed[made.path])
        texts |= {made.issue, *made.files.values()}
    out = []
    for task in tasks:
        text = task.files[task.path]
        if task.issue in texts or text in texts:
            out.append(f"{task.name}: the same text")
        if skeleton(task.issue, task.files) in wordings:
            out.append(f"{task.name}: wording {skeleton(task.issue, task.files)!r}")
        out += [f"{task.name}: name {name}" for name in seen_identifiers(text)]
        if shapes(text) & known_shapes:
            out.append(f"{task.name}: shape of a function")
    return out
