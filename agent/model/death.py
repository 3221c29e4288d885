"""How a worker came to its end, in words: by an assertion of llama.cpp, by the system for want of memory, or else."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

_VMSTAT = Path("/proc/vmstat")
_ASSERTION = "GGML_ASSERT"
_ANOTHER_FILE = "llama.cpp crashed. Try another model file; `frog-lsp model verify` checks a kept one."
_SMALLER = "Try a smaller --context or a smaller model, or close other programs."
_HINTS = {
    int(signal.SIGKILL): "Somebody, or a limit of this system, ended it. If memory was short: a smaller --context.",
    int(signal.SIGILL): "llama-cpp-python was compiled for another processor: compile it again on this machine.",
    int(signal.SIGABRT): "llama.cpp gave up; its last words are above. Try a smaller --context, or another model file.",
    int(signal.SIGSEGV): _ANOTHER_FILE,
    int(signal.SIGFPE): _ANOTHER_FILE,
    int(signal.SIGBUS): "The model file changed or shrank while it was used, or its disk failed: get it again.",
}


def describe_death(code: int, last_lines: Sequence[str], is_out_of_memory: bool) -> tuple[str, str]:
    """What happened, to follow "the model worker", and what to do. A negative `code` is the number of a signal."""
    if code >= 0:
        return f"ended with exit code {code}", "Run `frog-lsp doctor`."
    known = {int(item): item.name for item in signal.Signals}
    name = known.get(-code, f"signal {-code}")
    if -code == signal.SIGKILL and is_out_of_memory:
        return "was ended by the system because memory ran out (SIGKILL)", _SMALLER
    assertion = next((line for line in reversed(last_lines) if _ASSERTION in line), None)
    if -code == signal.SIGABRT and assertion is not None:
        return f"was ended by an assertion of llama.cpp (SIGABRT): {assertion}", _HINTS[int(signal.SIGABRT)]
    return f"was ended by {name}", _HINTS.get(-code, "Run `frog-lsp doctor`.")


def count_oom_kills() -> int:
    """How many processes the system has ended for want of memory since it started; 0 where it does not tell."""
    try:
        for line in _VMSTAT.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        return 0
    return 0
