"""The review document says the important things first and is still a diff."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from unidiff import PatchSet

from agent.changes.changeset import assemble
from agent.changes.diff import hunks
from agent.changes.merge import conflict_block, merge
from agent.changes.outlook import Outlook, Prospect
from agent.changes.review import render
from agent.jail.risk import flag
from agent.types import FileState, PathDelta, TestOutcome
from tests.unit.test_changes_proposals import EDITED, LONG, proposal


def git_apply(folder: Path, text: str) -> None:
    done = subprocess.run(
        ["git", "apply"], cwd=folder, input=text.encode(), capture_output=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()


def test_a_person_reads_on_top_what_matters() -> None:
    text = render(proposal())
    head = text[: text.index("diff --git")]
    for said in (
        "FrogNano proposes: Fix it", "20260101-120000-abcd in /w", "DEMONSTRATION model",
        "the model ended by itself (agent)", "before failed, exit code 1", "after  stopped by the time limit",
        "| 1 failed", "no evidence", "Done – fixed.", "NEVER APPLIED", "b\\xff.py",
        "APPLIED ONLY WHERE YOU NAME THE FILE", "conftest.py (deleted)",
        "python-startup:", "LOOK AT", "a.txt (modified)", "executable:", "LEFT OUT",
        ".git/config", "4 files, 5 hunks",
    ):  # fmt: skip
        assert said in head, said
    assert all(line.startswith("#") for line in head.splitlines())
    unchecked = replace(proposal(), tests_before=None, tests_after=None)
    assert "not checked: pytest" in render(unchecked)
    passed = replace(proposal(), test_command=None, tests_after=TestOutcome(exit_code=0, tail=""))
    assert "Tests    not checked" in render(passed)
    assert "passed" not in render(passed)


def test_every_file_has_its_outlook() -> None:
    text = render(
        proposal(),
        {
            "a.txt": Outlook(prospect=Prospect.MERGED, detail="then by hand: chmod +x a.txt"),
            "b\udcff.py": Outlook(prospect=Prospect.CLEAN),
            "conftest.py": Outlook(prospect=Prospect.CLEAN),
            "link": Outlook(prospect=Prospect.BY_HAND, detail="ln -sfn a.txt link"),
        },
    )
    rows = re.findall(r"^#   (\S+) \(\w+\) +(hunks? [\d-]+|no hunk) +(.+)$", text, re.MULTILINE)
    assert [(name, hunks, what[:36]) for name, hunks, what in rows] == [
        ("a.txt", "hunks 1-3", "merges with your edits; then by hand"),
        ("b\\xff.py", "no hunk", "never applied: the name is not UTF-8"),
        ("conftest.py", "hunk 4", "applies cleanly; only where you name"),
        ("link", "hunk 5", "by hand: ln -sfn a.txt link"),
    ]


def test_it_applies_as_a_diff(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(LONG)
    (tmp_path / "conftest.py").write_bytes(b"x\n")
    git_apply(tmp_path, render(proposal()))
    assert (tmp_path / "a.txt").read_bytes() == EDITED
    assert not (tmp_path / "conftest.py").exists()
    assert (tmp_path / "link").readlink() == Path("a.txt")
    assert (tmp_path / os.fsdecode(b"b\xff.py")).read_bytes() == b"\x00\xff"


def test_nothing_in_the_words_of_others_becomes_a_diff() -> None:
    evil = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/q b/q\n\x1b[2J\u202e"
    changes = assemble([PathDelta(path="a", before=FileState(data=b"1\n"), after=FileState(data=b"2\n"))])
    hostile = replace(
        proposal(made=changes),
        final_message=evil,
        title=evil,
        notes=(evil,),
        tests_after=TestOutcome(exit_code=0, tail=evil),
    )
    text = render(hostile)
    assert [file.path for file in PatchSet(text)] == ["a"]
    assert "\x1b" not in text
    assert "\u202e" not in text


def open_hunks(text: str) -> list[str]:
    return re.findall(r"^@@ .* @@ hunk (\d+)$", text, re.MULTILINE)


def test_hunks_are_numbered_over_the_whole_diff_and_keep_their_numbers() -> None:
    kept = proposal()
    assert open_hunks(render(kept)) == [str(hunk.number) for hunk in hunks(kept.changes)] == ["1", "2", "3", "4", "5"]
    later = render(kept.with_applied(["conftest.py"], [2]))
    assert open_hunks(later) == ["1", "3", "5"]
    assert "State    partly applied; the rest stays a proposal" in later
    assert "# hunk 2 of a.txt is in place already:\n#   @@ -28,7 +28,7 @@\n" in later
    assert "# hunk 4 of conftest.py is in place already:" in later


def test_discarded_hunks_are_marked_and_no_part_of_the_diff(tmp_path: Path) -> None:
    text = render(proposal().with_discarded(hunks=[1, 5]))
    assert open_hunks(text) == ["2", "3", "4"]
    assert "hunks 1-3  hunk 1 discarded" in text
    assert "hunk 5     discarded" in text
    assert "# hunk 1 of a.txt was discarded:\n#   @@ -3,7 +3,7 @@\n" in text
    (tmp_path / "a.txt").write_bytes(LONG)
    (tmp_path / "conftest.py").write_bytes(b"x\n")
    git_apply(tmp_path, text)
    assert (tmp_path / "a.txt").read_bytes() == EDITED.replace(b"five\n", b"line 5\n")
    assert not (tmp_path / "link").is_symlink()
    assert [(file.path, len(file)) for file in PatchSet(text)][::2] == [("a.txt", 2), ("conftest.py", 1)]


def test_a_file_that_is_settled_has_no_section_of_its_own() -> None:
    text = render(proposal().with_applied(["b\udcff.py"], [1, 2, 3]).with_discarded(files=["link"]))
    assert [file.path for file in PatchSet(text)] == ["conftest.py"]
    assert "# b\\xff.py (created) is in place already\n" in text


def test_a_conflict_is_shown_as_three_sides() -> None:
    outcome = merge(b"0\na\nb\nc\n", b"a\nB\nc\n", b"0\na\nbb\nc\n")
    outlook = Outlook(prospect=Prospect.CONFLICT, detail="the same lines", conflicts=outcome.conflicts)
    text = render(proposal(), {"a.txt": outlook})
    assert "CONFLICT: the same lines" in text
    assert (
        "# CONFLICT in a.txt: nothing of this file is applied, but for hunks elsewhere in it by number\n"
        "#   <<<<<<< yours, the file now, line 2\n#   B\n#   ||||||| base, when the run began, line 3\n#   b\n"
        "#   =======\n#   bb\n#   >>>>>>> proposal, line 3\n"
    ) in text
    assert len(PatchSet(text)) == len(PatchSet(render(proposal())))


def test_changes_alone_and_nothing_at_all() -> None:
    assert "diff --git" in render(proposal().changes)
    assert render(assemble([])) == "#\n# 0 files, 0 hunks\n#\n"


def test_a_large_binary_file_is_named_not_shown() -> None:
    delta = PathDelta(path="a b.bin", before=None, after=FileState(data=os.urandom(200_000)))
    text = render(flag(assemble([delta]), "/w", lambda path: False))
    assert "Binary files /dev/null and b/a b.bin differ\n" in text
    assert len(text) < 2_000


def test_no_name_forges_a_line_and_binary_conflicts_are_not_spelt_out() -> None:
    path = ".git/a\n# Tests: passed\tby all\x1b"
    made = assemble([PathDelta(path=path, before=None, after=FileState(data=b"x\n"))])
    head = render(proposal(made=made)).split("diff --git")[0]
    assert ".git/a\\n# Tests: passed\\tby all\\x1b" in head
    assert not any(line.startswith(("# # Tests", "# Tests: passed")) for line in head.split("\n"))
    conflict = merge(b"\0a", b"\0b", b"\0ccc").conflicts[0]
    assert "(2 bytes that are not text)\n=======\n(4 bytes that are not text)\n" in conflict_block(conflict)
