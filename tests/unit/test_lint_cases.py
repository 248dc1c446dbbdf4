"""Every known kind of checkpoint, sound or broken: what lint says, and which artifacts it lets be made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.cases.cases import CASES, Case
from tests.unit.linted import class_answers, lint_with

from hallmark import formats
from hallmark.lint import findings, report

ROOT = Path(__file__).parents[2]
MAKER = ROOT.parent / "shared/cases/make_checkpoint.py"  # beside a checkout, where there is one
TASK, ARCHITECTURE = "causal-lm", "LlamaForCausalLM"


def codes(found: dict[str, Any]) -> list[str]:
    return sorted(finding["code"] for finding in found["findings"])


def lost(found: dict[str, Any]) -> list[str]:
    """The artifacts of a language model that lint refuses one by one."""
    refused = []
    for name in formats.names():
        spec = formats.spec(name)
        for variant, recipe in spec.variants.items():
            if recipe.intermediate or TASK not in spec.tasks_of(recipe):
                continue
            try:
                report.refuse_artifact(f"tiny/{name}/{variant}", found, spec, variant, TASK, recipe.options)
            except findings.LintError:
                refused.append(f"{name}/{variant}")
    return sorted(refused)


@pytest.mark.parametrize("name", CASES)
def test_what_headers_values_and_pickles_show(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = lint_with(cases.make(name, tmp_path))
    assert codes(found) == sorted(case.codes)
    if case.codes and case.place:
        assert found["findings"][0]["place"] == case.place
    whole = [code for code in case.codes if code not in ("rope_not_carried", "beyond_float16")]
    if any(findings.CODES[code].level == "error" for code in whole):
        with pytest.raises(findings.LintError, match=whole[0]):
            findings.refuse("tiny", found)
    else:
        findings.refuse("tiny", found)
        assert lost(found) == sorted(case.lost)


def test_a_pickle_is_scanned_and_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = lint_with(cases.make("pickle_only", tmp_path))
    assert "posix.system" in found["findings"][0]["message"]
    assert not list(tmp_path.rglob("PICKLE_WAS_LOADED"))


def test_a_refused_artifact_is_told_which_can_be_made(tmp_path: Path) -> None:
    found = lint_with(cases.make("beyond_fp16", tmp_path))
    spec = formats.spec("gguf")
    with pytest.raises(findings.LintError) as error:
        report.refuse_artifact("tiny/gguf/f16", found, spec, "f16", TASK, spec.variants["f16"].options)
    assert "99840" in str(error.value)
    assert "gguf/q8_0" in str(error.value)
    assert "gguf/f16" not in str(error.value).partition("artifacts that can")[2]
    changed = {**spec.variants["q8_0"].options, "type": "F16"}  # a user's own variant
    with pytest.raises(findings.LintError):
        report.refuse_artifact("tiny/gguf/mine", found, spec, "q8_0", TASK, changed)


@pytest.fixture(scope="module")
def answers(toolchain: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """What the toolchain says of the tensors, and the tokens, of each of several checkpoints."""
    return lambda *folders: class_answers(toolchain("torch"), tmp_path_factory.mktemp("answers"), folders)


def check_class(case: Case, found: dict[str, Any]) -> None:
    assert codes(found) == sorted((*case.codes, *case.class_codes))
    if case.class_codes:
        first = next(finding for finding in found["findings"] if finding["code"] == case.class_codes[0])
        if not case.codes:
            assert first["place"] == case.place
        if any(findings.CODES[code].level == "error" for code in case.class_codes):
            with pytest.raises(findings.LintError):
                findings.refuse("tiny", found)


@pytest.mark.slow
def test_every_case_with_the_model_class(answers: Callable[..., Any], tmp_path: Path) -> None:
    folders = {name: cases.make(name, tmp_path) for name in CASES}
    answered = answers(*folders.values())
    for name, folder in folders.items():
        check_class(CASES[name], lint_with(folder, answered[name]))


@pytest.mark.slow
@pytest.mark.skipif(not MAKER.exists(), reason="the maker of larger cases is not on this machine")
def test_larger_cases_that_transformers_and_sentencepiece_wrote(
    answers: Callable[..., Any], toolchain: Callable[[str], Path], tmp_path: Path
) -> None:
    subprocess.run([toolchain("torch"), MAKER, tmp_path], check=True, stdout=sys.stderr)
    folders = {path.name: path for path in sorted(tmp_path.iterdir())}
    assert set(folders) == set(CASES)
    answered = answers(*folders.values())
    for name, folder in folders.items():
        found = lint_with(folder, answered[name])
        assert codes(found) == sorted((*CASES[name].codes, *CASES[name].class_codes)), name
        if not any(findings.errors(found)):
            assert lost(found) == sorted(CASES[name].lost), name
