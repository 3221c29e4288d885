"""A look at an endpoint for `doctor`: does it answer, and was it started with the options that runs need?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.errors import FrogError
from agent.model.endpoint import EndpointModel
from agent.model.endpoint_retry import RetryPolicy
from agent.types import JsonObject, Limits, ModelSpec

PROBE_TOKENS = 1024  # a thought and one call of a small model
_TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "Glob",
        "description": "List the files that match a pattern.",
        "parameters": {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointProbe:
    """What an endpoint can do. None: the model did not show it, or the endpoint could not be asked.

    `notes` name what is wrong and the server option that is missing.
    """

    reachable: bool
    models: tuple[str, ...] = ()
    structured_tool_calls: bool | None = None
    reasoning_separate: bool | None = None
    notes: tuple[str, ...] = ()


async def probe_endpoint(
    base_url: str, name: str | None, key_env: str | None, *, timeout_s: float = 120.0
) -> EndpointProbe:
    """Ask for the models, and for one tiny tool call in the way that runs ask. Never raises FrogError.

    The caller sees to the consent for endpoints beyond this machine. Each wait is at most `timeout_s`.
    """
    probe = EndpointProbe(reachable=False)
    model: EndpointModel | None = None
    try:
        model = EndpointModel(
            ModelSpec(kind="endpoint", base_url=base_url, name=name, api_key_env=key_env),
            retry=RetryPolicy(attempts=2),
            read_timeout_s=timeout_s,
        )
        info = await model.open(Limits(tokens_per_turn=PROBE_TOKENS))
        probe = EndpointProbe(reachable=True, models=model.served_models or (info.name,))
        await model.begin(
            "You are a test of a server. Answer with exactly one tool call and no text.",
            [_TOOL],
            "Call the tool Glob with the pattern *.py now.",
        )
        turn = await model.generate([], lambda _: None, lambda _done, _total: None)
        read = model.last_reply
        assert read is not None
        notes = model.notes
        if not turn.calls:
            notes += ("the model made no tool call in the probe; the reading of tool calls is unknown",)
        return replace(
            probe,
            structured_tool_calls=read.structured_calls if turn.calls else None,
            reasoning_separate=True if read.separate_reasoning else False if read.text_reasoning else None,
            notes=notes,
        )
    except FrogError as error:
        notes = (*(model.notes if model else ()), error.in_one_line)
        tools_refused = probe.reachable and "does not take tools" in error.message
        return replace(probe, structured_tool_calls=False if tools_refused else None, notes=notes)
    finally:
        if model is not None:
            await model.close()
