"""What an encoder's vectors must not depend on: a tiny real one, with attention and positions, and its defects."""

import json

import numpy as np
import pytest
from tests.unit import shipped

from hallmark import invariance, tasks
from hallmark.padded_batch import pool

PAIRS = tasks.get("sentence-similarity")
WIDTH = 16
OPTIONS = {**tasks.defaults(PAIRS.OPTIONS), "strings": 110, "threads": 1}
TASK = "sentence-similarity"


class Encoder:
    """One layer of attention over words and their positions, mean pooling, random weights. A word is a token."""

    longest = 160

    def __init__(self):
        random = np.random.default_rng(4).normal
        self.words, self.positions = random(0, 1, (64, WIDTH)), random(0, 0.3, (self.longest, WIDTH))

    def encode(self, text, special=True):
        ids = [2 + sum(word.encode()) % 62 for word in text.split()]
        return [1, *ids, 3] if special else ids

    def spans(self, text):
        return []

    def special(self):
        return {"added": {"[CLS]": 1, "[SEP]": 3}, "unknown": None}

    def embed(self, texts):
        return np.concatenate([self.run([self.cut(text)]) for text in texts])

    def embed_together(self, texts):
        return self.run([self.cut(text) for text in texts])

    def cut(self, text):
        ids = self.encode(text)
        return ids if len(ids) <= self.longest else [*ids[: self.longest - 1], ids[-1]]

    def run(self, sequences):
        """Unit vectors of sequences that are padded to the longest of them."""
        length = max(len(ids) for ids in sequences)
        mask = np.array([[1] * len(ids) + [0] * (length - len(ids)) for ids in sequences])
        return pool(self.hidden(np.array([ids + [0] * (length - len(ids)) for ids in sequences]), mask), mask, "mean")

    def hidden(self, ids, mask):
        embedded = self.words[ids] + self.positions[: ids.shape[1]]
        weights = np.exp(embedded @ embedded.transpose(0, 2, 1) / WIDTH) * mask[:, None, :]
        return embedded + weights @ embedded / weights.sum(-1, keepdims=True)


class Unmasked(Encoder):
    """Sees the padding of its neighbours' texts."""

    def hidden(self, ids, mask):
        return super().hidden(ids, np.ones_like(mask))


class Baked(Encoder):
    """Takes no other length than that of its export."""

    def hidden(self, ids, mask):
        if ids.shape[1] == 130:
            raise RuntimeError("got 130 for the dimension sequence, expected 16")
        return super().hidden(ids, mask)


class OneByOne(Encoder):
    """Takes no batch."""

    def hidden(self, ids, mask):
        if len(ids) > 1:
            raise RuntimeError(f"got {len(ids)} for the dimension batch, expected 1")
        return super().hidden(ids, mask)


class Uncut(Encoder):
    """Does not cut its input, and has the positions of the last place for all beyond."""

    def cut(self, text):
        return self.encode(text)

    def hidden(self, ids, mask):
        places = np.minimum(np.arange(ids.shape[1]), 100)
        self.positions = self.positions[places]
        found = super().hidden(ids, mask)
        Encoder.__init__(self)
        return found


class Remembering(Encoder):
    """Keeps a little of the text before."""

    before = 0.0

    def hidden(self, ids, mask):
        found = super().hidden(ids, mask)
        mixed, self.before = found + 0.01 * self.before, found.mean()
        return mixed


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A function that measures an artifact against `Encoder`: its metrics."""
    folder = tmp_path_factory.mktemp("encoder")
    data, reference = folder / "data", folder / "reference"
    data.mkdir()
    reference.mkdir()
    generator = np.random.default_rng(9)
    texts = ["".join(generator.choice(list("abcdefgh  "), 60)) for _ in range(8)]
    rows = [{"a": a, "b": b, "score": float(generator.integers(10)), "set": "s"} for a in texts for b in texts if a < b]
    (data / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    PAIRS.reference(Encoder(), data, reference, OPTIONS)

    def measure(runner):
        out = folder / type(runner).__name__
        out.mkdir()
        return PAIRS.accuracy(runner, reference, data, out, OPTIONS)

    return measure


def test_a_sound_encoder_passes_what_is_shipped(measured):
    found = measured(Encoder())
    assert shipped.failed(TASK, found) == set()
    assert found["length_cosine_min"]["value"] == pytest.approx(1)
    assert found["batch_change"]["value"] == pytest.approx(0, abs=1e-6)
    assert found["state_leak"]["value"] == 0


@pytest.mark.parametrize(
    ("defect", "metric"),
    [
        (Unmasked, "batch_change"),
        (OneByOne, "batch_change"),
        (Baked, "length_cosine_min"),
        (Uncut, "length_cosine_min"),
        (Remembering, "state_leak"),
    ],
)
def test_a_defect_is_found_by_its_metric_alone(measured, defect, metric):
    found = measured(defect())
    assert metric in shipped.failed(TASK, found)
    assert found["cosine_mean"]["value"] > shipped.limits(TASK)["cosine_mean"].bound, (
        "the evaluation's texts do not show it"
    )


def test_texts_have_one_token_up_to_more_than_the_model_takes():
    words = {"words": ["ab", "c", "def"], "tokens": [2, 1, 3], "special": 2}
    texts = invariance.texts_of(words, 200)
    counted = [sum({"ab": 2, "c": 1, "def": 3}[word] for word in text.split()) for text in texts]
    assert counted[0] == 1
    assert [abs(count - length) < 3 for count, length in zip(counted, [1, 7, 128, 198, 264], strict=True)] == [True] * 5
    assert len(texts) == len(invariance.LENGTHS) + 2


def test_the_pool_leaves_padding_out():
    hidden = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    alone = [
        pool(hidden[row : row + 1, :count], mask[row : row + 1, :count], "mean") for row, count in ((0, 2), (1, 3))
    ]
    assert pool(hidden, mask, "mean") == pytest.approx(np.concatenate(alone))
    assert pool(hidden, mask, "cls")[0] == pytest.approx(hidden[0, 0] / np.linalg.norm(hidden[0, 0]))
    assert pool(hidden, mask, "max")[0] == pytest.approx(hidden[0, 1] / np.linalg.norm(hidden[0, 1]))
