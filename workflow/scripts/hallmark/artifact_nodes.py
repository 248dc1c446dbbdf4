"""The nodes of one artifact after its conversion: inspection, measurements, and a verdict for each target.

Speed against the last release is planned for the targets whose policy has a gate on it, and for no other: which release
that is (`last_release`) is in the key by the digest of its artifact, and of the toolchain that it runs in.

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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hallmark import choices, devices, estimates, formats, gates, intervals, last_release, store, tasks, toolchains
from hallmark.config import ConfigError, Settings
from hallmark.last_release import LastReleases, Released
from hallmark.model_nodes import ModelNodes
from hallmark.node import Node
from hallmark.plan import Artifact

Subject = tuple[str, str, str]  # model, format, variant
TEXTS = (1, 2, 4)  # times the samples that the options ask for
JUDGES = tuple(f"hallmark.{name}" for name in ("bodies", "gates", "disturbance", "quantities", "tasks"))
# The modules that decide a speed measurement, with those of its task and its format.
MEASURES_SPEED = ("speed", "intervals", "host", "engine", "surroundings")
COMPARES = (*MEASURES_SPEED, "against_release", "speed_jobs")  # with a release
MEASURES_LOADGEN = ("loadgen", "loadgen_jobs", "loadgen_results", "intervals", "host", "engine", "surroundings")
ATTEMPTS = range(intervals.ATTEMPTS)


@dataclass(frozen=True)
class Measured:
    """Which measurements of an artifact the plan has: times the text, attempt of the speed, of the traffic, and of the
    speed against the last release by target."""

    more: int = 1
    attempt: int = 0
    traffic: int = 0
    releases: Mapping[str, int] = field(default_factory=dict)


class ArtifactNodes:
    """Builds the nodes of artifacts from those of their models."""

    def __init__(self, settings: Settings, models: ModelNodes, releases: LastReleases) -> None:
        self.settings, self.models, self.releases = settings, models, releases
        self.config = settings.config
        # What this machine's kind is called in the keys of speed measurements.
        self.hardware_class = (
            devices.hardware_class(models.cpus) if self.config.hardware_class == "auto" else self.config.hardware_class
        )

    def artifact(self, model: str, format_name: str, variant: str) -> Artifact:
        """The nodes of an artifact: its last measurements; what their verdicts leave open is planned once more."""
        details, subject = self.config.models[model], (model, format_name, variant)
        convert = self.models.convert(model, format_name, variant, details.formats[format_name][variant])
        texts = TEXTS if tasks.get(details.task).MORE else TEXTS[:1]
        found = Measured(
            self._last(texts, partial(self._accuracy, subject, convert)),
            self._last(ATTEMPTS, partial(self._speed, subject, convert)),
            self._last(ATTEMPTS, partial(self._loadgen, subject, convert)),
            {
                target: self._last(ATTEMPTS, partial(self._release, subject, target, convert))
                for target in self._compared(subject)
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
        return node is not None and (Path(self.config.store) / node.place / store.READY).exists()

    def _verdict(self, judge: Node) -> Mapping[str, Any]:
        """What is in the store of a verdict; empty when it is not there."""
        try:
            return dict(store.read(Path(self.config.store) / judge.place).json("verdict.json"))
        except (store.Damaged, OSError, ValueError):
            return {}

    def _artifact(self, subject: Subject, convert: Node, wanted: Measured) -> Artifact:
        model, format_name, variant = subject
        inspect = self._inspect(subject, convert)
        accuracy, speed = self._accuracy(subject, convert, wanted.more), self._speed(subject, convert, wanted.attempt)
        asked, loadgen = self._choices(subject, convert), self._loadgen(subject, convert, wanted.traffic)
        kinds = {"accuracy": accuracy, "choices": asked, "speed": speed, "loadgen": loadgen}
        measured = {kind: node for kind, node in kinds.items() if node}
        inputs = {"artifact": convert, "inspection": inspect, **measured}
        releases = {name: self._release(subject, name, convert, attempt) for name, attempt in wanted.releases.items()}
        task = self.config.models[model].task
        judges = {
            name: Node(
                "judge",
                (*subject, name),
                self._policy(name, task, subject),
                JUDGES,
                inputs | ({"release": releases[name]} if name in releases else {}),
            )
            for name in self._targets(subject)
        }
        return Artifact(model, format_name, variant, convert, inspect, measured, judges, releases)

    def _inspect(self, subject: Subject, convert: Node) -> Node:
        model, format_name, _ = subject
        spec, task = formats.spec(format_name), self.config.models[model].task
        return Node(
            "inspect",
            subject,
            {"format": format_name, "task": task, "options": convert.recipe["options"]},
            code=(f"hallmark.formats.{format_name}", *spec.inspection, "hallmark.records"),
            inputs={"artifact": convert, "source": self.models.source(model)},
        )

    def _accuracy(self, subject: Subject, convert: Node, more: int) -> Node:
        model = subject[0]
        options, facts = self.models.reference_options(model, more), self.models.locked.models[model].facts
        return Node(
            "measure_accuracy",
            subject,
            {**self._measured(subject, convert), "options": options, "instructions": devices.instructions()},
            code=self._measuring(subject),
            inputs={
                "artifact": convert,
                "reference": self.models.reference(model, more),
                "data": self.models.data(self.config.models[model].evaluation),
            },
            toolchains={"worker": convert.toolchains["worker"]},
            memory_mb=estimates.accuracy_memory(facts, options),
            cpus=self.models.half,
        )

    def _choices(self, subject: Subject, convert: Node) -> Node | None:
        model, format_name, _ = subject
        questions = self.models.questions(model)
        if questions is None:
            return None
        return Node(
            "measure_choices",
            subject,
            {**self._measured(subject, convert), "instructions": devices.instructions()},
            code=("hallmark.records", *choices.CODE, *formats.spec(format_name).runtime),
            inputs={
                "artifact": convert,
                "reference": self.models.reference_choices(model, questions),
                "data": questions,
            },
            toolchains={"worker": self.models.toolchain("lm_eval"), "engine": convert.toolchains["worker"]},
            memory_mb=estimates.choices_memory(self.models.locked.models[model].facts),
            cpus=self.models.half,
        )

    def _speed(self, subject: Subject, convert: Node, attempt: int) -> Node:
        model = subject[0]
        return Node(
            "measure_speed",
            subject,
            self._measured(subject, convert) | self._timed(model, attempt) | self.models.code(model),
            code=(*self._measuring(subject), *(f"hallmark.{name}" for name in MEASURES_SPEED)),
            inputs={
                "artifact": convert,
                "reference": self.models.reference(model),
                "source": self.models.source(model),
            },
            toolchains={"worker": convert.toolchains["worker"], "torch": self.models.toolchain("torch")},
            hints={"limits": self._limits(subject, self._targets(subject), "speed")},
            memory_mb=estimates.speed_memory(self.models.locked.models[model].facts),
            cpus=self.models.cpus,
        )

    def _loadgen(self, subject: Subject, convert: Node, attempt: int) -> Node | None:
        """The scenarios of LoadGen that the config names, if any."""
        model = subject[0]
        wanted = self.config.models[model].loadgen
        if wanted is None:
            return None
        return Node(
            "measure_loadgen",
            subject,
            self._measured(subject, convert) | self._timed(model, attempt) | {"scenarios": wanted.scenarios()},
            code=(*self._measuring(subject), *(f"hallmark.{name}" for name in MEASURES_LOADGEN)),
            inputs={"artifact": convert, "reference": self.models.reference(model)},
            toolchains={"worker": self.models.toolchain("loadgen"), "engine": convert.toolchains["worker"]},
            memory_mb=estimates.loadgen_memory(self.models.locked.models[model].facts),
            cpus=self.models.cpus,
        )

    def _timed(self, model: str, attempt: int) -> dict[str, Any]:
        """How something is timed on this machine, as recipes say it."""
        return {
            "options": self.models.options(model, "SPEED"),
            "hardware_class": self.hardware_class,
            "threads": self.models.cpus,
            "attempt": attempt,
        }

    def _measured(self, subject: Subject, convert: Node) -> dict[str, Any]:
        """What is measured, as recipes say it."""
        model, format_name, _ = subject
        task, variant = self.config.models[model].task, convert.recipe["options"]
        return {"task": task, "format": format_name, "variant": variant}

    def _measuring(self, subject: Subject) -> tuple[str, ...]:
        """The modules that decide what is measured."""
        model, format_name, _ = subject
        task = tasks.get(self.config.models[model].task)
        return ("hallmark.records", *task.CODE, *formats.spec(format_name).runtime)

    def _targets(self, subject: Subject) -> list[str]:
        """The targets that an artifact is a candidate of."""
        model, candidate = subject[0], "/".join(subject[1:])
        return [
            name
            for name, target in self.settings.targets.items()
            if candidate in target.candidates and (target.models is None or model in target.models)
        ]

    def _limits(self, subject: Subject, targets: Iterable[str], source: str) -> dict[str, list[float]]:
        """Metric -> the limits that any of the targets holds it to, of the metrics from `source`. They say when a
        measurement of speed may end (`hallmark.speed`)."""
        task, found = self.config.models[subject[0]].task, dict[str, set[float]]()
        known = tasks.metrics(task)
        for name in targets:
            policy = self.settings.policies[self.settings.targets[name].policy]
            for metric, (limit, _) in gates.resolve(policy, task, "/".join(subject)).items():
                if known[metric].source == source:
                    found.setdefault(metric, set()).add(limit.bound)
        return {metric: sorted(bounds) for metric, bounds in sorted(found.items())}

    def _last_release(self, subject: Subject, target: str) -> Released | str | None:
        """What a target's gates compare an artifact with, or why there is nothing; None where no gate compares."""
        return self.releases.find(target, subject[0]) if self._limits(subject, [target], "release") else None

    def _compared(self, subject: Subject) -> list[str]:
        """The targets for which an artifact is measured against a release."""
        return [name for name in self._targets(subject) if isinstance(self._last_release(subject, name), Released)]

    def _release(self, subject: Subject, target: str, convert: Node, attempt: int) -> Node:
        model, limits = subject[0], self._limits(subject, [target], "release")
        released = self._last_release(subject, target)
        assert isinstance(released, Released)  # see `_compared`
        task, made = self.config.models[model].task, released.recipe
        if made["task"] != task:
            raise ConfigError(f"{released.folder}: was measured as {made['task']}, and {model} is a {task} model now")
        what = {"artifact": released.digest, "bytes": released.bytes, "toolchain": released.toolchain}
        recipe = self._timed(model, attempt) | {
            "release": {**what, "format": made["format"], "variant": made["options"]},
            "timed": any(metric != f"{tasks.RELEASE}size_ratio" for metric in limits),
        }
        own, folder = last_release.runtime(released, map(self.models.toolchain, toolchains.all_toolchains()))
        runtime = formats.spec(made["format"]).runtime
        return Node(
            "measure_release",
            (*subject, target),
            self._measured(subject, convert) | recipe,
            code=(*self._measuring(subject), *runtime, *(f"hallmark.{name}" for name in COMPARES)),
            inputs={"artifact": convert, "reference": self.models.reference(model)},
            toolchains={"worker": convert.toolchains["worker"], **({"released": own} if own else {})},
            hints={"limits": limits, "bundle": str(released.folder.absolute()), "toolchain": str(folder)},
            memory_mb=estimates.speed_memory(self.models.locked.models[model].facts),
            disk_mb=released.bytes // estimates.MB + 1,
            cpus=self.models.cpus,
        )

    def _policy(self, target: str, task: str, subject: Subject) -> dict[str, Any]:
        details, released = self.settings.targets[target], self._last_release(subject, target)
        resolved = gates.resolve(self.settings.policies[details.policy], task, "/".join(subject))
        if isinstance(released, Released):
            compared = {"name": released.release, "subject": released.subject, "artifact": released.digest}
        else:
            compared = {"absent": released} if released else {}
        return {
            "target": target,
            "task": task,
            "device": details.device,
            "present": devices.present(details.device),
            "gates": gates.as_json(resolved),
            **({"release": compared} if compared else {}),
        }


def _next(attempt: int) -> int:
    """The attempt after one, or the last of all."""
    return min(attempt + 1, ATTEMPTS[-1])
