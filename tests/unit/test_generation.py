"""What language models do step by step: one tiny real one, with a cache and rotary positions, and its defects.

Every defect is one that the one-shot logits do not show, so each has to be found by its own metric, and by the limits
of the configuration as it is shipped.
"""

import json
import math

import numpy as np
import pytest
from tests.unit import shipped

from hallmark import generation, tasks

LM = tasks.get("causal-lm")
VOCABULARY, WIDTH = 96, 32
OPTIONS = {**tasks.defaults(LM.OPTIONS), "blocks": 6, "tokens": 64, "strings": 110, "long_tokens": 200, "threads": 1}
TASK = "causal-lm"


class Attention:
    """One layer of attention with a cache and rotary positions, in float64, with random weights.

    A term of the position keeps greedy answers from going round in circles.
    """

    positions, stops = 4096, frozenset({7, 8})

    def __init__(self):
        random = np.random.default_rng(3).normal
        self.embedding, self.head = random(0, 1, (VOCABULARY, WIDTH)), random(0, 0.5, (WIDTH, VOCABULARY))
        self.places = random(0, 1, (self.positions, WIDTH))
        self.query, self.key, self.value = random(0, WIDTH**-0.5, (3, WIDTH, WIDTH))
        self.cache = []

    def encode(self, text, special=True):
        return [*[1] * special, *(2 + byte % (VOCABULARY - 2) for byte in text.encode())]

    def spans(self, text):
        return []

    def special(self):
        return {"added": {"<s>": 1}, "unknown": None}

    def chat(self):
        return "", {}

    def chat_prompt(self, text):
        return [5, *self.encode(text), 6]

    def clear(self):
        self.cache = []

    def place(self):
        return len(self.cache)

    def logits(self, ids):
        self.clear()
        return np.array([self.step(token) for token in ids])

    def prefill(self, ids):
        self.row = self.logits(ids)[-1]
        return int(self.row.argmax())

    def decode(self, token):
        self.row = self.step(token)
        return int(self.row.argmax())

    def scores(self):
        return self.row

    def step(self, token):
        place = self.place()
        embedded = self.embedding[token]
        self.cache.append((turned(embedded @ self.key, place), embedded @ self.value))
        keys, values = (np.array(part) for part in zip(*self.cache, strict=True))
        weights = np.exp(keys @ turned(embedded @ self.query, place) / math.sqrt(WIDTH))
        return (embedded + weights @ values / weights.sum() + self.places[place]) @ self.head


def turned(vector, place):
    """Rotary position embedding."""
    angles = place / 100 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    one, two = vector[::2], vector[1::2]
    return np.concatenate([one * np.cos(angles) - two * np.sin(angles), one * np.sin(angles) + two * np.cos(angles)])


class OffByOne(Attention):
    """Decodes at the position of the token before."""

    def decode(self, token):
        self.place = lambda: len(self.cache) - 1
        found = super().decode(token)
        del self.place
        return found


class Forgetful(Attention):
    """Loses its cache when it decodes."""

    def decode(self, token):
        self.cache = self.cache[-1:]
        return super().decode(token)


class Leaky(Attention):
    """Starts with the last token of the request before, at the same positions."""

    def clear(self):
        self.cache = self.cache[-1:]

    def place(self):
        return max(0, len(self.cache) - 1)


class Stuck(Attention):
    """Says the same token for ever from the fifth on."""

    def decode(self, token):
        self.said += 1
        found = super().decode(token)
        return found if self.said < 5 else 11

    def prefill(self, ids):
        self.said = 0
        return super().prefill(ids)


class Endless(Attention):
    """Does not know how an answer ends."""

    stops = frozenset()


class Overflowing(Attention):
    """Its numbers overflow where one token is said."""

    def decode(self, token):
        super().decode(token)
        if len(self.cache) == 40:
            self.row = self.row * np.inf
        return int(self.row.argmax())


class Short(Attention):
    """Its cache has room for less than the source's."""

    def step(self, token):
        if len(self.cache) >= 128:
            raise RuntimeError("no room in the cache")
        return super().step(token)


class Untrained(Attention):
    """Does not know positions beyond the windows'."""

    def place(self):
        return min(super().place(), 64)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A function that measures an artifact against `Attention`: its metrics and samples."""
    folder = tmp_path_factory.mktemp("language")
    data, reference = folder / "data", folder / "reference"
    data.mkdir()
    reference.mkdir()
    generator, letters = np.random.default_rng(8), list("abcdefghijklmnopqrstuvwxyz     ")
    rows = [{"title": str(number), "text": "".join(generator.choice(letters, 400))} for number in range(8)]
    (data / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    notes = LM.reference(Attention(), data, reference, OPTIONS)
    assert notes["degenerate"] == 0

    def measure(runner):
        out = folder / type(runner).__name__
        out.mkdir()
        found = LM.accuracy(runner, reference, data, out, OPTIONS)
        return found, json.loads((out / "samples.json").read_text())

    return measure


def test_a_sound_artifact_passes_what_is_shipped(measured):
    found, samples = measured(Attention())
    assert shipped.failed(TASK, found) == set()
    assert found["decode_kl_mean"]["high"] < 1e-6
    assert (found["state_leak"]["value"], found["output_length_change"]["high"]) == (0, 0)
    assert found["degenerate_outputs"]["n"] == OPTIONS["prompts"]
    assert len(samples["answers"]) == OPTIONS["prompts"]
    assert any(len(tokens) < generation.ANSWER_TOKENS for tokens in samples["answers"])


@pytest.mark.parametrize(
    ("defect", "metrics"),
    [
        (OffByOne, {"decode_kl_mean", "long_kl_mean"}),
        (Forgetful, {"decode_kl_mean", "long_kl_mean"}),
        (Leaky, {"state_leak"}),
        (Stuck, {"degenerate_outputs"}),
        (Endless, {"endless_outputs"}),
        (Overflowing, {"nonfinite_steps"}),
        (Short, {"long_kl_mean"}),
        (Untrained, {"long_kl_mean"}),
    ],
)
def test_a_defect_is_found_by_its_metric(measured, defect, metrics):
    found, _ = measured(defect())
    assert metrics <= shipped.failed(TASK, found)
    if defect is not Leaky:  # which spoils everything
        assert found["kl_mean"]["value"] < 1e-9, "the one-shot logits do not show it"


def test_a_look_that_raises_leaves_its_metric_null(measured, capsys):
    class Cramped(Short):
        pass

    found, _ = measured(Cramped())
    assert found["long_kl_mean"]["value"] is None
    assert found["decode_kl_mean"]["value"] is not None
    assert "no room in the cache" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tokens", "circles"),
    [
        ([], True),
        ([3], False),
        ([3] * 6, True),
        ([3] * 4, False),
        (list(range(64)), False),
        (list(range(20)) + [1, 2, 3] * 14, True),
        (list(range(40)) + [1, 2, 3] * 8, False),
        (list(range(16)) * 4, True),
    ],
)
def test_answers_in_circles(tokens, circles):
    assert generation.is_degenerate(tokens) is circles


def test_prompts_are_questions_and_text_to_go_on_with():
    pool = np.arange(1000, dtype=np.int32)
    made = generation.prompts(Attention(), pool, 12)
    questions = [prompt for prompt in made if prompt[0] == 5]
    assert questions == [Attention().chat_prompt(question) for question in generation.QUESTIONS]
    assert len({tuple(prompt) for prompt in made}) == 12
    assert generation.prompts(Attention(), pool, 24)[:12] == made  # more text holds what was asked before
    assert made[5] == list(range(made[5][0], made[5][0] + generation.CONTINUED))
