"""From config and lock to every node with its key, before anything runs. It converts, measures and judges nothing.

The only thing it reads from the store is whether a speed measurement turned out too noisy to say, because that one is
measured again on the next run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hallmark import (
    __version__,
    bundle,
    datasets,
    devices,
    digest,
    estimates,
    formats,
    gates,
    lock,
    report,
    sources,
    store,
    tasks,
    templates,
    toolchains,
)
from hallmark.config import Config, ConfigError, Settings, VariantChoice, parse
from hallmark.node import Node
from hallmark.plan import Artifact, Choice, Plan
from hallmark.processes import usable_cpus
from hallmark.toolchains import Toolchain

ATTEMPTS = 5  # speed measurements of an artifact, one a run; repeating without an end would pass anything by chance


def load(raw: Mapping[str, Any], file: str) -> Plan:
    """The plan of a parsed config (of `file`, for messages). Paths are relative to the working folder.

    Raises ConfigError, a line for each problem, when config, targets, lock and machine do not fit together.
    """
    settings = parse(raw, file)
    return Planner(settings, lock.read(Path(settings.config.lock_file))).plan()


def _able(task: str, architecture: str) -> list[str]:
    """The formats that can carry an architecture for a task."""
    found = []
    for name in formats.names():
        known = formats.spec(name).architectures.get(task)
        if known is not None and (not known or architecture in known):
            found.append(name)
    return found


def _usage(artifact: Artifact, task: str) -> str:
    """Digest of what a bundle says and carries to run an artifact."""
    usage = formats.get(artifact.format).usage(task, artifact.convert.recipe["options"])
    return digest.of_value(dataclasses.asdict(usage))[:16]


def _half() -> int:
    """CPUs of a conversion or an accuracy measurement: half of them, so that two run at once; few use more well."""
    return max(1, usable_cpus() // 2)


def _whereabouts(entry: lock.Entry) -> dict[str, Any]:
    """Where a source lies, as locked. Its files' digests are in the key; where they come from decides no byte."""
    return {"source": entry.source.model_dump(mode="json")}


