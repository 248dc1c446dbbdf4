"""Labelled multiple choice: what an engine answers, what is made of the picks, and the harness with real engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hallmark import choices, toolchains
from hallmark.surroundings import worker_env

PACKAGES = str(Path(choices.__file__).parents[1])
HARNESS = Path(__file__).parent / "harness_alone.py"


class Runner:
    """Knows only the last token; `refuses` longer texts, as a runtime with a fixed axis does."""

    def __init__(self, refuses: int = 1000, spoil: float | None = None) -> None:
        self.table = np.random.default_rng(0).normal(0, 2, (16, 16)).astype(np.float32)
        if spoil is not None:
            self.table[3, 5] = spoil
        self.refuses, self.runs = refuses, 0

    def encode(self, text: str, special: bool = True) -> list[int]:
        return [*[1] * special, *(2 + byte % 14 for byte in text.encode())]

    def logits(self, ids: Sequence[int]) -> Any:
        self.runs += 1
        if len(ids) > self.refuses:
            raise RuntimeError(f"invalid dimensions: {len(ids)}")
        return self.table[list(ids)]


def logprob(table: Any, given: int, token: int) -> float:
    row = table[given].astype(np.float64)
    return float(row[token] - np.log(np.exp(row).sum()))


def test_a_score_is_the_sum_of_the_log_probabilities_of_the_last_tokens() -> None:
    runner = Runner()
    greedy = int(runner.table[2].argmax())
    ((total, likeliest), (one, first)) = choices.score(runner, [([4, 2, 7, 9], 2), ([4, 2, greedy], 1)])["answer"]
    assert total == pytest.approx(logprob(runner.table, 2, 7) + logprob(runner.table, 7, 9), abs=1e-5)
    assert one == pytest.approx(logprob(runner.table, 2, greedy), abs=1e-5)
    assert (likeliest, first) == (False, True)


def test_choices_of_one_token_are_read_off_one_run() -> None:
    runner = Runner()
    together = choices.score(runner, [([4, 2, token], 1) for token in (5, 6, 7)])["answer"]
    assert runner.runs == 1
    assert together == [choices.score(runner, [([4, 2, token], 1)])["answer"][0] for token in (5, 6, 7)]


def test_texts_are_encoded_with_and_without_special_tokens() -> None:
    assert choices.encode(Runner(), [("a", True), ("a", False)]) == {"answer": [[1, 15], [15]]}


def test_what_a_runtime_refuses_and_what_is_not_finite_is_an_answer_and_no_crash() -> None:
    assert "RuntimeError: invalid dimensions: 3" in choices.score(Runner(refuses=2), [([1, 2, 3, 4], 1)])["error"]
    assert "is nan" in choices.score(Runner(spoil=float("nan")), [([2, 3, 5], 1)])["error"]
    assert "is -inf" in choices.score(Runner(spoil=float("-inf")), [([2, 3, 5], 1)])["error"]


def test_a_question_longer_than_the_source_takes_is_named() -> None:
    runner = Runner()
    runner.positions = 3  # type: ignore[attr-defined]
    assert "a question of 4 tokens; the model takes 3" in choices.score(runner, [([1, 2, 3, 4, 5], 1)])["error"]


def answers(picked: Sequence[int], labels: Sequence[int]) -> dict[str, Any]:
    return {"picked": list(picked), "right": [int(a == b) for a, b in zip(picked, labels, strict=True)]}


def test_the_drop_is_paired_over_questions() -> None:
    labels = [0] * 100
    source = answers([0] * 60 + [1] * 40, labels)
    found = choices.metrics(source, answers([0] * 50 + [1] * 50, labels))
    values = {name: found[name]["value"] for name in found}
    assert values == pytest.approx({
        "choice_accuracy": 0.5, "source_choice_accuracy": 0.6, "choice_accuracy_drop": 0.1, "choice_agreement": 0.9,
    })  # fmt: skip
    assert set(found) == set(choices.METRICS)
    width = {name: found[name]["high"] - found[name]["low"] for name in found}  # type: ignore[operator]
    assert width["choice_accuracy_drop"] < 0.8 * width["choice_accuracy"]  # what both share is taken out
    assert found["choice_accuracy_drop"]["n"] == 100


def test_answers_that_never_differ_leave_what_so_few_questions_may_have_missed() -> None:
    own = answers([0] * 60 + [1] * 40, [0] * 100)
    found = choices.metrics(own, own)
    missed = 1 - 0.025 ** (1 / 100)
    assert found["choice_accuracy_drop"]["value"] == 0
    assert found["choice_accuracy_drop"]["high"] == pytest.approx(missed)
    assert found["choice_accuracy_drop"]["low"] == pytest.approx(-missed)
    agreement = found["choice_agreement"]
    assert (agreement["low"], agreement["high"]) == (pytest.approx(1 - missed), 1)


def test_an_artifact_that_could_not_answer_has_no_numbers_but_the_sources() -> None:
    found = choices.metrics(answers([0, 0, 1, 1], [0] * 4), None)
    assert found["source_choice_accuracy"]["value"] == 0.5
    assert [found[name]["value"] for name in choices.METRICS if name != "source_choice_accuracy"] == [None] * 3


# With real engines

QUESTIONS = [
    {
        "context": f"Question: is {number} {kind}?\nAnswer:",
        "choices": ["yes", "no", "only now and then"],
        "label": label,
    }
    for number in range(3)
    for label, kind in enumerate(("even", "odd"))
]


@pytest.fixture(scope="module")
def harness(toolchain: Callable[[str], Path], tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that has the worker ask a checkpoint questions, in the toolchains `lm_eval` and `torch`."""
    folder = tmp_path_factory.mktemp("harness")
    (folder / "questions.jsonl").write_text("".join(json.dumps(item) + "\n" for item in QUESTIONS), encoding="utf-8")

    def ask(reference: Path | None = None) -> tuple[Any, Path]:
        scratch = folder / f"run{len(list(folder.iterdir()))}"
        scratch.mkdir()
        options = {"threads": 1, "timeout_s": 300}
        serve = {"action": "serve", "task": "causal-lm", "source": str(tiny_llama), "options": options}
        (scratch / "engine.json").write_text(json.dumps(serve), encoding="utf-8")
        argv = [str(toolchain("torch")), "-m", "hallmark.worker", str(scratch / "engine.json"), "-"]
        env = worker_env(toolchains.get("torch").folder, 1, scratch / "engine")
        request = {
            "action": "questions", "data": str(folder), "reference": str(reference) if reference else None,
            "out": str(scratch), "options": options,
            "engine": {"name": "source", "argv": argv, "env": env, "log": str(scratch / "log")},
        }  # fmt: skip
        (scratch / "request.json").write_text(json.dumps(request), encoding="utf-8")
        asked = [str(toolchain("lm_eval")), "-m", "hallmark.worker", scratch / "request.json", scratch / "answer.json"]
        own = worker_env(toolchains.get("lm_eval").folder, 1, scratch / "harness")
        subprocess.run(asked, env=own, check=True, stdout=sys.stderr)
        return json.loads((scratch / "answer.json").read_text(encoding="utf-8")), scratch

    return ask


