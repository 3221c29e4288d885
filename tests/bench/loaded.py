"""How fast the language server answers while the model generates beside it, against the same server idle.

The bundled demonstration model runs in the real worker, on the bundled project, for as long as the measurement takes.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tests.bench.server import read_message, write_message
from tests.bench.table import Row, at_most, reported

DEMO = Path(__file__).parents[2] / "quant" / "tadpole" / "demo"
N_SAMPLES = 400
PAUSE_S = 0.01
"""Between two samples: a person's editor does not ask back to back."""
RUN_TIMEOUT_S = 120
N_LINES = 2_000


class Session:
    """One server, and an open document."""

    def __init__(self, root: Path, home: Path) -> None:
        home.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "FROG_"))}
        self._process = subprocess.Popen(
            [str(Path(sys.executable).parent / "frog-lsp"), "serve"],
            env={**environment, "HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._ids = itertools.count(1)
        self._answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.progress: SimpleQueue[dict[str, Any]] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.uri = (root / "README.md").as_uri()
        self._version = 1
        capabilities = {"window": {"workDoneProgress": True}, "workspace": {"applyEdit": True}}
        options = {"review": {"ask": False}}
        self.request(
            "initialize",
            processId=os.getpid(),
            rootUri=root.as_uri(),
            workspaceFolders=[{"uri": root.as_uri(), "name": "bench"}],
            capabilities=capabilities,
            initializationOptions=options,
        )
        self.notify("initialized")
        text = "".join(f"line {number}\n" for number in range(N_LINES))
        document = {"uri": self.uri, "languageId": "markdown", "version": 1, "text": text}
        self.notify("textDocument/didOpen", textDocument=document)

    def _read(self) -> None:
        """Takes each message at once, so that what is measured is not our own waiting."""
        assert self._process.stdout is not None
        try:
            while True:
                message = read_message(self._process.stdout)
                if message.get("method") == "window/workDoneProgress/create":
                    self._write({"id": message["id"], "result": None})
                elif message.get("method") == "$/progress":
                    self.progress.put(message["params"]["value"])
                elif "method" not in message:
                    self._answers.put(message)
        except (EOFError, ValueError):
            return

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        write_message(self._process.stdin, message)

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._write({"method": method, "params": params})

    def request(self, method: str, **params: Any) -> Any:
        """The result. Raises RuntimeError for an error, Empty after RUN_TIMEOUT_S."""
        msg_id = next(self._ids)
        self._write({"id": msg_id, "method": method, "params": params})
        answer = self._answers.get(timeout=RUN_TIMEOUT_S)
        if answer.get("id") != msg_id or "error" in answer:
            raise RuntimeError(f"{method}: {answer}")
        return answer["result"]

    def act(self) -> None:
        """Ask for code actions with one diagnostic."""
        spot = {"start": {"line": 7, "character": 0}, "end": {"line": 7, "character": 4}}
        context = {"diagnostics": [{"range": spot, "message": "wrong"}]}
        assert self.request("textDocument/codeAction", textDocument={"uri": self.uri}, range=spot, context=context)

    def type_and_act(self) -> None:
        """Type a character, then ask: the answer says that the change was taken."""
        self._version += 1
        at = {"line": self._version % N_LINES, "character": 2}
        document = {"uri": self.uri, "version": self._version}
        change = {"range": {"start": at, "end": at}, "text": "x"}
        self.notify("textDocument/didChange", textDocument=document, contentChanges=[change])
        self.act()

    def start_run(self) -> None:
        """Start a run and wait until its model generates. Raises RuntimeError where it fails before."""
        issue = (DEMO / "ISSUE.md").read_text("utf-8")
        argument = {"uri": self.uri, "issue": issue}
        self.request("workspace/executeCommand", command="frog.fix", arguments=[argument])
        while True:
            value = self.progress.get(timeout=RUN_TIMEOUT_S)
            if value["kind"] == "end":
                raise RuntimeError(f"the run ended before its model generated: {value}")
            if "step 1 " in (value.get("message") or ""):
                return

    def has_ended(self) -> bool:
        """Whether the run is over, of all that was heard since the last question."""
        while True:
            try:
                if self.progress.get_nowait()["kind"] == "end":
                    return True
            except Empty:
                return False

    def close(self) -> None:
        """End the run and the server."""
        try:
            self.request("shutdown")
            self.notify("exit")
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()


def sample(measures: list[Callable[[], None]], before_each: Callable[[], None]) -> list[float]:
    """The 99th percentile of each measure in seconds; they take turns."""
    seconds: list[list[float]] = [[] for _ in measures]
    for _ in range(N_SAMPLES):
        for series, measure in zip(seconds, measures, strict=True):
            before_each()
            begun = time.perf_counter()
            measure()
            series.append(time.perf_counter() - begun)
            time.sleep(PAUSE_S)
    return [sorted(series)[math.ceil(0.99 * len(series)) - 1] for series in seconds]


def rows() -> list[Row]:
    """Idle first, then while the model generates; a run that ends is followed by another."""
    with tempfile.TemporaryDirectory(prefix="frog-bench-") as folder:
        root = Path(folder, "workspace")
        shutil.copytree(DEMO / "workspace", root)
        session = Session(root, Path(folder, "home"))
        n_runs = 1

        def keep_running() -> None:
            nonlocal n_runs
            if session.has_ended():
                session.start_run()
                n_runs += 1

        try:
            measures = [session.act, session.type_and_act]
            idle = sample(measures, lambda: None)
            session.start_run()
            loaded = sample(measures, keep_running)
        finally:
            session.close()
    found: list[Row] = []
    for name, quiet_s, busy_s in zip(("code-action", "did-change"), idle, loaded, strict=True):
        what = f"{N_SAMPLES} answers while the model generates, {n_runs} runs"
        found += [
            at_most(f"server/{name}-p99-loaded", busy_s / quiet_s, "x", 3, "p99 of the same server idle"),
            at_most(f"server/{name}-p99-loaded-ms", busy_s * 1e3, "ms", 10, what),
            reported(f"server/{name}-p99-idle-ms", quiet_s * 1e3, "ms"),
        ]
    return found
