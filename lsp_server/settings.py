"""The settings of the editor, as models: they give the defaults, what is legal, and the JSON schema.

How layers of JSON become settings, and what is said of bad values: `layers.py`.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from agent.types import CacheChoice, FlashAttention, JailBackend, JailSettings, JsonObject, Limits, ModelSpec

SECTION = "frog"
USER_ONLY: JsonObject = {"x-userOnly": True}
"""Marks a group that is taken from the user's own settings, never from a folder's; the schema says so, too."""
_LARGEST = 2**31 - 1  # what the engine holds in an int


def _whole(value: Any) -> Any:
    """Clients whose numbers are all floating send 12.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unless_blank(value: Any) -> Any:
    """An input field that was emptied is sent as ""."""
    return None if isinstance(value, str) and not value.strip() else value


def _not_scripted(kind: str, info: ValidationInfo) -> str:
    if kind == "scripted" and not (info.context or {}).get("replay"):
        raise ValueError("a script is played only for what starts the server")
    return kind


Text = Annotated[str, Strict(), Field(pattern=r"^[^\x00]*$")]
OptionalText = Annotated[Text | None, BeforeValidator(_unless_blank)]
_Int = Annotated[int, Field(le=_LARGEST)]
Whole = Annotated[_Int, BeforeValidator(_whole)]
OptionalWhole = Annotated[_Int | None, BeforeValidator(_whole)]
ModelKind = Annotated[
    Literal["worker", "endpoint", "scripted"],
    AfterValidator(_not_scripted),
    WithJsonSchema({"type": "string", "enum": ["worker", "endpoint"]}),
]
Speculation = Annotated[Literal["auto"] | bool, WithJsonSchema({"enum": ["auto", True, False]})]


class Group(BaseModel):
    """Settings that belong together. Their docstrings and descriptions go to the user with the schema."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelGroup(Group):
    """Which model a run uses. Taken from your own settings only, never from a folder's."""

    kind: ModelKind = Field(
        default="worker",
        description="Where the model runs: a worker process on this machine, or an OpenAI-compatible endpoint.",
    )
    path: OptionalText = Field(
        default=None,
        description="A GGUF file or a name of the catalog; null: the configured model, else the bundled "
        "demonstration model.",
    )
    base_url: OptionalText = Field(default=None, description="The endpoint, ending in /v1.")
    name: OptionalText = Field(default=None, description="The model's name at the endpoint.")
    api_key_env: OptionalText = Field(default=None, description="The environment variable that holds the key.")
    idle_unload_s: float = Field(default=600, ge=0, description="Seconds after which an idle model is unloaded.")
    threads: OptionalWhole = Field(default=None, ge=1, description="Threads; null: the physical cores.")
    gpu_layers: OptionalWhole = Field(default=None, ge=-1, description="Layers on the GPU; null: automatic.")
    flash_attention: FlashAttention = Field(
        default="auto", description="Flash attention; off also rules out a cache of 8 bits where memory is short."
    )
    cache_type: CacheChoice = Field(
        default="auto",
        description="What the attention cache is kept in: f16, q8_0 (half the memory), or auto: q8_0 where memory "
        "is short.",
    )
    batch_tokens: OptionalWhole = Field(
        default=None, ge=1, description="Prompt tokens read at a time; null: 256, fewer where memory is short."
    )
    speculation: Speculation = Field(
        default="auto",
        description="Draft tokens that repeat what was read, and keep those that the model picks too: true, false, or "
        "auto: where it was measured to pay.",
    )
    repair_calls: bool = Field(default=True, description="Repair tool calls while the model writes them.")

    def to_spec(self) -> ModelSpec:
        """The model of a run."""
        return ModelSpec(
            kind=self.kind,
            path=self.path,
            base_url=self.base_url,
            name=self.name,
            api_key_env=self.api_key_env,
            n_threads=self.threads,
            n_gpu_layers=self.gpu_layers,
            flash_attention=self.flash_attention,
            cache_type=self.cache_type,
            batch_tokens=self.batch_tokens,
            repairs_calls=self.repair_calls,
            speculation=self.speculation,
        )


