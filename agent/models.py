"""From the ModelSpec of a run to a model that can be opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.errors import FrogError, UsageError
from agent.protocols import ChatModel
from agent.types import Limits, RunSpec

DEMONSTRATION_TURN_TOKENS = 768  # the longest turns that the bundled model was trained on have about 300


def limits_of(spec: RunSpec) -> Limits:
    """The limits to open the model with: the tiny one says all it can in few tokens, and else may go on for ever."""
    if spec.model.kind != "worker":
        return spec.limits
    from agent.model.locate import locate

    try:
        is_demonstration = locate(spec.model.path).kind == "demonstration"
    except FrogError:
        return spec.limits  # opening it says the same, and what to do
    if not is_demonstration:
        return spec.limits
    return replace(spec.limits, tokens_per_turn=min(spec.limits.tokens_per_turn, DEMONSTRATION_TURN_TOKENS))


def choose_model(spec: RunSpec, on_note: Callable[[str], None]) -> ChatModel:
    """Make the model of a run; nothing is loaded yet. Raises UsageError, ModelUnavailable, ModelFileError."""
    if spec.model.kind == "endpoint":
        return _endpoint(spec, on_note)
    if spec.model.kind == "scripted":
        from agent.model.scripted import ScriptedModel

        if spec.model.path is None:
            raise UsageError("the scripted model needs a file of turns", "Give --model scripted:FILE.")
        return ScriptedModel(spec.model.path)
    from agent.model.client import WorkerModel, WorkerOptions
    from agent.model.locate import locate

    return WorkerModel(
        locate(spec.model.path),
        seed=spec.seed,
        context_is_explicit=spec.context_is_explicit,
        options=WorkerOptions.of(spec.model),
        on_note=on_note,
    )


def _endpoint(spec: RunSpec, on_note: Callable[[str], None]) -> ChatModel:
    from agent.model.consent import has_consent
    from agent.model.endpoint import EndpointModel
    from agent.model.endpoint_url import is_local, normalize_base_url

    if not spec.model.base_url:
        raise UsageError("no address of an endpoint is given", "Set `model.baseUrl`, or give --endpoint URL.")
    url = normalize_base_url(spec.model.base_url)
    if not is_local(url):
        if not has_consent(url):
            raise UsageError(
                f"the endpoint {url} is not on this machine and you have not agreed to it",
                "The issue and what the model reads would be sent there. If you want that: "
                f"`frog-lsp model consent {url}`.",
            )
        on_note(f"The issue and every file that the model reads are sent to {url}.")
    return EndpointModel(spec.model, seed=spec.seed, on_note=on_note)
