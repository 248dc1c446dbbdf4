"""Checkpoints by their headers: facts, and each thing that can be wrong with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from hallmark import checkpoint

NAMES = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight")
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A sound checkpoint in one file."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 4}))
    (tmp_path / "tokenizer.json").write_text("{}")
    save_file({name: np.ones((4, 4), np.float32) for name in NAMES}, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def sharded(single: Path) -> Path:
    """The same in two shards with an index."""
    (single / "model.safetensors").unlink()
    mapping = {}
    for number, file in enumerate(SHARDS):
        part = NAMES[number::2]
        save_file({name: np.ones((4, 4), np.float32) for name in part}, single / file)
        mapping |= dict.fromkeys(part, file)
    (single / checkpoint.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": mapping}))
    return single


def codes(folder: Path) -> list[tuple[str, str]]:
    return [(finding["code"], finding["place"]) for finding in checkpoint.lint_report(folder)["findings"]]


def edit_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((folder / checkpoint.INDEX).read_text())
    change(index["weight_map"])
    (folder / checkpoint.INDEX).write_text(json.dumps(index))


def test_a_sound_checkpoint_has_no_findings(single: Path) -> None:
    report = checkpoint.lint_report(single)
    assert report["findings"] == []
    assert report["facts"]["parameters"] == 64
    assert report["facts"]["weight_bytes"] == 256
    checkpoint.refuse("tiny", report)


def test_a_sharded_one_has_none_and_the_same_facts(sharded: Path) -> None:
    report = checkpoint.lint_report(sharded)
    assert report["findings"] == []
    assert report["facts"]["parameters"] == 64


def test_facts_of_a_model_with_a_language_part(single: Path) -> None:
    (single / "config.json").write_text(json.dumps({"architectures": ["X"], "text_config": {"hidden_size": 9}}))
    assert checkpoint.facts(checkpoint.of_folder(single))["hidden"] == 9


@pytest.mark.parametrize(
    ("lost", "code"),
    [("config.json", "no_config"), ("tokenizer.json", "no_tokenizer"), ("model.safetensors", "no_weights")],
)
def test_missing_files(single: Path, lost: str, code: str) -> None:
    (single / lost).unlink()
    assert codes(single) == [(code, lost)]


def test_a_config_that_names_nothing(single: Path) -> None:
    for text in ("{", "[]", "{}"):
        (single / "config.json").write_text(text)
        assert codes(single) == [("no_architecture", "config.json")]


def test_pickles_are_named_and_not_opened(single: Path) -> None:
    (single / "model.safetensors").rename(single / "pytorch_model.bin")
    (line,) = checkpoint.problems(single)
    assert "only pickled weights (pytorch_model.bin); save the model with safetensors" in line


@pytest.mark.parametrize("kept", [0.75, 0.2])
def test_a_truncated_file_with_both_sizes(single: Path, kept: float) -> None:
    path = single / "model.safetensors"
    size = path.stat().st_size
    content = path.read_bytes()[: int(size * kept)]
    path.write_bytes(content)
    ((code, place),) = codes(single)
    assert place == "model.safetensors"
    if kept > 0.5:
        assert code == "truncated"
        assert f"{len(content)} bytes of {size}" in checkpoint.problems(single)[0]
    else:
        assert code == "bad_header"


def test_bytes_too_many_and_other_files_by_that_name(single: Path) -> None:
    path = single / "model.safetensors"
    with path.open("ab") as file:
        file.write(b"xyz")
    assert "3 bytes too long" in checkpoint.problems(single)[0]
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "git lfs pull" in checkpoint.problems(single)[0]
    path.write_bytes(b"")
    assert codes(single) == [("bad_header", "model.safetensors")]


@pytest.mark.parametrize("with_index", [True, False])
def test_a_missing_shard(sharded: Path, with_index: bool) -> None:
    (sharded / SHARDS[1]).unlink()
    if not with_index:
        (sharded / checkpoint.INDEX).unlink()
    assert codes(sharded) == [("missing_shard", SHARDS[1])]


def test_an_index_that_lacks_a_tensor_or_has_one_too_many(sharded: Path) -> None:
    edit_index(sharded, lambda mapping: mapping.pop("model.norm.weight"))
    assert codes(sharded) == [("index_lacks_tensor", "model.norm.weight")]
    edit_index(sharded, lambda mapping: mapping.update({"model.norm.weight": SHARDS[0], "ghost": SHARDS[0]}))
    assert codes(sharded) == [("missing_tensor", "ghost")]


def test_two_weight_sets_name_both_files(sharded: Path) -> None:
    save_file({name: np.zeros((4, 4), np.float32) for name in NAMES}, sharded / "model.safetensors")
    places = [place for code, place in codes(sharded) if code == "two_weight_sets"]
    assert places == [f"{shard} and model.safetensors" for shard in SHARDS]


def test_an_unmerged_adapter(single: Path) -> None:
    (single / "adapter_config.json").write_text("{}")
    assert codes(single) == [("unmerged_adapter", "adapter_config.json")]


def test_refusing_names_subject_place_and_remedy(single: Path) -> None:
    (single / "tokenizer.json").unlink()
    with pytest.raises(checkpoint.LintError, match=r"tiny: tokenizer\.json: missing.*; add one of .*no_tokenizer"):
        checkpoint.refuse("tiny", checkpoint.lint_report(single))
