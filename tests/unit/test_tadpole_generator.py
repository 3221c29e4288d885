"""Generated projects: they really fail, are really repaired by their edit, and never use a training word."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from quant.tadpole import words
from quant.tadpole.generator import FAMILIES, Project, demo_project, project, sample

ARGV = [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-q"]


def _passes(files: dict[str, str], folder: Path) -> bool:
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return subprocess.run(ARGV, cwd=folder, capture_output=True, timeout=60, check=False).returncode == 0


def _check(made: Project, folder: Path) -> None:
    buggy = made.files[made.path]
    assert buggy.count(made.old) == 1
    assert buggy.replace(made.old, made.new) == made.fixed[made.path]
    assert made.path in made.issue
    assert not _passes(made.files, folder / "buggy")
    assert _passes(made.fixed, folder / "fixed")


@pytest.mark.parametrize("seed", range(1, 41))
def test_a_demonstration_fails_and_its_edit_repairs_it(seed: int, tmp_path: Path) -> None:
    made = project(seed)
    assert made == project(seed)
    _check(made, tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_asked_for(family: str, tmp_path: Path) -> None:
    made = sample(7, family)
    assert made.family == family
    _check(made, tmp_path)


def test_the_bundled_project_fails_and_its_edit_repairs_it(tmp_path: Path) -> None:
    _check(demo_project(), tmp_path)


def test_demonstrations_use_no_training_word() -> None:
    assert not set(words.TRAIN_NOUNS) & set(words.DEMO_NOUNS)
    train = set(words.TRAIN_NOUNS)
    closed = set(words.PREFIXES)
    for seed in range(1, 41):
        made = project(seed)
        found = set(re.findall(r"[a-z]+", made.path.removesuffix(".py"))) - {"src"}
        assert not (found - closed) & train
        assert found <= set(words.DEMO_NOUNS) | closed
    for seed in range(200):
        found = set(re.findall(r"[a-z]{4,}", sample(seed).path))
        assert not found & set(words.DEMO_NOUNS)
