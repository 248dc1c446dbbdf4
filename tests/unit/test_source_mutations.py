"""Every seeded defect of a checkpoint on a tiny one: lint names it, and the sound one that was copied is left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import cases
from tests.cases.checkpoints import parts, write
from tests.mutations.catalogue import Mutation
from tests.mutations.checkpoint_edits import linked
from tests.mutations.on_sources import check, errors, needs_class, refusals
from tests.mutations.sources import MUTATIONS
from tests.unit.linted import class_answers, lint_with

from hallmark.digest import of_file
from hallmark.lint.findings import CODES

SEEN_AT_ONCE = [mutation for mutation in MUTATIONS if not needs_class(mutation)]
SEEN_BY_CLASS = [mutation for mutation in MUTATIONS if needs_class(mutation)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied Llama with all the files that the demo's has."""
    made, folder = parts(), tmp_path_factory.mktemp("sound")
    cases.tied(made)
    made.documents["generation_config.json"] = {"bos_token_id": 1, "eos_token_id": 2}
    made.files["chat_template.jinja"] = cases.TEMPLATE
    write(folder, made)
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {path.name: of_file(path) for path in folder.iterdir()}


@pytest.mark.parametrize("mutation", SEEN_AT_ONCE, ids=lambda mutation: mutation.name)
def test_lint_finds_it(mutation: Mutation, sound: Path) -> None:
    before = digests(sound)
    assert set(check(mutation, sound)) & set(mutation.caught_by)
    assert digests(sound) == before


@pytest.mark.slow
def test_lint_finds_them_with_the_model_class(sound: Path, toolchain: Callable[[str], Path], tmp_path: Path) -> None:
    copies = {mutation.name: linked(sound, tmp_path / mutation.name) for mutation in SEEN_BY_CLASS}
    for mutation in SEEN_BY_CLASS:
        mutation.apply(copies[mutation.name])
    answers = class_answers(toolchain("torch"), tmp_path, copies.values())
    found = {name: refusals(lint_with(copy, answers[copy.name])) for name, copy in copies.items()}
    assert {
        mutation.name: found[mutation.name]
        for mutation in SEEN_BY_CLASS
        if not set(found[mutation.name]) & set(mutation.caught_by)
    } == {}


def test_without_a_defect_there_is_no_error(sound: Path) -> None:
    assert errors(sound, with_class=False) == []


def test_each_defect_has_a_name_of_its_own_and_codes_that_refuse() -> None:
    assert [name for name, times in Counter(mutation.name for mutation in MUTATIONS).items() if times > 1] == []
    named = {code for mutation in MUTATIONS for code in mutation.caught_by}
    assert {code for code in named if CODES[code].level != "error"} == set()