@pytest.mark.slow
def test_the_source_is_asked_by_the_harness_as_by_the_harness_alone(
    harness: Any, toolchain: Callable[[str], Path], tiny_llama: Path, tmp_path: Path
) -> None:
    """The harness's own runner of transformers models gives the same log-probabilities, picks and accuracy."""
    answered, source = harness()
    ours = json.loads((source / "choices.json").read_text(encoding="utf-8"))
    assert answered["versions"]["lm_eval"] and "torch" not in answered["versions"]
    assert answered["result"]["engine"]["torch"]
    # torch and transformers from their toolchain, in front; the harness from its own
    packages = next((toolchains.get("torch").folder / "lib").glob("python*/site-packages"))
    env = worker_env(toolchains.get("lm_eval").folder, 1, tmp_path / "scratch")
    env["PYTHONPATH"] = os.pathsep.join([str(packages), PACKAGES])
    argv = [str(toolchain("lm_eval")), str(HARNESS), str(tiny_llama), str(source.parent / "questions.jsonl")]
    theirs = json.loads(subprocess.run(argv, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout)
    assert np.allclose(np.array(ours["logprobs"]), np.array(theirs["logprobs"]), atol=1e-3)
    assert {name: ours[name] for name in ("picked", "right", "acc", "acc_norm")} == {
        name: theirs[name] for name in ("picked", "right", "acc", "acc_norm")
    }

    again, _ = harness(source)
    metrics = again["result"]["metrics"]
    assert metrics["choice_agreement"]["value"] == 1
    assert metrics["choice_accuracy"]["value"] == metrics["source_choice_accuracy"]["value"] == ours["acc"]
