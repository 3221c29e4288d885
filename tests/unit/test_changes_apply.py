"""Applying to a real folder: what the user did meanwhile stays, and nothing is half done."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.changes.apply import ApplyOutcome, apply_to_disk
from agent.changes.changeset import assemble
from agent.changes.diff import hunks, patch
from agent.changes.preview import foresee_on_disk
from agent.changes.proposals import Proposal, ProposalState, ProposalStore
from agent.changes.tree import Tree
from agent.errors import ProposalError, UsageError, WorkspaceError
from agent.jail.risk import flag
from agent.types import ExitReason, FileState, JailInfo, ModelInfo, PathDelta

LINES = [b"line %d\n" % i for i in range(60)]
BASE = b"".join(LINES)


def edited(**changes: bytes) -> bytes:
    lines = [*LINES]
    for name, line in changes.items():
        lines[int(name[1:])] = line
    return b"".join(lines)


def text(data: bytes, mode: int = 0o644) -> FileState:
    return FileState(data=data, mode=mode)


def link(target: str) -> FileState:
    return FileState(data=None, mode=0o777, link=target)


def proposal(root: Path, *deltas: PathDelta, is_ignored: Callable[[str], bool] = lambda path: False) -> Proposal:
    changes = flag(assemble(deltas), str(root), is_ignored)
    return Proposal(
        run_id="r", title="t", workspace=str(root), folder=str(root), created_s=0.0, exit_reason=ExitReason.AGENT,
        final_message="", changes=changes, patch=patch(changes), model=ModelInfo(kind="scripted", name="s"),
        jail=JailInfo(backend="files"),
    )  # fmt: skip


def delta(path: str, before: FileState | None, after: FileState | None, base_known: bool = True) -> PathDelta:
    return PathDelta(path=path, before=before, after=after, base_known=base_known)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    folder.mkdir()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def reasons(outcome: ApplyOutcome) -> dict[str, str]:
    return {info.path: info.reason for info in outcome.conflicts}


def test_every_kind_of_change(root: Path) -> None:
    (root / "mod").write_bytes(b"1\n")
    (root / "gone" / "deep").mkdir(parents=True)
    (root / "gone" / "deep" / "x").write_bytes(b"x")
    (root / "old").write_bytes(b"moved")
    (root / "old").chmod(0o751)
    (root / "run").write_bytes(b"#!\n")
    (root / "to_link").write_bytes(b"text")
    (root / "link").symlink_to("mod")
    (root / "from_link").symlink_to("mod")
    outcome = apply_to_disk(
        proposal(
            root,
            delta("mod", text(b"1\n"), text(b"2\n")),
            delta("new/er/file", None, text(b"n\n", 0o755)),
            delta("empty", None, text(b"")),
            delta("gone/deep/x", text(b"x"), None),
            delta("old", text(b"moved", 0o751), None),
            delta("sub/renamed", None, text(b"moved", 0o751)),
            delta("run", text(b"#!\n"), text(b"#!\n", 0o755)),
            delta("to_link", text(b"text"), link("mod")),
            delta("link", link("mod"), link("run")),
            delta("from_link", link("mod"), text(b"a file")),
            delta("new_link", None, link("sub/renamed")),
        )
    )
    assert outcome.conflicts == outcome.failed == outcome.skipped == ()
    assert outcome.proposal.state is ProposalState.APPLIED
    assert names(root) == [
        "empty", "from_link", "link", "mod", "new", "new/er", "new/er/file", "new_link", "run", "sub",
        "sub/renamed", "to_link",
    ]  # fmt: skip
    assert (root / "mod").read_bytes() == b"2\n"
    assert stat.S_IMODE((root / "sub/renamed").stat().st_mode) == 0o751
    assert (root / "run").stat().st_mode & 0o111
    assert (root / "new/er/file").stat().st_mode & 0o100
    assert [os.readlink(root / name) for name in ("to_link", "link", "new_link")] == ["mod", "run", "sub/renamed"]
    assert not (root / "from_link").is_symlink()
    again = apply_to_disk(outcome.proposal)
    assert again.applied == ()
    assert len(again.skipped) == 10
    untouched = apply_to_disk(proposal(root, delta("mod", text(b"1\n"), text(b"2\n"))))
    assert untouched.applied == ("mod",), "what is there already counts as applied"


def test_edits_elsewhere_are_kept_and_the_same_lines_conflict(root: Path) -> None:
    (root / "a").write_bytes(edited(l1=b"mine\n"))
    (root / "b").write_bytes(edited(l30=b"mine\n"))
    kept = proposal(
        root,
        delta("a", text(BASE), text(edited(l30=b"run's\n"))),
        delta("b", text(BASE), text(edited(l30=b"run's\n", l50=b"too\n"))),
    )
    outcome = apply_to_disk(kept)
    assert (root / "a").read_bytes() == edited(l1=b"mine\n", l30=b"run's\n")
    assert (root / "b").read_bytes() == edited(l30=b"mine\n"), "nothing of a file with a conflict"
    assert reasons(outcome) == {"b": "the same lines changed meanwhile (line 31)"}
    assert outcome.conflicts[0].conflicts[0].ours == b"run's\n"
    assert outcome.proposal.state is ProposalState.CONFLICT
    assert [change.path for change in outcome.proposal.remaining().changes] == ["b"]
    part = apply_to_disk(outcome.proposal, hunks=[hunks(kept.changes)[-1].number])
    assert (root / "b").read_bytes() == edited(l30=b"mine\n", l50=b"too\n"), "its other hunk can be taken"
    assert part.proposal.state is ProposalState.PARTLY_APPLIED


def test_hunks_and_files(root: Path) -> None:
    (root / "a").write_bytes(BASE)
    (root / "b").write_bytes(b"b\n")
    kept = proposal(
        root,
        delta("a", text(BASE), text(edited(l5=b"A\n", l30=b"B\n", l55=b"C\n"), 0o755)),
        delta("b", text(b"b\n"), text(b"B\n")),
    )
    outcome = apply_to_disk(kept, hunks=[2])
    assert (root / "a").read_bytes() == edited(l30=b"B\n")
    assert not (root / "a").stat().st_mode & 0o111
    assert outcome.proposal.applied_hunks == (2,)
    outcome = apply_to_disk(outcome.proposal, files=["b"])
    assert (root / "b").read_bytes() == b"B\n"
    assert outcome.proposal.state is ProposalState.PARTLY_APPLIED
    outcome = apply_to_disk(outcome.proposal)
    assert (root / "a").read_bytes() == edited(l5=b"A\n", l30=b"B\n", l55=b"C\n")
    assert (root / "a").stat().st_mode & 0o111, "the last hunk brings the mode"
    assert outcome.proposal.state is ProposalState.APPLIED
    for unknown in ({"files": ["zzz"]}, {"hunks": [9]}, {"hunks": [0]}):
        with pytest.raises(UsageError) as caught:
            apply_to_disk(kept, **unknown)  # type: ignore[arg-type]
        assert caught.value.hint


def test_what_changed_meanwhile_is_never_lost(root: Path) -> None:
    (root / "edited").write_bytes(b"mine")
    (root / "made").write_bytes(b"mine")
    (root / "moved").write_bytes(b"mine")
    (root / "target").write_bytes(b"mine")
    (root / "source").write_bytes(b"s")
    (root / "unknown").write_bytes(b"mine")
    (root / "is_folder").mkdir()
    (root / "dir").write_bytes(b"was a folder")
    (root / "now_link").symlink_to("edited")
    kept = proposal(
        root,
        delta("edited", text(b"other"), None),
        delta("made", None, text(b"run's")),
        delta("moved", text(b"base"), None),
        delta("moved_to", None, text(b"base")),
        delta("source", text(b"s"), None),
        delta("target", None, text(b"s")),
        delta("deleted", text(b"base\n"), text(b"new\n")),
        delta("unknown", text(b"x"), text(b"y"), base_known=False),
        delta("is_folder", text(b"x"), text(b"y")),
        delta("dir/below", None, text(b"y")),
        delta("now_link", text(b"x\n"), text(b"y\n")),
    )
    before = names(root)
    outcome = apply_to_disk(kept)
    assert names(root) == before
    assert outcome.applied == ()
    assert set(reasons(outcome)) == {
        "edited", "made", "moved_to", "target", "deleted", "unknown", "is_folder", "dir/below", "now_link",
    }  # fmt: skip
    assert all((root / name).read_bytes() == b"mine" for name in ("edited", "made", "moved", "target", "unknown"))


def test_flags_decide_what_is_applied(root: Path) -> None:
    kept = proposal(
        root,
        delta("plain.py", None, text(b"1")),
        delta("conftest.py", None, text(b"1")),
        delta("out.log", None, text(b"1")),
        delta(".hg/hgrc", None, text(b"1")),
        delta("escape", None, link("../outside")),
        delta("bad\udcff", None, text(b"1")),
        is_ignored=lambda path: path == "out.log",
    )
    outcome = apply_to_disk(kept)
    assert outcome.applied == ("plain.py",)
    assert outcome.proposal.state is ProposalState.PARTLY_APPLIED
    assert len(outcome.skipped) == 5
    assert "name the file" in dict(outcome.skipped)["conftest.py"]
    number = next(hunk.number for hunk in hunks(kept.changes) if hunk.path == "conftest.py")
    assert apply_to_disk(kept, hunks=[number]).applied == (), "a hunk's number is no consent"
    named = apply_to_disk(outcome.proposal, files=["conftest.py", ".hg/hgrc", "escape"])
    assert named.applied == ("conftest.py",)
    flagged = apply_to_disk(named.proposal, include_flagged=True)
    assert flagged.applied == ("out.log",)
    assert names(root) == ["conftest.py", "out.log", "plain.py"]
    assert flagged.proposal.state is ProposalState.APPLIED


def test_a_proposal_without_flags_still_never_leaves_the_workspace(root: Path) -> None:
    (root / "out").symlink_to("..")
    (root / "d").mkdir()
    (root / "loop").symlink_to("d")
    changes = assemble([
        delta("../evil", None, text(b"1")), delta("/tmp/evil", None, text(b"1")), delta("a/../../e", None, text(b"")),
        delta("out/evil", None, text(b"1")), delta("loop/evil", None, text(b"1")), delta("l", None, link("out/x")),
        delta("m", None, link("d/../../x")), delta("fifo", None, FileState(data=None)), delta("", None, text(b"1")),
    ])  # fmt: skip
    outcome = apply_to_disk(replace(proposal(root), changes=changes), include_flagged=True)
    assert outcome.applied == ()
    assert names(root) == ["d", "loop", "out"]
    assert os.listdir(root.parent) == ["w"]


def test_files_and_folders_change_places(root: Path) -> None:
    (root / "a").write_bytes(b"file")
    (root / "b").mkdir()
    (root / "b" / "x").write_bytes(b"x")
    outcome = apply_to_disk(
        proposal(
            root,
            delta("a", text(b"file"), None),
            delta("a/below", None, text(b"1")),
            delta("b/x", text(b"x"), None),
            delta("b", None, text(b"2")),
        )
    )
    assert outcome.conflicts == ()
    assert names(root) == ["a", "a/below", "b"]


def test_rights_owner_attributes_and_hard_links(root: Path) -> None:
    path = root / "f"
    path.write_bytes(b"1\n")
    path.chmod(0o640)
    os.link(path, root.parent / "other name")
    try:
        os.setxattr(path, "user.note", b"kept")
        has_attributes = True
    except OSError:
        has_attributes = False
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
        os.chown(root, 1234, 2345)
    apply_to_disk(
        proposal(
            root,
            delta("f", text(b"1\n"), text(b"2\n", 0o755)),
            delta("d/new", None, text(b"n", 0o6755)),
            delta("d/x", None, text(b"x")),
        )
    )
    assert path.read_bytes() == b"2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640 | 0o111, (
        "the bits that the run changed, on the mode that is there"
    )
    assert (root.parent / "other name").read_bytes() == b"1\n", "another name may lie outside"
    if has_attributes:
        assert os.getxattr(path, "user.note") == b"kept"
    if os.geteuid() == 0:
        for made in (path, root / "d", root / "d" / "x"):
            assert (made.stat().st_uid, made.stat().st_gid) == (1234, 2345)
    assert not (root / "d" / "new").exists(), "setuid is never applied"


def test_a_save_in_the_very_moment_is_merged_not_lost(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "f"
    path.write_bytes(BASE)
    kept = proposal(root, delta("f", text(BASE), text(edited(l30=b"run's\n"))))
    saves = [edited(l1=b"first\n"), edited(l1=b"second\n")]
    flush = os.fsync

    def save_meanwhile(descriptor: int) -> None:
        flush(descriptor)
        if saves and stat.S_ISREG(os.fstat(descriptor).st_mode):
            path.write_bytes(saves.pop(0))

    monkeypatch.setattr("agent.changes.tree.os.fsync", save_meanwhile)
    outcome = apply_to_disk(kept)
    assert outcome.applied == ("f",)
    assert path.read_bytes() == edited(l1=b"second\n", l30=b"run's\n")
    assert names(root) == ["f"]


def test_trouble_with_one_file_stops_no_other(root: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (root / "locked").mkdir()
    (root / "locked" / "f").write_bytes(b"1")
    (root / "locked").chmod(0o555)
    try:
        outcome = apply_to_disk(
            proposal(
                root,
                delta("a", None, text(b"1")),
                delta("locked/f", text(b"1"), text(b"2")),
                delta("z", None, text(b"1")),
            )
        )
    finally:
        (root / "locked").chmod(0o755)
    assert outcome.applied == ("a", "z")
    assert "check who may write" in dict(outcome.failed)["locked/f"]


FULL_DISK = """
    import os, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from tests.unit.test_changes_apply import apply_to_disk, delta, names, proposal, text
    root = Path(sys.argv[1])
    (root / "f").write_bytes(b"1\\n" * 1000)
    (root / "old").write_bytes(b"old")
    outcome = apply_to_disk(proposal(
        root, delta("f", text(b"1\\n" * 1000), text(b"2\\n" * 200_000)),
        delta("new/file", None, text(os.urandom(400_000))), delta("old", text(b"old"), None),
    ))
    assert outcome.applied == (), outcome
    assert names(root) == ["f", "old"], names(root)
    assert (root / "f").read_bytes() == b"1\\n" * 1000
    assert "No space left" in outcome.failed[0][1], outcome.failed
    assert len(outcome.failed) == 3
    print("nothing lost")
