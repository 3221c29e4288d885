"""A legal `qwen35` model of 0.7 MB with random weights: the hybrid memory of the real one, in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

TEMPLATE = """\
{%- if not messages %}{{- raise_exception("No messages.") }}{%- endif %}
{%- macro text_of(content) %}{%- if content is string %}{{- content }}{%- endif %}{%- endmacro %}
{%- if tools %}
{{- "<|im_start|>system\\n# Tools\\n<tools>" }}
{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
{{- "\\n</tools>\\n\\nCall like this:\\n<tool_call>\\n<function=name>\\n</function>\\n</tool_call>\\n" }}
{{- text_of(messages[0].content) | trim }}{{- "<|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(found=false) %}
{%- for message in messages %}{%- if message.role == "user" %}{%- set ns.found = true %}{%- endif %}{%- endfor %}
{%- if not ns.found %}{{- raise_exception("No user query found in messages.") }}{%- endif %}
{%- for message in messages %}
{%- set content = text_of(message.content) | trim %}
{%- if message.role == "user" %}
{{- "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}
{%- elif message.role == "assistant" %}
{{- "<|im_start|>assistant\\n<think>\\n" + (message.reasoning_content or "") | trim + "\\n</think>\\n\\n" + content }}
{%- for call in message.tool_calls or [] %}
{%- if loop.first and content %}{{- "\\n\\n" }}{%- elif not loop.first %}{{- "\\n" }}{%- endif %}
{{- "<tool_call>\\n<function=" + call.function.name + ">\\n" }}
{%- for key, value in call.function.arguments | items %}
{{- "<parameter=" + key + ">\\n" }}{{- value | string }}{{- "\\n</parameter>\\n" }}
{%- endfor %}
{{- "</function>\\n</tool_call>" }}
{%- endfor %}
{{- "<|im_end|>\\n" }}
{%- elif message.role == "tool" %}
{%- if loop.previtem.role != "tool" %}{{- "<|im_start|>user" }}{%- endif %}
{{- "\\n<tool_response>\\n" + content + "\\n</tool_response>" }}
{%- if loop.last or loop.nextitem.role != "tool" %}{{- "<|im_end|>\\n" }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|im_start|>assistant\\n<think>\\n" }}{%- endif %}
"""

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "\n</think>\n\n"]
_EMBED, _FEED, _HEADS, _KV_HEADS, _HEAD, _LAYERS = 64, 128, 4, 2, 16, 4
_GROUPS, _STEPS, _STATE, _CONV = 2, 4, 16, 4


def byte_tokens() -> list[str]:
    """The 256 characters by which byte-level BPE writes bytes."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in shown]
    table = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def write_model(
    path: Path,
    *,
    template: str | None = TEMPLATE,
    context: int = 4096,
    seed: int = 0,
    texts: dict[str, str] | None = None,
) -> Path:
    """Write the model and return its path. `texts` are more metadata."""
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(str(path), "qwen35")
    w.add_name("tiny")
    w.add_block_count(_LAYERS)
    w.add_context_length(context)
    w.add_embedding_length(_EMBED)
    w.add_feed_forward_length(_FEED)
    w.add_head_count(_HEADS)
    w.add_head_count_kv(_KV_HEADS)
    w.add_key_length(_HEAD)
    w.add_value_length(_HEAD)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_dimension_count(8)
    w.add_rope_dimension_sections([2, 1, 1, 0])
    w.add_rope_freq_base(1e7)
    w.add_ssm_conv_kernel(_CONV)
    w.add_ssm_state_size(_STATE)
    w.add_ssm_group_count(_GROUPS)
    w.add_ssm_time_step_rank(_STEPS)
    w.add_ssm_inner_size(_STATE * _STEPS)
    w.add_full_attention_interval(4)
    tokens = byte_tokens() + CONTROL + TAGS
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(tokens)
    w.add_token_types([1] * 256 + [3] * len(CONTROL) + [4] * len(TAGS))
    w.add_token_merges(["Ġ t"])
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_add_bos_token(False)
    if template is not None:
        w.add_chat_template(template)
    for key, value in (texts or {}).items():
        w.add_string(key, value)
    _add_tensors(w, rng, len(tokens))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def _add_tensors(w: gguf.GGUFWriter, rng: np.random.Generator, n_tokens: int) -> None:
    def add(name: str, shape: tuple[int, ...], scale: float = 0.08, base: float = 0.0) -> None:
        data: Any = base + rng.standard_normal(shape) * scale
        w.add_tensor(name, data.astype(np.float32))

    add("token_embd.weight", (n_tokens, _EMBED), 0.5)
    add("output_norm.weight", (_EMBED,), 0.02, 1.0)
    keys, values = _STATE * _GROUPS, _STATE * _STEPS
    for i in range(_LAYERS):
        add(f"blk.{i}.attn_norm.weight", (_EMBED,), 0.02, 1.0)
        add(f"blk.{i}.post_attention_norm.weight", (_EMBED,), 0.02, 1.0)
        if (i + 1) % 4 == 0:
            add(f"blk.{i}.attn_q.weight", (_HEAD * _HEADS * 2, _EMBED))
            add(f"blk.{i}.attn_k.weight", (_HEAD * _KV_HEADS, _EMBED))
            add(f"blk.{i}.attn_v.weight", (_HEAD * _KV_HEADS, _EMBED))
            add(f"blk.{i}.attn_output.weight", (_EMBED, _HEAD * _HEADS))
            add(f"blk.{i}.attn_q_norm.weight", (_HEAD,), 0.02, 1.0)
            add(f"blk.{i}.attn_k_norm.weight", (_HEAD,), 0.02, 1.0)
        else:
            add(f"blk.{i}.attn_qkv.weight", (2 * keys + values, _EMBED), 0.2)
            add(f"blk.{i}.attn_gate.weight", (values, _EMBED), 0.2)
            add(f"blk.{i}.ssm_conv1d.weight", (2 * keys + values, _CONV), 0.4)
            add(f"blk.{i}.ssm_dt.bias", (_STEPS,), 0.1)
            w.add_tensor(f"blk.{i}.ssm_a", (-np.exp(rng.standard_normal(_STEPS) * 0.3 - 2)).astype(np.float32))
            add(f"blk.{i}.ssm_beta.weight", (_STEPS, _EMBED), 0.2)
            add(f"blk.{i}.ssm_alpha.weight", (_STEPS, _EMBED), 0.2)
            add(f"blk.{i}.ssm_norm.weight", (_STATE,), 0.02, 1.0)
            add(f"blk.{i}.ssm_out.weight", (_EMBED, values), 0.2)
        add(f"blk.{i}.ffn_gate.weight", (_FEED, _EMBED))
        add(f"blk.{i}.ffn_up.weight", (_FEED, _EMBED))
        add(f"blk.{i}.ffn_down.weight", (_EMBED, _FEED))
