"""The nodes that measure one artifact, each by its attempt or amount of text. Says not which are wanted; judges none.

Speed against the last release is planned for the targets whose policy has a gate on it, and for no other: which release
that is (`last_release`) is in the key by the digest of its artifact, and of the toolchain that it runs in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hallmark import choices, devices, estimates, formats, gates, last_release, tasks, toolchains
from hallmark.config import ConfigError, Settings
from hallmark.last_release import LastReleases, Released
from hallmark.model_nodes import ModelNodes
from hallmark.node import Node

Subject = tuple[str, str, str]  # model, format, variant
# The modules that decide a speed measurement, with those of its task and its format.
MEASURES_SPEED = ("speed", "speed_jobs", "intervals", "host", "engine", "surroundings")
COMPARES = (*MEASURES_SPEED, "against_release")  # with a release
MEASURES_LOADGEN = ("loadgen", "loadgen_jobs", "loadgen_results", "intervals", "host", "engine", "surroundings")


class MeasurementNodes:
    """Builds the nodes that inspect and measure artifacts, and knows which gates they are for."""

    def __init__(self, settings: Settings, models: ModelNodes, releases: LastReleases) -> None:
        self.settings, self.models, self.releases = settings, models, releases
        self.config = settings.config
        # What this machine's kind is called in the keys of speed measurements.
        self.hardware_class = (
            devices.hardware_class(models.cpus) if self.config.hardware_class == "auto" else self.config.hardware_class
        )

    def inspect(self, subject: Subject, convert: Node) -> Node:
        model, format_name, _ = subject
        spec, task = formats.spec(format_name), self.config.models[model].task
        return Node(
            "inspect",
            subject,
            {"format": format_name, "task": task, "options": convert.recipe["options"]},
            code=(f"hallmark.formats.{format_name}", *spec.inspection, "hallmark.records"),
            inputs={"artifact": convert, "source": self.models.source(model)},
        )

    def accuracy(self, subject: Subject, convert: Node, more: int) -> Node:
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

    def choices(self, subject: Subject, convert: Node) -> Node | None:
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

    def speed(self, subject: Subject, convert: Node, attempt: int) -> Node:
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
            hints={"limits": self.limits(subject, self.targets(subject), "speed")},
            memory_mb=estimates.speed_memory(self.models.locked.models[model].facts),
            cpus=self.models.cpus,
        )

    def loadgen(self, subject: Subject, convert: Node, attempt: int) -> Node | None:
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

    def targets(self, subject: Subject) -> list[str]:
        """The targets that an artifact is a candidate of."""
        model, candidate = subject[0], "/".join(subject[1:])
        return [
            name
            for name, target in self.settings.targets.items()
            if candidate in target.candidates and (target.models is None or model in target.models)
        ]

    def limits(self, subject: Subject, targets: Iterable[str], source: str) -> dict[str, list[float]]:
        """Metric -> the limits that any of the targets holds it to, of the metrics from `source`. They say when a
        measurement of speed may end (`hallmark.speed`)."""
        task, found = self.config.models[subject[0]].task, dict[str, set[float]]()
        base = self.config.models[subject[0]].base_of(*subject[1:])
        known = tasks.metrics(task)
        for name in targets:
            policy = self.settings.policies[self.settings.targets[name].policy]
            for metric, (limit, _) in gates.resolve(policy, task, "/".join(subject), base).items():
                if known[metric].source == source:
                    found.setdefault(metric, set()).add(limit.bound)
        return {metric: sorted(bounds) for metric, bounds in sorted(found.items())}

    def last_release(self, subject: Subject, target: str) -> Released | str | None:
        """What a target's gates compare an artifact with, or why there is nothing; None where no gate compares."""
        return self.releases.find(target, subject[0]) if self.limits(subject, [target], "release") else None

    def compared(self, subject: Subject) -> list[str]:
        """The targets for which an artifact is measured against a release."""
        return [name for name in self.targets(subject) if isinstance(self.last_release(subject, name), Released)]

    def release(self, subject: Subject, target: str, convert: Node, attempt: int) -> Node:
        model, limits = subject[0], self.limits(subject, [target], "release")
        released = self.last_release(subject, target)
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
