"""What cannot serve is refused with the reason, wherever a model enters."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ModelFileError
from agent.model.admission import admit, refuse
from agent.model.gguf_header import read_header, read_partial_header
from agent.model.locate import BUNDLED
from quant.synth import TEMPLATE
from tests.frog import Frog
from tests.gguf_files import make_gguf

CHAT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
HERMES = (
    "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>"
    "{% endfor %}"
)
HOSTILE = "{{ tools.__class__.__mro__ }}" + TEMPLATE

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "base": ({"template": None, "general__name": "LFM2.5-2.6B-Base"}, "has no chat template: it is a base model"),
    "blank template": ({"template": " \n"}, "has no chat template: it is a base model"),
    "chat alone": ({"template": CHAT, "architecture": "lfm2"}, "knows no tools: it is a base model, or one for chat"),
    "projector": ({"architecture": "clip", "clip__has_vision_encoder": True, "template": None}, "a projector for"),
    "newer projector": ({"general__type": "mmproj", "template": None}, "is a projector for images (mmproj)"),
    "adapter": ({"general__type": "adapter", "adapter__type": "lora", "template": None}, "is an adapter (LoRA)"),
    "old adapter": ({"adapter__type": "lora", "qwen35__block_count": None}, "is an adapter (LoRA)"),
    "imatrix": ({"general__type": "imatrix", "architecture": "", "template": None}, "is an importance matrix"),
    "encoder": ({"architecture": "bert", "template": None}, "is an embedding model"),
    "embedding with a template": ({"architecture": "qwen3", "qwen3__pooling_type": 3}, "is an embedding model"),
    "both ways": ({"architecture": "llama", "llama__attention__causal": False}, "is an embedding model"),
    "translator": ({"architecture": "t5"}, "is an encoder"),
    "drafter": ({"architecture": "eagle3"}, "drafts tokens for another one (architecture eagle3)"),
    "speech": ({"architecture": "wavtokenizer-dec"}, "is a model for speech"),
    "first part": ({"split__count": 2, "split__no": 0}, "is part 1 of 2 of a model"),
    "second part": ({"split__count": 3, "split__no": 1}, "is part 2 of 3 of a model"),
    "no architecture": ({"architecture": ""}, "names no architecture"),
    "no layers": ({"qwen35__block_count": None}, "has no layers (architecture qwen35)"),
    "no vocabulary": ({"tokenizer__ggml__model": None}, "has no vocabulary"),
    "empty vocabulary": ({"tokenizer__ggml__model": "no_vocab"}, "has no vocabulary"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_header_rules_out(tmp_path: Path, what: str) -> None:
    facts, reason = REFUSED[what]
    path = make_gguf(tmp_path / "m.gguf", **{key: value for key, value in facts.items() if key != "general__name"})
    refusal = refuse(read_header(path))
    assert refusal is not None and reason in refusal.reason and refusal.hint
    with pytest.raises(ModelFileError, match=r"m\.gguf (is|has|holds) ") as caught:
        admit(path)
    assert caught.value.hint == refusal.hint


def test_what_can_serve_is_let_in(tmp_path: Path) -> None:
    path = make_gguf(tmp_path / "m.gguf", split__count=1, split__no=0)
    assert repr(admit(path)) == repr(read_header(path))  # a value of it is NaN
    for served in (path, BUNDLED):
        assert refuse(read_header(served)) is None
    assert refuse(replace(read_header(path), n_tensors=0)).reason == "holds a vocabulary and no weights"  # type: ignore[union-attr]


def test_what_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match="no ordinary file"):
        read_header(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("template", "reason"),
    [(HOSTILE, "cannot be used"), (HERMES, "in another way than Qwen3.5's"), ("{% for tools %}", "cannot be used")],
)
def test_a_template_is_tried(tmp_path: Path, template: str, reason: str) -> None:
    path = make_gguf(tmp_path / "m.gguf", template=template)
    assert refuse(read_header(path)) is None
    with pytest.raises(ModelFileError, match=reason) as caught:
        admit(path)
    assert str(path) in caught.value.message and caught.value.hint


@pytest.mark.slow
def test_every_door_is_closed(tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    (tmp_path / "project").mkdir()
    lora = make_gguf(tmp_path / "lora.gguf", general__type="adapter", adapter__type="lora", template=None)
    hostile = make_gguf(tmp_path / "hostile.gguf", template=HOSTILE)
    for path, reason in ((lora, "is an adapter (LoRA)"), (hostile, "chat template of the model cannot be used")):
        for arguments in (
            ["model", "use", path],
            ["model", "pull", "--from", path],
            ["fix", tmp_path / "project", "--issue", "x", "--model", path],
        ):
            refused = frog(*arguments, "--json")
            error = json.loads(refused.out)["error"]
            assert refused.code == 1 and error["hint"], arguments
            assert reason in error["message"] and str(path) in error["message"], arguments
    assert not list((tmp_path / "data").rglob("*.gguf"))


@pytest.mark.slow
def test_a_kept_file_that_cannot_serve_is_found(tmp_path: Path) -> None:
    """One that an earlier version let in."""
    frog = Frog(tmp_path)
    good = make_gguf(tmp_path / "good.gguf")
    assert frog("model", "pull", "--from", good).code == 0
    manifest = next((tmp_path / "data").rglob("manifest.json"))
    kept = make_gguf(manifest.with_name("good.gguf"), template=None)
    text = json.loads(manifest.read_text())
    text["models"]["good"] |= {
        "sha256": hashlib.sha256(kept.read_bytes()).hexdigest(),
        "size_bytes": kept.stat().st_size,
    }
    manifest.write_text(json.dumps(text))
    (result,) = frog("model", "verify", "--json").json["results"]
    assert not result["ok"] and "it is a base model" in result["problem"]
    assert frog("model", "use", "good").code == 1


def test_a_header_is_read_while_the_file_comes(tmp_path: Path) -> None:
    whole = make_gguf(tmp_path / "m.gguf").read_bytes()
    part = tmp_path / "part"
    complete = 0
    expected = repr(read_header(tmp_path / "m.gguf").metadata)
    for size in range(8, len(whole), 501):
        part.write_bytes(whole[:size])
        header = read_partial_header(part, len(whole))
        complete += header is not None
        if header is not None:
            assert repr(header.metadata) == expected and header.size_bytes == len(whole)
    assert complete > 5
    with pytest.raises(ModelFileError, match="truncated"):
        read_partial_header(part, len(whole) - 300)
    part.write_bytes(b"<!DOCTYPE html>" + whole)
    with pytest.raises(ModelFileError, match="web page"):
        read_partial_header(part, len(whole))
