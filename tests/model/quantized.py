"""A small model that every type of quantization fits, and runs to calibrate it with."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from quant.synth import write_model
from quant.synth_shape import find_shape

STEPS = ("Read a.py.", "Change the sign.", "Run the tests, all of them.")


def write_source(path: Path, *, form: str = "bf16", mtp: bool = True, hidden: int = 256) -> Path:
    """Rows of 256, so that the types with blocks of 256 fit; a layer of each kind."""
    shape = replace(find_shape("tiny", mtp=mtp), hidden=hidden, feed_forward=hidden, layers=2, interval=2)
    return write_model(path, shape, form=form, texts={"frog.sampling": '{"temperature": 0.0}'})


def write_run(path: Path, text: str = "a = 1\nb = a - 1\n") -> Path:
    """A trajectory of three turns."""
    lines: list[dict[str, Any]] = [
        {"trajectory_format": "leaf-function-calling", "trajectory_id": path.stem, "tools": []},
        {"role": "system", "content": "You fix."},
        {"role": "user", "content": "It is one too small."},
    ]
    for i, thought in enumerate(STEPS, 1):
        call = {"id": f"call_{i}_0", "function": {"name": "Read", "arguments": '{"file_path": "a.py"}'}}
        assistant = {"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": [call]}
        observation = {"tool": "Read", "observation": f"a.py\n{text * i}"}
        lines.append({"step": i, "assistant": assistant, "observations": [observation]})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def make_imatrix(model: Path, target: Path, run: Path) -> Path:
    """An importance matrix by the real worker."""
    from quant.calibrate import Options, calibrate

    options = Options(model=model, target=target, sources=[str(run)])
    asyncio.run(calibrate(options, lambda _what, _done, _total: None))
    return target
