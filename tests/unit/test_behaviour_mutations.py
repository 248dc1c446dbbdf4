"""The list of seeded defects of running engines: each names gates that there are, for artifacts of the demo."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.mutations.behaviour import LIMITS, MUTATIONS
from tests.mutations.catalogue import Mutation

from hallmark import config, gates, tasks
from hallmark.config import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def settings() -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return config.parse(config.load_yaml(Path("config/config.yaml")), "config/config.yaml")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_gates_that_must_catch_it_hold_for_its_artifacts(mutation: Mutation, settings: Settings) -> None:
    for subject in mutation.subjects:
        model, family, variant = subject.split("/")
        chosen = settings.config.models[model]
        assert variant in chosen.formats[family], subject
        task, policy = tasks.get(chosen.task), settings.policies["default"]
        shipped = gates.resolve(policy, chosen.task, subject)
        assert set(mutation.caught_by) <= task.METRICS.keys() & (shipped.keys() | LIMITS.keys())


def test_the_names_are_different() -> None:
    assert [name for name, times in Counter(mutation.name for mutation in MUTATIONS).items() if times > 1] == []


@pytest.mark.parametrize("name", LIMITS)
def test_a_gate_that_is_tried_is_one_on_speed_and_a_limit(name: str) -> None:
    assert tasks.get("sentence-similarity").METRICS[name].source == "speed"
    gates.Limit.model_validate(LIMITS[name])