class Planner:
    """Builds the nodes of one configuration, each once."""

    def __init__(self, settings: Settings, locked: lock.Lock) -> None:
        self.settings = settings
        self.locked = locked
        self._made: dict[tuple[str, ...], Node] = {}

    @property
    def config(self) -> Config:
        return self.settings.config

    def plan(self) -> Plan:
        """Everything to be. Raises ConfigError when the lock does not fit the config."""
        self._check_lock()
        artifacts = tuple(
            self.artifact(model, format_name, variant)
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

    def _check_lock(self) -> None:
        """Every source pinned, and every format able to carry its model, as far as the lock knows it."""
        problems = []
        for kind, wanted in (("models", self.config.models), ("data", self.config.data)):
            for name, item in wanted.items():
                problems += lock.check(kind, name, item.source, self.locked)
        if problems:
            raise ConfigError("\n".join(f"{self.config.lock_file}: {problem}" for problem in problems))
        refused = [
            f"models.{model}.formats.{name}: {name} cannot carry {architecture} for {details.task}; "
            f"formats that can: {', '.join(_able(details.task, architecture)) or 'none'}"
            for model, details in self.config.models.items()
            for name in details.formats
            if name not in _able(details.task, architecture := str(self.locked.models[model].facts.get("architecture")))
        ]
        if refused:
            raise ConfigError("\n".join(refused))

    def candidates(self, target: str, model: str, artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        """The artifacts of a model that a target may release, in its order of preference."""
        details = self.settings.targets[target]
        if details.models is not None and model not in details.models:
            return ()
        mine = {artifact.candidate: artifact for artifact in artifacts if artifact.model == model}
        return tuple(mine[candidate] for candidate in details.candidates if candidate in mine)

    def _once(self, name: tuple[str, ...], make: Callable[[], Node]) -> Node:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _toolchain(self, name: str) -> Toolchain:
        return toolchains.get(name, self.config.torch_build)

    def _options(self, model: str, kind: str) -> dict[str, Any]:
        """How a model is measured, `kind` being REFERENCE or SPEED: defaults, the config's, the model's own."""
        details = self.config.models[model]
        known = tasks.defaults(getattr(tasks.get(details.task), f"{kind}_OPTIONS"))
        chosen = {**self.config.measure.get(details.task, {}), **details.measure}
        return {name: chosen.get(name, value) for name, value in known.items()}

    def source(self, model: str) -> Node:
        return self._once(("source", model), lambda: self._source(model))

    def _source(self, model: str) -> Node:
        entry = self.locked.models[model]
        made = entry.source.kind == "gguf"  # its checkpoint is computed, so code and toolchain decide its bytes
        return Node(
            "fetch",
            (model, "weights"),
            {"kind": "gguf" if made else "files", "files": entry.part("weights")},
            code=("hallmark.materialise", "hallmark.rebuilt_tokenizer") if made else (),
            toolchains={"worker": self._toolchain("torch")} if made else {},
            hints=_whereabouts(entry),
            memory_mb=estimates.fetch_memory(entry.facts) if made else 300,
            disk_mb=estimates.checkpoint_disk(entry.facts),
        )

    def docs(self, model: str) -> Node:
        """Licence and model card, apart from the weights so that a change in them converts nothing again."""
        entry = self.locked.models[model]
        recipe = {"files": entry.part("docs")}
        return self._once(("docs", model), lambda: Node("fetch", (model, "docs"), recipe, hints=_whereabouts(entry)))

    def data(self, name: str) -> Node:
        def make() -> Node:
            dataset, entry = self.config.data[name], self.locked.data[name]
            recipe = {
                "files": entry.part("data"),
                "reader": dataset.reader,
                "options": dataset.options,
                "libraries": datasets.libraries(dataset.reader),
            }
            code = ("hallmark.datasets",)
            return Node("fetch", (name, "data"), recipe, code, hints=_whereabouts(entry), disk_mb=20)

        return self._once(("data", name), make)

    def lint(self, model: str) -> Node:
        return self._once(
            ("lint", model),
            lambda: Node("lint", (model,), {}, code=("hallmark.checkpoint",), inputs={"source": self.source(model)}),
        )

    def convert(self, model: str, format_name: str, variant: str, choice: VariantChoice) -> Node:
        spec = formats.spec(format_name)
        base = spec.variants[choice.base or variant]
        facts, details = self.locked.models[model].facts, self.config.models[model]
        inputs = {"source": self.source(model)}
        for need in base.needs:
            inputs[need] = self.convert(model, format_name, need, VariantChoice())
        if base.calibrated:
            assert details.calibration is not None  # checked by the config
            inputs["calibration"] = self.data(details.calibration)
        made = Node(
            "convert",
            (model, format_name, variant),
            {
                "format": format_name,
                "task": details.task,
                "options": {**base.options, **choice.options},
                "files": list(spec.files_of(base, details.task)),
            },
            code=(f"hallmark.formats.{format_name}", *spec.code),
            inputs=inputs,
            toolchains={"worker": self._toolchain(spec.toolchain_of(base))},
            after={"lint": self.lint(model)},
            link="" if base.intermediate else f"{model}/{format_name}/{variant}",
            memory_mb=estimates.convert_memory(spec, facts),
            disk_mb=estimates.checkpoint_disk(facts),
            cpus=_half(),
        )
        return self._once(("convert", made.place), lambda: made)  # what others need may be asked for by itself too

    def reference(self, model: str) -> Node:
        return self._once(("reference", model), lambda: self._reference(model))

    def _reference(self, model: str) -> Node:
        details, facts = self.config.models[model], self.locked.models[model].facts
        options = self._options(model, "REFERENCE")
        return Node(
            "reference",
            (model,),
            {"task": details.task, "options": options, "instructions": devices.instructions()},
            code=tasks.get(details.task).CODE,
            inputs={"source": self.source(model), "data": self.data(details.evaluation)},
            toolchains={"worker": self._toolchain("torch")},
            after={"lint": self.lint(model)},
            memory_mb=estimates.reference_memory(facts, options),
            disk_mb=estimates.reference_disk(details.task, facts, options),
            cpus=_half(),
        )

    def artifact(self, model: str, format_name: str, variant: str) -> Artifact:
        """The nodes of an artifact; a speed measurement that was too noisy to judge is planned once more."""
        choice = self.config.models[model].formats[format_name][variant]
        convert = self.convert(model, format_name, variant, choice)
        for attempt in range(ATTEMPTS):
            made = self._artifact(model, format_name, variant, convert, attempt)
            if not any(self._was_noisy(judge) for judge in made.judges.values()):
                break
        return made

    def _was_noisy(self, judge: Node) -> bool:
        try:
            entry = store.read(Path(self.config.store) / judge.place)
            return bool(entry.json("verdict.json").get("noisy"))
        except (store.Damaged, OSError, ValueError):
            return False

    def _artifact(self, model: str, format_name: str, variant: str, convert: Node, attempt: int) -> Artifact:
        details, facts, options = (
            self.config.models[model],
            self.locked.models[model].facts,
            self._options(model, "REFERENCE"),
        )
        subject, task, worker = (model, format_name, variant), details.task, convert.toolchains["worker"]
        recipe = {"task": task, "format": format_name, "variant": convert.recipe["options"]}
        measuring = (*tasks.get(task).CODE, *formats.spec(format_name).runtime)
        inspect = Node("inspect", subject, {"format": format_name}, convert.code, {"artifact": convert})
        accuracy = Node(
            "measure_accuracy",
            subject,
            {**recipe, "options": options, "instructions": devices.instructions()},
            code=measuring,
            inputs={"artifact": convert, "reference": self.reference(model), "data": self.data(details.evaluation)},
            toolchains={"worker": worker},
            memory_mb=estimates.accuracy_memory(facts, options),
            cpus=_half(),
        )
        speed = Node(
            "measure_speed",
            subject,
            {
                **recipe,
                "options": self._options(model, "SPEED"),
                "hardware_class": self._hardware_class(),
                "threads": usable_cpus(),
                "attempt": attempt,
            },
            code=(*measuring, "hallmark.speed", "hallmark.engine", "hallmark.surroundings"),
            inputs={"artifact": convert, "reference": self.reference(model), "source": self.source(model)},
            toolchains={"worker": worker, "torch": self._toolchain("torch")},
            memory_mb=estimates.speed_memory(facts),
            cpus=usable_cpus(),
        )
        inputs = {"artifact": convert, "inspection": inspect, "accuracy": accuracy, "speed": speed}
        judges = {
            name: Node(
                "judge",
                (*subject, name),
                self._policy(name, task, subject),
                ("hallmark.gates", "hallmark.quantities"),
                inputs,
            )
            for name, target in self.settings.targets.items()
            if f"{format_name}/{variant}" in target.candidates and (target.models is None or model in target.models)
        }
        return Artifact(model, format_name, variant, convert, inspect, accuracy, speed, judges)

    def _hardware_class(self) -> str:
        chosen = self.config.hardware_class
        return devices.hardware_class(usable_cpus()) if chosen == "auto" else chosen

    def _policy(self, target: str, task: str, subject: tuple[str, ...]) -> dict[str, Any]:
        details = self.settings.targets[target]
        resolved = gates.resolve(self.settings.policies[details.policy], task, "/".join(subject))
        return {
            "target": target,
            "task": task,
            "device": details.device,
            "present": devices.present(details.device),
            "gates": gates.as_json(resolved),
        }

    def choice(self, target: str, model: str, candidates: tuple[Artifact, ...]) -> Choice:
        verdicts = {artifact.candidate: artifact.judges[target] for artifact in candidates}
        select = Node(
            "select",
            (model, target),
            {"candidates": list(verdicts)},
            code=("hallmark.selection", "hallmark.bodies"),
            inputs=verdicts,
        )
        inputs: dict[str, Node] = {"selection": select, "docs": self.docs(model)}
        for artifact in candidates:
            inputs |= {
                f"{artifact.candidate}/artifact": artifact.convert,
                f"{artifact.candidate}/verdict": artifact.judges[target],
                f"{artifact.candidate}/inspection": artifact.inspect,
                f"{artifact.candidate}/accuracy": artifact.accuracy,
                f"{artifact.candidate}/speed": artifact.speed,
            }
        details = self.config.models[model]
        bundled = Node(
            "bundle",
            (model, target),
            {
                "task": details.task,
                "pins": self.locked.models[model].model_dump(mode="json"),
                "version": __version__,
                "templates": templates.digest_of(*bundle.TEMPLATES)[:16],
                "usages": {artifact.candidate: _usage(artifact, details.task) for artifact in candidates},
            },
            code=("hallmark.bundle", "hallmark.quantities", "hallmark.templates", "hallmark.bodies"),
            inputs=inputs,
            disk_mb=estimates.checkpoint_disk(self.locked.models[model].facts),
        )
        return Choice(model, target, candidates, select, bundled)

    def report(self, artifacts: tuple[Artifact, ...], choices: tuple[Choice, ...]) -> Node:
        inputs: dict[str, Node] = {}
        for artifact in artifacts:
            for role in ("convert", "inspect", "accuracy", "speed"):
                inputs[f"{artifact.name}/{role}"] = getattr(artifact, role)
            inputs |= {f"{artifact.name}/judge/{target}": judge for target, judge in artifact.judges.items()}
        inputs |= {f"{choice.model}/{choice.target}/select": choice.select for choice in choices}
        recipe = {
            "title": "Hallmark",
            "version": __version__,
            "release": self.config.release.version,
            "hardware_class": self._hardware_class(),
            "artifacts": [artifact.name for artifact in artifacts],
            "models": [
                {"name": name, "task": model.task, "source": sources.describe(model.source), "bytes": self._bytes(name)}
                for name, model in self.config.models.items()
            ],
            "templates": templates.digest_of(*report.TEMPLATES)[:16],
        }
        code = ("report", "figures", "charts", "quantities", "templates", "bodies")
        return Node("report", ("all",), recipe, tuple(f"hallmark.{name}" for name in code), inputs, link="report")

    def _bytes(self, model: str) -> int:
        return sum(pin["size"] for pin in self.locked.models[model].part("weights").values())
