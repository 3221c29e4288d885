"""What `config.json` of a Qwen3.5 checkpoint says, checked, and as the metadata of GGUF; pure.

The names of the keys of a checkpoint are those of the class `Qwen3_5TextConfig` in transformers, those of GGUF are
what llama.cpp's loader of `qwen35` reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import ModelFileError
from quant.convert_safetensors import GET_AGAIN
from quant.gguf_writer import Kind, Value

ARCHITECTURE = "qwen35"
_ARCHITECTURES = ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM")
_DEFAULT_SECTIONS = [11, 11, 10]  # of transformers, where a checkpoint has none
_PLAIN_ROPE = (None, "default", "mrope")
_MOST = 1 << 31
_WHICH = "`frog-lsp model convert` reads the dense models of Qwen3.5, such as microsoft/FrogNano-4B-2609."


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The sizes of a checkpoint. `recurrent[i]` says whether layer i has the delta rule, not attention.

    `rotary` of the `head_size` values of a head are rotated. The delta rule has `steps` value heads over `groups` key
    heads of `state` values each. `n_drafting`: the layers behind `layers` that draft (MTP), by the configuration.
    `scaling` are keys of GGUF for positions beyond those of the training.
    """

    layers: int
    recurrent: tuple[bool, ...]
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    rotary: int
    sections: tuple[int, ...]
    rope_base: float
    groups: int
    steps: int
    state: int
    kernel: int
    interval: int
    vocabulary: int
    context: int
    epsilon: float
    n_drafting: int
    tied: bool
    scaling: Mapping[str, Value]

    def metadata(self, n_drafting: int) -> dict[str, Value]:
        """The keys of the architecture, with `n_drafting` layers that draft."""
        counts = {
            "block_count": self.layers + n_drafting,
            "context_length": self.context,
            "embedding_length": self.hidden,
            "feed_forward_length": self.feed_forward,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_size,
            "attention.value_length": self.head_size,
            "rope.dimension_count": self.rotary,
            "ssm.conv_kernel": self.kernel,
            "ssm.state_size": self.state,
            "ssm.group_count": self.groups,
            "ssm.time_step_rank": self.steps,
            "ssm.inner_size": self.steps * self.state,
            "full_attention_interval": self.interval,
        }
        if n_drafting:
            counts["nextn_predict_layers"] = n_drafting
        keys = {key: Value.u32(count) for key, count in counts.items()} | dict(self.scaling)
        keys["attention.layer_norm_rms_epsilon"] = Value.f32(self.epsilon)
        keys["attention.recurrent_layers"] = Value.list_of(Kind.BOOL, [*self.recurrent, *[False] * n_drafting])
        keys["rope.freq_base"] = Value.f32(self.rope_base)
        keys["rope.dimension_sections"] = Value.list_of(Kind.I32, [*self.sections, 0])
        return {f"{ARCHITECTURE}.{key}": value for key, value in keys.items()}


def parse_config(config: Mapping[str, Any]) -> ModelConfig:
    """Read `config.json`. Raises ModelFileError for another architecture and for what cannot be computed right."""
    _check_architecture(config)
    nested = config.get("text_config")
    keys = {**config, **nested} if isinstance(nested, dict) else config
    if keys.get("quantization_config"):
        raise ModelFileError(
            "the weights of this checkpoint are quantized already", "Take the checkpoint in BF16 that it was made from."
        )
    layers = _count(keys, "num_hidden_layers")
    interval = _count(keys, "full_attention_interval", default=4)
    rope = keys.get("rope_parameters") or keys.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise _wrong("rope_parameters")
    head_size = _count(keys, "head_dim")
    rotary = int(head_size * _number({**keys, **rope}, "partial_rotary_factor", 0.25))
    made = ModelConfig(
        layers=layers,
        recurrent=_recurrent(keys, layers, interval),
        hidden=_count(keys, "hidden_size"),
        feed_forward=_count(keys, "intermediate_size"),
        heads=_count(keys, "num_attention_heads"),
        kv_heads=_count(keys, "num_key_value_heads"),
        head_size=head_size,
        rotary=rotary,
        sections=_sections(rope, rotary),
        rope_base=_number({**keys, **rope}, "rope_theta"),
        groups=_count(keys, "linear_num_key_heads"),
        steps=_count(keys, "linear_num_value_heads"),
        state=_count(keys, "linear_key_head_dim"),
        kernel=_count(keys, "linear_conv_kernel_dim"),
        interval=interval,
        vocabulary=_count(keys, "vocab_size"),
        context=_count(keys, "max_position_embeddings"),
        epsilon=_number(keys, "rms_norm_eps", 1e-6),
        n_drafting=_count(keys, "mtp_num_hidden_layers", default=0, least=0),
        tied=bool(keys.get("tie_word_embeddings", False)),
        scaling=_scaling(rope),
    )
    if _count(keys, "linear_value_head_dim") != made.state:
        raise ModelFileError(
            "llama.cpp computes only key heads and value heads of one size (linear_*_head_dim)", _WHICH
        )
    for many, few in (
        ("linear_num_value_heads", "linear_num_key_heads"),
        ("num_attention_heads", "num_key_value_heads"),
    ):
        if keys[many] % keys[few]:
            raise ModelFileError(f"{many} ({keys[many]}) is no multiple of {few} ({keys[few]})", GET_AGAIN)
    return made


