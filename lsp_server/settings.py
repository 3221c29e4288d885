"""The settings of the editor: one table gives the defaults, the reading and the JSON schema.

Reading never fails: an unknown key or a bad value is named, with a suggestion, and the default counts.
Trust is read apart and fails closed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.types import JailSettings, Limits, ModelSpec

SECTION = "frog"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `kinds` are the JSON types that it takes; `user_only`: never taken from a folder's settings."""

    key: str
    default: Any
    kinds: tuple[str, ...]
    text: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    user_only: bool = False


TABLE: tuple[Setting, ...] = (
    Setting(
        "model.kind",
        "worker",
        ("string",),
        "Where the model runs: a worker process on this machine, or an OpenAI-compatible endpoint.",
        ("worker", "endpoint"),
        user_only=True,
    ),
    Setting(
        "model.path",
        None,
        ("string", "null"),
        "A GGUF file or a name of the catalog; null: the configured model, else the bundled demonstration model.",
        user_only=True,
    ),
    Setting("model.baseUrl", None, ("string", "null"), "The endpoint, ending in /v1.", user_only=True),
    Setting("model.name", None, ("string", "null"), "The model's name at the endpoint.", user_only=True),
    Setting(
        "model.apiKeyEnv", None, ("string", "null"), "The environment variable that holds the key.", user_only=True
    ),
    Setting("model.idleUnloadS", 600, ("number",), "Seconds after which an idle model is unloaded.", (), 0, True),
    Setting("model.threads", None, ("integer", "null"), "Threads; null: the physical cores.", (), 1, True),
    Setting("model.gpuLayers", None, ("integer", "null"), "Layers on the GPU; null: automatic.", (), -1, True),
    Setting("model.speculation", "auto", ("string", "boolean"), "Speculative decoding.", user_only=True),
    Setting("model.repairCalls", True, ("boolean",), "Read tool calls with small mistakes.", user_only=True),
    Setting("limits.maxSteps", 150, ("integer",), "The most turns of a run.", (), 1),
    Setting("limits.contextTokens", 131_072, ("integer",), "The context; lowered to what the machine holds.", (), 512),
    Setting("limits.tokensPerTurn", 8_192, ("integer",), "The most tokens of one turn.", (), 1),
    Setting("limits.timeS", 10_800, ("number",), "The most seconds of a run.", (), 1),
    Setting("limits.thoughtTokens", None, ("integer", "null"), "The most tokens of thinking in a turn.", (), 1),
    Setting(
        "jail.backend",
        "auto",
        ("string",),
        "How tools are jailed; files: no Bash, the four file tools alone.",
        ("auto", "namespaces", "files"),
        user_only=True,
    ),
    Setting("jail.readOnlyPaths", [], ("array",), "More paths that jailed tools may read.", user_only=True),
    Setting("jail.python", None, ("string", "null"), "The Python of the jail's shell.", user_only=True),
    Setting("agent.promptFile", None, ("string", "null"), "A file with another wording of the prompt.", user_only=True),
    Setting("tests.command", None, ("string", "null"), "Runs in the jail before and after; null: not checked."),
    Setting("review.ask", True, ("boolean",), "Ask what to do when a run ends; false: wait for frog.apply."),
    Setting(
        "client.appliesEdits", False, ("boolean",), "The editor applies edits though it says that it does not (ALE)."
    ),
    Setting("codeActions.enabled", True, ("boolean",), "Offer code actions."),
    Setting("state.keepDays", 30, ("number",), "Days that trajectories and proposals are kept.", (), 0),
    Setting(
        "logLevel", "info", ("string",), "How much goes to the log.", ("error", "warning", "info", "debug"), None, False
    ),
)

