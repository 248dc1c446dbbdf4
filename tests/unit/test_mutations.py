"""That the catalogue is one: names, gates and subjects that exist; and that its run tells caught from not caught."""

import pytest
import yaml
from tests.mutations import __main__ as command
from tests.mutations import artifacts
from tests.mutations.catalogue import Mutation, Outcome
from tests.mutations.subjects import REFUSED, ROOT

from hallmark import formats, tasks

METRICS = {name for task in tasks.names() for name in tasks.get(task).METRICS}


def test_there_are_enough_defects_and_each_names_gates_that_there_are():
    assert sum(len(mutation.subjects) for mutation in artifacts.MUTATIONS) >= 100
    for mutation in artifacts.MUTATIONS:
        assert mutation.stage == "files"
        assert mutation.caught_by
        assert set(mutation.caught_by) <= METRICS | {REFUSED}, mutation.name


def test_every_subject_is_an_artifact_of_the_demo():
    with (ROOT / "config/config.yaml").open(encoding="utf-8") as stream:
        models = yaml.safe_load(stream)["models"]
    for mutation in artifacts.MUTATIONS:
        for subject in mutation.subjects:
            model, family, variant = subject.split("/")
            assert family in formats.names()
            assert variant in models[model]["formats"][family], subject


NAN = Mutation("one NaN", "files", ("minilm/gguf/f16",), ("nonfinite",), lambda files: None, "owner/name#1")


@pytest.mark.parametrize(("failed", "caught"), [((), False), (("opset",), False), (("opset", "nonfinite"), True)])
def test_a_defect_is_caught_by_a_gate_that_was_named(failed, caught):
    outcome = Outcome(NAN, "minilm/gguf/f16", failed)
    assert outcome.good == caught
    assert command.row(outcome).startswith("| caught |" if caught else "| NOT CAUGHT |")
    assert command.summary([outcome]).endswith(f"{int(caught)} of 1 caught, 0 subjects not sound")
    table = command.markdown([outcome])
    assert "| one NaN | gguf 1 |" in table
    assert ("**not** on minilm/gguf/f16" in table) != caught


def test_what_has_no_defect_is_good_when_nothing_fails():
    assert Outcome(None, "minilm/gguf/f16", ()).good
    unsound = Outcome(None, "minilm/gguf/f16", ("opset",))
    assert not unsound.good
    assert "NOT SOUND" in command.row(unsound)
    assert command.summary([unsound]) == "0 of 0 caught, 1 subjects not sound"
    assert command.markdown([unsound]).count("\n") == 2


@pytest.mark.parametrize(
    ("stage", "only", "subject", "names"),
    [("files", "one NaN", "smollm2/gguf/*", 2), ("source", "*", "nobody", 0), ("runner", "mask_ignored", "*", 2)],
)
def test_defects_are_chosen_by_stage_name_and_subject(stage, only, subject, names):
    chosen = command.choose(stage, only, subject)
    assert len(chosen) == names
    assert {one.stage for found in chosen.values() for one in found} <= {stage}
