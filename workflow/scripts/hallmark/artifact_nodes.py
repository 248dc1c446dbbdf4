"""The nodes of one artifact after its conversion: inspection, measurements, and a verdict for each target.

What an open verdict asks for is planned here. All that is read from the store is which measurements are there, the last
of which counts, and whether a verdict on them is open, because then the next run measures again. A speed that was too
noisy to judge is measured once more. An accuracy whose interval lies across a limit is measured on twice the text, up
to the last of TEXTS: by attempts of the plan and not inside a measurement, for which the source would have to answer as
much text as the closest call might need, for every model and beforehand. An interval is then looked at up to three
times, on samples that hold the earlier ones, so a wrong verdict is twice as likely (simulated: 5.7 % instead of 2.6 %).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hallmark import choices, devices, estimates, formats, gates, intervals, store, tasks
from hallmark.config import Settings
from hallmark.model_nodes import ModelNodes
from hallmark.node import Node
from hallmark.plan import Artifact

Subject = tuple[str, str, str]  # model, format, variant
TEXTS = (1, 2, 4)  # times the samples that the options ask for
JUDGES = tuple(f"hallmark.{name}" for name in ("bodies", "gates", "disturbance", "quantities", "tasks"))
# The modules that decide a speed measurement, with those of its task and its format.
MEASURES_SPEED = ("speed", "intervals", "host", "engine", "surroundings")


class ArtifactNodes:
    """Builds the nodes of artifacts from those of their models."""

    def __init__(self, settings: Settings, models: ModelNodes) -> None:
        self.settings, self.models = settings, models
        self.config = settings.config
        # What this machine's kind is called in the keys of speed measurements.
        self.hardware_class = (
            devices.hardware_class(models.cpus) if self.config.hardware_class == "auto" else self.config.hardware_class
        )

    def artifact(self, model: str, format_name: str, variant: str) -> Artifact:
        """The nodes of an artifact: its last measurements; what their verdicts leave open is planned once more."""
        details, subject = self.config.models[model], (model, format_name, variant)
        convert = self.models.convert(model, format_name, variant, details.formats[format_name][variant])
        attempts, texts = range(intervals.ATTEMPTS), TEXTS if tasks.get(details.task).MORE else TEXTS[:1]
        attempt = max(
            (number for number in attempts if self._is_there(self._speed(subject, convert, number))), default=0
        )
        more = max((amount for amount in texts if self._is_there(self._accuracy(subject, convert, amount))), default=1)
        made = self._artifact(subject, convert, attempt, more)
        verdicts = [self._verdict(judge) for judge in made.judges.values()]
        if any(verdict.get("short_of_samples") for verdict in verdicts) and 2 * more in texts:
            return self._artifact(subject, convert, attempt, 2 * more)
        if any(verdict.get("noisy") for verdict in verdicts) and attempt + 1 in attempts:
            return self._artifact(subject, convert, attempt + 1, more)
        return made

    def _is_there(self, node: Node) -> bool:
        return (Path(self.config.store) / node.place / store.READY).exists()

    def _verdict(self, judge: Node) -> Mapping[str, Any]:
        """What is in the store of a verdict; empty when it is not there."""
        try:
            return dict(store.read(Path(self.config.store) / judge.place).json("verdict.json"))
        except (store.Damaged, OSError, ValueError):
            return {}

    def _artifact(self, subject: Subject, convert: Node, attempt: int, more: int) -> Artifact:
        model, format_name, variant = subject
        inspect = self._inspect(subject, convert)
        accuracy, speed = self._accuracy(subject, convert, more), self._speed(subject, convert, attempt)
        asked = self._choices(subject, convert)
        inputs = {"artifact": convert, "inspection": inspect, "accuracy": accuracy, "speed": speed}
        inputs |= {"choices": asked} if asked else {}
        task = self.config.models[model].task
        judges = {
            name: Node("judge", (*subject, name), self._policy(name, task, subject), JUDGES, inputs)
            for name in self._targets(subject)
        }
        return Artifact(model, format_name, variant, convert, inspect, accuracy, asked, speed, judges)

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
        recipe = {
            "options": self.models.options(model, "SPEED"),
            "hardware_class": self.hardware_class,
            "threads": self.models.cpus,
            "attempt": attempt,
        }
        return Node(
            "measure_speed",
            subject,
            self._measured(subject, convert) | recipe | self.models.code(model),
            code=(*self._measuring(subject), *(f"hallmark.{name}" for name in MEASURES_SPEED)),
            inputs={
                "artifact": convert,
                "reference": self.models.reference(model),
                "source": self.models.source(model),
            },
            toolchains={"worker": convert.toolchains["worker"], "torch": self.models.toolchain("torch")},
            hints={"limits": self._speed_limits(subject, self.config.models[model].task)},
            memory_mb=estimates.speed_memory(self.models.locked.models[model].facts),
            cpus=self.models.cpus,
        )

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

    def _speed_limits(self, subject: Subject, task: str) -> dict[str, list[float]]:
        """Metric -> the limits that any target holds its speed to: when the measurement may end (`hallmark.speed`)."""
        found: dict[str, set[float]] = {}
        for name in self._targets(subject):
            policy = self.settings.policies[self.settings.targets[name].policy]
            for metric, (limit, _) in gates.resolve(policy, task, "/".join(subject)).items():
                if tasks.get(task).METRICS[metric].source == "speed":
                    found.setdefault(metric, set()).add(limit.bound)
        return {metric: sorted(bounds) for metric, bounds in sorted(found.items())}

    def _policy(self, target: str, task: str, subject: Subject) -> dict[str, Any]:
        details = self.settings.targets[target]
        resolved = gates.resolve(self.settings.policies[details.policy], task, "/".join(subject))
        return {
            "target": target,
            "task": task,
            "device": details.device,
            "present": devices.present(details.device),
            "gates": gates.as_json(resolved),
        }
