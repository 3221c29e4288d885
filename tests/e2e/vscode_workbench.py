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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, sync_playwright

from tests.e2e.lsp_session import own_env
from tests.e2e.real_editors import ROOT, end_leftovers
from tests.editors.install import CHROMIUM, VSCODE

START_TIMEOUT_S = 60
WAIT_MS = 30_000
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
    """What a person sees and does. Everything waits at most half a minute."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def command(self, title: str) -> None:
        """Run a command from the palette."""
        self.page.keyboard.press("F1")
        box = self.page.locator(".quick-input-widget .quick-input-box input")
        box.wait_for()
        box.fill(f">{title}")
        self.page.locator(".quick-input-list .monaco-list-row").filter(has_text=title).first.wait_for()
        self.page.wait_for_timeout(200)
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


@contextlib.contextmanager
def workbench(
    tmp_path: Path, folder: Path, extension: Path, settings: dict[str, Any], **environment: str
) -> Iterator[Workbench]:
    """A window on a folder, with an extension installed. Leaves no process behind."""
    data, log = tmp_path / "data", tmp_path / "server.log"
    for scope in ("User", "Machine"):
        file = data / "data" / scope / "settings.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({**QUIET, **settings}))
    env = {
        **os.environ,
        **own_env(tmp_path / "home"),
        "FROG_TEST": str(tmp_path),
        **environment,
        "EXTENSIONS_GALLERY": json.dumps(
            dict.fromkeys(("serviceUrl", "itemUrl", "resourceUrlTemplate", "controlUrl"), "")
        ),
    }
    base = [VSCODE.command(), "--accept-server-license-terms", "--server-data-dir", str(data)]
    base += ["--extensions-dir", str(tmp_path / "extensions")]
    port = _free_port()
    with log.open("wb") as out:
        install = [*base, "--install-extension", str(extension), "--force"]
        subprocess.run(install, env=env, stdout=out, stderr=out, check=True, timeout=START_TIMEOUT_S)
        serve = [*base, "--host", "127.0.0.1", "--port", str(port), "--without-connection-token"]
        serve += ["--telemetry-level", "off", "--reconnection-grace-time", "1"]
        process = subprocess.Popen(serve, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        _wait_for(port)
        with _page(f"http://127.0.0.1:{port}/?folder={folder}") as page:
            shown = Workbench(page)
            try:
                yield shown
            except BaseException:
                shown.shot("failed")
                raise
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
        left = end_leftovers(str(tmp_path))
    assert not left, f"left running: {left}"


@contextlib.contextmanager
def _page(url: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=BROWSER_OPTIONS)
        try:
            context = browser.new_context(viewport={"width": 1280, "height": 860})
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            context.route(re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), lambda route: route.abort())
            page = context.new_page()
            page.set_default_timeout(WAIT_MS)
            page.goto(url)
            page.locator(".explorer-folders-view .monaco-list-row").first.wait_for(timeout=2 * WAIT_MS)
            yield page
        finally:
            browser.close()


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
