"""What the headers of weight files show, kinds beyond those of `tests.cases`; many are from public bug reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cases.cases import edit_index, sharded
from tests.cases.checkpoints import Parts, header, safetensors, tensor
from tests.unit.linted import found, lint, written

FIRST = "model.safetensors"


def entry(begin: int, end: int, dtype: str = "F32", shape: tuple[int, ...] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape or ((end - begin) // 4,)), "data_offsets": [begin, end]}


def raw(folder: Path, entries: Mapping[str, Any], size: int) -> Path:
    """A sound checkpoint's small files, and one file of weights with this header and so many bytes of data."""
    written(folder)
    (folder / FIRST).write_bytes(header(entries) + bytes(size))
    return folder


def test_tensors_that_share_bytes(tmp_path: Path) -> None:
    raw(tmp_path, {"a": entry(0, 8), "b": entry(4, 12)}, 12)
    assert found(tmp_path) == [("overlap", "b")]
    assert "shares 4 bytes of model.safetensors with a" in lint(tmp_path)[0].message


def test_bytes_that_belong_to_no_tensor(tmp_path: Path) -> None:
    raw(tmp_path, {"a": entry(0, 8), "b": entry(12, 16)}, 16)
    assert found(tmp_path) == [("gap", "b")]
    raw(tmp_path, {"a": entry(4, 8)}, 8)
    assert found(tmp_path) == [("gap", "a")]


def test_a_tensor_whose_bytes_do_not_fit_its_shape_or_type(tmp_path: Path) -> None:
    raw(tmp_path, {"a": entry(0, 8, shape=(3,)), "b": entry(8, 16, "F33")}, 16)
    assert found(tmp_path) == [("wrong_length", "a"), ("unknown_type", "b")]
    assert "8 bytes in model.safetensors for 3 of F32" in lint(tmp_path)[0].message


def test_a_tensor_beyond_the_end_of_the_file(tmp_path: Path) -> None:
    raw(tmp_path, {"a": entry(0, 8), "b": entry(8, 1 << 40)}, 16)
    assert found(tmp_path) == [("truncated", FIRST)]
    assert "beyond its end: b" in lint(tmp_path)[0].message


def test_a_header_with_the_same_tensor_twice(tmp_path: Path) -> None:
    """safetensors reports it as a wrong offset (safetensors/safetensors#401)."""
    content = header({"a": entry(0, 4), "b": entry(4, 8)}).replace(b'"b"', b'"a"')
    written(tmp_path)
    (tmp_path / FIRST).write_bytes(content + bytes(8))
    assert found(tmp_path) == [("doubled_tensor", "a")]


def test_bytes_after_the_last_tensor(tmp_path: Path) -> None:
    """Some loaders read over them (Comfy-Org/ComfyUI#15602)."""
    written(tmp_path)
    with (tmp_path / FIRST).open("ab") as file:
        file.write(b"xyz")
    assert found(tmp_path) == [("too_long", FIRST)]
    assert "3 bytes too long" in lint(tmp_path)[0].message


def test_tensors_without_elements_of_a_model_that_was_not_gathered(tmp_path: Path) -> None:
    """What DeepSpeed ZeRO-3 leaves (OpenRLHF/OpenRLHF#839)."""
    names = ["model.layers.0.self_attn.k_proj.weight", "model.layers.1.self_attn.k_proj.weight"]
    written(tmp_path, lambda made: made.tensors.update(dict.fromkeys(names, ("BF16", (0,), b""))))
    ((code, place),) = found(tmp_path)
    assert (code, place) == ("empty_tensor", names[0])
    assert "zero_to_fp32" in lint(tmp_path)[0].remedy


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module."])
def test_names_as_a_training_wrapper_left_them(tmp_path: Path, prefix: str) -> None:
    def change(made: Parts) -> None:
        made.tensors = {f"{prefix}{name}": tensor for name, tensor in made.tensors.items()}

    written(tmp_path, change)
    assert [code for code, _ in found(tmp_path)] == ["training_prefix"]


def test_files_that_are_something_else(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / FIRST).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert found(tmp_path) == [("bad_header", FIRST)]
    assert "git lfs pull" in lint(tmp_path)[0].message
    (tmp_path / FIRST).write_bytes(header({}))
    assert found(tmp_path) == [("no_tensors", FIRST)]
    (tmp_path / FIRST).unlink()
    assert found(tmp_path) == [("no_weights", FIRST)]


def test_a_name_that_no_loader_looks_for(tmp_path: Path) -> None:
    (written(tmp_path) / FIRST).rename(tmp_path / "weights.safetensors")
    assert found(tmp_path) == [("other_name", "weights.safetensors")]


def test_an_index_that_names_a_tensor_its_file_has_not(tmp_path: Path) -> None:
    written(tmp_path, sharded)
    edit_index(lambda mapping: mapping.update(ghost="model-00001-of-00002.safetensors"))(tmp_path)
    assert found(tmp_path) == [("missing_tensor", "ghost")]


def test_a_file_of_weights_that_the_index_does_not_know(tmp_path: Path) -> None:
    written(tmp_path, sharded)
    (tmp_path / "extra.safetensors").write_bytes(safetensors({"other": tensor((2, 2), 0)}))
    assert found(tmp_path) == [("file_not_in_index", "extra.safetensors")]


def test_complete_shards_without_their_index(tmp_path: Path) -> None:
    def change(made: Parts) -> None:
        sharded(made)
        made.indexed = False

    written(tmp_path, change)
    assert found(tmp_path) == [("no_index", "model.safetensors.index.json")]


def test_an_adapter_among_the_weights(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.q_proj.lora_A.default.weight"
    written(tmp_path, lambda made: made.tensors.update({name: tensor((4, 32), 0)}))
    assert found(tmp_path) == [("unmerged_adapter", name)]


def _gptq(made: Parts) -> None:
    made.config["quantization_config"] = {"quant_method": "gptq", "bits": 4}


def _bitsandbytes(made: Parts) -> None:
    made.config["quantization_config"] = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def _fp8(made: Parts) -> None:
    made.tensors["model.layers.0.mlp.up_proj.weight"] = ("F8_E4M3", (48, 32), bytes(48 * 32))


def _merged_in_four_bits(made: Parts) -> None:
    """An adapter merged into weights that bitsandbytes had packed (ggml-org/llama.cpp#12494)."""
    made.tensors["model.layers.0.mlp.up_proj.weight"] = ("U8", (768, 1), bytes(768))


def _no_word(made: Parts) -> None:
    made.tensors["model.layers.0.mlp.up_proj.qweight"] = ("I32", (4, 32), bytes(512))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_gptq, "(gptq)"),
        (_bitsandbytes, "(bitsandbytes)"),
        (_fp8, "F8_E4M3"),
        (_merged_in_four_bits, "type U8"),
        (_no_word, "quantised weights"),
    ],
)
def test_quantised_weights_are_named_as_such(tmp_path: Path, change: Callable[[Parts], object], said: str) -> None:
    written(tmp_path, change)
    (finding,) = lint(tmp_path)
    assert finding.code == "quantised_source"
    assert said in finding.message


def test_a_vendors_second_copy_and_modules_in_folders_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "2_Dense").mkdir()
    for name in ("consolidated.safetensors", "2_Dense/model.safetensors"):
        (tmp_path / name).write_bytes(safetensors({"model.norm.weight": tensor((32,), 0)}))
    assert found(tmp_path) == []
