"""lm-evaluation-harness asks an engine labelled questions. For the toolchain `lm_eval`, which runs no model itself.

The harness makes the requests, splits each into context and continuation, and scores the answers. Token ids and
logits come through a pipe from the engine's own process (`hallmark.worker`, in the engine's toolchain): an artifact is
asked with its own tokenizer in its own runtime, and the harness's packages decide no other measurement's versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.model import TemplateLM
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

from hallmark import choices, questions
from hallmark.engine import Command, Engine
from hallmark.progress import track

FILE = "choices.json"
TASK = "multiple_choice"
ACCURACY, NORMALISED = "acc", "acc_norm"  # the second divides a log-probability by the length of its choice
UNFILTERED = "none"


class Unanswered(Exception):
    """The engine could not answer a question. The text says why."""


class Asked(TemplateLM):  # type: ignore[misc]
    """An engine as the harness sees a language model: log-likelihoods of continuations, and nothing else."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._known: dict[tuple[str, bool], list[int]] = {}

    @property
    def eot_token_id(self) -> int:
        raise Unanswered("a question without any text before its answer")

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        texts = dict.fromkeys(text for r in requests for text in (r.args[0].rstrip(), r.args[0] + r.args[1]))
        self._encode([(text, True) for text in texts])  # all in one message instead of one for each
        found: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        return found

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        asked = string, add_special_tokens is not False
        if asked not in self._known:
            self._encode([asked])
        return self._known[asked]

    def _encode(self, asked: Sequence[tuple[str, bool]]) -> None:
        self._known |= zip(asked, self._ask("encode", asked), strict=True)

    def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        found: list[tuple[float, bool]] = []
        by_question = [list(group) for _, group in groupby(requests, key=lambda request: request[0][0])]
        for question in track(by_question, "questions"):
            for (context, choice), _, ids in question:
                if not ids:
                    raise Unanswered(f"{choice!r} adds no token to {context!r}")
            answers = self._ask("score", [(before + ids, len(ids)) for _, before, ids in question])
            found += [(logprob, greedy) for logprob, greedy in answers]
        return found

    def _ask(self, what: str, request: Sequence[Any]) -> list[Any]:
        answer = self._engine.ask({"do": what, "request": request})
        if "error" in answer:
            raise Unanswered(answer["error"])
        return list(answer["answer"])

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        raise TypeError("multiple choice has no rolling log-likelihoods")

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        raise TypeError("multiple choice generates no text")


def task(data: Path) -> dict[str, Any]:
    """The harness's configuration for the questions in a file: context, a space, and a choice, without examples."""
    scored = {"aggregation": "mean", "higher_is_better": True}
    return {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "context",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
        "target_delimiter": " ",
        "num_fewshot": 0,
        "metric_list": [{"metric": name, **scored} for name in (ACCURACY, NORMALISED)],
    }


def evaluate(model: Any, data: Path) -> dict[str, Any]:
    """What a model of the harness answers to the questions in a file.

    {"picked", "right", "logprobs"} have an entry for each question in the order of the file, "acc" and "acc_norm" are
    the harness's own numbers of them all.
    """
    import numpy as np

    found = lm_eval.simple_evaluate(
        model=model,
        tasks=[ConfigurableTask(config=task(data))],
        task_manager=TaskManager(include_defaults=False),  # reading those takes half a minute
        bootstrap_iters=0,
    )
    samples = sorted(found["samples"][TASK], key=lambda sample: sample["doc_id"])
    logprobs = [[logprob for logprob, _ in sample["filtered_resps"]] for sample in samples]
    return {
        "picked": [int(np.argmax(row)) for row in logprobs],
        "right": [int(sample[ACCURACY]) for sample in samples],
        "logprobs": logprobs,
        **{name: found["results"][TASK][f"{name},{UNFILTERED}"] for name in (ACCURACY, NORMALISED)},
    }


def ask(engine: Mapping[str, Any], data: Path, reference: Path | None, out: Path, timeout_s: float) -> dict[str, Any]:
    """Ask an engine the questions of the data in the folder `data`; write its answers into the folder `out`.

    `engine` is {"name", "argv", "env", "log"}. Without a reference it is the source, which has to answer all: raises
    Unanswered. With the folder of the source's answers, returns the metrics of an artifact under "metrics". Under
    "harness" are the harness's own numbers, null where it was not answered, under "engine" the engine's versions.
    """
    command = Command(engine["argv"], engine["env"])
    answers: dict[str, Any] | None = None
    with Engine(engine["name"], command, Path(engine["log"]), timeout_s) as asked:
        asked.reply()
        try:
            answers = evaluate(Asked(asked), data / questions.FILE)
        except Unanswered:
            if reference is None:
                raise
        versions = asked.ask({"do": "state"})["versions"]
    (out / FILE).write_text(json.dumps(answers, allow_nan=False), encoding="utf-8")
    own = {name: answers[name] for name in (ACCURACY, NORMALISED)} if answers else None
    found = {"harness": own, "engine": versions}
    if reference is None:
        return found
    source = json.loads((reference / FILE).read_text(encoding="utf-8"))
    return {**found, "metrics": choices.metrics(source, answers)}
