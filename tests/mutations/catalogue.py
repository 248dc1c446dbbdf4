"""What a seeded defect is, and the list of all of them. Applies none and judges none (see `run`).

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


def every() -> Iterator[Mutation]:
    """All mutations, by stage and in the order of their files."""
    from tests.mutations import artifacts, behaviour, sources

    for module in (sources, artifacts, behaviour):
        yield from module.MUTATIONS
