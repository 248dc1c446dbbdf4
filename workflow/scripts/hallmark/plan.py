"""The plan: every store entry to be, before anything runs. Makes no node itself; that is `planner`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hallmark import digest
from hallmark.config import Settings
from hallmark.node import Node
from hallmark.toolchains import Toolchain


@dataclass(frozen=True)
class Artifact:
    """The nodes of one artifact."""

    model: str
    format: str
    variant: str
    convert: Node
    inspect: Node
    measurements: Mapping[str, Node]  # by kind, those of `records.KINDS` that are planned
    judges: Mapping[str, Node]  # by target
    releases: Mapping[str, Node] = field(default_factory=dict)  # speed against the last release, by target

    @property
    def name(self) -> str:
        return f"{self.model}/{self.format}/{self.variant}"

    @property
    def candidate(self) -> str:
        """Its name in a target's list of candidates."""
        return f"{self.format}/{self.variant}"


@dataclass(frozen=True)
class Choice:
    """The nodes of one model for one target."""

    model: str
    target: str
    candidates: tuple[Artifact, ...]  # the most preferred first
    select: Node
    bundle: Node

    def offer(self) -> dict[str, Any]:
        """The bundle as it is offered for release, with the gates that its verdict must name."""
        return {
            "target": self.target,
            "model": self.model,
            "bundle": self.bundle.place,
            "gates": {made.candidate: made.judges[self.target].recipe["gates"] for made in self.candidates},
        }


@dataclass(frozen=True)
class Plan:
    """Everything to be."""

    settings: Settings
    artifacts: tuple[Artifact, ...]
    choices: tuple[Choice, ...]
    report: Node

    @property
    def root(self) -> Path:
        """The store."""
        return Path(self.settings.config.store)

    @property
    def release(self) -> str:
        """Name of the release folder: version and a digest of the bundles' keys, so other content gets its own."""
        bundles = {f"{choice.target}/{choice.model}": choice.bundle.key for choice in self.choices}
        return f"{self.settings.config.release.version}-{digest.of_value(bundles)[:8]}"

    def toolchains(self) -> list[Toolchain]:
        """The toolchains that the config needs, each once."""
        found = {toolchain.name: toolchain for node in self.nodes() for toolchain in node.toolchains.values()}
        return [found[name] for name in sorted(found)]

    def report_of(self, there: Callable[[Node], bool]) -> Node:
        """The report of a part of the plan: the artifacts and selections of which every entry is there."""
        recipe, inputs = self.report.recipe, self.report.inputs
        missing = {_shown_by(role) for role, node in inputs.items() if not there(node)}
        artifacts = [name for name in recipe["artifacts"] if name not in missing]
        return dataclasses.replace(
            self.report,
            recipe={**recipe, "artifacts": artifacts, "missing": sorted(missing)},
            inputs={role: node for role, node in inputs.items() if _shown_by(role) not in missing},
        )

    def nodes(self) -> Iterator[Node]:
        """Every node once, inputs before what needs them."""
        seen: set[int] = set()

        def visit(node: Node) -> Iterator[Node]:
            if id(node) not in seen:
                seen.add(id(node))
                for other in node.upstream():
                    yield from visit(other)
                yield node

        for last in (*(choice.bundle for choice in self.choices), self.report):
            yield from visit(last)


def _shown_by(role: str) -> str:
    """What an input of the report is about: `model/format/variant`, or `model/target` for a selection."""
    by_target = next((part for part in ("/judge/", "/release/") if part in role), "/")
    return role.rpartition(by_target)[0]
