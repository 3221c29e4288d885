"""A chat template is foreign code: it is tried in a process of its own, with little time and memory, before it is used.

The sandbox of jinja2 keeps a template from reaching out, not from running for ever or filling the memory. What passes
the trial is rendered later with conversations of the same shape.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys

from agent.errors import ModelFileError
from agent.model.chat_format import ChatFormat
from agent.types import Observation

TRIAL_CPU_S = 5
TRIAL_WALL_S = 60.0  # a busy machine is no fault of the template
TRIAL_BYTES = 1 << 30
_COMMAND = "from agent.model.template_trial import main; main()"
_HINT = "Get the model from another source: a template that does this is broken or hostile."


@functools.lru_cache(maxsize=8)
def try_template(template: str | None) -> None:
    """Raises ModelFileError where the template cannot be used. Takes some tenths of a second, once a template."""
    if not template or not template.strip():
        ChatFormat(template)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _COMMAND],
            input=json.dumps(template).encode(),
            capture_output=True,
            cwd="/",
            env=environment,
            timeout=TRIAL_WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _refusal(f"does not come to its end in {TRIAL_WALL_S:.0f} s") from None
    if done.returncode < 0:
        raise _refusal(f"does not come to its end in {TRIAL_CPU_S} s, or fills the memory")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise _refusal(f"broke its trial: {last or f'exit code {done.returncode}'}") from None
    if answer is not None:
        raise ModelFileError(answer["message"], answer["hint"])


def _refusal(what: str) -> ModelFileError:
    return ModelFileError(f"the chat template of the model {what}", _HINT)


def main() -> None:
    """The trial: a template as JSON on stdin; on stdout null, or what is wrong with it."""
    _bound()
    answer = None
    try:
        chat = ChatFormat(json.loads(sys.stdin.buffer.read()))
        chat.prefix("S", [], "U")
        for n in (1, 3):
            chat.suffix([Observation(tool="Read", text="x")] * n)
    except ModelFileError as error:
        answer = {"message": error.message, "hint": error.hint}
    sys.stdout.write(json.dumps(answer))


def _bound() -> None:
    """Where the system has such limits."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (TRIAL_CPU_S, TRIAL_CPU_S + 1))
        resource.setrlimit(resource.RLIMIT_AS, (TRIAL_BYTES, TRIAL_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
