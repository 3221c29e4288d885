"""The extension in a real VS Code in a real browser, with the real server and a real jail; the model plays a script."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from quant.tadpole.generator import demo_project
from tests.conftest import skip_or_fail
from tests.e2e.real_editors import ROOT, require_editor
from tests.e2e.vscode_workbench import WAIT_MS, Workbench, workbench
from tests.editors.install import CHROMIUM, VSCODE
from tests.openai_server import OpenAiServer, turn

EXTENSION = ROOT / "dist" / "frog-lsp.vsix"
pytestmark = [
    *(pytest.mark.editor, pytest.mark.slow, pytest.mark.jail),
    pytest.mark.usefixtures("require_jail"),
    pytest.mark.timeout(300),
]


@pytest.fixture(autouse=True)
def require_vscode() -> None:
    require_editor(VSCODE, CHROMIUM)
    if not EXTENSION.exists():
        skip_or_fail("the extension is not packaged: run `make vscode`")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "depot-project"
    for name, text in demo_project().files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def settings(model: OpenAiServer) -> dict[str, Any]:
    return {
        "frog.path": [str(ROOT / ".venv/bin/frog-lsp")],
        "frog.model.kind": "endpoint",
        "frog.model.baseUrl": model.base_url,
        "frog.model.name": "scripted",
        "frog.tests.command": demo_project().test_command,
    }


def edit(old: str, new: str) -> tuple[str, dict[str, str]]:
    return "Edit", {"file_path": demo_project().path, "old_string": old, "new_string": new}


def text_of(bench: Workbench) -> str:
    """The text of the last editor, as far as it is on the screen."""
    return bench.page.locator(".editor-instance .view-lines").last.inner_text().replace("\u00a0", " ")


def first_text(bench: Workbench) -> str:
    """The text of the first editor, as far as it is on the screen."""
    return bench.page.locator(".editor-instance .view-lines").first.inner_text().replace("\u00a0", " ")


def test_from_the_palette_to_an_applied_fix_and_back(tmp_path: Path, project: Path) -> None:
    made = demo_project()
    before = (project / made.path).read_text()
    fix = [
        turn(calls=[("Read", {"file_path": made.path})], reasoning="The name is misspelled."),
        turn(calls=[edit(made.old, made.new), ("Write", {"file_path": "conftest.py", "content": "import os\n"})]),
        turn(calls=[("Bash", {"command": "sleep 3"})]),
        turn(content="Fixed."),
    ]
    with OpenAiServer(fix) as model, workbench(tmp_path, project, EXTENSION, settings(model)) as bench:
        page = bench.page
        bench.open(made.path)
        bench.command("FrogNano: Fix an Issue…")
        bench.answer("The tests fail: no attribute 'lenght'")
        bench.notification("step").wait_for()
        bench.shot("steps")
        page.get_by_text("Transcript", exact=True).first.click()
        bench.until(lambda: "Step 2" in text_of(bench) and "misspelled" not in text_of(bench))
        bench.shot("transcript")
        question = bench.notification("FrogNano proposes changes in 2 files")
        question.wait_for()
        assert "exit code 1 before, exit code 0 after" in question.inner_text()
        assert "1 flagged, not ticked; made by scripted, at an endpoint" in question.inner_text()
        question.get_by_role("button", name="Review").click()
        bench.row("parcel.py").wait_for()
        expect(bench.row("parcel.py").get_by_role("checkbox")).to_be_checked()
        flagged = bench.row("conftest.py")
        assert "runs by itself" in flagged.inner_text()
        expect(flagged.get_by_role("checkbox")).not_to_be_checked()
        bench.shot("review")
        bench.row("parcel.py").click()
        page.locator(".diff-editor, .monaco-diff-editor").first.wait_for()
        bench.shot("diff")
        assert (project / made.path).read_text() == before, "nothing is written before a person says so"
        bench.command("FrogNano: Apply")
        bench.notification("applied: depot/parcel.py").wait_for()
        dirty = page.locator(".tab.dirty").filter(has_text="parcel.py")
        expect(dirty).to_have_count(1)
        dirty.click()
        bench.until(lambda: "lenght" not in first_text(bench))
        assert (project / made.path).read_text() == before, "applied, not saved"
        assert not (project / "conftest.py").exists()
        bench.shot("applied")
        page.locator(".editor-instance .view-line").first.click()
        page.keyboard.press("Control+z")
        bench.until(lambda: "lenght" in first_text(bench))
        bench.shot("undone")


def test_cancel_from_the_palette(tmp_path: Path, project: Path) -> None:
    script = [turn(calls=[("Bash", {"command": "sleep 984"})])]
    with OpenAiServer(script) as model, workbench(tmp_path, project, EXTENSION, settings(model)) as bench:
        bench.open(demo_project().path)
        bench.command("FrogNano: Fix an Issue…")
        bench.answer("wait")
        toast = bench.notification("Bash: sleep 984")
        toast.wait_for()
        bench.command("FrogNano: Cancel Run")
        toast.wait_for(state="hidden", timeout=WAIT_MS)


def test_a_workspace_that_is_not_trusted_runs_nothing(tmp_path: Path, project: Path) -> None:
    (project / ".vscode").mkdir()
    hostile = {"frog.path": ["/bin/false"], "frog.model.baseUrl": "http://127.0.0.1:1/v1", "frog.jail.backend": "files"}
    (project / ".vscode" / "settings.json").write_text(json.dumps(hostile))
    with OpenAiServer([]) as model:
        options = settings(model) | {
            "security.workspace.trust.enabled": True,
            "security.workspace.trust.startupPrompt": "never",
        }
        with workbench(tmp_path, project, EXTENSION, options) as bench:
            bench.open(demo_project().path)
            bench.command("FrogNano: Fix an Issue…")
            bench.notification("only when you trust it").wait_for()
            assert model.requests == []
            bench.command("FrogNano: Check the Jail")
            bench.tab("doctor.txt").wait_for()
            bench.until(lambda: "no runs, the workspace is not trusted" in " ".join(text_of(bench).split()))
            bench.shot("untrusted")
            assert model.requests == [], "the doctor asked an endpoint where nothing may run"


LONG = "".join(f"line_{n} = {n}\n" for n in range(40))


def test_hunks_one_by_one_and_a_conflict_in_the_merge_editor(tmp_path: Path, project: Path) -> None:
    (project / "long.py").write_text(LONG)
    changes = [
        ("line_3 = 3", "line_3 = 'three'"),
        ("line_20 = 20", "line_20 = 'twenty'"),
        ("line_35 = 35", "line_35 = 1"),
    ]
    calls = [("Edit", {"file_path": "long.py", "old_string": old, "new_string": new}) for old, new in changes]
    script = [turn(calls=calls), turn(content="Done.")]
    with OpenAiServer(script) as model, workbench(tmp_path, project, EXTENSION, settings(model)) as bench:
        page = bench.page
        bench.open("long.py")
        bench.command("FrogNano: Fix an Issue…")
        bench.answer("shout")
        bench.notification("FrogNano proposes changes in 1 file").wait_for()
        page.locator(".editor-instance .view-line").filter(has_text="line_3 =").first.click()
        page.keyboard.press("End")
        page.keyboard.type("  # mine")
        bench.command("FrogNano: Show Proposals")
        file = bench.row("long.py")
        bench.until(lambda: "conflict" in file.inner_text())
        file.locator(".monaco-tl-twistie").click()
        bench.row("Hunk 2").hover()
        bench.row("Hunk 2").get_by_role("button", name="Apply Hunk").click()
        bench.notification("applied: long.py").wait_for()
        bench.row("Hunk 3").hover()
        bench.row("Hunk 3").get_by_role("button", name="Discard Hunk").click()
        bench.until(lambda: "discarded" in bench.row("Hunk 3").inner_text())
        bench.shot("hunks")
        bench.command("FrogNano: Apply")
        toast = bench.notification("in conflict, nothing applied there: long.py")
        toast.wait_for()
        toast.get_by_role("button", name="Resolve in the Merge Editor").click()
        dialog = page.locator(".monaco-dialog-box")
        dialog.get_by_role("button", name="Show a Diff").click()
        bench.until(lambda: "<<<<<<< yours, the file now" in text_of(bench))
        bench.shot("conflict")
        assert (project / "long.py").read_text() == LONG, "nothing is saved unless a person says so"
        bench.command("FrogNano: Show Proposals")

        def is_asked() -> bool:  # a click while the tree is drawn anew can get lost
            file.hover()
            file.get_by_role("button", name="Resolve in the Merge Editor").click()
            page.wait_for_timeout(1000)
            return dialog.is_visible()

        bench.until(is_asked)
        dialog.get_by_role("button", name="Save and Merge").click()
        page.locator(".merge-editor").wait_for()
        page.get_by_text("Accept Proposal").first.wait_for()
        bench.shot("merge")


@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_the_sample_is_fixed_by_the_bundled_model(tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    frog = ROOT / ".venv/bin/frog-lsp"
    subprocess.run([frog, "demo", "--write", folder], check=True, capture_output=True, timeout=60)
    with workbench(tmp_path, folder, EXTENSION, {"frog.path": [str(frog)]}) as bench:
        bench.open("ISSUE.md")
        bench.command("FrogNano: Fix an Issue…")
        bench.answer("")
        question = bench.notification("FrogNano proposes changes in 1 file")
        question.wait_for(timeout=4 * WAIT_MS)
        assert "made by tadpole, a demonstration model" in question.inner_text()
        bench.shot("sample")
        question.get_by_role("button", name="Apply").click()
        bench.notification("applied: depot/parcel.py").wait_for()


def test_an_installation_that_fails_says_why_and_leaves_nothing(tmp_path: Path, project: Path) -> None:
    only_ours = {"frog.importStrategy": "useBundled"}
    with workbench(tmp_path, project, EXTENSION, only_ours, PIP_NO_INDEX="1", PIP_FIND_LINKS="") as bench:
        bench.open(demo_project().path)
        bench.command("FrogNano: Fix an Issue…")
        offer = bench.notification("needs its server, frog-lsp, and none was found")
        offer.wait_for()
        bench.shot("install")
        offer.get_by_role("button", name="Install").click()
        bench.notification("pip found no package of that name").wait_for(timeout=3 * WAIT_MS)
        bench.shot("install-failed")
        assert not list((tmp_path / "data").rglob("globalStorage/frog-lsp.frog-lsp/server"))


FAILURE = "FAILED tests/test_parcel.py::test_stamps - AttributeError: no attribute 'lenght'\n"


def test_a_problem_of_another_extension_and_a_selected_failure(tmp_path: Path, project: Path) -> None:
    (project / "bad.json").write_text('{"a": 1,,}\n')
    (project / "out.txt").write_text(f"first\n{FAILURE}")
    script = [turn(content="Nothing to do."), turn(content="Nothing either.")]
    with OpenAiServer(script) as model, workbench(tmp_path, project, EXTENSION, settings(model)) as bench:
        page = bench.page
        bench.open("bad.json")
        page.locator(".squiggly-error").first.wait_for()
        page.locator(".editor-instance .view-line").first.click()
        bench.command("FrogNano: Fix This Problem")
        bench.notification("changed nothing for “Fix in bad.json, line 1").wait_for()
        bench.open("out.txt")
        bench.until(lambda: "FAILED" in text_of(bench))
        page.locator(".editor-instance .view-line").nth(1).click()
        page.keyboard.press("Home")
        page.keyboard.press("Shift+End")
        bench.command("FrogNano: Fix the Failing Test")
        bench.until(lambda: len(model.requests) >= 2)
        problem, failure = (request.body.decode() for request in model.requests)
        assert "bad.json" in problem and "expected" in problem
        assert "test_stamps" in failure and "failing test" in failure
