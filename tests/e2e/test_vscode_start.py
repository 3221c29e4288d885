"""The first half hour with the extension: the walkthrough, from no server to a reviewed fix by the bundled model.

The pictures of the READMEs are made here: `make vscode-pictures`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize

from tests.e2e.vscode_wheel import write_wheel
from tests.e2e.vscode_workbench import WAIT_MS, VsCode, Workbench

pytestmark = [
    *(pytest.mark.editor, pytest.mark.slow, pytest.mark.jail, pytest.mark.model),
    pytest.mark.usefixtures("require_jail", "require_model"),
    pytest.mark.timeout(400),
]
PICTURE: ViewportSize = {"width": 1200, "height": 700}
WIDE: ViewportSize = {"width": 1600, "height": 900}
"""Where VS Code has room for the pages of a walkthrough."""


def press(bench: Workbench, step: str, label: str) -> None:
    """Press the button of a step of the walkthrough, which is opened. The page is never scrolled sideways by that."""
    head = bench.page.locator(f".getting-started-step[data-step-id$='#{step}']")
    bench.until(lambda: "expanded" in (head.get_attribute("class") or "") or head.dispatch_event("click"))
    head.locator(".monaco-button").filter(has_text=label).dispatch_event("click")


def is_done(bench: Workbench, step: str) -> bool:
    """Whether the walkthrough has a step ticked."""
    ticked = f".getting-started-step[data-step-id$='#{step}'] .codicon-getting-started-step-checked"
    return bench.page.locator(ticked).count() > 0


def test_a_korean_reads_korean(vscode: VsCode, project: Path) -> None:
    with vscode.window(project, {"frog.importStrategy": "useBundled"}, language="ko") as bench:
        bench.page.set_viewport_size(WIDE)
        bench.open("parcel.py")
        bench.command("FrogNano: 문제 고치기…")
        bench.notification("FrogNano에는 서버 frog-lsp가 필요하지만 찾지 못했습니다.").wait_for()
        bench.command("Welcome: Open Walkthrough...")
        bench.answer("FrogNano 시작하기")
        shown = bench.page.frame_locator("iframe.webview").frame_locator("iframe")
        shown.get_by_text("열린 작업 영역의 환경은 저절로 쓰이지 않습니다").wait_for()


def test_the_walkthrough_from_no_server_to_a_fix(vscode: VsCode, project: Path) -> None:
    own = vscode.room / "data" / "data" / "User" / "globalStorage" / "frog-lsp.frog-lsp" / "server"
    with vscode.window(project, {"frog.importStrategy": "useBundled"}) as bench:
        bench.open("parcel.py")
        bench.command("FrogNano: Fix an Issue…")
        offer = bench.notification("needs its server, frog-lsp, and none was found")
        offer.wait_for()
        bench.shot("install")
        offer.get_by_role("button", name="Install").click()
        bench.notification("pip found no package of that name").wait_for()
        bench.shot("install-failed")
        assert not own.exists(), "what is half installed would be found and started"
        bench.command("Notifications: Clear All Notifications")

        write_wheel(vscode.room / "wheels")
        bench.command("Welcome: Open Walkthrough...")
        bench.answer("Get started with FrogNano")
        bench.until(lambda: bench.tab("Welcome").count())
        bench.shot("walkthrough")
        press(bench, "install", "Install the Server")
        bench.notification("Installing frog-lsp").wait_for()
        bench.shot("installing")
        bench.until(lambda: "A run is possible." in bench.text(), 2 * WAIT_MS)
        bench.shot("installed")
        bench.until(lambda: is_done(bench, "install") and is_done(bench, "jail"))

        press(bench, "model", "Choose Model")
        bench.answer("tadpole")
        bench.notification("FrogNano uses tadpole from the next run on").wait_for()
        press(bench, "jail", "Check the Jail")
        bench.until(lambda: "tadpole (demonstration model, bundled)" in bench.text())
        bench.shot("checked")
        with bench.page.context.expect_page() as opened:
            press(bench, "sample", "Open the Sample")
        sample = Workbench(opened.value)
        sample.wait_until_loaded()
        fix_the_sample(sample)
        bench.until(lambda: all(is_done(bench, step) for step in ("install", "model", "jail", "sample")))
        bench.shot("walked")


def fix_the_sample(bench: Workbench) -> None:
    """The bundled model fixes the sample; a person watches and reviews."""
    page = bench.page
    page.set_viewport_size(PICTURE)
    bench.open("ISSUE.md")
    bench.command("FrogNano: Fix an Issue…")
    bench.answer("")
    question = bench.notification("FrogNano proposes changes in 1 file")
    transcript = page.get_by_text("Transcript", exact=True).first
    bench.until(lambda: transcript.is_visible() or question.is_visible(), 2 * WAIT_MS)
    if transcript.is_visible():  # a fast machine has ended by now
        transcript.click()
        bench.until(lambda: "▸ Read" in bench.text())  # where it has ended, it is shown from its beginning
        bench.shot("run")
    question.wait_for(timeout=4 * WAIT_MS)
    said = question.inner_text()
    assert "made by tadpole, a demonstration model" in said
    assert "exit code 1 before, exit code 0 after" in said
    bench.shot("proposal")
    question.get_by_role("button", name="Review").click()
    bench.row("parcel.py").wait_for()
    page.locator(".monaco-diff-editor").first.wait_for()
    bench.command("View: Close Editors in Other Groups")
    bench.show_proposals()
    bench.unfold("parcel.py")
    bench.row("Hunk 1").wait_for()
    bench.command("Notifications: Clear All Notifications")
    page.wait_for_timeout(1000)  # what fades out is gone
    bench.shot("review")
    bench.command("FrogNano: Apply")
    bench.notification("applied: depot/parcel.py").wait_for()
