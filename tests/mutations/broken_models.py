"""Language models that go wrong while they run: wrappers around the runner that an adapter's `open` yields.

Each does what a real fault would do, with the engine's own answers. For toolchains: numpy is imported in functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

REMEMBERED = 8  # tokens of the last request that are still in the cache of the next
SEEN = 128  # tokens of a prompt
NAN_FROM = 10  # steps


class Wrapped:
    """The runner, but for what a subclass does otherwise."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)


class CacheNotCleared(Wrapped):
    """Language model: the end of each request is still in the cache when the next one comes."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.left: list[int] = []

    def _after_what_is_left(self, ids: Sequence[int]) -> list[int]:
        found, self.left = [*self.left, *ids], list(ids[-REMEMBERED:])
        return found

    def logits(self, ids: Sequence[int]) -> Any:
        return self.runner.logits(self._after_what_is_left(ids))[-len(ids) :]

    def prefill(self, ids: Sequence[int]) -> int:
        return int(self.runner.prefill(self._after_what_is_left(ids)))


class Steps(Wrapped):
    """Language model: `changed` makes other scores of those that a prompt and each step gave, counted from 0."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.step, self.now = 0, None

    def changed(self, scores: Any) -> Any:
        return scores

    def prefill(self, ids: Sequence[int]) -> int:
        self.step = 0
        self.runner.prefill(ids)
        return self._look()

    def decode(self, token: int) -> int:
        self.step += 1
        self.runner.decode(token)
        return self._look()

    def scores(self) -> Any:
        return self.now

    def _look(self) -> int:
        self.now = self.changed(self.runner.scores())
        return int(self.now.argmax())


class TokensOffByOne(Steps):
    """The scores of steps belong to the next token's id."""

    def changed(self, scores: Any) -> Any:
        import numpy as np

        return np.roll(scores, 1)


class StaleScores(Steps):
    """Each step answers with what the step before it gave: an output that is read before it is written."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.last: Any = None

    def changed(self, scores: Any) -> Any:
        found = scores if self.step == 0 else self.last
        self.last = scores
        return found


class NanWhileDecoding(Steps):
    """From a certain step on one logit is NaN."""

    def changed(self, scores: Any) -> Any:
        if self.step >= NAN_FROM:
            scores[0] = float("nan")
        return scores


class RowsLate(Wrapped):
    """Language model: the logits after each token are those after the one before it."""

    def logits(self, ids: Sequence[int]) -> Any:
        import numpy as np

        return np.roll(self.runner.logits(ids), 1, axis=0)


class Float16(Wrapped):
    """Language model: logits times 4096 go through float16, as those of an attention that is scaled too late."""

    def logits(self, ids: Sequence[int]) -> Any:
        import numpy as np

        with np.errstate(over="ignore"):
            return (self.runner.logits(ids) * np.float32(4096)).astype(np.float16).astype(np.float32) / 4096


class InputsShifted(Wrapped):
    """Language model: every id that goes in is one more, as where an embedding has lost its first row."""

    def logits(self, ids: Sequence[int]) -> Any:
        return self.runner.logits([token + 1 for token in ids])


class ShortContext(Wrapped):
    """Language model: of a prompt only the last tokens are seen."""

    def prefill(self, ids: Sequence[int]) -> int:
        return int(self.runner.prefill(ids[-SEEN:]))


class NeverStops(Wrapped):
    """Language model: no token ends an answer."""

    stops: frozenset[int] = frozenset()


class NoTemplate(Wrapped):
    """Language model: the chat template is lost."""

    def chat(self) -> tuple[str, dict[str, str]]:
        return "", {}


class Encoding(Wrapped):
    """Any runner: `changed` makes other ids of a text's; `special`: with those around the text."""

    def changed(self, ids: list[int], special: bool) -> list[int]:
        return ids

    def encode(self, text: str, special: bool = True) -> list[int]:
        return self.changed(list(self.runner.encode(text, special)), special)


class StartTwice(Encoding):
    """A token is put before a text that has none there, or has it already."""

    def changed(self, ids: list[int], special: bool) -> list[int]:
        return [1, *ids] if special else ids


class StartLost(Encoding):
    """The token before a text is lost."""

    def changed(self, ids: list[int], special: bool) -> list[int]:
        return ids[1:] if special else ids


class IdsShifted(Encoding):
    """Every id is one more."""

    def changed(self, ids: list[int], special: bool) -> list[int]:
        return [token + 1 for token in ids]


class Fed:
    """Stands for a session, a compiled model or a request: `change` edits what it is fed with, by input's name."""

    def __init__(self, fed: Any, change: Callable[[dict[str, Any]], None]) -> None:
        self.fed, self.change = fed, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fed, name)

    def run(self, outputs: Any, feeds: dict[str, Any]) -> Any:
        self.change(feeds)
        return self.fed.run(outputs, feeds)

    def infer(self, feeds: dict[str, Any], **how: Any) -> Any:
        self.change(feeds)
        return self.fed.infer(feeds, **how)

    def __call__(self, feeds: dict[str, Any]) -> Any:
        self.change(feeds)
        return self.fed(feeds)


def positions_off_by_one(runner: Any) -> Any:
    """OpenVINO language model: while decoding each token's position is one more."""
    begin = runner._begin

    def change(feeds: dict[str, Any]) -> None:
        if feeds["position_ids"].shape[1] == 1:
            feeds["position_ids"] = feeds["position_ids"] + 1

    def begun(last_only: bool) -> None:
        begin(last_only)
        if not isinstance(runner._request, Fed):
            runner._request = Fed(runner._request, change)

    runner._begin = begun
    return runner
