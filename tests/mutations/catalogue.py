"""What a seeded defect is, what came of one, and the list of all. Applies none and judges none (see `__main__`).

A defect is a few lines that spoil a copy of a sound thing of the demo, in a way that people met for real:

    source    a checkpoint folder; lint must refuse it, or the artifacts that would lose something
    files     an artifact's folder; the inspection's or the accuracy's gates must fail it
    runner    an artifact's engine while it runs, for what lies in code and not in files; the gates of accuracy or speed
              must fail it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Stage = Literal["source", "files", "runner"]


@dataclass(frozen=True)
class Mutation:
    """`apply` spoils a folder in place (source, files) or an open runner, which it returns, wrapped or not (runner).

    `subjects` are the demo's artifacts it is tried on (`smollm2/gguf/q8_0`), or models where `stage` is `source`.
    `caught_by` are the gates, or the codes of lint, any of which must catch it. `report` is the public report of such a
    defect (`owner/repo#number`), '' where none is known.
    """

    name: str
    stage: Stage
    subjects: tuple[str, ...]
    caught_by: tuple[str, ...]
    apply: Callable[[Any], Any]
    report: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a defect in one subject, or of the subject without any: the gates, or codes of lint, that failed.

    `unsure` are gates that were inconclusive, `why` is what the wanted gates say.
    """

    mutation: Mutation | None
    subject: str
    failed: tuple[str, ...]
    unsure: tuple[str, ...] = ()
    why: str = ""

    @property
    def caught_by(self) -> tuple[str, ...]:
        """Those that failed and were wanted to."""
        wanted = self.mutation.caught_by if self.mutation else ()
        return tuple(name for name in self.failed if name in wanted)

    @property
    def good(self) -> bool:
        """The defect is caught, or what has none passes."""
        return bool(self.caught_by) if self.mutation else not self.failed


def every() -> Iterator[Mutation]:
    """All mutations, by stage and in the order of their files."""
    from tests.mutations import artifacts, behaviour, sources

    for module in (sources, artifacts, behaviour):
        yield from module.MUTATIONS
