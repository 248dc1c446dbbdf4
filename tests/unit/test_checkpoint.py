"""A checkpoint's headers and facts, whatever is in its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cases import cases
from tests.cases.checkpoints import header, parts, safetensors, tensor, write

from hallmark import checkpoint


def read(folder: Path) -> checkpoint.Checkpoint:
    return checkpoint.of_folder(folder)


def test_facts_of_one_file_and_of_shards_are_the_same(tmp_path: Path) -> None:
    facts = [checkpoint.facts(read(cases.make(name, tmp_path))) for name in ("sound", "sound_sharded")]
    assert facts[0] == facts[1]
    assert facts[0]["architecture"] == "LlamaForCausalLM"
    assert facts[0]["parameters"] == sum(len(data) // 2 for _, _, data in parts().tensors.values())
    assert facts[0]["weight_bytes"] == 2 * facts[0]["parameters"]
    assert (facts[0]["largest"], facts[0]["dtype"], facts[0]["layers"]) == (512 * 32, "bfloat16", 2)
    assert "rope" not in facts[0]


def test_facts_of_a_model_with_a_language_part(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"], "text_config": {"hidden_size": 9}}))
    facts = checkpoint.facts(read(tmp_path))
    assert (facts["architecture"], facts["hidden"], facts["dtype"]) == ("X", 9, None)


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"rope_scaling": None}, ()),
        ({"rope_scaling": {"type": "su"}}, ("longrope",)),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [1]}}, ()),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1}}, ("yarn",)),
        ({"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "dynamic"}}, ("dynamic",)),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}, "sliding_attention": {}}}, ("yarn",)),
        ({"text_config": {"rope_scaling": {"rope_type": "llama3"}}}, ("llama3",)),
    ],
)
def test_rotary_scaling_by_its_older_and_newer_keys(tmp_path: Path, settings: object, kinds: tuple[str, ...]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert read(tmp_path).rope_types == kinds
    assert checkpoint.facts(read(tmp_path)).get("rope", []) == list(kinds)


def test_what_is_not_json_is_empty_and_said(tmp_path: Path) -> None:
    for text in (b"{", b"[]", b"\xef\xbb\xbf{}", b"\xff"):
        (tmp_path / "config.json").write_bytes(text)
        found = read(tmp_path)
        assert found.config == {}
        assert found.unreadable["config.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        b"\xff" * 40,
        header({})[:-3],
        header({"a": {"dtype": "F32", "shape": [1]}}),
        header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}),
        header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, "4"]}}),
        header({"a": 5}),
        b"\x02" + bytes(7) + b"[]",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    ],
)
def test_what_is_no_safetensors_file_is_a_flaw(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    weights = read(tmp_path).weights["model.safetensors"]
    assert weights.flaw
    assert weights.tensors == {}


def test_the_models_files_are_not_its_adapter_its_modules_or_a_second_copy(tmp_path: Path) -> None:
    write(tmp_path, parts())
    (tmp_path / "2_Dense").mkdir()
    other = safetensors({"linear.weight": tensor((2, 2), 0)})
    for name in ("adapter_model.safetensors", "consolidated.safetensors", "2_Dense/model.safetensors"):
        (tmp_path / name).write_bytes(other)
    found = read(tmp_path)
    assert list(found.model_files) == ["model.safetensors"]
    assert len(found.weights) == 4
    (tmp_path / "model.safetensors").unlink()
    assert list(read(tmp_path).model_files) == ["consolidated.safetensors"]


def test_hidden_files_are_no_part_of_it(tmp_path: Path) -> None:
    write(tmp_path, parts())
    for name in (".cache/huggingface/x.safetensors", ".git/x.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"")
    assert list(read(tmp_path).weights) == ["model.safetensors"]
