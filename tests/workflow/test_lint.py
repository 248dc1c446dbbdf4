"""Lint in a real run: what it refuses, what goes on all the same, and code of a model's own where it is allowed."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.workflow.conftest import CONFIG, TARGETS, prepare

pytestmark = pytest.mark.slow

OWN_CODE = """
from transformers import LlamaForCausalLM


class OwnModel(LlamaForCausalLM):
    pass
"""


def header(path: Path) -> tuple[dict[str, Any], int]:
    """A safetensors file's header, and where its data begins."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), 8 + length


def with_a_large_value(folder: Path) -> None:
    path = folder / "model.safetensors"
    entries, data = header(path)
    begin = entries["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0]
    with path.open("r+b") as file:
        file.seek(data + begin)
        file.write(struct.pack("<f", 1e5)[2:])  # bfloat16 is the upper half of float32


def without_a_tensor(folder: Path) -> None:
    """One layer more in the config than in the file."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}), encoding="utf-8")


def with_own_code(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "modeling_own.py").write_text(OWN_CODE, encoding="utf-8")


def test_what_is_refused_is_said_and_the_rest_is_built(tiny_llama: Path, tmp_path: Path) -> None:
    checkout = prepare(tmp_path / "checkout", tiny_llama)
    tiny = CONFIG["models"]["tiny"]
    models: dict[str, Any] = {}
    for name, change in (("wide", with_a_large_value), ("short", without_a_tensor), ("own", with_own_code)):
        shutil.copytree(tiny_llama, checkout.folder / name)
        change(checkout.folder / name)
        models[name] = {**tiny, "source": {"kind": "path", "folder": name}, "formats": {"gguf": ["q8_0"]}}
    models["wide"]["formats"] = {"gguf": ["f16", "q8_0"]}
    targets = {**TARGETS, "targets": {"cpu-llamacpp": {"candidates": ["gguf/q8_0", "gguf/f16"]}}}
    checkout.configure({**CONFIG, "models": models}, targets)
    with pytest.raises(AssertionError, match=r"models\.own: config\.json: asks for code of its own: modeling_own"):
        checkout.lock("own")
    models["own"]["allow_remote_code"] = True
    checkout.configure({**CONFIG, "models": models}, targets)
    checkout.lock()
    output = checkout.snakemake("--keep-going", "--until", "inspect", "reference", check=False)
    assert "LintError: wide/gguf/f16: model.layers.0.mlp.up_proj.weight: 1 of" in output
    assert "LintError: short: model.layers.2.input_layernorm.weight: 9 tensors of LlamaForCausalLM missing" in output
    built = {path.parent.name + "/" + path.name for path in (checkout.folder / "artifacts").glob("*/gguf/*")}
    assert built == {"gguf/q8_0"}
    assert not (checkout.folder / "artifacts/short").exists()
    store = checkout.folder / "artifacts/store"
    assert list((store / "fetch/own").rglob("modeling_own.py"))
    assert list((store / "reference/own").rglob("logprobs.npy"))  # its own code ran
