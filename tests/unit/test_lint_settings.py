"""Config, generation config and the code that a checkpoint may bring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases.checkpoints import parts, write

from hallmark import checkpoint, formats
from hallmark.lint import report, settings
from hallmark.lint.findings import Finding

ROOT = Path(__file__).parents[2]


def lint(folder: Path, remote_code: bool = False) -> list[Finding]:
    return report.of_headers(checkpoint.of_folder(folder), remote_code)


def found(folder: Path, remote_code: bool = False) -> list[tuple[str, str]]:
    return [(finding.code, finding.place) for finding in lint(folder, remote_code)]


def written(folder: Path, config: dict[str, Any] | None = None, **documents: Any) -> Path:
    made = parts()
    made.config |= config or {}
    made.documents |= {f"{name}.json": content for name, content in documents.items()}
    write(folder, made)
    return folder


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    written(tmp_path)
    for text in ("{", "[]", "\ufeff{}"):
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        assert found(tmp_path) == [("not_json", "config.json")]
    (tmp_path / "config.json").write_text("{}")
    assert found(tmp_path) == [("no_architecture", "config.json")]
    (tmp_path / "config.json").unlink()
    assert found(tmp_path) == [("no_config", "config.json")]


def test_a_generation_config_that_is_not_json(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "generation_config.json").write_text("{'eos_token_id': 2}")
    assert found(tmp_path) == [("not_json", "generation_config.json")]


@pytest.mark.parametrize("key", ["eos_token_id", "pad_token_id", "decoder_start_token_id"])
def test_ids_beyond_the_embedding(tmp_path: Path, key: str) -> None:
    written(tmp_path, {key: 512}, generation_config={key: [2, 600]})
    got = [item for item in found(tmp_path) if item[0] == "token_id_beyond_rows"]
    assert got == [("token_id_beyond_rows", "config.json"), ("token_id_beyond_rows", "generation_config.json")]


def test_an_id_below_zero_is_a_way_to_say_none(tmp_path: Path) -> None:
    assert found(written(tmp_path, {"pad_token_id": -1})) == []


def test_rotary_scaling_of_one_kind_of_layer(tmp_path: Path) -> None:
    kinds = {"full_attention": {"rope_type": "dynamic"}, "sliding_attention": {"rope_type": "default"}}
    (finding,) = lint(written(tmp_path, {"rope_parameters": kinds}))
    assert (finding.code, finding.trait) == ("rope_not_carried", "rope:dynamic")


def test_formats_carry_what_is_known_and_name_no_architecture_that_they_have_not() -> None:
    for name in formats.names():
        spec = formats.spec(name)
        known = frozenset().union(*spec.architectures.values())
        for recipe in spec.variants.values():
            for kinds in (spec.rope, recipe.rope or {}):
                assert kinds.keys() <= settings.ROPE_TYPES
                assert not known or all(architectures <= known for architectures in kinds.values())


AUTO_MAP = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "modeling_x.X"}


def test_code_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    written(tmp_path, {"auto_map": AUTO_MAP}, tokenizer_config={"auto_map": {"AutoTokenizer": ["tok.A", None]}})
    refused = [finding for finding in lint(tmp_path) if finding.code == "remote_code"]
    assert [finding.place for finding in refused] == ["config.json", "tokenizer_config.json"]
    assert "configuration_x.XConfig, modeling_x.X" in refused[0].message
    assert "allow_remote_code" in refused[0].remedy


def test_code_that_is_allowed_has_to_be_there(tmp_path: Path) -> None:
    written(tmp_path, {"auto_map": AUTO_MAP})
    assert [item for item in found(tmp_path, True) if item[0] == "remote_code_missing"] == [
        ("remote_code_missing", "configuration_x.py"),
        ("remote_code_missing", "modeling_x.py"),
    ]
    for name in ("configuration_x.py", "modeling_x.py"):
        (tmp_path / name).write_text("")
    (finding,) = lint(tmp_path, True)
    assert (finding.code, finding.trait) == ("remote_code_not_run", "remote code")
    lost = formats.unable(finding.trait, "causal-lm", "LlamaForCausalLM")
    assert {name.partition("/")[0] for name in lost} == {"onnx", "openvino"}


def test_code_in_another_repository_is_not_pinned(tmp_path: Path) -> None:
    written(tmp_path, {"auto_map": {"AutoModel": "org/other--modeling_y.Y"}})
    assert ("remote_code_elsewhere", "config.json") in found(tmp_path, True)


@pytest.mark.slow
def test_the_kinds_of_rotary_scaling_are_transformers(toolchain: Callable[[str], Path]) -> None:
    program = (
        "import json; from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS as f; print(json.dumps([*f]))"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([toolchain("torch"), "-c", program], check=True, stdout=subprocess.PIPE, env=environment)
    assert set(json.loads(result.stdout)) == settings.ROPE_TYPES
    assert sys.modules.get("torch") is None
