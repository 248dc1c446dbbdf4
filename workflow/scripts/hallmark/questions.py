"""Reads labelled multiple-choice questions, as lines of JSON or as tasks of BIG-bench. Asks nobody and scores nothing.

A line is {"question", "choices", "label"}, where the prompt is made around the question, or has "context" in place of
"question": the whole text before the answer. `label` is the place of the right choice, from 0, or its text. A task of
BIG-bench is its `task.json`, which has {"examples": [{"input", "target_scores": {choice: 1 or 0}}]}; examples without
exactly one right choice are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hallmark.options import Setting

FILE = "questions.jsonl"
QUESTION = "{question}"
OPTIONS: Mapping[str, Any] = {"prompt": f"Question: {QUESTION}\nAnswer:", "questions": None}

SETTINGS: Mapping[str, Setting] = {
    "prompt": Setting("what is made of a `question`; a space and a choice follow it"),
    "questions": Setting("at most so many, spread evenly over the files; default: all", least=1),
}


class QuestionError(Exception):
    """A file or an option is not as it should be. The text names it and says what would do."""


def read(folder: Path, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """{"context", "choices", "label"} of each question in the folder's `.jsonl` and `.json` files, in order of names.

    With the option `questions` only so many, spread evenly over all. Raises QuestionError.
    """
    prompt, wanted = options["prompt"], options["questions"]
    if not isinstance(prompt, str) or QUESTION not in prompt or prompt != prompt.rstrip():
        raise QuestionError(f"prompt: {prompt!r} must be a text with {QUESTION} in it and no white space at its end")
    if wanted is not None and (not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1):
        raise QuestionError(f"questions: {wanted!r} is not a whole number above 0")
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".jsonl", ".json"))
    if not paths:
        raise QuestionError("no .jsonl or .json file; name them with the source's `files`")
    found = [question for path in paths for question in _of_file(path, prompt)]
    count = len(found) if wanted is None else min(wanted, len(found))
    yield from (found[number * len(found) // count] for number in range(count))


def _of_file(path: Path, prompt: str) -> Iterator[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        yield from _of_big_bench(path.name, text, prompt)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{path.name}, line {number}"
            yield _question(place, _parsed(place, line), prompt)


def _parsed(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise QuestionError(f"{place}: not JSON ({error})") from None


def _question(place: str, item: Any, prompt: str) -> dict[str, Any]:
    try:
        context = item["context"] if "context" in item else prompt.replace(QUESTION, item["question"])
        choices, label = item["choices"], item["label"]
    except (KeyError, TypeError):
        wanted = '{"question" or "context": "...", "choices": ["...", "..."], "label": 0}'
        raise QuestionError(f"{place}: not {wanted}") from None
    if not isinstance(context, str) or not context.strip():
        raise QuestionError(f"{place}: the question is {context!r}, not a text")
    whole = isinstance(choices, list) and all(isinstance(choice, str) and choice.strip() for choice in choices)
    if not whole or len(set(choices)) < max(2, len(choices)):
        raise QuestionError(f"{place}: choices are {choices!r}, not two or more different texts")
    if isinstance(label, str) and label in choices:
        label = choices.index(label)
    if not isinstance(label, int) or isinstance(label, bool) or not 0 <= label < len(choices):
        raise QuestionError(f"{place}: label {label!r} is neither one of the choices nor a number below {len(choices)}")
    return {"context": context, "choices": choices, "label": label}


def _of_big_bench(name: str, text: str, prompt: str) -> Iterator[dict[str, Any]]:
    task = _parsed(name, text)
    examples = task.get("examples") if isinstance(task, Mapping) else None
    if not isinstance(examples, list):
        raise QuestionError(f"{name}: no task of BIG-bench, which has `examples`; questions of your own go into .jsonl")
    for number, example in enumerate(examples):
        place = f"{name}, example {number}"
        scores = example.get("target_scores") if isinstance(example, Mapping) else None
        if not isinstance(scores, Mapping) or "input" not in example:
            raise QuestionError(f"{place}: no multiple choice, which has `input` and `target_scores`")
        right = [choice for choice, score in scores.items() if score == max(scores.values())]
        if len(right) == 1:
            item = {"question": str(example["input"]).strip(), "choices": list(scores), "label": right[0]}
            yield _question(place, item, prompt)