"""


@pytest.mark.slow
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o size=256k none {tmp_path} && exec "$@"'
    command = [
        "unshare",
        *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
        "--mount",
        "sh",
        "-c",
        mount,
        "sh",
    ]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0 or shutil.which("unshare") is None:
        pytest.skip("a small file system cannot be mounted here")
    script = [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path), str(Path(__file__).parents[2])]
    done = subprocess.run([*command, *script], capture_output=True, text=True)
    assert done.stdout == "nothing lost\n", done.stderr


def test_bad_states_say_what_to_do(root: Path, tmp_path: Path) -> None:
    store = ProposalStore(tmp_path / "s")
    store.save(proposal(root, delta("a", None, text(b"1"))))
    discarded = store.discard("r")
    assert discarded is not None
    with pytest.raises(ProposalError, match="discarded"):
        apply_to_disk(discarded)
    with pytest.raises(WorkspaceError, match="cannot be opened"):
        apply_to_disk(proposal(tmp_path / "gone", delta("a", None, text(b"1"))))


def test_a_folder_that_becomes_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"1\n")
    (root / "d").symlink_to(outside)
    with Tree(str(root)) as tree, pytest.raises(OSError, match="director"):
        tree.read("d/f")
    outcome = apply_to_disk(proposal(root, delta("d/f", text(b"1\n"), text(b"2\n")), delta("d/g", None, text(b"2\n"))))
    assert len(outcome.conflicts) == 2
    assert (outside / "f").read_bytes() == b"1\n"
    assert os.listdir(outside) == ["f"]


# --- renamed since ----------------------------------------------------------------------------------------------


def renamed(root: Path, *pairs: tuple[str, str]) -> Proposal:
    """A change of `a/x.py` and a new file `a/new.py`, after the user renamed what `pairs` say."""
    made = proposal(
        root, delta("a/x.py", text(BASE), text(edited(_3=b"three\n"))), delta("a/new.py", None, text(b"n\n"))
    )
    return replace(made, renames=pairs)


def test_files_and_folders_that_were_renamed_in_an_editor_are_followed(root: Path) -> None:
    (root / "b").mkdir()
    (root / "b" / "y.py").write_bytes(edited(_50=b"mine\n"))
    made = renamed(root, ("a/x.py", "a/y.py"), ("a", "b"))
    assert {path: outlook.detail for path, outlook in foresee_on_disk(made).items()} == {
        "a/x.py": "it is b/y.py now",
        "a/new.py": "it is b/new.py now",
    }
    outcome = apply_to_disk(made)
    assert outcome.applied == ("a/new.py", "a/x.py") and outcome.proposal.state is ProposalState.APPLIED
    assert (root / "b" / "y.py").read_bytes() == edited(_3=b"three\n", _50=b"mine\n")
    assert names(root) == ["b", "b/new.py", "b/y.py"]
    assert apply_to_disk(outcome.proposal).applied == ()


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("a/x.py", "/elsewhere/x.py"), "it was moved to /elsewhere/x.py, outside the folder"),
        (("other.py", "a/x.py"), "another file was renamed onto it"),
        (("a/x.py", ".git/hooks/x"), "never applied: the path is git's own or does not lie in the workspace"),
    ],
)
def test_a_file_that_went_where_nothing_is_written_is_a_conflict(
    root: Path, pair: tuple[str, str], reason: str
) -> None:
    (root / "a").mkdir()
    (root / "a" / "x.py").write_bytes(BASE)
    outcome = apply_to_disk(renamed(root, pair))
    assert reasons(outcome) == {"a/x.py": reason}
    assert outcome.applied == ("a/new.py",)
    assert (root / "a" / "x.py").read_bytes() == BASE
    assert names(root) == ["a", "a/new.py", "a/x.py"]
