"""From config and lock to the whole plan, before anything runs. It converts, measures and judges nothing.

`model_nodes` has what is made of a model, `artifact_nodes` what is measured and judged of an artifact; here they are
put together, with what each target chooses and the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hallmark import (
    __version__,
    bundle,
    estimates,
    formats,
    lock,
    lock_checks,
    release,
    report,
    sources,
    templates,
    upkeep,
)
from hallmark.artifact_nodes import ArtifactNodes
from hallmark.config import ConfigError, Settings, parse
from hallmark.last_release import LastReleases
from hallmark.model_nodes import ModelNodes
from hallmark.node import Node
from hallmark.plan import Artifact, Choice, Plan


def load(raw: Mapping[str, Any], file: str) -> Plan:
    """The plan of a parsed config (of `file`, for messages). Paths are relative to the working folder.

    Raises ConfigError, a line for each problem, when config, targets, lock and machine do not fit together.
    """
    settings = parse(raw, file)
    return Planner(settings, lock.read(Path(settings.config.lock_file))).plan()


def _texts(artifact: Artifact, task: str) -> str:
    return bundle.digest_of_texts(formats.get(artifact.format).usage(task, artifact.convert.recipe["options"]))


def _without_places(entry: lock.Entry) -> dict[str, Any]:
    """What a lock pins, as it may be published: of a folder or a file on this machine no more than its name."""
    pins = entry.model_dump(mode="json")
    for field in ("folder", "file"):
        if entry.source.kind in ("path", "gguf") and field in pins["source"]:
            pins["source"][field] = Path(pins["source"][field]).name
    return pins


class Planner:
    """Puts the plan of one configuration together."""

    def __init__(self, settings: Settings, locked: lock.Lock) -> None:
        self.settings, self.locked = settings, locked
        self.config = settings.config
        self.models = ModelNodes(settings.config, locked)
        named = settings.config.release
        releases = LastReleases(release.FOLDER, named.version, named.against, upkeep.STATE / "digests.sqlite")
        self.artifacts = ArtifactNodes(settings, self.models, releases)

    def plan(self) -> Plan:
        """Everything to be. Raises ConfigError when the lock does not fit the config."""
        problems = lock_checks.problems(self.config, self.locked)
        if problems:
            raise ConfigError("\n".join(problems))
        artifacts = tuple(
            self.artifacts.artifact(model, format_name, variant)
            for model, details in self.config.models.items()
            for format_name, variants in details.formats.items()
            for variant in variants
        )
        choices = tuple(
            self.choice(target, model, candidates)
            for target in self.settings.targets
            for model in self.config.models
            if (candidates := self.candidates(target, model, artifacts))
        )
        return Plan(self.settings, artifacts, choices, self.report(artifacts, choices))

    def candidates(self, target: str, model: str, artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        """The artifacts of a model that a target may release, in its order of preference."""
        details = self.settings.targets[target]
        if details.models is not None and model not in details.models:
            return ()
        mine = {artifact.candidate: artifact for artifact in artifacts if artifact.model == model}
        return tuple(mine[candidate] for candidate in details.candidates if candidate in mine)

    def choice(self, target: str, model: str, candidates: tuple[Artifact, ...]) -> Choice:
        verdicts = {artifact.candidate: artifact.judges[target] for artifact in candidates}
        select = Node(
            "select",
            (model, target),
            {"candidates": list(verdicts)},
            code=("hallmark.selection", "hallmark.verdict_jobs"),
            inputs=verdicts,
        )
        inputs: dict[str, Node] = {
            "selection": select,
            "docs": self.models.docs(model),
            "lint": self.models.lint(model),
        }
        for artifact in candidates:
            inputs |= {
                f"{artifact.candidate}/artifact": artifact.convert,
                f"{artifact.candidate}/verdict": artifact.judges[target],
                f"{artifact.candidate}/inspection": artifact.inspect,
            }
            inputs |= {f"{artifact.candidate}/{kind}": node for kind, node in artifact.measurements.items()}
            if target in artifact.releases:
                inputs[f"{artifact.candidate}/release"] = artifact.releases[target]
        details = self.config.models[model]
        bundled = Node(
            "bundle",
            (model, target),
            {
                "task": details.task,
                "pins": _without_places(self.locked.models[model]),
                "version": __version__,
                "texts": {artifact.candidate: _texts(artifact, details.task) for artifact in candidates},
                "bases": {artifact.candidate: artifact.convert.hints["base"] for artifact in candidates},
            },
            code=tuple(
                f"hallmark.{name}" for name in ("bundle", "quantities", "templates", "verdict_jobs", "tasks", "records")
            ),
            inputs=inputs,
            disk_mb=estimates.checkpoint_disk(self.locked.models[model].facts),
        )
        return Choice(model, target, candidates, select, bundled)

    def report(self, artifacts: tuple[Artifact, ...], choices: tuple[Choice, ...]) -> Node:
        inputs: dict[str, Node] = {}
        for artifact in artifacts:
            made = {"convert": artifact.convert, "inspect": artifact.inspect, **artifact.measurements}
            inputs |= {f"{artifact.name}/{role}": node for role, node in made.items()}
            for role, by_target in (("judge", artifact.judges), ("release", artifact.releases)):
                inputs |= {f"{artifact.name}/{role}/{target}": node for target, node in by_target.items()}
        inputs |= {f"{choice.model}/{choice.target}/select": choice.select for choice in choices}
        recipe = {
            "title": "Hallmark",
            "version": __version__,
            "release": self.config.release.version,
            "hardware_class": self.artifacts.nodes.hardware_class,
            "artifacts": [artifact.name for artifact in artifacts],
            "missing": [],
            "models": [
                {"name": name, "task": model.task, "source": sources.describe(model.source), "bytes": self._bytes(name)}
                for name, model in self.config.models.items()
            ],
            "templates": templates.digest_of(*report.TEMPLATES)[:16],
        }
        code = ("report", "figures", "charts", "quantities", "templates", "verdict_jobs", "tasks", "records")
        return Node("report", ("all",), recipe, tuple(f"hallmark.{name}" for name in code), inputs, link="report")

    def _bytes(self, model: str) -> int:
        return sum(pin["size"] for pin in self.locked.models[model].part("weights").values())
