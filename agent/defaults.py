"""What the user's own settings file says about runs from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast, get_args

from agent.config import load_user_config, user_config_path
from agent.errors import UsageError
from agent.trajectory import KEEP_DAYS
from agent.types import CacheChoice, FlashAttention, JailBackend, JailSettings, Limits, ModelSpec, Speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The values that a run has when the command line says nothing."""

    model: ModelSpec
    limits: Limits
    jail: JailSettings
    prompt_file: str | None
    test_command: str | None
    keep_days: float


def load_defaults() -> Defaults:
    """Read the settings file. Raises UsageError where a value has the wrong type."""
    return defaults_from(load_user_config())


def defaults_from(config: dict[str, Any]) -> Defaults:
    """The defaults from an object with the keys of the editor settings, nested. Raises UsageError."""
    read = _Reader(config)
    limits = Limits()
    kind = read("model.kind", str, "worker")
    if kind not in ("worker", "endpoint"):
        raise _wrong("model.kind", "worker or endpoint")
    backend = read("jail.backend", str, "auto")
    if backend not in get_args(JailBackend):
        raise _wrong("jail.backend", f"one of {', '.join(get_args(JailBackend))}")
    flash = read("model.flashAttention", str, "auto")
    if flash not in get_args(FlashAttention):
        raise _wrong("model.flashAttention", f"one of {', '.join(get_args(FlashAttention))}")
    cache_type = read("model.cacheType", str, "auto")
    if cache_type not in get_args(CacheChoice):
        raise _wrong("model.cacheType", f"one of {', '.join(get_args(CacheChoice))}")
    speculation = read("model.speculation", (bool, str), "auto")
    if not isinstance(speculation, bool) and speculation != "auto":
        raise _wrong("model.speculation", "auto, true or false")
    paths = read("jail.readOnlyPaths", list, [])
    if not all(isinstance(path, str) for path in paths):
        raise _wrong("jail.readOnlyPaths", "a list of paths")
    return Defaults(
        model=ModelSpec(
            kind="endpoint" if kind == "endpoint" else "worker",
            path=read("model.path", str, None),
            base_url=read("model.baseUrl", str, None),
            name=read("model.name", str, None),
            api_key_env=read("model.apiKeyEnv", str, None),
            n_threads=read("model.threads", int, None),
            n_gpu_layers=read("model.gpuLayers", int, None),
            flash_attention=cast("FlashAttention", flash),
            cache_type=cast("CacheChoice", cache_type),
            batch_tokens=read("model.batchTokens", int, None),
            repairs_calls=read("model.repairCalls", bool, True),
            speculation=cast("Speculation", speculation),
        ),
        limits=Limits(
            max_steps=read("limits.maxSteps", int, limits.max_steps),
            context_tokens=read("limits.contextTokens", int, limits.context_tokens),
            tokens_per_turn=read("limits.tokensPerTurn", int, limits.tokens_per_turn),
            time_s=float(read("limits.timeS", (int, float), limits.time_s)),
            thought_tokens=read("limits.thoughtTokens", int, None),
        ),
        jail=JailSettings(
            backend=cast("JailBackend", backend),
            read_only_paths=tuple(paths),
            python=read("jail.python", str, None),
        ),
        prompt_file=read("agent.promptFile", str, None),
        test_command=read("tests.command", str, None),
        keep_days=float(read("state.keepDays", (int, float), KEEP_DAYS)),
    )


_ABOVE_0 = ("model.threads", "model.batchTokens")


class _Reader:
    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config

    def __call__(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        """The value of a dotted key, nested or not; null counts as absent."""
        group, _, name = key.partition(".")
        nested = self._config.get(group)
        value = self._config.get(key, nested.get(name) if isinstance(nested, dict) else None)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kinds):
            raise _wrong(key, " or ".join(item.__name__ for item in kinds))
        if isinstance(value, int | float) and value <= 0 and (group == "limits" or key in _ABOVE_0):
            raise _wrong(key, "a number above 0")
        return value


def _wrong(key: str, wanted: str) -> UsageError:
    return UsageError(f"the setting {key} must be {wanted}", f"Repair {user_config_path()}.")
