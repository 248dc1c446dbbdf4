"""The plan: what is in it, which keys a change moves, and what is refused before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plans import CONFIG, TARGETS, asked, build, changed, edited, encoders, keys, locked, planned

from hallmark import devices, digest, history, lock, release, toolchains, upkeep
from hallmark.config import ConfigError
from hallmark.plan import Plan

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


def test_an_intermediate_variant_takes_the_options_that_its_user_has_not() -> None:
    path = "models.tiny.formats.gguf"
    many = {"f16": {}, "q8_0": {}, "q4_k_m_imatrix": {}, "q5_k_m_imatrix": {"options": {"chunks": 5, "type": "Q5_K_S"}}}
    recipes = {
        (node.name, node.recipe["options"].get("chunks")): node.recipe["options"]
        for node in planned(edited(CONFIG, path, many)).nodes()
        if node.verb == "convert" and node.name.startswith("tiny/gguf/")
    }
    assert recipes[("tiny/gguf/imatrix", 40)] == {"chunks": 40, "tokens": 512}
    assert recipes[("tiny/gguf/imatrix", 5)] == {"chunks": 5, "tokens": 512}
    assert recipes[("tiny/gguf/q5_k_m_imatrix", None)] == {"type": "Q5_K_S"}
    assert recipes[("tiny/gguf/f32", None)] == {"type": "F32"}


def test_what_is_made_of_another_variant_is_made_of_it_as_configured() -> None:
    plan = planned(edited(CONFIG, "models.tiny.formats.onnx", {"fp32": {"base": "int8"}, "int8_dynamic": {}}))
    made = {node.name: node for node in plan.nodes() if node.verb == "convert"}
    assert made["tiny/onnx/int8_dynamic"].inputs["fp32"].recipe["options"]["bits"] == 8
    assert made["tiny/onnx/int8_dynamic"].inputs["fp32"].key == made["tiny/onnx/fp32"].key


def test_labelled_questions_are_measured_by_themselves() -> None:
    before, after = planned(), planned(asked())
    assert keys(after).keys() - keys(before).keys() == {
        "fetch questions/data", "reference_choices tiny",
        *(f"measure_choices {artifact.name}" for artifact in before.artifacts),
    }  # fmt: skip
    again = {"fetch", "reference_choices", "measure_choices"}
    assert verbs(changed(before, after)) == again | {"judge", "select", "bundle", "report"}
    measured = {node.name: node for node in after.nodes() if node.verb == "measure_choices"}
    used = {role: tool.name for role, tool in measured["tiny/gguf/q8_0"].toolchains.items()}
    assert used == {"worker": "lm_eval", "engine": "llama_cpp"}


def test_other_text_asks_no_question_again() -> None:
    before, after = (planned(edited(asked(), "models.tiny.measure", {"blocks": n})) for n in (7, 8))
    assert not verbs(changed(before, after)) & {"reference_choices", "measure_choices"}


SHIPPED = TARGETS["policies"]["default"]["causal-lm"]


def test_what_is_published_names_no_folder_of_this_machine() -> None:
    raw = edited(CONFIG, "models.tiny.source.folder", "/home/me/source")
    bundles = [choice.bundle.recipe["pins"] for choice in planned(raw).choices]
    assert bundles and {pins["source"]["folder"] for pins in bundles} == {"source"}


def test_a_gate_moves_no_measurement() -> None:
    stricter = edited(TARGETS, "policies.default.causal-lm", {**SHIPPED, "*/gguf/*": {"kl_mean": {"max": 0.4}}})
    moved = changed(planned(), planned(targets=stricter))
    assert verbs(moved) == {"judge", "select", "bundle", "report"}


@pytest.mark.parametrize(
    ("option", "moves", "keeps"),
    [("blocks", "measure_accuracy", "convert"), ("rounds", "measure_speed", "measure_accuracy")],
)
def test_a_measuring_option_moves_what_it_measures(option: str, moves: str, keeps: str) -> None:
    moved = verbs(changed(planned(), planned(edited(CONFIG, "models.tiny.measure", {option: 70}))))
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


def test_a_speed_measurement_is_told_the_limits_that_any_target_holds_it_to() -> None:
    targets = edited(TARGETS, "targets.laptop", {"candidates": ["gguf/q8_0"], "policy": "strict"})
    strict = {"*/*/*": {"decode_ratio": {"min": 2.0}, "load_s": {"max": 3.0}, "kl_mean": {"max": 0.1}}}
    targets = edited(targets, "policies.strict", {"causal-lm": strict})
    told = {
        node.name: node.job()["hints"]["limits"] for node in planned(targets=targets).nodes() if "speed" in node.verb
    }
    assert told["tiny/gguf/q8_0"] == {"decode_ratio": [1.0, 2.0], "load_s": [3.0]}
    assert told["tiny/gguf/f16"] == {"decode_ratio": [1.0]}
    assert told["tiny/onnx/fp32"] == {}


def test_a_device_that_is_not_here_is_part_of_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned()
    before_keys = keys(before)
    monkeypatch.setattr(devices, "present", lambda device: False)
    after = planned()
    assert verbs({name for name, key in keys(after).items() if before_keys[name] != key}) == {
        "judge", "select", "bundle", "report",
    }  # fmt: skip
    assert all(node.recipe["present"] is False for node in after.nodes() if node.verb == "judge")


def test_numbers_of_a_cpu_release_nothing_for_a_gpu_that_is_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "present", lambda device: True)
    assert [devices.measured(device) for device in ("cpu", "intel-cpu", "nvidia-gpu", "amd-gpu")] == [
        True, True, False, False,
    ]  # fmt: skip
    targets = edited(TARGETS, "targets.gpu", {"candidates": ["gguf/q8_0"], "device": "nvidia-gpu"})
    judges = {
        node.subject[-1]: node.recipe["present"] for node in planned(targets=targets).nodes() if node.verb == "judge"
    }
    assert judges["gpu"] is False and judges["cpu-llamacpp"] is True


def measure_and_judge(plan: Plan, verdict: dict[str, bool]) -> None:
    """Build what a run builds of tiny/gguf/q8_0 after its conversion, with this verdict."""
    artifact = next(artifact for artifact in plan.artifacts if artifact.name == "tiny/gguf/q8_0")
    for node in (artifact.measurements["accuracy"], artifact.measurements["speed"], artifact.judges["cpu-llamacpp"]):
        if not (plan.root / node.place).exists():
            build(plan, node, {"verdict.json": json.dumps(verdict)})


def test_a_speed_that_was_too_noisy_to_judge_is_measured_once_more() -> None:
    first = planned()
    measure_and_judge(first, {"noisy": True})
    second = planned()
    speed = {node.name: node for node in second.nodes() if node.verb == "measure_speed"}
    assert speed["tiny/gguf/q8_0"].recipe["attempt"] == 1
    assert speed["tiny/gguf/f16"].recipe["attempt"] == 0
    assert second.release != first.release


def test_an_accuracy_across_its_limit_is_measured_on_more_text_and_nothing_else_moves() -> None:
    plans = [planned()]
    for _ in range(3):
        measure_and_judge(plans[-1], {"noisy": False, "short_of_samples": True})
        plans.append(planned())
    more = [
        node.recipe["options"].get("more")
        for plan in plans
        for node in plan.nodes()
        if node.verb == "measure_accuracy" and node.name == "tiny/gguf/q8_0"
    ]
    assert more == [None, 2, 4, 4]
    assert changed(plans[0], plans[1]) == {
        "measure_accuracy tiny/gguf/q8_0", "judge tiny/gguf/q8_0/cpu-llamacpp",
        "select tiny/cpu-llamacpp", "bundle tiny/cpu-llamacpp", "report all",
    }  # fmt: skip
    references = {node.place for node in plans[1].nodes() if node.verb == "reference"}
    assert len(references) == 2
    history.remember(plans[1])
    assert references <= history.places(plans[1].root, 1)


def test_another_limit_or_a_cleaned_store_judges_what_was_measured_last() -> None:
    measure_and_judge(planned(), {"noisy": True, "short_of_samples": False})
    measure_and_judge(planned(), {"noisy": False, "short_of_samples": True})
    settled = planned()
    measure_and_judge(settled, {"noisy": False, "short_of_samples": False})
    limits = {"*/*/*": {"kl_mean": {"max": 0.4}, "decode_ratio": {"min": 1.0}}}
    for other in (planned(), planned(targets=edited(TARGETS, "policies.default.causal-lm", limits))):
        artifact = next(artifact for artifact in other.artifacts if artifact.name == "tiny/gguf/q8_0")
        assert artifact.measurements["speed"].recipe["attempt"] == 1
        assert artifact.measurements["accuracy"].recipe["options"]["more"] == 2
    history.remember(settled)
    assert list(upkeep.collect_garbage(settled, 0, dry_run=False))
    assert planned().release == settled.release


def test_when_the_text_has_settled_it_the_noisy_speed_is_measured_again() -> None:
    first = planned()
    measure_and_judge(first, {"noisy": False, "short_of_samples": True})
    second = planned()
    measure_and_judge(second, {"noisy": True, "short_of_samples": False})
    artifact = next(artifact for artifact in planned().artifacts if artifact.name == "tiny/gguf/q8_0")
    assert artifact.measurements["accuracy"].recipe["options"]["more"] == 2
    assert artifact.measurements["speed"].recipe["attempt"] == 1


def test_a_task_that_has_measured_all_its_data_asks_for_no_more() -> None:
    first = encoders()
    measure_and_judge(first, {"noisy": False, "short_of_samples": True})
    assert keys(encoders()) == keys(first)


def test_traffic_is_measured_where_the_config_asks_and_moves_no_other_measurement() -> None:
    first = encoders({"single_stream": None})
    assert changed(encoders(), first) == {
        "measure_loadgen tiny/gguf/q8_0", "judge tiny/gguf/q8_0/cpu-llamacpp",
        "select tiny/cpu-llamacpp", "bundle tiny/cpu-llamacpp", "report all",
    }  # fmt: skip
    node = next(node for node in first.nodes() if node.verb == "measure_loadgen")
    assert node.recipe["scenarios"] == {"single_stream": {"queries": 200, "seconds": 10}}
    assert {role: made.name for role, made in node.toolchains.items()} == {"worker": "loadgen", "engine": "llama_cpp"}
    assert {tool.name for tool in encoders().toolchains()} == {"llama_cpp", "torch"}


def test_traffic_that_was_too_noisy_to_judge_is_measured_once_more_and_speed_is_not() -> None:
    wanted = {"offline": {"batch": 2}}
    for number in range(6):
        (artifact,) = encoders(wanted).artifacts
        assert artifact.measurements["loadgen"] is not None
        assert artifact.measurements["loadgen"].recipe["attempt"] == min(number, 4)
        assert artifact.measurements["speed"].recipe["attempt"] == 0
        for node in (
            artifact.measurements["accuracy"],
            artifact.measurements["speed"],
            artifact.measurements["loadgen"],
            artifact.judges["cpu-llamacpp"],
        ):
            if not (encoders(wanted).root / node.place).exists():
                build(encoders(wanted), node, {"verdict.json": json.dumps({"noisy": False, "loadgen_noisy": True})})


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


def _facts(**more: Any) -> lock.Lock:
    pins = locked(CONFIG)
    entry = pins.models["tiny"]
    return pins.model_copy(update={"models": {"tiny": entry.model_copy(update={"facts": {**entry.facts, **more}})}})


def test_rotary_scaling_that_a_variant_would_lose_is_refused_before_any_work() -> None:
    with pytest.raises(ConfigError) as error:
        planned(pins=_facts(rope=["dynamic"]))
    assert "models.tiny.formats.gguf.q8_0: cannot carry rotary scaling 'dynamic' of LlamaForCausalLM" in str(
        error.value
    )
    assert "artifacts that can: none" in str(error.value)
    assert verbs(changed(planned(), planned(pins=_facts(rope=["linear"])))) == {
        "bundle"
    }  # which holds the lock's entry


def test_only_the_variants_that_lose_it_are_named() -> None:
    raw = edited(CONFIG, "models.tiny.formats", {"gguf": ["f16"], "onnx": {"mine": {"base": "int8"}}})
    targets = edited(TARGETS, "targets", {"cpu": {"candidates": ["gguf/f16"]}})
    with pytest.raises(ConfigError) as error:
        planned(raw, targets, _facts(rope=["yarn"]))
    (line,) = str(error.value).splitlines()
    assert line.startswith("models.tiny.formats.onnx.mine: cannot carry rotary scaling 'yarn'")
    assert "gguf/f16" in line


def test_code_of_the_models_own_is_in_the_keys_of_what_runs_it_alone() -> None:
    moved = changed(planned(), planned(edited(CONFIG, "models.tiny.allow_remote_code", True)))
    assert verbs(moved) >= {"lint", "reference", "measure_accuracy", "measure_speed"}
    assert not {"fetch", "convert", "inspect"} & verbs(moved)


AGAINST = edited(TARGETS, "policies.default.causal-lm", {"*/*/*": {"release_decode_ratio": {"min": 0.97}}})
SECOND = edited(CONFIG, "release", {"version": "2"})


@pytest.fixture
def publish(sample: Any, folder: Path) -> Any:
    """A function that publishes a GGUF of tiny for cpu-llamacpp in a release of this name."""

    def run(name: str) -> None:
        recipe = {"format": "gguf", "task": "causal-lm", "options": {"type": "Q4_K_M"}}
        components = {"recipe": recipe, "toolchains": {"worker": toolchains.get("llama_cpp").digest[:16]}}
        made = sample(target="cpu-llamacpp", weights=name.encode(), components=components)
        offer = release.Offer(made.target, made.model, made.write(folder / f"made-{name}"), made.policies)
        assert release.publish(offer, Path("artifacts/releases") / name) is None

    return run


def compared(plan: Plan) -> dict[str, dict[str, Any]]:
    """The recipes of what is measured against a release."""
    return {node.name: dict(node.recipe) for node in plan.nodes() if node.verb == "measure_release"}


def judged(plan: Plan) -> dict[str, Any]:
    return {node.name: node.recipe.get("release") for node in plan.nodes() if node.verb == "judge"}


def test_without_a_gate_on_it_the_last_release_moves_nothing(publish: Any) -> None:
    before = planned(SECOND)
    publish("1-aaaaaaaa")
    assert keys(planned(SECOND)) == keys(before)
    assert set(judged(before).values()) == {None}


def test_a_gate_on_the_last_release_measures_against_it_where_there_is_one(publish: Any) -> None:
    first = planned(SECOND, AGAINST)
    assert compared(first) == {}
    absent = "nothing was released of tiny for cpu-onnx before version 2"
    assert judged(first)["tiny/onnx/int8_dynamic/cpu-onnx"] == {"absent": absent}
    publish("1-aaaaaaaa")
    found = compared(planned(SECOND, AGAINST))
    assert set(found) == {"tiny/gguf/q8_0/cpu-llamacpp", "tiny/gguf/f16/cpu-llamacpp"}
    recipe = found["tiny/gguf/f16/cpu-llamacpp"]
    assert (recipe["variant"], recipe["release"]["variant"]) == ({"type": "F16"}, {"type": "Q4_K_M"})
    assert recipe["timed"]
    speeds = {name for name in changed(first, planned(SECOND, AGAINST)) if name.startswith("measure_speed")}
    assert not speeds


def test_what_a_version_publishes_moves_nothing_of_it_and_is_what_the_next_one_compares_with(publish: Any) -> None:
    publish("1-aaaaaaaa")
    before = planned(SECOND, AGAINST)
    publish("2-bbbbbbbb")
    assert keys(planned(SECOND, AGAINST)) == keys(before)
    third = planned(edited(CONFIG, "release", {"version": "3"}), AGAINST)
    moved = {name for name in changed(before, third) if "gguf" in name}
    assert verbs(moved) == {"measure_release", "judge"}
    assert judged(third)["tiny/gguf/q8_0/cpu-llamacpp"]["name"] == "2-bbbbbbbb"


def test_a_gate_on_the_size_alone_runs_no_engine(publish: Any) -> None:
    publish("1-aaaaaaaa")
    limits = {"*/*/*": {"release_size_ratio": {"min": 0.9}}}
    found = compared(planned(SECOND, edited(TARGETS, "policies.default.causal-lm", limits)))
    assert [recipe["timed"] for recipe in found.values()] == [False, False]


def test_a_comparison_that_was_too_noisy_is_repeated_by_itself(publish: Any) -> None:
    publish("1-aaaaaaaa")
    first = planned(SECOND, AGAINST)
    artifact = next(artifact for artifact in first.artifacts if artifact.name == "tiny/gguf/q8_0")
    build(first, artifact.releases["cpu-llamacpp"])
    measure_and_judge(first, {"noisy": False, "release_noisy": True})
    second = planned(SECOND, AGAINST)
    attempts = {name: recipe["attempt"] for name, recipe in compared(second).items()}
    assert attempts == {"tiny/gguf/q8_0/cpu-llamacpp": 1, "tiny/gguf/f16/cpu-llamacpp": 0}
    assert not {name for name in changed(first, second) if name.startswith("measure_speed")}


def test_a_release_that_was_altered_stops_a_plan_that_compares_with_it(publish: Any) -> None:
    publish("1-aaaaaaaa")
    weights = Path("artifacts/releases/1-aaaaaaaa/cpu-llamacpp/tiny/model.gguf")
    weights.chmod(0o644)
    weights.write_bytes(b"other")
    assert planned(SECOND).artifacts
    with pytest.raises(ConfigError, match=r"model\.gguf: 5 bytes"):
        planned(SECOND, AGAINST)
