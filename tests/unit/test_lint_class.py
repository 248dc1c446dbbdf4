"""Tensors against the model class, as transformers' own loader sees it, for several architectures and their damage."""

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

from hallmark import checkpoint
from hallmark.lint import model_class
from hallmark.lint.findings import Finding

ROOT = Path(__file__).parents[2]
SOUND: dict[str, Any] = {"class": "X", "missing": [], "surplus": [], "shapes": [], "tied": [], "failure": ""}
SOUND["incomplete"] = []


def judged(folder: Path, **answer: Any) -> list[Finding]:
    write(folder, parts())
    return list(model_class.judge({**SOUND, **answer}, checkpoint.of_folder(folder)))


def test_an_answer_without_faults_is_no_finding(tmp_path: Path) -> None:
    assert judged(tmp_path) == []


def test_missing_tensors_are_one_finding_that_names_them(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, missing=[f"t{number:02}" for number in range(25)])
    assert (finding.code, finding.place) == ("missing", "t00")
    assert finding.message.startswith("25 tensors of X missing in the files: t00, t01")
    assert finding.message.endswith("t19 and 5 more")


def test_surplus_layers_are_an_error_and_other_surplus_is_not(tmp_path: Path) -> None:
    layer, other = "model.layers.2.mlp.up_proj.weight", "model.vision.0.weight"
    findings = judged(tmp_path, surplus=[layer, other])
    assert [(item.code, item.level, item.place) for item in findings] == [
        ("surplus_layers", "error", layer),
        ("surplus", "warning", other),
    ]
    assert "beyond the 2 of config.json" in findings[0].message


def test_buffers_that_older_versions_saved_are_no_finding(tmp_path: Path) -> None:
    assert judged(tmp_path, surplus=["embeddings.position_ids", "model.layers.0.self_attn.rotary_emb.inv_freq"]) == []


def test_parts_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, incomplete=["model.layers.1.mlp.experts.gate_up_proj"])
    assert (finding.code, finding.level) == ("incomplete", "error")


def test_shapes_are_told_apart(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, shapes=[["lm_head.weight", [512, 256], [520, 256]]])
    assert finding.message == "512 × 256 in the files, 520 × 256 in X by config.json"


def test_a_model_that_cannot_be_built_is_said_in_its_words(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, failure="KeyError: 'foo'")
    assert (finding.code, finding.place, finding.message) == ("cannot_build", "config.json", "KeyError: 'foo'")


@pytest.fixture(scope="module")
def answers(toolchain: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `compare` says of each checkpoint that tests/class_checkpoints.py writes."""
    folder = tmp_path_factory.mktemp("classes")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow/scripts"), "HF_HUB_OFFLINE": "1"}
    environment["HF_MODULES_CACHE"] = str(folder / "modules")
    command = [toolchain("torch"), ROOT / "tests/class_checkpoints.py", folder]
    subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
    content: dict[str, Any] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return content


ARCHITECTURES = (
    "bert", "bloom", "deepseek_v3", "falcon", "gemma3_text", "gpt2", "gpt_neox", "llama", "mamba", "mixtral",
    "modernbert", "opt", "phi3", "qwen3_moe", "roberta", "t5",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_sound_checkpoint_of_any_architecture_has_no_findings(name: str, answers: dict[str, Any]) -> None:
    answer = answers[name]
    assert answer == {**answer, "missing": [], "surplus": [], "shapes": [], "incomplete": [], "failure": ""}


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_tensor_that_is_left_out_is_missed(name: str, answers: dict[str, Any]) -> None:
    """One tensor less, of the last layer: the class misses it, or what it was to be merged into."""
    answer = answers[f"{name} without a tensor"]
    assert answer["missing"]


@pytest.mark.slow
def test_damage_is_told_from_what_a_class_ignores(answers: dict[str, Any]) -> None:
    assert answers["llama in larger rows"]["shapes"] == [
        ["lm_head.weight", [96, 16], [100, 16]],
        ["model.embed_tokens.weight", [96, 16], [100, 16]],
    ]
    assert answers["llama with inv_freq"]["surplus"] == []
    assert answers["llama with a layer more"]["surplus"][0].startswith("model.layers.2.")
    part = answers["mixtral without a part of an expert"]
    assert (part["incomplete"], part["failure"]) == (["model.layers.1.mlp.experts.gate_up_proj"], "")
    assert answers["bert with a head"]["class"] == "BertForMaskedLM"
    assert "NoSuchModel" in answers["unknown class"]["failure"]
    assert "no_such_type" in answers["unknown type"]["failure"]


@pytest.mark.slow
def test_code_of_the_checkpoints_own_runs_when_it_is_allowed_and_only_then(answers: dict[str, Any]) -> None:
    assert answers["own code"]["failure"]
    allowed = answers["own code, allowed"]
    assert (allowed["class"], allowed["missing"], allowed["failure"]) == ("OwnModel", [], "")
    assert answers["own code, allowed, reference"] == "answered"
