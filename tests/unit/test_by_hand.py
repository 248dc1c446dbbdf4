"""The benchmark's script by hand: a step for each job that a person would do, of a plan with every verb; runs none."""

import json
import re
from pathlib import Path

import pytest
import yaml
from benchmarks import by_hand
from tests.unit import tiny_source
from tests.unit.plans import CONFIG, TARGETS, edited

from hallmark import config, lock, planner

LEFT_OUT = {"lint", "inspect", "judge", "select", "bundle", "release", "report"}


def test_every_job_is_a_step_but_those_that_no_tool_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_source.write(tmp_path / "source")
    for name in ("data", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "page.txt").write_text(name, encoding="utf-8")
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump(TARGETS), encoding="utf-8")
    raw = edited(CONFIG, "data.text.source.files", ["*.txt"])
    settings = config.parse(edited(raw, "data.other.source.files", ["*.txt"]), "config.yaml")
    locked, _ = lock.lock_sources(settings.config, lock.Lock(), tmp_path)
    plan = planner.Planner(settings, locked).plan()
    script = by_hand.write(plan, tmp_path).read_text(encoding="utf-8")
    steps = set(re.findall(r"^(?:worker \S+|core) (\S+)$", script, re.MULTILINE))
    requests = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "by_hand/requests").iterdir()}
    assert steps == set(requests)
    wanted = {"-".join((node.verb, *node.subject)) for node in plan.nodes() if node.verb not in LEFT_OUT}
    copied = {name for name in wanted if name.startswith("fetch-tiny-")}
    assert steps == wanted - copied
    assert script.count("\ncp -r ") == len(copied)
    assert requests["measure_speed-tiny-gguf-q8_0"]["limits"] == {"decode_ratio": [1.0]}
