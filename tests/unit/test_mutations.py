"""That the catalogue is one: names, gates and subjects that exist; and that its run tells caught from not caught."""

import pytest
import yaml
from tests.mutations import artifacts, run
from tests.mutations.catalogue import Mutation
from tests.mutations.run import Outcome
from tests.mutations.subjects import REFUSED

from hallmark import formats, tasks

METRICS = {name for task in tasks.names() for name in tasks.get(task).METRICS}


def test_there_are_enough_defects_and_each_names_gates_that_there_are():
    assert sum(len(mutation.subjects) for mutation in artifacts.MUTATIONS) >= 100
    for mutation in artifacts.MUTATIONS:
        assert mutation.stage == "files"
        assert mutation.caught_by
        assert set(mutation.caught_by) <= METRICS | {REFUSED}, mutation.name


def test_every_subject_is_an_artifact_of_the_demo():
    with (run.ROOT / "config/config.yaml").open(encoding="utf-8") as stream:
        models = yaml.safe_load(stream)["models"]
    for mutation in artifacts.MUTATIONS:
        for subject in mutation.subjects:
            model, family, variant = subject.split("/")
            assert family in formats.names()
            assert variant in models[model]["formats"][family], subject


@pytest.mark.parametrize(("failed", "caught"), [((), False), (("opset",), False), (("opset", "nonfinite"), True)])
def test_a_defect_is_caught_by_a_gate_that_was_named(failed, caught):
    mutation = Mutation("one NaN", "files", ("minilm/gguf/f16",), ("nonfinite",), lambda files: None, "owner/name#1")
    outcome = Outcome(mutation, "minilm/gguf/f16", failed)
    assert outcome.caught == caught
    table = run.markdown([outcome])
    assert "| one NaN | gguf 1 |" in table
    assert ("**not** on minilm/gguf/f16" in table) != caught
