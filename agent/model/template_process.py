"""A chat template rendered in a process of its own, with little time and memory for each rendering.

A template may behave in its trial and run for ever later, with other tools or a longer conversation: so none is ever
compiled or rendered where a person waits for an answer. The process is kept; it starts while the model is loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

from agent.errors import FrogError, ModelFileError
from agent.ipc.framing import FrameError, read_frame, write_frame
from agent.model.chat_template import Template

CPU_S = 3
WALL_S = 60.0  # a busy machine is no fault of the template
MEMORY_BYTES = 1 << 30
_MOST_KEPT = 64
_COMMAND = "from agent.model.template_process import main; main()"
_HINT = "Get the model from another source: a template that does this is broken or hostile."


class TemplateProcess:
    """One template. `render` is that of `Template`, bounded; what was rendered before is not rendered again."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: tuple[BinaryIO, BinaryIO, BinaryIO] | None = None  # its stdin, stdout and stderr
        self._kept: dict[str, str] = {}
        self._start()

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text. Raises ModelFileError: what `Template` says, no end in 3 s of processor time, more than 1 GiB."""
        key = json.dumps(variables, sort_keys=True)
        if (text := self._kept.get(key)) is None:
            text = self._ask(variables)
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = text
        return text

    def close(self) -> None:
        """End the process. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in self._pipes or ():
            with contextlib.suppress(OSError):
                stream.close()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", _COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=environment,
            )
        except OSError as error:
            raise ModelFileError(f"the chat template cannot be rendered: {error}", "Close other programs.") from error
        self._process = process
        pipes = (process.stdin, process.stdout, process.stderr)
        self._pipes = cast("tuple[BinaryIO, BinaryIO, BinaryIO]", pipes)
        with contextlib.suppress(OSError):  # it is seen when it is asked
            write_frame(self._pipes[0], {"source": self.source})
        return process

    def _ask(self, variables: Mapping[str, Any]) -> str:
        process = self._process or self._start()
        assert self._pipes is not None
        requests, answers, errors = self._pipes
        timer = threading.Timer(WALL_S, process.kill)
        timer.start()
        answer = None
        try:
            write_frame(requests, {"variables": dict(variables)})
            answer = read_frame(answers)
        except (OSError, FrameError):
            pass  # it died
        finally:
            timer.cancel()
        if answer is None:
            process.kill()
            last = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            code = process.wait()
            self.close()
            if code < 0:
                raise _refusal(f"does not come to its end in {CPU_S} s, or fills the memory")
            raise _refusal(f"broke the process that renders it: {last or f'exit code {code}'}")
        if "text" not in answer:
            raise ModelFileError(str(answer.get("message")), str(answer.get("hint")))
        return str(answer["text"])


def _refusal(what: str) -> ModelFileError:
    return ModelFileError(f"the chat template of the model {what}", _HINT)


def main() -> None:
    """In the process: the source in one frame, then variables in each; a text or an error in each answer."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _bound_memory()
    template: Template | None = None
    refusal: FrogError | None = None
    while (message := read_frame(requests)) is not None:
        _bound_time()
        try:
            if "source" in message:
                template = Template(message["source"])
                continue
            if refusal is not None or template is None:
                raise refusal or ModelFileError("there is no template")
            answer = {"text": template.render(message["variables"])}
        except ModelFileError as error:
            if "source" in message:
                refusal = error
                continue
            answer = {"message": error.message, "hint": error.hint}
        write_frame(answers, answer)


def _bound_memory() -> None:
    """Where the system has such limits."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _bound_time() -> None:
    """From now on, of this process. The next rendering moves it again."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + CPU_S, hard))
