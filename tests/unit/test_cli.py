"""The command `hallmark`: what it prints, and that what is wrong is one message and exit code 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cases import cases
from tests.unit.plans import CONFIG, TARGETS, build, edited, locked, planned
from typer.testing import CliRunner

from hallmark import artifact_nodes, cli, history, launcher, lock
from hallmark.plan import Plan


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A checkout with configuration, targets and lock."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALLMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TERM", "dumb")
    configure(CONFIG)
    lock.write(locked(CONFIG), Path("config/lock.yaml"))
    return planned()


def configure(raw: dict[str, Any]) -> None:
    Path("config").mkdir(exist_ok=True)
    Path("config/config.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    Path("targets.yaml").write_text(yaml.safe_dump(TARGETS), encoding="utf-8")


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def test_plan_lists_every_entry_with_its_key_in_full(plan: Plan) -> None:
    build(plan, plan.artifacts[0].convert)
    output = run("plan")
    for node in plan.nodes():
        assert node.key in output
        assert node.name in output  # not cut short in a pipe
    count = sum(1 for _ in plan.nodes())
    assert f"{count} entries, {count - 1} to build; release {plan.release}" in output


def test_plan_as_json(plan: Plan) -> None:
    rows = json.loads(run("plan", "--json"))
    assert {(row["verb"], row["subject"], row["key"]) for row in rows} == {
        (node.verb, node.name, node.key) for node in plan.nodes()
    }
    assert not any(row["built"] for row in rows)


@pytest.mark.parametrize("command", [["plan"], ["why", "x"], ["lock"], ["verify"], ["gc"]])
def test_a_wrong_configuration_is_one_message(plan: Plan, command: list[str]) -> None:
    configure(edited(CONFIG, "models.tiny.taks", "x"))
    output = run(*command, code=1)
    assert "config/config.yaml: models.tiny" in output
    assert "Traceback" not in output


def test_lock_says_what_it_cannot_lock_in_one_message(plan: Plan) -> None:
    assert "no model or data 'tinny'" in run("lock", "tinny", code=1)
    assert "models.tiny: folder source: no such folder" in run("lock", "tiny", code=1)


def test_lock_says_what_changed(plan: Plan) -> None:
    Path("data").mkdir()
    Path("data/page.jsonl").write_text("{}")
    configure(edited(CONFIG, "data.text.source.files", ["*.jsonl"]))
    output = run("lock", "text")
    assert "~ data.text: page.jsonl: not there ->" in output
    assert run("lock", "text").strip() == "config/lock.yaml: nothing changed"


def test_why_follows_a_change_to_where_it_began(plan: Plan) -> None:
    history.remember(plan)
    variants = {"f16": {}, "q8_0": {"options": {"type": "Q6_K"}}}
    configure(edited(CONFIG, "models.tiny.formats.gguf", variants))
    output = run("why", "tiny/gguf/q8_0")
    assert "    recipe.options.type: Q8_0 -> Q6_K" in output
    assert "    artifact <- convert tiny/gguf/q8_0: recipe.options.type: Q8_0 -> Q6_K" in output
    assert "first planned as it is now" in run("why", "tiny/gguf/f16")


def test_what_is_measured_again_says_why(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    history.remember(plan)
    monkeypatch.setattr(artifact_nodes.ArtifactNodes, "_last", lambda self, numbers, make: 1 if 0 in numbers else 2)
    output = run("why", "tiny/gguf/q8_0")
    assert "so many times the text, because an accuracy was inconclusive" in output
    assert "that is measured again, because a speed was inconclusive" in output
    assert "because a verdict was inconclusive: tiny, tiny/gguf/f16," in run("plan")


def test_why_of_something_unknown_names_what_there_is(plan: Plan) -> None:
    assert "did you mean tiny/gguf/q8_0" in run("why", "tiny/gguf/q8_", code=1)


def test_verify_names_what_is_damaged_in_the_store(plan: Plan) -> None:
    place = build(plan, plan.report)
    assert "1 entries of the store checked, 0 problems" in run("verify")
    (place / "files/file.txt").chmod(0o644)
    (place / "files/file.txt").write_text("other")
    assert "file.txt" in run("verify", code=1)


def test_verify_of_a_store_that_holds_nothing_is_no_success(plan: Plan) -> None:
    assert "nothing of this plan is there" in run("verify", code=1)


def test_verify_of_a_folder_that_is_no_bundle_fails(plan: Plan, tmp_path: Path) -> None:
    assert "not a bundle" in run("verify", str(tmp_path), code=1)


def test_gc_removes_nothing_in_a_dry_run(plan: Plan) -> None:
    place = build(plan, plan.report)
    configure(edited(CONFIG, "hardware_class", "another"))
    assert "would remove 1 entries" in run("gc", "--dry-run")
    assert place.exists()
    assert "removed 1 entries" in run("gc")
    assert not place.exists()


def test_lint_prints_each_finding_with_its_remedy_and_what_was_not_checked(plan: Plan, tmp_path: Path) -> None:
    output = run("lint", str(cases.make("vocab_rows_short", tmp_path)), code=1)
    assert "error: tokenizer.json: 512 tokens, 500 rows in model.embed_tokens.weight  [tokens_beyond_rows]" in output
    assert "take the tokenizer that belongs to the weights" in output
    assert (
        "not checked: tensors against the model class: the toolchain torch is not made yet; --make-toolchain" in output
    )
    assert "refused: 1 error" in output
    assert "nothing is wrong in what was checked" in run("lint", str(cases.make("sound", tmp_path)))


def test_lint_names_the_artifacts_that_a_trait_is_lost_in(plan: Plan, tmp_path: Path) -> None:
    output = run("lint", str(cases.make("beyond_fp16", tmp_path)))
    assert "[beyond_float16, for gguf/f16, openvino/fp16]" in output
    assert "sound, but not for gguf/f16, openvino/fp16" in output


def test_lint_as_json(plan: Plan, tmp_path: Path) -> None:
    report = json.loads(run("lint", "--json", str(cases.make("rope_dynamic", tmp_path))))
    assert [finding["code"] for finding in report["findings"]] == ["rope_not_carried"]
    assert "gguf/q8_0" in report["artifacts"]["rope:dynamic"]
    assert report["class"] is None
    assert report["facts"]["architecture"] == "LlamaForCausalLM"


def test_lint_of_no_folder_is_one_message(plan: Plan) -> None:
    assert "nowhere: no such folder" in run("lint", "nowhere", code=1)


@pytest.mark.slow
def test_lint_uses_the_toolchain_when_it_is_made(
    plan: Plan, tmp_path: Path, toolchain: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HALLMARK_CACHE")
    toolchain("torch")
    monkeypatch.setattr(launcher, "end_with_main", lambda: None)
    output = run("lint", str(cases.make("dropped_tensor", tmp_path)), code=1)
    assert "model.layers.1.mlp.down_proj.weight: 1 tensor of LlamaForCausalLM missing" in output
    assert "not checked" not in output
    assert run("lint", str(cases.make("sound", tmp_path))).strip() == "nothing is wrong"
