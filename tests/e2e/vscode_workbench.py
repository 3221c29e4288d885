"""The workbench of a real VS Code in a real browser: its server, a page, and what a person does there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, sync_playwright

from tests.e2e.lsp_session import own_env
from tests.e2e.real_editors import ROOT, end_leftovers
from tests.editors.install import CHROMIUM, VSCODE

START_TIMEOUT_S = 60
WAIT_MS = 60_000  # a slow step takes 5 s; a busy machine is no bug
LEAVE_S = 20.0
SHOTS = ROOT / "build" / "vscode"
# Nothing of its own on the screen or on the network.
QUIET: dict[str, Any] = {
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True,
    "workbench.startupEditor": "none",
    "workbench.enableExperiments": False,
    "workbench.tips.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "chat.disableAIFeatures": True,
    "window.commandCenter": False,
    "git.enabled": False,
    "terminal.integrated.enablePersistentSessions": False,
    "terminal.integrated.initialHint": False,
    "terminal.integrated.gpuAcceleration": "off",
    "window.title": "${activeEditorShort}${separator}${rootName}",
    "files.autoSave": "off",
    "security.workspace.trust.enabled": False,
}
BROWSER_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Workbench:
    """What a person sees and does. Everything waits at most a minute."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def wait_until_loaded(self) -> None:
        """Wait for the files of the folder."""
        self.page.locator(".explorer-folders-view .monaco-list-row").first.wait_for(timeout=2 * WAIT_MS)

    def command(self, title: str) -> None:
        """Run a command from the palette."""
        self.page.keyboard.press("F1")
        box = self.page.locator(".quick-input-widget .quick-input-box input")
        box.wait_for()
        box.fill(f">{title}")
        chosen = self.page.locator(".quick-input-list .monaco-list-row.focused .label-name")

        def is_chosen() -> bool:  # what was used lately stands first
            if chosen.all_inner_texts()[:1] == [title]:  # the second is its name in English
                return True
            self.press("ArrowDown")
            return False

        self.until(is_chosen)
        self.page.keyboard.press("Enter")

    def answer(self, text: str) -> None:
        """Type into the input box that a command opened."""
        box = self.page.locator(".quick-input-widget .quick-input-box input")
        self.until(lambda: box.is_visible() and not (box.input_value() or "").startswith(">"))
        box.fill(text)
        self.page.keyboard.press("Enter")

    def open(self, path: str) -> None:
        """Open a file by its name; a key in the first second can get lost."""

        def is_open() -> bool:
            if self.tab(path).count():
                return True
            self.page.keyboard.press("Escape")
            self.page.keyboard.press("Control+p")
            box = self.page.locator(".quick-input-widget .quick-input-box input")
            box.wait_for()
            box.fill(path)
            self.page.wait_for_timeout(700)
            self.page.keyboard.press("Enter")
            self.page.wait_for_timeout(700)
            return False

        self.until(is_open)

    def tab(self, name: str) -> Locator:
        """The tabs whose name has this text."""
        return self.page.locator(".tabs-container .tab").filter(has_text=Path(name).name)

    def notification(self, text: str) -> Locator:
        """A toast with this text."""
        return self.page.locator(".notifications-toasts .notification-list-item").filter(has_text=text).first

    def row(self, text: str) -> Locator:
        """A row of the tree of proposals."""
        return self.page.locator(".pane-body .monaco-list-row").filter(has_text=text).first

    def act_on(self, row: str, action: str) -> None:
        """Press a button that a row of the tree shows when the pointer is on it."""
        self.row(row).hover()
        self.row(row).get_by_role("button", name=action).click()

    def show_proposals(self) -> None:
        """The tree has the keyboard: the diff beside it is open."""
        self.command("FrogNano: Show Proposals")
        self.page.locator(".monaco-diff-editor").first.wait_for()
        self.until(lambda: self.page.locator(".pane-body .monaco-list:focus").count())

    def go_to(self, row: str, key: str = "ArrowDown") -> None:
        """Bring the keyboard to a row of the tree; a key that comes while the tree is drawn anew can get lost."""
        focused = self.page.locator(".pane-body .monaco-list-row.focused").filter(has_text=row)
        self.until(lambda: focused.count() or self.press(key))

    def unfold(self, row: str) -> None:
        """Show what is under a row of the tree; the keyboard stays on the row."""
        self.go_to(row)
        self.until(lambda: self.row(row).get_attribute("aria-expanded") == "true" or self.press("ArrowRight"))
        self.go_to(row, "ArrowUp")

    def is_in_diff(self) -> bool:
        """Whether the keyboard is in a diff."""
        return self.page.locator(".monaco-diff-editor .monaco-editor.focused").count() > 0

    def rows(self) -> list[str]:
        """What a screen reader says of each row of the tree of proposals that is shown."""
        rows = self.page.locator(".pane-body .monaco-list-row")
        return [row.get_attribute("aria-label") or "" for row in rows.all() if row.is_visible()]

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)
            self.page.wait_for_timeout(100)

    def text(self, which: int = -1) -> str:
        """The text of an editor (the last, where nothing else is said), as far as it is on the screen."""
        lines = self.page.locator(".editor-instance .view-lines")
        editor = lines.last if which == -1 else lines.nth(which)
        return editor.inner_text().replace("\u00a0", " ") if lines.count() else ""

    def shot(self, name: str) -> None:
        """Keep a picture."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SHOTS / f"{name}.png"))

    def until(self, is_true: Callable[[], Any], timeout_ms: int = WAIT_MS) -> Any:
        """Wait for something; its value. Never by sleeping: the page is served by our own calls."""
        end = time.monotonic() + timeout_ms / 1000
        while not (value := is_true()):
            assert time.monotonic() < end, "it did not happen"
            self.page.wait_for_timeout(100)
        return value


class VsCode:
    """A VS Code server with our extension, and a browser: what several windows share, one after the other."""

    def __init__(self, room: Path, port: int, browser: Browser) -> None:
        self.room = room
        self._port = port
        self._browser = browser

    @contextlib.contextmanager
    def window(self, folder: Path, settings: Mapping[str, Any], language: str | None = None) -> Iterator[Workbench]:
        """A window on a folder, of a user with these settings. Leaves no process of ours behind.

        The texts of VS Code itself stay English in every language: it has the others from language packs.
        """
        for scope in ("User", "Machine"):
            file = self.room / "data" / "data" / scope / "settings.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({**QUIET, **settings}))
        context = self._browser.new_context(viewport={"width": 1280, "height": 860})
        context.set_default_timeout(WAIT_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        if language is not None:
            context.add_init_script(f"globalThis._VSCODE_NLS_LANGUAGE = {json.dumps(language)}")
        context.route(re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), lambda route: route.abort())
        try:
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{self._port}/?folder={folder}")
            shown = Workbench(page)
            shown.wait_until_loaded()
            try:
                yield shown
            except BaseException:
                for number, page in enumerate(context.pages):
                    Workbench(page).shot(f"failed-{number}")
                raise
        finally:
            context.close()
        left = end_leftovers(str(self.room), LEAVE_S, apart_from=str(Path(VSCODE.command()).parent))
        assert not left, f"left running: {left}"


@contextlib.contextmanager
def vs_code(room: Path, extension: Path, programs: Path, **environment: str) -> Iterator[VsCode]:
    """A server, with the folder `programs` first on its PATH, and a browser. No process of them is left behind."""
    log, port = room / "server.log", _free_port()
    env = {
        **os.environ,
        **own_env(room / "home"),
        "FROG_TEST": str(room),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SHELL": "/bin/bash",
        **environment,
        "EXTENSIONS_GALLERY": json.dumps(
            dict.fromkeys(("serviceUrl", "itemUrl", "resourceUrlTemplate", "controlUrl"), "")
        ),
    }
    base = [VSCODE.command(), "--accept-server-license-terms", "--server-data-dir", str(room / "data")]
    base += ["--extensions-dir", str(room / "extensions")]
    with log.open("wb") as out:
        install = [*base, "--install-extension", str(extension), "--force"]
        subprocess.run(install, env=env, stdout=out, stderr=out, check=True, timeout=START_TIMEOUT_S)
        serve = [*base, "--host", "127.0.0.1", "--port", str(port), "--without-connection-token"]
        serve += ["--telemetry-level", "off", "--reconnection-grace-time", "1"]
        process = subprocess.Popen(serve, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        _wait_for(port)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=_chromium(), args=BROWSER_OPTIONS)
            try:
                yield VsCode(room, port, browser)
            finally:
                browser.close()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
        left = end_leftovers(str(room))
    assert not left, f"left running: {left}"


def _chromium() -> str:
    return f"/usr/bin/{CHROMIUM.command()}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/version", timeout=1):
                return
        except OSError:
            assert time.monotonic() < end, "VS Code does not start"
            time.sleep(0.1)