def sections_for(half: int) -> tuple[int, int, int]:
    """The only split of `half` rotated pairs that llama.cpp computes as transformers does, for text.

    Text gets the positions (p, p, p, 0): a pair that fell to the fourth section would never be rotated.
    """
    return (half + 2) // 3, (half + 1) // 3, half // 3


def _check_architecture(config: Mapping[str, Any]) -> None:
    named = config.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    if any(name in _ARCHITECTURES for name in names):
        return
    if "peft_type" in config:
        raise ModelFileError("this is a LoRA, not a model", "Merge it into its model, then convert that.")
    what = ", ".join(names) or str(config.get("model_type") or "not named")
    more = ": a mixture of experts" if "Moe" in what else ""
    raise ModelFileError(f"the architecture of this checkpoint cannot be converted here ({what[:200]}){more}", _WHICH)


def _recurrent(keys: Mapping[str, Any], layers: int, interval: int) -> tuple[bool, ...]:
    kinds = keys.get("layer_types")
    if kinds is None:
        return tuple((i + 1) % interval != 0 for i in range(layers))
    if not isinstance(kinds, list) or not set(kinds) <= {"linear_attention", "full_attention"}:
        raise _wrong("layer_types")
    if len(kinds) != layers:
        raise ModelFileError(f"config.json has {len(kinds)} layer_types and {layers} layers", GET_AGAIN)
    return tuple(kind == "linear_attention" for kind in kinds)


def _sections(rope: Mapping[str, Any], rotary: int) -> tuple[int, ...]:
    given = rope.get("mrope_section", _DEFAULT_SECTIONS)
    wanted = sections_for(rotary // 2)
    if not isinstance(given, list) or tuple(given) not in (wanted, (*wanted, 0)):
        raise ModelFileError(
            f"the mrope_section of this checkpoint is {str(given)[:100]}: llama.cpp would leave some of its"
            f" {rotary // 2} rotated pairs unrotated in text, and answer wrongly without a word",
            f"Only a checkpoint that was trained with {list(wanted)} can be converted.",
        )
    return wanted


def _scaling(rope: Mapping[str, Any]) -> dict[str, Value]:
    kind = rope.get("rope_type", rope.get("type"))
    if kind in _PLAIN_ROPE:
        return {}
    if kind not in ("linear", "yarn"):
        raise ModelFileError(f"its positions are scaled in a way that is not known here ({str(kind)[:40]})", _WHICH)
    keys = {"scaling.type": Value.text(kind), "scaling.factor": Value.f32(_number(rope, "factor"))}
    if kind == "yarn":
        keys["scaling.original_context_length"] = Value.u32(_count(rope, "original_max_position_embeddings"))
        for ours, *theirs in (
            ("yarn_ext_factor", "extrapolation_factor"),
            ("yarn_attn_factor", "attention_factor", "attn_factor"),
            ("yarn_beta_fast", "beta_fast"),
            ("yarn_beta_slow", "beta_slow"),
        ):
            name = next((name for name in theirs if rope.get(name) is not None), None)
            if name is not None:
                keys[f"scaling.{ours}"] = Value.f32(_number(rope, name))
    return {f"rope.{key}": value for key, value in keys.items()}


def _count(keys: Mapping[str, Any], key: str, *, default: int | None = None, least: int = 1) -> int:
    value = keys.get(key, default)
    if value is None:
        raise ModelFileError(f"config.json has no {key}", GET_AGAIN)
    if type(value) is not int or not least <= value < _MOST:
        raise _wrong(key)
    return value


def _number(keys: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = keys.get(key, default)
    if value is None:
        raise ModelFileError(f"config.json has no {key}", GET_AGAIN)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise _wrong(key)
    return float(value)


def _wrong(key: str) -> ModelFileError:
    return ModelFileError(f"the {key} of config.json is not plausible", GET_AGAIN)
