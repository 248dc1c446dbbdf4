"""Which candidate a target takes."""

import pytest

from hallmark.selection import choose

CANDIDATES = ["gguf/q4_k_m", "gguf/q8_0", "gguf/f16"]


def verdicts(*words):
    return {
        name: {"subject": f"m/{name}", "target": "cpu", "verdict": word, "artifact": "a" * 64, "why": f"{name} {word}"}
        for name, word in zip(CANDIDATES, words, strict=True)
    }


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        (("pass", "pass", "pass"), "gguf/q4_k_m"),
        (("fail", "pass", "pass"), "gguf/q8_0"),
        (("inconclusive", "not_run", "pass"), "gguf/f16"),
        (("fail", "inconclusive", "not_run"), None),
    ],
)
def test_the_first_that_passes_in_order_of_preference(words, selected):
    found = choose("m", "cpu", CANDIDATES, verdicts(*words))
    assert found["selected"] == selected
    assert [(entry["artifact"], entry["verdict"]) for entry in found["candidates"]] == list(
        zip(CANDIDATES, words, strict=True)
    )
    assert found["candidates"][0] == {
        "artifact": "gguf/q4_k_m",
        "verdict": words[0],
        "digest": "a" * 64,
        "why": f"gguf/q4_k_m {words[0]}",
    }


def test_verdicts_may_come_in_any_order():
    shuffled = dict(reversed(verdicts("pass", "pass", "pass").items()))
    assert choose("m", "cpu", CANDIDATES, shuffled)["selected"] == "gguf/q4_k_m"


def test_a_missing_verdict_is_a_fault():
    with pytest.raises(ValueError, match="no verdict on m/gguf/f16"):
        choose("m", "cpu", CANDIDATES, {name: verdicts("pass", "pass", "pass")[name] for name in CANDIDATES[:2]})


@pytest.mark.parametrize(("model", "target"), [("other", "cpu"), ("m", "gpu")])
def test_a_verdict_on_something_else_is_a_fault(model, target):
    with pytest.raises(ValueError, match="the verdict given for"):
        choose(model, target, CANDIDATES, verdicts("pass", "pass", "pass"))
