"""The nodes that a model's artifacts are made from: its source, its data, lint, conversions, the reference's answers.

It measures and judges nothing; `artifact_nodes` has what comes after a conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hallmark import choices, datasets, devices, estimates, formats, lock, tasks, toolchains
from hallmark.config import Config, VariantChoice
from hallmark.lint import report as lint
from hallmark.node import Node
from hallmark.processes import usable_cpus
from hallmark.toolchains import Toolchain


def _whereabouts(entry: lock.Entry) -> dict[str, Any]:
    """Where a source lies, as locked. Its files' digests are in the key; where they come from decides no byte."""
    return {"source": entry.source.model_dump(mode="json")}


class ModelNodes:
    """Builds the nodes of one configuration's models, each once."""

    def __init__(self, config: Config, locked: lock.Lock) -> None:
        self.config, self.locked = config, locked
        self.cpus = usable_cpus()
        # CPUs of a conversion or an accuracy measurement: half of them, so that two run at once; few use more well.
        self.half = max(1, self.cpus // 2)
        self._made: dict[tuple[str, ...], Node] = {}
        self._toolchains: dict[str, Toolchain] = {}

    def _once(self, name: tuple[str, ...], make: Callable[[], Node]) -> Node:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def toolchain(self, name: str) -> Toolchain:
        if name not in self._toolchains:  # each knows its digest, which takes a lock's text
            self._toolchains[name] = toolchains.get(name, self.config.torch_build)
        return self._toolchains[name]

    def options(self, model: str, kind: str) -> dict[str, Any]:
        """How a model is measured, `kind` being REFERENCE or SPEED: defaults, the config's, the model's own."""
        known = tasks.defaults(getattr(tasks.get(self.config.models[model].task), f"{kind}_OPTIONS"))
        chosen = self.config.measuring(model)
        return {name: chosen.get(name, value) for name, value in known.items()}

    def code(self, model: str) -> dict[str, Any]:
        """What a recipe that opens the source holds where the model's own code is allowed."""
        return {"allow_remote_code": True} if self.config.models[model].allow_remote_code else {}

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
            toolchains={"worker": self.toolchain("torch")} if made else {},
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
            code = ("hallmark.datasets", *datasets.READERS[dataset.reader].code)
            return Node("fetch", (name, "data"), recipe, code, hints=_whereabouts(entry), disk_mb=20)

        return self._once(("data", name), make)

    def lint(self, model: str) -> Node:
        return self._once(
            ("lint", model),
            lambda: Node(
                "lint",
                (model,),
                {"allow_remote_code": self.config.models[model].allow_remote_code, "libraries": lint.libraries()},
                code=lint.CODE,
                inputs={"source": self.source(model)},
                toolchains={"worker": self.toolchain("torch")},
                memory_mb=estimates.lint_memory(),
            ),
        )

    def convert(self, model: str, format_name: str, variant: str, choice: VariantChoice) -> Node:
        spec = formats.spec(format_name)
        base = spec.variants[choice.base or variant]
        facts, details = self.locked.models[model].facts, self.config.models[model]
        inputs = {"source": self.source(model)}
        own = {name: value for name, value in choice.options.items() if name in base.options}
        rest = {name: value for name, value in choice.options.items() if name not in own}
        for need in base.needs:
            inputs[need] = self._needed(model, format_name, need, rest)
        if base.calibrated:
            assert details.calibration is not None  # checked by the config
            inputs["calibration"] = self.data(details.calibration)
        made = Node(
            "convert",
            (model, format_name, variant),
            {
                "format": format_name,
                "task": details.task,
                "options": {**base.options, **own},
                "files": list(spec.files_of(base, details.task)),
            },
            code=(f"hallmark.formats.{format_name}", *spec.code),
            inputs=inputs,
            toolchains={"worker": self.toolchain(spec.toolchain_of(base))},
            after={"lint": self.lint(model)},
            hints={"base": choice.base or variant},
            link="" if base.intermediate else f"{model}/{format_name}/{variant}",
            memory_mb=estimates.convert_memory(spec.memory_of(base), facts),
            disk_mb=estimates.checkpoint_disk(facts),
            cpus=self.half,
        )
        return self._once(("convert", made.place), lambda: made)  # what others need may be asked for by itself too

    def _needed(self, model: str, format_name: str, variant: str, options: Mapping[str, Any]) -> Node:
        """What another variant is made of: an intermediate one with its `options`, or one as the config wants it."""
        spec = formats.spec(format_name)
        made = spec.variants[variant]
        if made.intermediate:
            known = spec.options_of(made)
            choice = VariantChoice(options={name: value for name, value in options.items() if name in known})
        else:
            choice = self.config.models[model].formats[format_name].get(variant, VariantChoice())
        return self.convert(model, format_name, variant, choice)

    def reference_options(self, model: str, more: int) -> dict[str, Any]:
        return {**self.options(model, "REFERENCE"), **({"more": more} if more > 1 else {})}

    def reference(self, model: str, more: int = 1) -> Node:
        return self._once(("reference", model, str(more)), lambda: self._reference(model, more))

    def _reference(self, model: str, more: int) -> Node:
        details, facts = self.config.models[model], self.locked.models[model].facts
        options = self.reference_options(model, more)
        return Node(
            "reference",
            (model,),
            {"task": details.task, "options": options, "instructions": devices.instructions()} | self.code(model),
            code=tasks.get(details.task).CODE,
            inputs={"source": self.source(model), "data": self.data(details.evaluation)},
            toolchains={"worker": self.toolchain("torch")},
            after={"lint": self.lint(model)},
            memory_mb=estimates.reference_memory(facts, options),
            disk_mb=estimates.reference_disk(details.task, facts, options),
            cpus=self.half,
        )

    def questions(self, model: str) -> Node | None:
        """The labelled questions that a model's artifacts are asked, if the config names some."""
        name = self.config.models[model].multiple_choice
        return self.data(name) if name else None

    def reference_choices(self, model: str, questions: Node) -> Node:
        return self._once(("reference_choices", model), lambda: self._reference_choices(model, questions))

    def _reference_choices(self, model: str, questions: Node) -> Node:
        task, facts = self.config.models[model].task, self.locked.models[model].facts
        return Node(
            "reference_choices",
            (model,),
            {"task": task, "instructions": devices.instructions()} | self.code(model),
            code=(*choices.CODE, "hallmark.pytorch", tasks.get(task).__name__),
            inputs={"source": self.source(model), "data": questions},
            toolchains={"worker": self.toolchain("lm_eval"), "engine": self.toolchain("torch")},
            after={"lint": self.lint(model)},
            memory_mb=estimates.choices_memory(facts),
            cpus=self.half,
        )
