"""Which tensor of a Qwen3.5 checkpoint becomes which of GGUF, of what shape and how changed; pure data.

Names of checkpoints are those of transformers' `Qwen3_5ForConditionalGeneration`; the changes are what llama.cpp's
graph of `qwen35` expects: norms hold 1 + weight, `A_log` is stored as -exp, and value heads lie tiled, not grouped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from quant.convert_config import ModelConfig

HEAD = "lm_head.weight"


class Change(Enum):
    """What happens to the values of a tensor."""

    NONE = "none"
    ADD_ONE = "add one"
    NEGATIVE_EXP = "-exp"


class Order(Enum):
    """Along what the value heads of the delta rule are put in another order."""

    KEPT = "kept"
    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A tensor of the GGUF: `shape` is that in the checkpoint, `made_shape` that in the GGUF, rows first.

    `exact`: F32 whatever the form of the file. `head_width`: rows (or columns) of one value head; those of queries and
    keys, which come first, keep their places.
    """

    name: str
    shape: tuple[int, ...]
    made_shape: tuple[int, ...]
    change: Change = Change.NONE
    order: Order = Order.KEPT
    head_width: int = 0
    exact: bool = False


def plain_name(name: str) -> str:
    """The name without what only says that a part that sees was there, too."""
    name = name.replace("language_model.", "")
    return name.removeprefix("model.") if name.startswith("model.mtp.") else name


def is_left_out(name: str) -> bool:
    """What belongs to the part that sees, and what any model computes anew."""
    return "visual." in name or name.endswith(".rotary_emb.inv_freq")


def slots(config: ModelConfig, n_drafting: int) -> dict[str, Slot]:
    """All tensors of the model by their plain names; `lm_head.weight` may be missing where it is tied."""
    made = {
        "model.embed_tokens.weight": _plain("token_embd.weight", config.vocabulary, config.hidden),
        "model.norm.weight": _norm("output_norm.weight", config.hidden),
        HEAD: _plain("output.weight", config.vocabulary, config.hidden),
    }
    for i, is_recurrent in enumerate(config.recurrent):
        part = _delta_rule(config) if is_recurrent else _attention(config)
        made |= _layer(f"model.layers.{i}", i, config, part)
    for i in range(n_drafting):
        made |= _layer(f"mtp.layers.{i}", config.layers + i, config, _attention(config))
    if n_drafting:
        blk, hidden = f"blk.{config.layers}.nextn", config.hidden
        made["mtp.fc.weight"] = _plain(f"{blk}.eh_proj.weight", hidden, 2 * hidden)
        made["mtp.pre_fc_norm_embedding.weight"] = _norm(f"{blk}.enorm.weight", hidden)
        made["mtp.pre_fc_norm_hidden.weight"] = _norm(f"{blk}.hnorm.weight", hidden)
        made["mtp.norm.weight"] = _norm(f"{blk}.shared_head_norm.weight", hidden)
    return made


_Part = Iterator[tuple[str, Slot]]


def _layer(prefix: str, i: int, config: ModelConfig, part: _Part) -> dict[str, Slot]:
    blk, hidden, wide = f"blk.{i}", config.hidden, config.feed_forward
    made = {
        "input_layernorm.weight": _norm("attn_norm.weight", hidden),
        "post_attention_layernorm.weight": _norm("post_attention_norm.weight", hidden),
        "mlp.gate_proj.weight": _plain("ffn_gate.weight", wide, hidden),
        "mlp.up_proj.weight": _plain("ffn_up.weight", wide, hidden),
        "mlp.down_proj.weight": _plain("ffn_down.weight", hidden, wide),
        **dict(part),
    }
    return {f"{prefix}.{name}": replace(slot, name=f"{blk}.{slot.name}") for name, slot in made.items()}


def _attention(config: ModelConfig) -> _Part:
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    yield "self_attn.q_proj.weight", _plain("attn_q.weight", 2 * queries, config.hidden)  # each head with its gate
    yield "self_attn.k_proj.weight", _plain("attn_k.weight", keys, config.hidden)
    yield "self_attn.v_proj.weight", _plain("attn_v.weight", keys, config.hidden)
    yield "self_attn.o_proj.weight", _plain("attn_output.weight", config.hidden, queries)
    yield "self_attn.q_norm.weight", _norm("attn_q_norm.weight", config.head_size)
    yield "self_attn.k_norm.weight", _norm("attn_k_norm.weight", config.head_size)


def _delta_rule(config: ModelConfig) -> _Part:
    hidden, steps, state, kernel = config.hidden, config.steps, config.state, config.kernel
    values = steps * state
    mixed = 2 * config.groups * state + values
    rows, columns = Order.ROWS, Order.COLUMNS
    yield "linear_attn.in_proj_qkv.weight", _slot("attn_qkv.weight", (mixed, hidden), order=rows, head_width=state)
    yield "linear_attn.in_proj_z.weight", _slot("attn_gate.weight", (values, hidden), order=rows, head_width=state)
    yield "linear_attn.in_proj_b.weight", _slot("ssm_beta.weight", (steps, hidden), order=rows, head_width=1)
    yield "linear_attn.in_proj_a.weight", _slot("ssm_alpha.weight", (steps, hidden), order=rows, head_width=1)
    yield (
        "linear_attn.conv1d.weight",
        Slot(
            name="ssm_conv1d.weight",
            shape=(mixed, 1, kernel),
            made_shape=(mixed, kernel),
            order=rows,
            head_width=state,
            exact=True,
        ),
    )
    yield "linear_attn.dt_bias", _slot("ssm_dt.bias", (steps,), order=rows, head_width=1, exact=True)
    yield (
        "linear_attn.A_log",
        _slot("ssm_a", (steps,), change=Change.NEGATIVE_EXP, order=rows, head_width=1, exact=True),
    )
    yield "linear_attn.norm.weight", _slot("ssm_norm.weight", (state,), exact=True)  # the one norm that has no 1
    yield "linear_attn.out_proj.weight", _slot("ssm_out.weight", (hidden, values), order=columns, head_width=state)


def _plain(name: str, rows: int, columns: int) -> Slot:
    return _slot(name, (rows, columns))


def _norm(name: str, size: int) -> Slot:
    return _slot(name, (size,), change=Change.ADD_ONE, exact=True)


def _slot(
    name: str,
    shape: tuple[int, ...],
    *,
    change: Change = Change.NONE,
    order: Order = Order.KEPT,
    head_width: int = 0,
    exact: bool = False,
) -> Slot:
    return Slot(
        name=name, shape=shape, made_shape=shape, change=change, order=order, head_width=head_width, exact=exact
    )
