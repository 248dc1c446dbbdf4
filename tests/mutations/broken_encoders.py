"""Encoders that go wrong while they run: wrappers around the runner that an adapter's `open` yields.

Each does what a real fault would do, with the engine's own answers. For toolchains: numpy is imported in functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.mutations.broken_models import Fed, Wrapped

from hallmark import padded_batch

CUT = 128  # tokens
LEAKED = 10**6  # bytes


class LastVector(Wrapped):
    """Encoder: a tenth of each vector is the last text's, as of a buffer that is added to."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.last: Any = 0.0

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        found = self.runner.embed(texts)
        mixed, self.last = found + 0.1 * self.last, found[-1]
        return mixed / np.linalg.norm(mixed, axis=1, keepdims=True)


class TextsCut(Wrapped):
    """Encoder: texts are cut to 128 tokens."""

    def embed(self, texts: Sequence[str]) -> Any:
        return self.runner.embed([self._cut(text) for text in texts])

    def _cut(self, text: str) -> str:
        words = text.split(" ")
        while len(words) > CUT // 4 and len(self.runner.encode(" ".join(words))) > CUT:
            words = words[: len(words) - 1]
        return " ".join(words)


class NanForLongTexts(Wrapped):
    """Encoder: one NaN in the vector of a text of over 20 words."""

    def embed(self, texts: Sequence[str]) -> Any:
        found = self.runner.embed(texts)
        found[[len(text.split()) > 20 for text in texts], 0] = float("nan")
        return found


class RowsExchanged(Wrapped):
    """Encoder: the answers of a batch come in another order than its texts."""

    def embed_together(self, texts: Sequence[str]) -> Any:
        return self.runner.embed_together(texts)[::-1]


class Leaking(Wrapped):
    """Encoder: each request leaves memory behind."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.left: list[bytes] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.left.append(b"\x01" * LEAKED)
        return self.runner.embed(texts)


def mask_ignored(runner: Any) -> Any:
    """Encoder: the model sees padding as it sees text."""

    def change(feeds: dict[str, Any]) -> None:
        import numpy as np

        feeds["attention_mask"] = np.ones_like(np.asarray(feeds["attention_mask"]))

    name = "session" if hasattr(runner, "session") else "model"
    setattr(runner, name, Fed(getattr(runner, name), change))
    return runner


def padding_pooled(runner: Any) -> Any:
    """Encoder: the mean is over the padding, too."""
    import numpy as np

    pool = padded_batch.pool
    padded_batch.pool = lambda hidden, mask, how: pool(hidden, np.ones_like(mask), how)
    return runner


def first_token_pooled(runner: Any) -> Any:
    """Encoder: the first token's vector instead of the mean."""
    if hasattr(runner, "pooling"):
        runner.pooling = "cls"
    else:
        runner.about["pooling"] = "cls"
    return runner
