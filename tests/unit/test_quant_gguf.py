"""The length that a GGUF file must have, against files that the gguf package writes."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ModelFileError
from quant.gguf_size import BLOCK_SIZES, check_gguf, needed_bytes


def make_gguf(path: Path, *, n_elements: int = 4096, alignment: int | None = None) -> Path:
    """A small GGUF with all kinds of values and two tensors."""
    writer = gguf.GGUFWriter(path, "qwen35")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_string("general.name", "tiny ü")
    writer.add_bool("a.bool", True)
    writer.add_float32("a.float", 0.5)
    writer.add_float64("a.double", float("nan"))
    writer.add_uint64("a.big", 1 << 60)
    writer.add_array("a.words", ["x", "yy", ""])
    writer.add_array("a.numbers", [1, 2, 3])
    rng = np.random.default_rng(1)
    writer.add_tensor("one.weight", rng.standard_normal((n_elements // 256, 256), dtype=np.float32))
    writer.add_tensor("two.weight", rng.standard_normal((7, 32)).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    known = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {kind: sizes for kind, sizes in BLOCK_SIZES.items() if kind in known} == {
        kind: sizes for kind, sizes in known.items() if kind in BLOCK_SIZES
    }
    assert set(known) - set(BLOCK_SIZES) <= {9, *(kind for kind in known if kind > 39)}  # 9: Q8_1 is for activations


@pytest.mark.parametrize("alignment", [None, 64, 4096])
def test_a_whole_file_is_right_and_a_byte_less_of_the_data_is_not(tmp_path: Path, alignment: int | None) -> None:
    path = make_gguf(tmp_path / "a.gguf", alignment=alignment)
    check_gguf(path)
    whole = path.read_bytes()
    with open(path, "rb") as file:
        needed = needed_bytes(file)
    assert len(whole) - (alignment or 32) < needed <= len(whole)
    path.write_bytes(whole[: needed - 1])
    with pytest.raises(ModelFileError, match="cut"):
        check_gguf(path)


@pytest.mark.parametrize(
    "data", [b"", b"GG", b"GGUF", b"GGUF\x03\0\0\0", b"PK\x03\x04" * 100, b"<html></html>", b"GGUF\x09\0\0\0" * 9]
)
def test_what_is_no_gguf(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFileError):
        check_gguf(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_gguf(tmp_path_factory.mktemp("gguf") / "a.gguf").read_bytes()


def test_hostile_headers_end_in_our_errors(whole: bytes) -> None:
    @settings(deadline=None)
    @given(st.data())
    def attack(draw: st.DataObject) -> None:
        data = bytearray(whole[:700])
        for _ in range(draw.draw(st.integers(1, 4))):
            at = draw.draw(st.integers(4, len(data) - 9))
            data[at : at + 8] = draw.draw(st.binary(min_size=8, max_size=8))
        with contextlib.suppress(ValueError, EOFError, OverflowError):
            needed_bytes(io.BytesIO(bytes(data)))

    attack()
