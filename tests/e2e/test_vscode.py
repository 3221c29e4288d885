"""The extension in a real VS Code in a real browser, with the real server and a real jail; the model plays a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from quant.tadpole.generator import demo_project
from tests.e2e.real_editors import ROOT
from tests.e2e.vscode_workbench import VsCode, Workbench
from tests.openai_server import OpenAiServer, turn

pytestmark = [
    *(pytest.mark.editor, pytest.mark.slow, pytest.mark.jail),
    pytest.mark.usefixtures("require_jail"),
    pytest.mark.timeout(300),
]


def settings(model: OpenAiServer) -> dict[str, Any]:
    return {
        "frog.path": [str(ROOT / ".venv/bin/frog-lsp")],
        "frog.model.kind": "endpoint",
        "frog.model.baseUrl": model.base_url,
        "frog.model.name": "scripted",
        "frog.tests.command": demo_project().test_command,
    }


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, str]]:
    return "Edit", {"file_path": path, "old_string": old, "new_string": new}


def ask(bench: Workbench, words: str) -> None:
    bench.command("FrogNano: Fix an Issue…")
    bench.answer(words)


def test_from_the_palette_to_an_applied_fix_and_back(vscode: VsCode, project: Path) -> None:
    made = demo_project()
    before = (project / made.path).read_text()
    hook = ("Write", {"file_path": "conftest.py", "content": "import os\n"})
    fix = [
        turn(calls=[("Read", {"file_path": made.path})], reasoning="The name is misspelled."),
        turn(calls=[edit(made.path, made.old, made.new), hook]),
        turn(calls=[("Bash", {"command": "sleep 3"})]),
        turn(content="Fixed."),
    ]
    with OpenAiServer(fix) as model, vscode.window(project, settings(model)) as bench:
        page = bench.page
        bench.open(made.path)
        ask(bench, "The tests fail: no attribute 'lenght'")
        bench.notification("step").wait_for()
        bench.shot("steps")
        page.get_by_text("Transcript", exact=True).first.click()
        bench.until(lambda: "▸ Bash" in bench.text() and "misspelled" not in bench.text())
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
        page.locator(".monaco-diff-editor").first.wait_for()
        bench.shot("review")
        assert (project / made.path).read_text() == before, "nothing is written before a person says so"
        bench.command("FrogNano: Apply")
        bench.notification("applied: depot/parcel.py").wait_for()
        dirty = page.locator(".tab.dirty").filter(has_text="parcel.py")
        expect(dirty).to_have_count(1)
        dirty.click()
        bench.until(lambda: "lenght" not in bench.text(0))
        assert (project / made.path).read_text() == before, "applied, not saved"
        assert not (project / "conftest.py").exists()
        bench.shot("applied")
        page.locator(".editor-instance .view-line").first.click()
        page.keyboard.press("Control+z")
        bench.until(lambda: "lenght" in bench.text(0))


def test_no_run_until_the_workspace_is_trusted(vscode: VsCode, project: Path) -> None:
    (project / ".vscode").mkdir()
    hostile = {"frog.path": ["/bin/false"], "frog.model.baseUrl": "http://127.0.0.1:1/v1", "frog.jail.backend": "files"}
    (project / ".vscode" / "settings.json").write_text(json.dumps(hostile))
    with OpenAiServer([]) as model:
        trust = {"security.workspace.trust.enabled": True, "security.workspace.trust.startupPrompt": "never"}
        with vscode.window(project, settings(model) | trust) as bench:
            bench.open(demo_project().path)
            bench.command("FrogNano: Fix an Issue…")
            refusal = bench.notification("only when you trust it")
            refusal.wait_for()
            assert model.requests == []
            bench.command("FrogNano: Check the Jail")
            bench.tab("doctor.txt").wait_for()
            bench.until(lambda: "no runs, the workspace is not trusted" in " ".join(bench.text().split()))
            bench.shot("untrusted")
            assert f"{model.base_url} was not asked" in " ".join(bench.text().split()), "the user's own, not another"
            assert model.requests == []
            refusal.get_by_role("button", name="Manage Trust").click()
            page = bench.page
            page.locator(".workspace-trust-editor").get_by_role("button", name="Trust", exact=True).click()
            bench.until(lambda: page.locator(".statusbar-item").filter(has_text="Restricted").count() == 0)
            bench.open(demo_project().path)
            ask(bench, "look at it")
            bench.notification("changed nothing for “look at it”").wait_for()
            assert model.requests, "a trusted workspace does not choose the endpoint either"
            bench.shot("trusted")


LONG = "".join(f"line_{n} = {n}\n" for n in range(40))


def long_edits(*lines: int) -> list[tuple[str, dict[str, str]]]:
    return [edit("long.py", f"line_{n} = {n}\n", f"line_{n} = 'new {n}'\n") for n in lines]


def test_hunks_one_by_one_and_a_conflict_in_the_merge_editor(vscode: VsCode, project: Path) -> None:
    (project / "long.py").write_text(LONG)
    wait = turn(calls=[("Bash", {"command": "sleep 3"})])
    script = [turn(calls=long_edits(3, 20, 35)), wait, turn(content="Done.")]
    with OpenAiServer(script) as model, vscode.window(project, settings(model)) as bench:
        page = bench.page
        bench.open("long.py")
        ask(bench, "shout")
        bench.notification("Bash: sleep 3").wait_for()
        page.locator(".editor-instance .view-line").filter(has_text="line_3 =").first.click()
        page.keyboard.press("End")
        page.keyboard.type("  # mine")
        bench.notification("FrogNano proposes changes in 1 file").wait_for()
        bench.command("FrogNano: Show Proposals")
        file = bench.row("long.py")
        bench.until(lambda: "conflict" in file.inner_text())
        file.locator(".monaco-tl-twistie").click()
        bench.act_on("Hunk 2", "Apply Hunk")
        bench.notification("applied: long.py").wait_for()
        bench.act_on("Hunk 3", "Discard Hunk")
        bench.until(lambda: "discarded" in bench.row("Hunk 3").inner_text())
        bench.shot("hunks")
        bench.command("FrogNano: Apply")
        toast = bench.notification("in conflict, nothing applied there: long.py")
        toast.wait_for()
        toast.get_by_role("button", name="Resolve in the Merge Editor").click()
        dialog = page.locator(".monaco-dialog-box")
        dialog.get_by_role("button", name="Show a Diff").click()
        bench.until(lambda: "<<<<<<< yours, the file now" in bench.text())
        bench.shot("conflict")
        assert (project / "long.py").read_text() == LONG, "nothing is saved unless a person says so"
        bench.command("FrogNano: Show Proposals")

        def is_asked() -> bool:  # a click while the tree is drawn anew can get lost
            bench.act_on("long.py", "Resolve in the Merge Editor")
            page.wait_for_timeout(1000)
            return dialog.is_visible()

        bench.until(is_asked)
        dialog.get_by_role("button", name="Save and Merge").click()
        page.locator(".merge-editor").wait_for()
        page.get_by_text("Accept Proposal").first.wait_for()
        bench.shot("merge")
        page.get_by_text("Remove Yours").first.click()
        page.get_by_text("Accept Proposal").first.click()
        bench.command("Merge Editor: Complete Merge")
        bench.until(lambda: page.locator(".merge-editor").count() == 0)
        kept = LONG.replace("line_3 = 3\n", "line_3 = 'new 3'\n").replace("line_20 = 20\n", "line_20 = 'new 20'\n")
        bench.until(lambda: (project / "long.py").read_text() == kept)


def test_all_of_a_review_without_a_mouse(vscode: VsCode, project: Path) -> None:
    (project / "long.py").write_text(LONG)
    hook = ("Write", {"file_path": "conftest.py", "content": "import os\n"})
    script = [turn(calls=[*long_edits(3, 14, 25, 36), hook]), turn(content="Done.")]
    with OpenAiServer(script) as model, vscode.window(project, settings(model)) as bench:
        bench.open("long.py")
        ask(bench, "shout")
        bench.notification("FrogNano proposes changes in 2 files").wait_for()
        bench.command("Notifications: Accept Notification Primary Action")
        bench.row("long.py").wait_for()
        bench.page.locator(".monaco-diff-editor").first.wait_for()
        bench.show_proposals()
        bench.press("Home")
        bench.unfold("long.py")
        bench.row("Hunk 5").wait_for()
        proposal, *parts = bench.rows()
        assert proposal.startswith(
            "shout, made by scripted, at an endpoint, tests: exit code 1 before, exit code 1 after"
        )
        assert parts == [
            "conftest.py, new · runs by itself",
            "long.py, changed",
            *(
                f"Hunk {n}, line {line}, + line_{line - 1} = 'new {line - 1}'"
                for n, line in zip((2, 3, 4, 5), (4, 15, 26, 37), strict=True)
            ),
        ]
        expect(bench.row("long.py").get_by_role("checkbox")).to_have_attribute("aria-label", "Apply long.py")
        bench.go_to("Hunk 2")
        bench.press("Space")
        expect(bench.row("Hunk 2").get_by_role("checkbox")).not_to_be_checked()
        bench.shot("keyboard")
        bench.go_to("Hunk 3")
        bench.press("Enter")
        bench.until(lambda: bench.is_in_diff())
        bench.command("FrogNano: Apply Hunk")
        bench.until(lambda: "in place" in bench.row("Hunk 3").inner_text())
        bench.show_proposals()
        bench.go_to("Hunk 5")
        bench.press("Enter")
        bench.until(lambda: bench.is_in_diff())
        bench.command("FrogNano: Discard Hunk")
        bench.until(lambda: "discarded" in bench.row("Hunk 5").inner_text())
        bench.command("FrogNano: Apply")
        bench.until(lambda: "in place" in bench.row("Hunk 4").inner_text())
        assert "in place" not in bench.row("Hunk 2").inner_text(), "what is not ticked is not applied"
        assert (project / "long.py").read_text() == LONG
        bench.command("File: Save All Files")
        kept = LONG.replace("= 14\n", "= 'new 14'\n").replace("= 25\n", "= 'new 25'\n")
        bench.until(lambda: (project / "long.py").read_text() == kept)
        bench.command("View: Close All Editors")
        bench.open("long.py")
        status = bench.page.locator("[id='status.languageStatus']")
        assert "FrogNano: ready, model: scripted" in (status.get_attribute("aria-label") or ""), status


FAILURE = "FAILED tests/test_parcel.py::test_stamps - AttributeError: no attribute 'lenght'\n"


def test_a_light_bulb_cancelling_and_selected_failures(vscode: VsCode, project: Path) -> None:
    (project / "bad.json").write_text('{\n  "name": "depot",\n  "parcels": 12,,\n  "open": true\n}\n')
    (project / "out.txt").write_text(f"first\n{FAILURE}")
    wait = turn(calls=[("Bash", {"command": "sleep 984"})])
    script = [wait, wait, turn(content="Nothing to do."), turn(content="Nothing either.")]
    with OpenAiServer(script) as model, vscode.window(project, settings(model)) as bench:
        page = bench.page
        bench.open("bad.json")
        page.locator(".squiggly-error").first.wait_for()
        page.locator(".editor-instance .view-line").nth(2).click()

        def is_offered() -> bool:
            bench.press("Escape", "Control+.")
            page.wait_for_timeout(1000)
            return page.locator(".action-widget").get_by_text("Fix with FrogNano").count() > 0

        bench.until(is_offered)
        bench.shot("light-bulb")
        page.locator(".action-widget").get_by_text("Fix with FrogNano").first.click()
        toast = bench.notification("Bash: sleep 984")
        toast.get_by_role("button", name="Cancel").click()
        toast.wait_for(state="hidden")
        page.locator(".editor-instance .view-line").nth(2).click()
        bench.command("FrogNano: Fix This Problem")
        toast.wait_for()
        bench.command("FrogNano: Cancel Run")
        toast.wait_for(state="hidden")

        bench.open("out.txt")
        bench.until(lambda: "FAILED" in bench.text())
        page.locator(".editor-instance .view-line").nth(1).click()
        bench.press("Home", "Shift+End")
        bench.command("FrogNano: Fix the Failing Test")
        bench.until(lambda: len(model.requests) >= 3)
        bench.notification("changed nothing").wait_for()
        bench.command("Terminal: Create New Terminal")
        page.locator(".terminal.xterm.focus").wait_for()
        page.keyboard.type('echo "FAILED tests/test_other.py::test_$((40 + 2)) - AssertionError"\n')
        bench.until(lambda: "test_42" in page.locator(".xterm-rows").inner_text())
        bench.command("Terminal: Select All")
        page.locator(".xterm-screen").click(button="right")
        bench.shot("terminal")
        page.locator(".monaco-menu").get_by_text("Fix the Failing Test").click()
        bench.until(lambda: len(model.requests) >= 4)
        bulb, problem, failure, terminal = (request.body.decode() for request in model.requests)
        assert "bad.json" in bulb and "bad.json" in problem and "expected" in problem
        assert "test_stamps" in failure and "failing test" in failure
        assert "test_42" in terminal and "test_stamps" not in terminal
