"""The plan: what is in it, which keys a change moves, and what is refused before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plans import CONFIG, TARGETS, build, changed, edited, keys, locked, planned

from hallmark import devices, digest
from hallmark.config import ConfigError

CHAIN = ("convert", "inspect", "measure_accuracy", "measure_speed")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verbs(names: set[str]) -> set[str]:
    return {name.partition(" ")[0] for name in names}


def chain(variant: str) -> set[str]:
    return {f"{verb} tiny/{variant}" for verb in CHAIN}


def test_every_entry_is_planned_once_and_after_what_it_needs() -> None:
    seen: set[str] = set()
    for node in planned().nodes():
        assert node.place not in seen
        assert {other.place for other in node.upstream()} <= seen
        seen.add(node.place)


def test_what_others_are_made_from_is_planned_but_not_measured() -> None:
    names = keys(planned())
    assert {"convert tiny/gguf/f32", "convert tiny/gguf/imatrix", "convert tiny/onnx/fp32"} <= names.keys()
    assert "inspect tiny/gguf/f32" not in names
    assert "measure_speed tiny/onnx/fp32" in names  # asked for by itself, too


def test_a_job_is_told_all_it_needs_as_json() -> None:
    for node in planned().nodes():
        job = json.loads(json.dumps(node.job()))
        assert job["key"] == node.key
        assert set(job["inputs"]) == set(node.inputs)
        assert set(job["components"]) == {"recipe", "code", "inputs", "toolchains"}


def test_what_is_built_has_a_readable_name_and_what_serves_others_has_none() -> None:
    links = {node.name: node.link for node in planned().nodes() if node.verb in ("convert", "report")}
    assert links["tiny/gguf/q8_0"] == "tiny/gguf/q8_0"
    assert links["all"] == "report"
    assert links["tiny/gguf/f32"] == ""


def test_keys_hold_no_path_and_nothing_of_where_a_source_lies(tmp_path: Path) -> None:
    moved = edited(CONFIG, "models.tiny.source.folder", str(tmp_path / "elsewhere"))
    before, after = planned(), planned(moved)
    assert verbs(changed(before, after)) == {"bundle", "report"}  # which state it
    assert str(tmp_path) not in json.dumps([node.components for node in before.nodes()])


def test_the_same_configuration_in_another_order_has_the_same_keys() -> None:
    turned = {name: CONFIG[name] for name in reversed(CONFIG)}
    turned["models"] = {"tiny": {name: CONFIG["models"]["tiny"][name] for name in reversed(CONFIG["models"]["tiny"])}}
    assert keys(planned(turned)) == keys(planned())


def test_weights_move_everything_of_the_model_and_a_card_moves_the_bundle() -> None:
    before = planned()
    assert verbs(changed(before, planned(pins=locked(CONFIG, weights="d")))) >= {"fetch", "lint", "reference", *CHAIN}
    moved = changed(before, planned(pins=locked(CONFIG, card="d")))
    assert moved == {"fetch tiny/docs", "bundle tiny/cpu-llamacpp", "bundle tiny/cpu-onnx"}


def test_evaluation_data_moves_no_conversion_but_the_calibrated_ones() -> None:
    moved = changed(planned(), planned(pins=locked(CONFIG, text="d")))
    converted = {name for name in moved if name.startswith("convert")}
    assert converted == {"convert tiny/gguf/imatrix", "convert tiny/gguf/q4_k_m_imatrix"}
    assert "reference tiny" in moved


def test_an_option_of_a_variant_moves_its_chain() -> None:
    variants = {"f16": {}, "q8_0": {"base": "q8_0", "options": {"type": "Q6_K"}}, "q4_k_m_imatrix": {}}
    moved = changed(planned(), planned(edited(CONFIG, "models.tiny.formats.gguf", variants)))
    after = {"judge tiny/gguf/q8_0/cpu-llamacpp", "select tiny/cpu-llamacpp", "bundle tiny/cpu-llamacpp", "report all"}
    assert moved == chain("gguf/q8_0") | after


def test_a_gate_moves_no_measurement() -> None:
    stricter = edited(TARGETS, "policies.default.causal-lm", {"*/gguf/*": {"kl_mean": {"max": 0.4}}})
    moved = changed(planned(), planned(targets=stricter))
    assert verbs(moved) == {"judge", "select", "bundle", "report"}


@pytest.mark.parametrize(
    ("option", "moves", "keeps"),
    [("blocks", "measure_accuracy", "convert"), ("rounds", "measure_speed", "measure_accuracy")],
)
def test_a_measuring_option_moves_what_it_measures(option: str, moves: str, keeps: str) -> None:
    moved = verbs(changed(planned(), planned(edited(CONFIG, "models.tiny.measure", {option: 7}))))
    assert moves in moved
    assert keeps not in moved


def test_another_kind_of_machine_measures_speed_again_and_nothing_else() -> None:
    moved = verbs(changed(planned(), planned(edited(CONFIG, "hardware_class", "another"))))
    assert moved == {"measure_speed", "judge", "select", "bundle", "report"}


def test_a_module_moves_what_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    before, of_code = planned(), digest.of_code
    before_keys = keys(before)
    monkeypatch.setattr(digest, "of_code", lambda module: "0" * 64 if module == "hallmark.speed" else of_code(module))
    after = {name for name, key in keys(planned()).items() if before_keys[name] != key}
    assert verbs(after) == {"measure_speed", "judge", "select", "bundle", "report"}


def test_a_device_that_is_not_here_is_part_of_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned()
    before_keys = keys(before)
    monkeypatch.setattr(devices, "present", lambda device: False)
    after = planned()
    assert verbs({name for name, key in keys(after).items() if before_keys[name] != key}) == {
        "judge", "select", "bundle", "report",
    }  # fmt: skip
    assert all(node.recipe["present"] is False for node in after.nodes() if node.verb == "judge")


def test_a_speed_that_was_too_noisy_to_judge_is_measured_once_more() -> None:
    first = planned()
    judge = next(node for node in first.nodes() if node.name == "tiny/gguf/q8_0/cpu-llamacpp")
    build(first, judge, {"verdict.json": json.dumps({"noisy": True})})
    second = planned()
    speed = {node.name: node for node in second.nodes() if node.verb == "measure_speed"}
    assert speed["tiny/gguf/q8_0"].recipe["attempt"] == 1
    assert speed["tiny/gguf/f16"].recipe["attempt"] == 0
    assert second.release != first.release


def test_candidates_come_in_the_order_of_the_target_and_only_those_that_are_built() -> None:
    targets = edited(TARGETS, "targets.cpu-llamacpp.candidates", ["gguf/f16", "gguf/q8_0"])
    choice = planned(targets=targets).choices[0]
    assert [artifact.candidate for artifact in choice.candidates] == ["gguf/f16", "gguf/q8_0"]
    assert choice.select.recipe["candidates"] == ["gguf/f16", "gguf/q8_0"]


def test_a_release_is_named_by_what_is_in_it() -> None:
    assert planned().release == planned().release
    assert planned(pins=locked(CONFIG, card="d")).release != planned().release


@pytest.mark.parametrize(
    ("pins", "parts"),
    [
        ({"models": {}}, ["models.tiny", "hallmark lock tiny"]),
        ({"data": {}}, ["data.text", "hallmark lock text", "data.other"]),
    ],
)
def test_what_is_not_locked_is_named_with_the_command(pins: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        planned(pins=locked(CONFIG).model_copy(update=pins))
    for part in ["config/lock.yaml", *parts]:
        assert part in str(error.value)


def test_an_architecture_that_a_format_cannot_carry_is_refused_with_those_that_can() -> None:
    pins = locked(CONFIG)
    entry = pins.models["tiny"].model_copy(update={"facts": {"architecture": "MambaForCausalLM"}})
    with pytest.raises(
        ConfigError, match=r"onnx cannot carry MambaForCausalLM for causal-lm; formats that can: .*gguf"
    ):
        planned(pins=pins.model_copy(update={"models": {"tiny": entry}}))
