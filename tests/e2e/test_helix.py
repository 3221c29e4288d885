"""A real Helix in tmux drives the real server through the snippet that `frog-lsp setup helix` prints."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.real_editors import (
    bash,
    edit,
    editor_env,
    end_leftovers,
    print_snippet,
    require_editor,
    scripted,
    write,
    write_workspace,
)
from tests.editors.install import HELIX, TMUX

SOURCE = "def add(a, b):\n    # TODO: this must add\n    return a - b\n"
FIXED = SOURCE.replace("a - b", "a + b")
CONFIG = "[editor.lsp]\ndisplay-progress-messages = true\ndisplay-messages = true\n"
WAIT_S = 40.0

pytestmark = [pytest.mark.editor, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


class Helix:
    """A Helix in a terminal of its own: what is typed, and what is on the screen."""

    def __init__(self, tmp_path: Path, *calls: object) -> None:
        self.workspace = write_workspace(tmp_path, {"todo.py": SOURCE})
        options = scripted(tmp_path, calls, ask=True)
        config = tmp_path / "home/config/helix"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(CONFIG)
        model = f"config.model = {{ kind = 'scripted', path = {json.dumps(options['model']['path'])} }}\n"
        snippet = print_snippet("helix").decode()
        (config / "languages.toml").write_text(
            snippet.replace("[language-server.frog]\n", f"[language-server.frog]\n{model}")
        )
        self.mark = str(tmp_path)
        self._env = {**editor_env(tmp_path, options), "TERM": "xterm-256color", "TMUX_TMPDIR": str(tmp_path)}
        size = ["-x", "120", "-y", "30", "-c", str(self.workspace)]
        self.tmux("-f", "/dev/null", "new-session", "-d", *size, HELIX.command(), "todo.py:2")

    def tmux(self, *command: str) -> str:
        """A command of tmux, in its own server; what it printed."""
        done = subprocess.run(["tmux", *command], env=self._env, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout

    def screen(self) -> str:
        """What a person sees."""
        return self.tmux("capture-pane", "-p")

    def type(self, *keys: str) -> None:
        """Press keys, by the names that tmux has for them."""
        self.tmux("send-keys", *keys)

    def run(self, command: str) -> None:
        """A command line of Helix."""
        self.type(":")
        self.tmux("send-keys", "-l", command)
        self.type("Enter")

    def wait_for(self, text: str, timeout_s: float = WAIT_S) -> str:
        """The screen once it shows a text."""
        end = time.monotonic() + timeout_s
        while text not in (screen := self.screen()):
            assert time.monotonic() < end, f"waited in vain for {text!r}:\n{screen}"
            time.sleep(0.05)
        return screen

    def open_menu(self, title: str) -> None:
        """Open the code actions until the server, which takes a moment to start, offers one."""
        for _ in range(20):
            self.type("Space", "a")
            try:
                self.wait_for(title, timeout_s=2.0)
            except AssertionError:
                self.type("Escape")
            else:
                return
        raise AssertionError(f"no action {title!r}:\n{self.screen()}")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder whose Helix, tmux and server are gone at the end."""
    require_editor(HELIX, TMUX)
    yield tmp_path
    subprocess.run(["tmux", "kill-server"], env={"TMUX_TMPDIR": str(tmp_path)}, capture_output=True, check=False)
    assert end_leftovers(str(tmp_path)) == []


def test_from_a_comment_to_the_saved_files(home: Path) -> None:
    calls = [edit("a - b", "a + b", "todo.py"), write("pkg/new.py", "x = 1\n"), bash("sleep 1")]
    helix = Helix(home, *calls)
    helix.wait_for("def add")
    helix.open_menu("FrogNano")
    helix.type("Enter")
    helix.wait_for("Bash: sleep 1")
    helix.wait_for("proposes changes in 2 files")
    assert (helix.workspace / "todo.py").read_text() == SOURCE
    assert not (helix.workspace / "pkg").exists()
    helix.run("lsp-workspace-command frog.review")
    helix.wait_for("The review of")
    (review,) = (home / "home/cache/frog-lsp/reviews").iterdir()
    helix.run(f"open {review}")
    helix.wait_for("applies cleanly")
    helix.run("buffer-close")
    helix.run("lsp-workspace-command frog.apply")
    helix.wait_for("return a + b")
    assert (helix.workspace / "todo.py").read_text() == SOURCE, "nothing is saved but by the user"
    new, end = helix.workspace / "pkg/new.py", time.monotonic() + WAIT_S
    while not (new.exists() and new.read_text()) and time.monotonic() < end:
        helix.run("write-all")  # the text of a new file comes in a second edit
        time.sleep(0.2)
    assert (helix.workspace / "todo.py").read_text() == FIXED
    assert new.read_text() == "x = 1\n"
    helix.run("quit-all")
