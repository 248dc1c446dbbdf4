"""Labelled questions: what is read of lines and of BIG-bench's tasks, and what is said of those that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hallmark import datasets, questions

GOOD = {"question": "Where is Rome?", "choices": ["in Italy", "in Peru"], "label": 0}


def lines(folder: Path, *items: Any, name: str = "a.jsonl") -> Path:
    text = "\n".join(item if isinstance(item, str) else json.dumps(item) for item in items)
    (folder / name).write_text(text + "\n", encoding="utf-8")
    return folder


def read(folder: Path, **options: Any) -> list[dict[str, Any]]:
    out = folder.with_name(f"{folder.name}-out")
    out.mkdir()
    datasets.prepare(folder, "multiple_choice", options, out)
    return [json.loads(line) for line in (out / questions.FILE).read_text(encoding="utf-8").strip().split("\n")]


def test_a_question_gets_a_prompt_and_a_context_stays_as_it_is(tmp_path: Path) -> None:
    lines(tmp_path, GOOD, "", {"context": "Rome lies", "choices": GOOD["choices"], "label": "in Peru"})
    assert read(tmp_path) == [
        {"context": "Question: Where is Rome?\nAnswer:", "choices": GOOD["choices"], "label": 0},
        {"context": "Rome lies", "choices": GOOD["choices"], "label": 1},
    ]


def test_braces_and_line_separators_in_a_question_are_only_text(tmp_path: Path) -> None:
    lines(tmp_path, {**GOOD, "question": "What is {x} in\u2028{question}?"})
    assert read(tmp_path, prompt="Q: {question}")[0]["context"] == "Q: What is {x} in\u2028{question}?"


def test_some_of_many_are_spread_evenly(tmp_path: Path) -> None:
    lines(tmp_path, *({**GOOD, "question": str(number)} for number in range(10)))
    found = read(tmp_path, questions=4, prompt="{question}:")
    assert [item["context"] for item in found] == ["0:", "2:", "5:", "7:"]


def test_a_task_of_big_bench_without_the_examples_that_have_several_right_choices(tmp_path: Path) -> None:
    examples = [
        {"input": "Where?", "target_scores": {"here": 0, "there": 1}},
        {"input": "Which?", "target_scores": {"this": 1, "that": 1}},
    ]
    lines(tmp_path, {"name": "a task", "examples": examples}, name="task.json")
    assert read(tmp_path) == [{"context": "Question: Where?\nAnswer:", "choices": ["here", "there"], "label": 1}]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("{", r"a.jsonl, line 2: not JSON"),
        ({"question": "?"}, r'line 2: not \{"question" or "context"'),
        ([1], r"line 2: not \{"),
        ({**GOOD, "question": " ", "context": ""}, r"line 2: the question is ''"),
        ({**GOOD, "question": 7}, r"line 2: not \{|the question is"),
        ({**GOOD, "choices": ["one"]}, r"line 2: choices are \['one'\], not two or more"),
        ({**GOOD, "choices": ["one", "one"]}, r"not two or more different texts"),
        ({**GOOD, "choices": ["one", ""]}, r"not two or more different texts"),
        ({**GOOD, "label": 2}, r"line 2: label 2 is neither one of the choices nor a number below 2"),
        ({**GOOD, "label": -1}, r"label -1"),
        ({**GOOD, "label": True}, r"label True"),
        ({**GOOD, "label": "in Spain"}, r"label 'in Spain'"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, item: Any, said: str) -> None:
    with pytest.raises(datasets.DataError, match=said):
        read(lines(tmp_path, GOOD, item))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"choices": []}, r"task.json: no task of BIG-bench"),
        ({"examples": [{"input": "?", "target": "!"}]}, r"task.json, example 0: no multiple choice"),
    ],
)
def test_a_json_file_that_is_no_multiple_choice_is_named(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(datasets.DataError, match=said):
        read(lines(tmp_path, content, name="task.json"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt": "Answer:"}, r"prompt: 'Answer:' must be a text with \{question\}"),
        ({"prompt": "{question} "}, r"no white space at its end"),
        ({"questions": 0}, r"questions: 0 is not a number of 1 or more"),
        ({"questions": 1.5}, r"questions: 1.5"),
        ({"promt": "{question}"}, r"no option 'promt'"),
    ],
)
def test_an_option_that_is_wrong_is_named(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(datasets.DataError, match=said):
        read(lines(tmp_path, GOOD), **options)


def test_a_folder_without_questions_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(datasets.DataError, match=r"no \.jsonl or \.json file"):
        read(tmp_path)
