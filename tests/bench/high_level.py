"""A run of some turns through `Llama.create_chat_completion`; prints what it decoded, as JSON.

python -m tests.bench.high_level MODEL CONTEXT TURNS TOKENS_PER_TURN
"""

from __future__ import annotations

import json
import sys
from typing import Any

from llama_cpp import Llama

from agent.tools.schemas import TOOLS
from tests.bench.rivals import conversation


def main(path: str, n_ctx: int, n_turns: int, max_tokens: int) -> None:
    """Count the tokens that `eval` gets."""
    llama = Llama(path, n_ctx=n_ctx, n_threads=1, n_threads_batch=1, seed=1, verbose=False)
    evaluated, least, messages = 0, 0, conversation(0)
    plain_eval = llama.eval

    def counting_eval(tokens: Any) -> None:
        nonlocal evaluated
        evaluated += len(tokens)
        plain_eval(tokens)

    llama.eval = counting_eval
    for number in range(n_turns):
        reply: Any = llama.create_chat_completion(messages, tools=TOOLS, max_tokens=max_tokens, temperature=1.0)
        least = reply["usage"]["total_tokens"] - 1
        messages += [reply["choices"][0]["message"], *conversation(number + 1)]
    print(json.dumps({"evaluated": evaluated, "least": least}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