_BY_KEY = {setting.key: setting for setting in TABLE}
_GROUPS = {setting.key.partition(".")[0] for setting in TABLE if "." in setting.key}


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked values by their dotted keys, what was wrong in words, and the keys that were set by hand."""

    values: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    explicit: frozenset[str] = frozenset()

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def limits(self) -> Limits:
        """The limits of a run."""
        return Limits(
            max_steps=self["limits.maxSteps"],
            context_tokens=self["limits.contextTokens"],
            tokens_per_turn=self["limits.tokensPerTurn"],
            time_s=float(self["limits.timeS"]),
            thought_tokens=self["limits.thoughtTokens"],
        )

    @property
    def model(self) -> ModelSpec:
        """Which model a run uses."""
        return ModelSpec(
            kind=self["model.kind"],
            path=self["model.path"],
            base_url=self["model.baseUrl"],
            name=self["model.name"],
            api_key_env=self["model.apiKeyEnv"],
            n_threads=self["model.threads"],
            n_gpu_layers=self["model.gpuLayers"],
        )

    @property
    def jail(self) -> JailSettings:
        """What the user says about the jail."""
        return JailSettings(
            backend=self["jail.backend"],
            read_only_paths=tuple(self["jail.readOnlyPaths"]),
            python=self["jail.python"],
        )


DEFAULTS = Settings({setting.key: setting.default for setting in TABLE})


def read(*layers: Any, replay: bool = False) -> Settings:
    """Settings from JSON objects, later ones over earlier ones; whatever cannot be read is a problem, not an error.

    `replay` also takes `model.kind` "scripted" (a file of turns in `model.path`), a model for tests and for
    replays; only what starts the server, `initializationOptions`, may ask for it.
    """
    values = dict(DEFAULTS.values)
    problems: list[str] = []
    explicit: set[str] = set()
    for layer in layers:
        if layer is None:
            continue
        if not isinstance(layer, dict):
            problems.append(f"the settings must be an object, not {_kind(layer)}; defaults are used")
            continue
        for key, value in _flatten(layer, problems):
            setting = _BY_KEY.get(key)
            if isinstance(value, float) and setting and "integer" in setting.kinds and value.is_integer():
                value = int(value)  # clients whose numbers are all floating
            if setting is None:
                problems.append(f"unknown setting {key}{_suggestion(key)}")
            elif value is None:
                values[key] = setting.default  # clients send null for what is not set
            elif replay and key == "model.kind" and value == "scripted":
                values[key] = value
                explicit.add(key)
            elif (problem := _problem(setting, value)) is not None:
                problems.append(f"{key} {problem}; {values[key]!r} is used")
            else:
                values[key] = value
                explicit.add(key)
    return Settings(values, tuple(problems), frozenset(explicit))


def without_user_keys(layer: Any) -> Any:
    """A folder's settings without what only the user's own settings may say: model, jail, agent, trust."""
    if not isinstance(layer, dict):
        return layer
    return {key: value for key, value in layer.items() if key.partition(".")[0] not in {*USER_ONLY, "trusted"}}


USER_ONLY = ("model", "jail", "agent")


def read_trust(*layers: Any) -> str | None:
    """None where runs are allowed, else why not. Absent everywhere: the user started the server by hand.

    Each layer that says anything but true refuses: trust that cannot be read is no trust.
    """
    for layer in layers:
        if layer is None:
            continue
        if not isinstance(layer, dict):
            return "the settings are malformed, so the workspace counts as not trusted"
        if "trusted" in layer and layer["trusted"] is not True:
            if layer["trusted"] is False:
                return "the workspace is not trusted"
            return "the setting trusted is malformed, so the workspace counts as not trusted"
    return None


def schema() -> dict[str, Any]:
    """A JSON schema of the settings, for editors."""
    root: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of frog-lsp",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "trusted": {
                "type": "boolean",
                "description": "Whether runs are allowed here; absent: the server was started by hand, they are.",
            }
        },
    }
    for setting in TABLE:
        parent = root["properties"]
        *groups, name = setting.key.split(".")
        for group in groups:
            parent = parent.setdefault(group, {"type": "object", "additionalProperties": False, "properties": {}})[
                "properties"
            ]
        kinds = setting.kinds[0] if len(setting.kinds) == 1 else list(setting.kinds)
        entry: dict[str, Any] = {"type": kinds, "default": setting.default, "description": setting.text}
        if setting.choices:
            entry["enum"] = list(setting.choices)
        if setting.minimum is not None:
            entry["minimum"] = setting.minimum
        if "array" in setting.kinds:
            entry["items"] = {"type": "string"}
        parent[name] = entry
    return root


def _flatten(layer: dict[Any, Any], problems: list[str], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested and dotted keys alike; `trusted` is read elsewhere."""
    found: list[tuple[str, Any]] = []
    for name, value in layer.items():
        key = f"{prefix}{name}"
        if key == "trusted":
            continue
        if key in _GROUPS:
            if isinstance(value, dict):
                found += _flatten(value, problems, key + ".")
            elif value is not None:
                problems.append(f"{key} must be an object, not {_kind(value)}; defaults are used")
        else:
            found.append((key, value))
    return found


def _problem(setting: Setting, value: Any) -> str | None:
    kind = _kind(value)
    if kind not in setting.kinds and not (kind == "integer" and "number" in setting.kinds):
        return f"must be {' or '.join(setting.kinds)}, not {kind}"
    if setting.choices and value not in setting.choices:
        close = difflib.get_close_matches(str(value), setting.choices, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        return f"must be one of {', '.join(map(repr, setting.choices))}, not {value!r}{hint}"
    if setting.minimum is not None and isinstance(value, int | float) and value < setting.minimum:
        return f"must be at least {setting.minimum:g}, not {value!r}"
    if kind == "array" and not all(isinstance(item, str) for item in value):
        return "must hold strings only"
    return None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float) and value != value:  # NaN, which JSON has not
        return "not a number"
    names: tuple[tuple[type, str], ...] = (
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    )
    return next((name for python, name in names if isinstance(value, python)), type(value).__name__)


def _suggestion(key: str) -> str:
    close = difflib.get_close_matches(key, _BY_KEY, 1, 0.7)
    return f" (did you mean {close[0]}?)" if close else ""
