"""When a reply of an endpoint is stopped from this side: a thought beyond its limit, text in circles. Pure."""

from __future__ import annotations

from agent.model.endpoint_stream import Reply
from agent.model.repetition import goes_in_circles

LOOK_EVERY_PIECES = 32
CHARS_PER_TOKEN = 3.5  # code and English with the Qwen3.5 tokenizer
_CALL_TAGS = ("<tool_call>", "<function=")


def find_stop(reply: Reply, n_pieces: int, thought_tokens: int | None) -> str | None:
    """Why the reply is to be stopped now, as the kind of a `Forced`; None: it goes on.

    A thought cannot be closed from here, so only a limit that was asked for counts. What may be the value of a call is
    not judged.
    """
    if n_pieces % LOOK_EVERY_PIECES or reply.calls:
        return None
    if not reply.content:
        if thought_tokens is not None and len(reply.reasoning) > thought_tokens * CHARS_PER_TOKEN:
            return "thought_limit"
        return "thought_repeats" if goes_in_circles(reply.reasoning) else None
    if any(tag in reply.content for tag in _CALL_TAGS):
        return None
    return "answer_repeats" if goes_in_circles(reply.content) else None