class LimitsGroup(Group):
    """Where a run ends at the latest. The defaults are those of FrogNano's published evaluation."""

    max_steps: Whole = Field(default=150, ge=1, description="The most turns of a run.")
    context_tokens: Whole = Field(
        default=131_072, ge=512, description="The context in tokens; lowered to what the machine holds."
    )
    tokens_per_turn: Whole = Field(default=8_192, ge=1, description="The most tokens of one turn.")
    time_s: float = Field(default=10_800, ge=1, description="The most seconds of a run.")
    thought_tokens: OptionalWhole = Field(
        default=None,
        ge=1,
        description="The most tokens of one thought; then it is closed and the call follows. null: 3/4 of the turn.",
    )

    def to_limits(self) -> Limits:
        """The limits of a run."""
        return Limits(
            max_steps=self.max_steps,
            context_tokens=self.context_tokens,
            tokens_per_turn=self.tokens_per_turn,
            time_s=float(self.time_s),
            thought_tokens=self.thought_tokens,
        )


class JailGroup(Group):
    """What may be said about the jail. Taken from your own settings only; nothing here switches it off."""

    backend: JailBackend = Field(
        default="auto", description="How tools are jailed; files: no Bash, the four file tools alone."
    )
    read_only_paths: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        default=(), description="More paths that jailed tools may read. Protected folders such as ~/.ssh are refused."
    )
    python: OptionalText = Field(
        default=None, description="The Python of the jail's shell; null: the project's .venv, else the server's own."
    )

    def to_jail_settings(self) -> JailSettings:
        """What a run gets of it."""
        return JailSettings(backend=self.backend, read_only_paths=self.read_only_paths, python=self.python)


class AgentGroup(Group):
    """The agent. Taken from your own settings only."""

    prompt_file: OptionalText = Field(default=None, description="A file with another wording of the prompt.")


class TestsGroup(Group):
    """How a proposal is checked."""

    __test__ = False  # no test of pytest's

    command: OptionalText = Field(default=None, description="Runs in the jail before and after; null: not checked.")


class ReviewGroup(Group):
    """The end of a run."""

    ask: bool = Field(default=True, description="Ask what to do when a run ends; false: wait for frog.apply.")


class ClientGroup(Group):
    """What the editor does not say of itself."""

    applies_edits: bool = Field(
        default=False, description="The editor applies edits though it says that it does not (ALE)."
    )


class CodeActionsGroup(Group):
    """The entries in the editor's menus."""

    enabled: bool = Field(default=True, description="Offer code actions.")


class StateGroup(Group):
    """What is kept after a run."""

    keep_days: float = Field(default=30, ge=0, description="Days that trajectories and proposals are kept.")


class Settings(Group):
    """All settings, checked. Trust is none of them: `layers.read_trust`."""

    model: ModelGroup = Field(default=ModelGroup(), json_schema_extra=USER_ONLY)
    limits: LimitsGroup = LimitsGroup()
    jail: JailGroup = Field(default=JailGroup(), json_schema_extra=USER_ONLY)
    agent: AgentGroup = Field(default=AgentGroup(), json_schema_extra=USER_ONLY)
    tests: TestsGroup = TestsGroup()
    review: ReviewGroup = ReviewGroup()
    client: ClientGroup = ClientGroup()
    code_actions: CodeActionsGroup = CodeActionsGroup()
    state: StateGroup = StateGroup()
    log_level: Literal["error", "warning", "info", "debug"] = Field(
        default="info", description="How much goes to the log."
    )


class _Written(Settings):
    """What a client may write."""

    trusted: bool = Field(
        default=True, description="Whether runs are allowed here; absent: the server was started by hand, they are."
    )


class _Schema(GenerateJsonSchema):
    """Pydantic's schema without titles made of names, and with `null` as one more type."""

    def field_title_should_be_set(self, _schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonObject:
        inner = self.generate_inner(schema["schema"])
        return {**inner, "type": [inner["type"], "null"]}


def schema() -> JsonObject:
    """A JSON schema of the settings, for editors; without references, since some editors follow none."""
    made = _Written.model_json_schema(schema_generator=_Schema)
    groups = made.pop("$defs")
    properties = {}
    for name, entry in made["properties"].items():
        if "$ref" in entry:
            entry = {**groups[entry["$ref"].rpartition("/")[2]], **entry}
            for key in ("$ref", "title", "default"):
                entry.pop(key, None)
        properties[name] = entry
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of frog-lsp",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


@functools.cache
def entries() -> dict[str, JsonObject]:
    """The schema of each setting by its dotted key."""
    found: dict[str, JsonObject] = {}
    for name, entry in schema()["properties"].items():
        if "properties" in entry:
            found |= {f"{name}.{key}": inner for key, inner in entry["properties"].items()}
        elif name != "trusted":
            found[name] = entry
    return found
