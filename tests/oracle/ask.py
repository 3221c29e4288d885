"""Runs in the oracle's environment: `python ask.py LLAMA_CPP_FOLDER`, jobs as JSON lists on stdin.

A job is {"convert": FOLDER, "out": FILE, "arguments": […], "pre": NAME or null} for llama.cpp's own converter (`pre`
stands in for its recognition of a vocabulary by a hash, for vocabularies that are made), or {"logits": FOLDER,
"tokens": […], "out": FILE} for those of transformers in F32. Each is done by a child of its own: the converter keeps
options in its classes.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path


def convert(job: dict, folder: str) -> None:
    if job["pre"] is not None:
        from conversion.base import TextModel

        TextModel.get_vocab_base_pre = lambda _self, _tokenizer: job["pre"]
    sys.argv = ["convert_hf_to_gguf.py", job["convert"], "--outfile", job["out"], *job["arguments"]]
    runpy.run_path(f"{folder}/convert_hf_to_gguf.py", run_name="__main__")


def logits(job: dict) -> None:
    import numpy as np
    import torch
    from transformers import Qwen3_5ForCausalLM

    model = Qwen3_5ForCausalLM.from_pretrained(job["logits"], dtype=torch.float32).eval()
    with torch.inference_mode():
        made = model(torch.tensor([job["tokens"]]), use_cache=False).logits[0]
    np.save(job["out"], made.numpy())


def main() -> int:
    folder = sys.argv[1]
    sys.path[:0] = [folder, f"{folder}/gguf-py"]
    import conversion  # noqa: F401 - once for all children
    import torch
    from transformers import AutoTokenizer  # noqa: F401

    torch.set_num_threads(1)  # children of a fork have none of its threads
    failed = 0
    for job in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                logits(job) if "logits" in job else convert(job, folder)
                code = 0
            except SystemExit as stop:
                code = int(bool(stop.code))
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        if status or not Path(job["out"]).exists():
            print(f"failed: {job}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
