"""The nodes of one artifact after its conversion: which measurements, and a verdict for each target. Recipes of what is
measured are in `measurement_nodes`.

What an open verdict asks for is planned here. All that is read from the store is which measurements are there, the last
of which counts, and whether a verdict on them is open, because then the next run measures again. A speed that was too
noisy to judge is measured once more, and so are LoadGen's scenarios. An accuracy whose interval lies across a limit is
measured on twice the text, up to the last of TEXTS: by attempts of the plan and not inside a measurement, for which the
source would have to answer as much text as the closest call might need, for every model and beforehand. An interval is
then looked at up to three times, on samples that hold the earlier ones, so a wrong verdict is twice as likely
(simulated: 5.7 % instead of 2.6 %).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hallmark import devices, gates, intervals, store, tasks
from hallmark.config import Settings
from hallmark.last_release import LastReleases, Released
from hallmark.measurement_nodes import MeasurementNodes, Subject
from hallmark.model_nodes import ModelNodes
from hallmark.node import Node
from hallmark.plan import Artifact

TEXTS = (1, 2, 4)  # times the samples that the options ask for
JUDGES = tuple(
    f"hallmark.{name}" for name in ("verdict_jobs", "gates", "disturbance", "quantities", "tasks", "records")
)
ATTEMPTS = range(intervals.ATTEMPTS)


@dataclass(frozen=True)
class Measured:
    """Which measurements of an artifact the plan has: times the text, attempt of the speed, of the traffic, and of the
    speed against the last release by target."""

    more: int
    attempt: int
    traffic: int
    releases: Mapping[str, int]


class ArtifactNodes:
    """Builds the nodes of artifacts from those of their models."""

    def __init__(self, settings: Settings, models: ModelNodes, releases: LastReleases) -> None:
        self.settings, self.models, self.config = settings, models, settings.config
        self.nodes = MeasurementNodes(settings, models, releases)

    def artifact(self, model: str, format_name: str, variant: str) -> Artifact:
        """The nodes of an artifact: its last measurements; what their verdicts leave open is planned once more."""
        details, subject = self.config.models[model], (model, format_name, variant)
        convert = self.models.convert(model, format_name, variant, details.formats[format_name][variant])
        texts = TEXTS if tasks.get(details.task).MORE else TEXTS[:1]
        found = Measured(
            self._last(texts, partial(self.nodes.accuracy, subject, convert)),
            self._last(ATTEMPTS, partial(self.nodes.speed, subject, convert)),
            self._last(ATTEMPTS, partial(self.nodes.loadgen, subject, convert)),
            {
                target: self._last(ATTEMPTS, partial(self.nodes.release, subject, target, convert))
                for target in self.nodes.compared(subject)
            },
        )
        made = self._artifact(subject, convert, found)
        verdicts = {target: self._verdict(judge) for target, judge in made.judges.items()}
        wanted = self._wanted(found, verdicts, texts)
        return made if wanted == found else self._artifact(subject, convert, wanted)

    def _wanted(self, found: Measured, verdicts: Mapping[str, Mapping[str, Any]], texts: Iterable[int]) -> Measured:
        """The measurements that open verdicts ask for: more text, and when nothing else is open another attempt."""
        if any(verdict.get("short_of_samples") for verdict in verdicts.values()) and 2 * found.more in texts:
            return replace(found, more=2 * found.more)
        noisy, jammed = (
            any(verdict.get(gates.REPEATED[kind]) for verdict in verdicts.values()) for kind in ("speed", "loadgen")
        )
        releases = {
            target: _next(attempt) if verdicts[target].get(gates.REPEATED["release"]) else attempt
            for target, attempt in found.releases.items()
        }
        return Measured(
            found.more,
            _next(found.attempt) if noisy else found.attempt,
            _next(found.traffic) if jammed else found.traffic,
            releases,
        )

    def _last(self, numbers: Iterable[int], make: Callable[[int], Node | None]) -> int:
        """The largest of the numbers whose measurement is in the store, else the first."""
        first, *others = numbers
        return max((number for number in others if self._is_there(make(number))), default=first)

    def _is_there(self, node: Node | None) -> bool:
        return node is not None and node.manifest(Path(self.config.store)).exists()

    def _verdict(self, judge: Node) -> Mapping[str, Any]:
        """What is in the store of a verdict; empty when it is not there."""
        try:
            return dict(store.read(Path(self.config.store) / judge.place).json("verdict.json"))
        except (store.Damaged, OSError, ValueError):
            return {}

    def _artifact(self, subject: Subject, convert: Node, wanted: Measured) -> Artifact:
        model, format_name, variant = subject
        inspect = self.nodes.inspect(subject, convert)
        accuracy, speed = (
            self.nodes.accuracy(subject, convert, wanted.more),
            self.nodes.speed(subject, convert, wanted.attempt),
        )
        asked, loadgen = self.nodes.choices(subject, convert), self.nodes.loadgen(subject, convert, wanted.traffic)
        kinds = {"accuracy": accuracy, "choices": asked, "speed": speed, "loadgen": loadgen}
        measured = {kind: node for kind, node in kinds.items() if node}
        inputs = {"artifact": convert, "inspection": inspect, **measured}
        releases = {
            name: self.nodes.release(subject, name, convert, attempt) for name, attempt in wanted.releases.items()
        }
        task = self.config.models[model].task
        judges = {
            name: Node(
                "judge",
                (*subject, name),
                self._policy(name, task, subject),
                JUDGES,
                inputs | ({"release": releases[name]} if name in releases else {}),
            )
            for name in self.nodes.targets(subject)
        }
        return Artifact(model, format_name, variant, convert, inspect, measured, judges, releases)

    def _policy(self, target: str, task: str, subject: Subject) -> dict[str, Any]:
        details, released = self.settings.targets[target], self.nodes.last_release(subject, target)
        base = self.config.models[subject[0]].base_of(*subject[1:])
        resolved = gates.resolve(self.settings.policies[details.policy], task, "/".join(subject), base)
        if isinstance(released, Released):
            compared = {"name": released.release, "subject": released.subject, "artifact": released.digest}
        else:
            compared = {"absent": released} if released else {}
        return {
            "target": target,
            "task": task,
            "device": details.device,
            "present": devices.measured(details.device),
            "gates": gates.as_json(resolved),
            **({"release": compared} if compared else {}),
        }


def _next(attempt: int) -> int:
    """The attempt after one, or the last of all."""
    return min(attempt + 1, ATTEMPTS[-1])
