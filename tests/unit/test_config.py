"""The configuration: what is wrong is said with file, key and alternatives, and before any work."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from hallmark import config

MODEL = {
    "source": {"kind": "path", "folder": "somewhere"},
    "task": "causal-lm",
    "evaluation": "text",
    "calibration": "other",
    "formats": {"gguf": ["q8_0"]},
}
DATA = {"source": {"kind": "path", "folder": "data", "files": ["*.bz2"]}, "reader": "wikipedia"}
CONFIG = {
    "models": {"tiny": MODEL},
    "data": {"text": DATA, "other": {**DATA, "options": {"split": "calibration"}}},
    "targets_file": "targets.yaml",
}
TARGETS = {
    "targets": {"cpu-llamacpp": {"candidates": ["gguf/q8_0"]}},
    "policies": {"default": {"causal-lm": {"*/*/*": {"kl_mean": {"max": 0.1}}}}},
}


def changed(tree: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of the tree with one place set; the path is dotted."""
    fresh = copy.deepcopy(tree)
    *parents, last = path.split(".")
    place = fresh
    for name in parents:
        place = place[name]
    place[last] = value
    return fresh


def complaint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: Any, targets: Any = TARGETS) -> str:
    monkeypatch.chdir(tmp_path)
    Path("targets.yaml").write_text(yaml.safe_dump(targets))
    with pytest.raises(config.ConfigError) as error:
        config.parse(raw, "config.yaml")
    return str(error.value)


