"""The speed of this machine, measured once and kept: in `speed.json` of the cache folder."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from agent.config import cache_dir, load_json_object, make_private_dir, write_json_atomically
from agent.errors import FrogError
from agent.model.gguf_header import BLOCKS
from agent.model.machine import physical_cores
from agent.model.memory import CacheType
from quant.plan_measure import BUSY_SHARE, MeasureError, measure
from quant.plan_rates import Pace, Rates

_FORMAT = 1


def speed_path() -> Path:
    """Where it is kept. It may not exist yet."""
    return cache_dir() / "speed.json"


def find_rates(
    kinds: Collection[int], *, again: bool = False, on_note: Callable[[str], None] | None = None
) -> tuple[Rates | None, str | None]:
    """The rates of these types of tensors, measured where they are not kept; else None and why.

    `again`: whatever is kept. Never raises.
    """
    say = on_note or (lambda _: None)
    library = _library_files()
    if not library:
        return None, "llama-cpp-python is not installed, so no speed could be measured"
    n_threads = physical_cores()
    key = [_FORMAT, platform.machine(), _processor(), n_threads, *library]
    kept = {} if again else _read(key)
    wanted = {kind for kind in kinds if kind in BLOCKS}
    missing = {kind for kind in wanted if str(kind) not in kept.get("values", {})}
    if missing or not kept:
        say(f"measuring this machine, {len(missing)} types of tensors: some seconds, once")
        try:
            folder = make_private_dir(cache_dir())
            said = measure(missing, n_threads, folder, with_attention="attention" not in kept)
        except (MeasureError, FrogError, OSError) as error:
            return None, f"no speed could be measured: {error}"
        kept = _merged(kept, said)
        with suppress(FrogError, OSError):
            write_json_atomically(speed_path(), {"key": key, **kept})
    try:
        return read_rates(kept, n_threads), None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None, f"{speed_path()} cannot be read; `--measure` makes it again"


def read_rates(said: dict[str, Any], n_threads: int) -> Rates:
    """What a process measured, for all threads together. Raises KeyError, TypeError, ValueError, IndexError."""
    gain = said["gain"]
    if said["on_gpu"] or n_threads == 1:
        factors = (1.0, 1.0)
    elif gain is None or said["busy_share"] >= BUSY_SHARE:
        factors = (float(n_threads), float(n_threads))  # at best
    else:
        factors = (_within(gain[0], n_threads), _within(gain[1], n_threads))

    def pace(pair: list[float]) -> Pace:
        return Pace(read_s=float(pair[0]) / factors[0], write_s=float(pair[1]) / factors[1])

    return Rates(
        values={int(kind): pace(pair) for kind, pair in said["values"].items()},
        attention={cast("CacheType", kind): pace(pair) for kind, pair in said["attention"].items()},
        n_threads=n_threads,
        on_gpu=bool(said["on_gpu"]),
        busy_share=float(said["busy_share"]),
        date=str(said["date"]),
    )


def describe_method(rates: Rates) -> str:
    """How it was measured and how good it is, in a sentence or two."""
    where = "on the GPU" if rates.on_gpu else f"for {rates.n_threads} thread{'s' * (rates.n_threads > 1)}"
    text = (
        f"Speeds are expected ones, {where}: two layers of the 4B's shape were timed in each type of tensor on "
        f"{rates.date[:10]}, and the rest is arithmetic. A run with a short context is within some 15\u00a0% of them, "
        "one with a long context within some 40\u00a0%."
    )
    if rates.busy_share >= BUSY_SHARE:
        text += (
            f" Other programs had {100 * rates.busy_share:.0f}\u00a0% of the processor meanwhile and slowed it: "
            "measure again with `--measure` when it is quiet."
        )
    return text


def _within(gain: float, n_threads: int) -> float:
    return min(float(n_threads), max(1.0, float(gain)))


def _merged(kept: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    return {
        "values": {**kept.get("values", {}), **said["values"]},
        "attention": kept.get("attention") or said["attention"],
        "gain": kept.get("gain") or said["gain"],
        "on_gpu": said["on_gpu"],
        "busy_share": max(kept.get("busy_share", 0.0), said["busy_share"]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _read(key: list[Any]) -> dict[str, Any]:
    try:
        found = load_json_object(speed_path())
    except FrogError:
        return {}
    return found if found.get("key") == key and isinstance(found.get("values"), dict) else {}


def _library_files() -> list[str]:
    """What tells one build of llama.cpp from another, without loading it."""
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        return []
    folder = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(found.origin).parent / "lib")
    try:
        return sorted(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in folder.iterdir())
    except OSError:
        return []


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
