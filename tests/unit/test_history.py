"""What is remembered of earlier plans, and how a change is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.plans import CONFIG, edited, planned

from hallmark import history
from hallmark.plan import Plan


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    return planned()


def remembered(plan: Plan) -> int:
    return len(list((plan.root / history.FOLDER).glob("*.json")))


def test_a_plan_is_remembered_once_until_it_changes(plan: Plan) -> None:
    other = planned(edited(CONFIG, "hardware_class", "another"))
    for each in (plan, plan, other, plan):
        history.remember(each)
    assert remembered(plan) == 3
    assert history.places(plan.root, 1) == {node.place for node in plan.nodes()}
    assert history.places(plan.root, 2) == {node.place for each in (plan, other) for node in each.nodes()}


def test_checkouts_that_take_turns_do_not_push_out_what_was_before_them(plan: Plan) -> None:
    others = [planned(edited(CONFIG, "hardware_class", name)) for name in ("first", "second")]
    for each in (plan, *others, *others, *others):
        history.remember(each)
    assert history.places(plan.root, 3) == {node.place for each in (plan, *others) for node in each.nodes()}


def test_no_plan_is_no_place(plan: Plan) -> None:
    assert history.places(plan.root, 5) == set()
    history.remember(plan)
    assert history.places(plan.root, 0) == set()


def test_only_the_last_plans_are_kept(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT", 2)
    for name in ("a", "b", "c", "d"):
        history.remember(planned(edited(CONFIG, "hardware_class", name)))
    assert remembered(plan) == 2


def test_the_components_before_are_the_newest_that_differ(plan: Plan) -> None:
    name = "measure_speed tiny/gguf/q8_0"

    def components(hardware: str) -> dict[str, object]:
        made = planned(edited(CONFIG, "hardware_class", hardware))
        history.remember(made)
        return next(node.components for node in made.nodes() if f"{node.verb} {node.name}" == name)

    first, second = components("first"), components("second")
    assert history.before(plan.root, name, second) == first
    assert history.before(plan.root, name, first) == second
    assert history.before(plan.root, "convert nothing", second) is None


def test_a_damaged_file_of_plans_counts_as_none(plan: Plan) -> None:
    history.remember(plan)
    next((plan.root / history.FOLDER).glob("*.json")).write_text("{")
    assert history.places(plan.root, 1) == set()
    assert history.before(plan.root, "report all", {}) is None


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, ["a.b: x -> y"]),
        ({"a": 1}, {"a": 1, "b": [1]}, ["b: new, [1]"]),
        ({"a": 1, "b": None}, {"a": 1}, ["b: gone, was null"]),
        ({"a": 1}, {"a": 1}, []),
        ({"a": "x" * 100}, {"a": "y"}, [f"a: {'x' * 57}... -> y"]),
    ],
)
def test_changes_name_the_place_and_both_values(old: object, new: object, lines: list[str]) -> None:
    assert history.changes(old, new) == lines
