"""Whether a sentence encoder's vectors depend on what they must not: length, neighbours in a batch, earlier texts.

The evaluation's texts run one by one, and few of them are long. Three looks, each with texts of 1 token up to more than
the model takes:

    lengths   against the source's vectors of the same texts; the longest one is cut by both. Finds axes that have the
              size of the export, positions that end too early, another cut
    together  the first three in one padded batch, against the artifact's own vectors of each alone. Finds a mask that
              is not heeded; where activations are quantised at run time a batch changes the answer by itself
    again     these three, which were asked first, are asked again at the end. Finds state that is kept

A look that fails with an error leaves its metric null, which no gate passes. It judges nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import looks, statistics
from hallmark.statistics import Estimate
from hallmark.tasks import Metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

METRICS = {
    "length_cosine_min": Metric(
        "accuracy",
        "",
        "higher",
        "smallest cosine to the source's vector among texts of 1 token up to more than it takes",
    ),
    "batch_change": Metric(
        "accuracy", "", "lower", "largest cosine distance of a text's vector in a padded batch from its vector alone"
    ),
    "state_leak": Metric(
        "accuracy", "", "lower", "largest change of a vector entry when the first texts are asked again"
    ),
}
LENGTHS = (1, 7, 128)  # tokens without the special ones; then as many as the model takes, and more
FIRST = len(LENGTHS)  # texts for the other two looks
LONGEST = 512  # of the lengths by the model, so that one of 8192 does not take minutes
BEYOND = 64  # tokens more than the model takes
FILE, VECTORS = "lengths.json", "length_vectors.npy"


def texts_of(words: Mapping[str, Any], longest: int) -> list[str]:
    """A text of each length, of the evaluation's words; `words` as `sentence_similarity` keeps them."""
    special, longest = int(words["special"]), min(longest, LONGEST)
    start = words["tokens"].index(min(words["tokens"]))  # so that the shortest text is not empty
    return [fill(words, start, length) for length in (*LENGTHS, longest - special, longest + BEYOND)]


def fill(words: Mapping[str, Any], start: int, room: int) -> str:
    """Words from number `start` on, and from the first one on after the last, of at most `room` tokens together."""
    chosen, used, place = [], 0, start % len(words["words"])
    while used + words["tokens"][place] <= room:
        used += words["tokens"][place]
        chosen.append(words["words"][place])
        place = (place + 1) % len(words["words"])
    return " ".join(chosen)


def ask_source(runner: Any, words: Mapping[str, Any], out: Path) -> None:
    """Write texts of different lengths and the source's vectors into the folder `out`. ValueError if not finite.

    lengths.json         [text]
    length_vectors.npy   float32 (texts, width), each text by itself
    """
    import numpy as np

    texts = texts_of(words, runner.longest)
    vectors = np.concatenate([np.asarray(runner.embed([text]), np.float32) for text in texts])
    if not np.isfinite(vectors).all():
        raise ValueError("the source answers texts of different lengths with NaN or infinite values")
    (out / FILE).write_text(json.dumps(texts), encoding="utf-8")
    np.save(out / VECTORS, vectors)


class Looks:
    """The looks at one artifact: `before` it has answered anything, `after` it has answered the evaluation's texts."""

    def __init__(self, runner: Any, reference: Path) -> None:
        self._runner, self._reference = runner, reference
        self._texts: list[str] = json.loads((reference / FILE).read_text(encoding="utf-8"))
        self._alone: list[Floats] = []

    def before(self) -> None:
        """Ask for the first texts, each by itself, which are asked for again at the end."""
        self._attempt(lambda: self._ask(FIRST), "state_leak")

    def after(self) -> dict[str, Estimate]:
        """The metrics."""
        found = self._attempt(lambda: self._ask(None), "length_cosine_min")
        found |= self._attempt(self._together, "batch_change")
        return found | self._attempt(self._again, "state_leak")

    def _attempt(self, look: Callable[[], dict[str, Estimate]], name: str) -> dict[str, Estimate]:
        return looks.attempt({name: METRICS[name]}, look)

    def _ask(self, count: int | None) -> dict[str, Estimate]:
        import numpy as np

        texts = self._texts[:count]
        self._alone.append(np.concatenate([np.asarray(self._runner.embed([text]), np.float32) for text in texts]))
        found = cosine(np.load(self._reference / VECTORS)[:count], self._alone[-1])
        return {"length_cosine_min": statistics.exact(found.min(), len(found))}

    def _together(self) -> dict[str, Estimate]:
        import numpy as np

        vectors = np.asarray(self._runner.embed_together(self._texts[:FIRST]), np.float32)
        found = 1 - cosine(self._alone[0], vectors)
        return {"batch_change": statistics.exact(np.maximum(found.max(), 0.0), len(found))}

    def _again(self) -> dict[str, Estimate]:
        import numpy as np

        before, after = self._alone
        return {"state_leak": statistics.exact(np.abs(before - after[:FIRST]).max(), before.size)}


def cosine(first: Floats, second: Floats) -> NDArray[np.float64]:
    """Cosine of each row with the same row of the other, whatever their lengths; 0 where one is all zeros."""
    import numpy as np

    one, two = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    found: NDArray[np.float64] = (one * two).sum(1) / np.maximum(lengths, np.finfo(np.float64).tiny)
    return found