def test_a_list_of_variants_is_short_for_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("targets.yaml").write_text(yaml.safe_dump(TARGETS))
    short = config.parse(CONFIG, "config.yaml")
    long = config.parse(changed(CONFIG, "models.tiny.formats", {"gguf": {"q8_0": None}}), "config.yaml")
    assert short.config.models["tiny"].formats == long.config.models["tiny"].formats


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("models.tiny.taks", "x", ["config.yaml: models.tiny", "no key 'taks'", "task", "did you mean task?"]),
        ("models.tiny.task", "translation", ["models.tiny.task", "no task 'translation'", "causal-lm"]),
        ("models.tiny.evaluation", "txt", ["models.tiny.evaluation", "no data 'txt'", "other, text"]),
        ("models.tiny.calibration", "text", ["models.tiny.calibration", "keep the two apart"]),
        ("models.tiny.multiple_choice", "q", ["models.tiny.multiple_choice", "no data 'q'", "other, text"]),
        ("models.tiny.multiple_choice", "text", ["'text' has the reader wikipedia", "have multiple_choice"]),
        ("data.other.options", {}, ["models.tiny.calibration: 'other'", "keep the two apart"]),
        ("models.tiny.formats", {"ggfu": ["q8_0"]}, ["no format 'ggfu'", "did you mean gguf?"]),
        ("models.tiny.formats", {"gguf": ["q9"]}, ["models.tiny.formats.gguf.q9", "no variant 'q9'", "q8_0"]),
        ("models.tiny.formats", {"gguf": ["imatrix"]}, ["no variant 'imatrix'"]),
        ("models.tiny.formats", {"gguf": {"q8_0": {"options": {"tpye": 1}}}}, ["no option 'tpye'"]),
        ("models.tiny.formats", {"gguf": {"q4_k_m": {"options": {"chunks": 1}}}}, ["no option 'chunks'"]),
        ("models.tiny.formats", {"gguf": {"f16": {"options": {"type": "Q8_0"}}}}, ["no option 'type', have none"]),
        ("models.tiny.formats", {"gguf": {"q8_0": {"options": {"type": "Q9"}}}}, ["type: 'Q9' is none of Q8_0, Q6_K"]),
        (
            "models.tiny.formats",
            {"gguf": {"q4_k_m_imatrix": {"options": {"chunks": "a"}}}},
            ["gguf.q4_k_m_imatrix.options: chunks: 'a' is not a whole number, like 40"],
        ),
        ("models.tiny.formats", {"openvino": {"int4": {"options": {"group_size": 0}}}}, ["0 is none of -1, 32, 64"]),
        ("models.tiny.formats", {"openvino": {"int4": {"options": {"symmetric": 1}}}}, ["1 is not true or false"]),
        ("models.tiny.formats", {"onnx": {"int4": {"options": {"mixed": ["all"]}}}}, ["'all' is none of last_matmul"]),
        ("data.text.options", {"split": "test"}, ["data.text: split: 'test' is none of evaluation, calibration"]),
        ("data.text.options", {"calibration_share": float("nan")}, ["calibration_share: nan is not a number of 0"]),
        ("data.text.options", {"min_chars": True}, ["min_chars: True is not a whole number, like 2000"]),
        ("data.text.options", {"calibration_share": "a"}, ["data.text: calibration_share: 'a' is not a number"]),
        ("models.tiny.formats", {"gguf": {"Q8": {"base": "q8_0"}}}, ["models.tiny.formats.gguf", "Q8"]),
        ("models.tiny.measure", {"block": 3}, ["models.tiny.measure", "no option 'block'", "did you mean blocks?"]),
        ("models.tiny.measure", {"rounds": 0}, ["models.tiny.measure.rounds: 0 is not a whole number above 0"]),
        ("models.tiny.measure", {"tokens": 1}, ["models.tiny.measure.tokens: 1 is below 2"]),
        ("models.tiny.measure", {"blocks": 1.5}, ["measure.blocks: 1.5 is not a whole number above 0"]),
        ("models.tiny.measure", {"warmup_tolerance": -1}, ["measure.warmup_tolerance: -1 is not a number above 0"]),
        ("models.tiny.measure", {"blocks": float("nan")}, ["measure.blocks: nan is not a whole number above 0"]),
        ("models.tiny.measure", {"warmup_rounds": 2}, ["warmup_rounds: 2 must be more than warmup_window, 2"]),
        ("models.tiny.loadgen", {"offline": {}}, ["tiny.loadgen: LoadGen drives encoders", "not models of causal-lm"]),
        ("models.tiny.loadgen", {}, ["models.tiny.loadgen", "names no scenario, have single_stream, server, offline"]),
        ("models.tiny.loadgen", {"sever": {}}, ["models.tiny.loadgen", "no key 'sever'", "did you mean server?"]),
        ("models.tiny.loadgen", {"server": None}, ["loadgen.server.target_qps", "loadgen.server.latency_ms"]),
        ("models.tiny.loadgen", {"single_stream": {"queries": 9}}, ["loadgen.single_stream.queries", "(it is 9)"]),
        ("store", "", ["store"]),
        ("measure", {"causal-lm": {"rouns": 3}}, ["measure.causal-lm", "did you mean rounds?"]),
        ("models.tiny.source", {"kind": "hub"}, ["models.tiny.source", "repo"]),
        ("models.tiny.source", {"kind": "ftp"}, ["models.tiny.source", "'hub', 'path', 'package', 'gguf'"]),
        ("data.text.reader", "wikpedia", ["data.text", "no reader 'wikpedia'", "rated_pairs"]),
        ("models", {}, ["models"]),
        ("models", {"Bad Name": MODEL}, ["models", "Bad Name"]),
        ("torch_build", "cuda", ["torch_build", "'cpu'", "it is 'cuda'"]),
    ],
)
def test_what_is_wrong_in_the_config_is_named(
    path: str, value: Any, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = complaint(tmp_path, monkeypatch, changed(CONFIG, path, value))
    assert message.startswith("config.yaml: ")
    for part in parts:
        assert part in message


def test_what_is_made_of_a_calibrated_variant_needs_calibration_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = changed(CONFIG, "models.tiny.formats.gguf", {"q4_k_m_imatrix": {}})
    del raw["models"]["tiny"]["calibration"]
    message = complaint(tmp_path, monkeypatch, raw)
    assert "q4_k_m_imatrix: needs calibration data; set models.NAME.calibration" in message


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("targets.cpu-llamacpp.candidates", ["gguf/q4_k_m"], ["no artifact 'gguf/q4_k_m'", "gguf/q8_0"]),
        ("targets.cpu-llamacpp.candidates", [], ["candidates"]),
        ("targets.cpu-llamacpp.device", "tpu", ["no device 'tpu'", "nvidia-gpu"]),
        ("targets.cpu-llamacpp.policy", "strict", ["no policy 'strict'", "default"]),
        ("targets.cpu-llamacpp.models", ["tiney"], ["no model 'tiney'", "did you mean tiny?"]),
        ("policies.default.causal-lm", {"*/*/*": {"kl_men": {"max": 1}}}, ["'kl_men'", "did you mean kl_mean or"]),
        (
            "policies.default.causal-lm",
            {"*/*/*": {"kl_mean": {"max": 1, "min": 0}}},
            ["{max: number} or {min: number}"],
        ),
        ("policies.default.causal-lm", {"*/*/*": {"kl_mean": {"min": 1}}}, ["lower is better, so its limit is a max"]),
        ("policies.default.causal-lm", {"*/*/*": {"decode_ratio": {"max": 1}}}, ["so its limit is a min"]),
        (
            "policies.default.causal-lm",
            {"*/gguf/*": {"choice_accuracy_drop": {"max": 0.1}}},
            ["tiny is gated on choice_accuracy_drop", "models.tiny.multiple_choice"],
        ),
        ("policies.default.causal-lm", {"tiney/*/*": {"kl_mean": {"max": 1}}}, ["no model 'tiney'"]),
        ("policies.default.causal-lm", {"*/*": {"kl_mean": {"max": 1}}}, ["model/format/variant"]),
        ("policies.default.causal-lm", {"*/*/*": {"kl_mean": 1}}, ["a limit is either {max: number} or {min: number}"]),
    ],
)
def test_what_is_wrong_in_the_targets_is_named(
    path: str, value: Any, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = complaint(tmp_path, monkeypatch, CONFIG, changed(TARGETS, path, value))
    assert message.startswith("targets.yaml: ")
    for part in parts:
        assert part in message


def test_an_encoder_answers_no_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = changed(CONFIG, "data.asked", {"source": DATA["source"], "reader": "multiple_choice"})
    raw["models"]["tiny"] |= {"task": "sentence-similarity", "multiple_choice": "asked"}
    message = complaint(tmp_path, monkeypatch, raw)
    assert "models.tiny.multiple_choice: a sentence-similarity model answers no questions" in message
    assert "tasks that can: causal-lm" in message


def test_a_gate_on_traffic_needs_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = changed(CONFIG, "models.tiny.task", "sentence-similarity")
    raw = changed(changed(raw, "models.tiny.formats", {"gguf": ["q8_0"]}), "models.tiny.calibration", None)
    gates = {"*/*/*": {"singlestream_p90_ms": {"max": 50}}}
    targets = changed(TARGETS, "policies.default", {"sentence-similarity": gates})
    targets = changed(targets, "targets.cpu-llamacpp.candidates", ["gguf/q8_0"])
    message = complaint(tmp_path, monkeypatch, raw, targets)
    assert "tiny is gated on singlestream_p90_ms, which needs models.tiny.loadgen" in message


def test_a_candidate_without_a_gate_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = changed(TARGETS, "policies.default", {"sentence-similarity": {"*/*/*": {"cosine_mean": {"min": 0.9}}}})
    message = complaint(tmp_path, monkeypatch, CONFIG, targets)
    assert "policy default has no gate for tiny/gguf/" in message
    assert "or name the models that the target is for" in message


def test_every_problem_is_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = changed(changed(CONFIG, "models.tiny.evaluation", "a"), "models.tiny.calibration", "b")
    assert len(complaint(tmp_path, monkeypatch, raw).splitlines()) == 2


def test_a_missing_file_and_bad_yaml_are_named(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError, match=r"nothing\.yaml: no such file"):
        config.load_yaml(tmp_path / "nothing.yaml")
    with pytest.raises(config.ConfigError, match="Is a directory"):
        config.load_yaml(tmp_path)
    (tmp_path / "bad.yaml").write_bytes(b"models: \xff")
    with pytest.raises(config.ConfigError, match=r"bad\.yaml: not UTF-8 text \(.* at byte 8\)"):
        config.load_yaml(tmp_path / "bad.yaml")
    (tmp_path / "bad.yaml").write_text("models: [")
    with pytest.raises(config.ConfigError, match=r"bad\.yaml: not YAML: .*line 2"):
        config.load_yaml(tmp_path / "bad.yaml")


def test_a_key_that_stands_twice_is_named_and_merged_keys_are_not_twice(tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"
    file.write_text("targets:\n  a: {policy: x}\npolicies: {}\ntargets:\n  b: {policy: x}\n")
    with pytest.raises(config.ConfigError, match=r"targets\.yaml: line 4: targets stands in line 1 already"):
        config.load_yaml(file)
    file.write_text("a: &a {x: 1}\nb: {<<: *a, x: 2}\nc: *a\n")
    assert config.load_yaml(file) == {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 1}}
