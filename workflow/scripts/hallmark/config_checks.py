"""What a configuration names against what there is: tasks, formats, variants, options, data, devices, metrics.

It reads no file and looks nothing up on disk; `config` has the models and reports what is found here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hallmark import datasets, devices, formats, gates, options, policy_checks, questions, tasks
from hallmark.options import no_such

if TYPE_CHECKING:
    from hallmark.config import Config, Gates, Model, Settings, VariantChoice

ASKED_BY = {
    "choices": "multiple_choice",
    "loadgen": "loadgen",
}  # source of metrics -> key of the model that asks for them
RESERVED = ("store", "logs", "report", "releases")  # folders below artifacts/, where models are linked


def of_models(config: Config) -> list[str]:
    """What models and data name that there is not, one line each with the key and the alternatives."""
    problems = []
    for name, model in config.models.items():
        place = f"models.{name}"
        if name in RESERVED:
            problems.append(f"{place}: the names {', '.join(RESERVED)} are folders of Hallmark's own; choose another")
        if model.task not in tasks.names():
            problems.append(f"{place}.task: {no_such('task', model.task, tasks.names())}")
            continue
        for field in ("evaluation", "calibration", "multiple_choice"):
            dataset = getattr(model, field)
            if dataset is not None and dataset not in config.data:
                problems.append(f"{place}.{field}: {no_such('data', dataset, config.data)}")
        calibration, evaluation = (config.data.get(name or "") for name in (model.calibration, model.evaluation))
        if calibration is not None and calibration == evaluation:
            problems.append(f"{place}.calibration: {model.calibration!r} is the evaluation's data; keep the two apart")
        problems += _check_questions(f"{place}.multiple_choice", config, model)
        problems += _check_options(f"{place}.measure", model.measure, model.task)
        if model.loadgen and not hasattr(tasks.get(model.task), "together"):
            problems.append(f"{place}.loadgen: LoadGen drives encoders and classifiers, not models of {model.task}")
        measured = {**tasks.defaults(tasks.get(model.task).OPTIONS), **config.measuring(name)}
        if measured["warmup_rounds"] <= measured["warmup_window"]:
            problems.append(
                f"{place}.measure.warmup_rounds: {measured['warmup_rounds']:g} must be more than warmup_window, "
                f"{measured['warmup_window']:g}: whether engines have settled is seen against the rounds before"
            )
        for format_name, variants in model.formats.items():
            problems += _check_variants(f"{place}.formats", model, format_name, variants)
    for name, dataset in config.data.items():
        problems += [f"data.{name}: {problem}" for problem in datasets.check(dataset.reader, dataset.options)]
    for task, chosen in config.measure.items():
        if task not in tasks.names():
            problems.append(f"measure: {no_such('task', task, tasks.names())}")
        else:
            problems += _check_options(f"measure.{task}", chosen, task)
    return problems


def _check_questions(place: str, config: Config, model: Model) -> list[str]:
    dataset = config.data.get(model.multiple_choice or "")
    if dataset is None:
        return []
    if not _chooses(model.task):
        able = ", ".join(name for name in tasks.names() if _chooses(name))
        return [f"{place}: a {model.task} model answers no questions; tasks that can: {able}"]
    reader = datasets.READERS.get(dataset.reader)
    if reader and reader.file != questions.FILE:
        wanted = next(name for name, known in datasets.READERS.items() if known.file == questions.FILE)
        return [f"{place}: {model.multiple_choice!r} has the reader {dataset.reader}; questions have {wanted}"]
    return []


def _chooses(task: str) -> bool:
    return any(metric.source == "choices" for metric in tasks.get(task).METRICS.values())


def _check_options(place: str, chosen: Mapping[str, Any], task: str) -> list[str]:
    known = tasks.get(task).OPTIONS
    problems = [f"{place}: {no_such('option', option, known)}" for option in chosen if option not in known]
    for option, value in chosen.items():
        whole = option in known and isinstance(known[option].default, int)
        if not math.isfinite(value) or value <= 0 or (whole and value != int(value)):
            problems.append(f"{place}.{option}: {value} is not a {'whole ' if whole else ''}number above 0")
        elif option in known and value < known[option].least:
            problems.append(f"{place}.{option}: {value} is below {known[option].least}, the least that can be measured")
    return problems


def _check_variants(place: str, model: Model, format_name: str, variants: Mapping[str, VariantChoice]) -> list[str]:
    if format_name not in formats.names():
        return [f"{place}: {no_such('format', format_name, formats.names())}"]
    spec = formats.spec(format_name)
    can = [name for name, variant in spec.variants.items() if not variant.intermediate]
    problems = []
    for name, choice in variants.items():
        here, base = f"{place}.{format_name}.{name}", choice.base or name
        if base not in can:
            problems.append(f"{here}: {no_such('variant', base, can)}")
            continue
        variant = spec.variants[base]
        if model.task not in spec.tasks_of(variant):
            problems.append(f"{here}: serves {', '.join(spec.tasks_of(variant))}, and the model's task is {model.task}")
        if any(made.calibrated for made in spec.chain(variant)) and model.calibration is None:
            problems.append(f"{here}: needs calibration data; set models.NAME.calibration")
        known = spec.options_of(variant)
        problems += [f"{here}.options: {problem}" for problem in options.check(choice.options, known, spec.settings)]
    return problems


def of_targets(settings: Settings) -> list[str]:
    """The same of targets and policies."""
    models = settings.config.models
    problems = []
    for name, target in settings.targets.items():
        place = f"targets.{name}"
        if target.policy not in settings.policies:
            problems.append(f"{place}.policy: {no_such('policy', target.policy, settings.policies)}")
        if target.device not in devices.KNOWN:
            problems.append(f"{place}.device: {no_such('device', target.device, devices.KNOWN)}")
        for model in target.models or ():
            if model not in models:
                problems.append(f"{place}.models: {no_such('model', model, models)}")
        for candidate in target.candidates:
            format_name, _, _ = candidate.partition("/")
            built = {f"{f}/{v}" for m in models.values() for f, variants in m.formats.items() for v in variants}
            if format_name not in formats.names():
                problems.append(f"{place}.candidates: {no_such('format', format_name, formats.names())}")
            elif candidate not in built:
                problems.append(f"{place}.candidates: {no_such('artifact', candidate, built)}; no model builds it")
    known = policy_checks.Known(
        metrics={task: tasks.metrics(task) for task in tasks.names()},
        models={name: model.task for name, model in models.items()},
        formats=_built(models.values()),
    )
    for name, policy in settings.policies.items():
        problems += policy_checks.check_policy(policy, known, f"policies.{name}")
        problems += _check_directions(policy, f"policies.{name}")
    return problems or list(_check_unasked(settings))


def _check_unasked(settings: Settings) -> Iterator[str]:
    """Gates that hold for models of which the config does not ask what they need: what is not measured fails. And
    candidates that no gate holds for."""
    for name, model in settings.config.models.items():
        if model.task not in tasks.names():
            continue
        missing = {source: key for source, key in ASKED_BY.items() if not getattr(model, key)}
        known = tasks.metrics(model.task)
        built = [f"{format_name}/{variant}" for format_name, variants in model.formats.items() for variant in variants]
        for title, target in settings.targets.items():
            if target.models is not None and name not in target.models:
                continue
            policy = settings.policies[target.policy]
            gated: set[str] = set()
            for candidate in target.candidates:
                if candidate in built:
                    base = model.base_of(*candidate.split("/"))
                    found = gates.resolve(policy, model.task, f"{name}/{candidate}", base)
                    gated.update(found)
                    if not found:
                        yield (
                            f"targets.{title}: policy {target.policy} has no gate for {name}/{candidate} "
                            f"({model.task}), and what is not judged is not released: give it one, or name the "
                            f"models that the target is for (targets.{title}.models)"
                        )
            for source, key in missing.items():
                asked = [metric for metric in sorted(gated) if known[metric].source == source]
                if asked:
                    what = f"{name} is gated on {', '.join(asked)}"
                    yield f"policies.{target.policy}: {what}, which needs models.{name}.{key}"


def _built(models: Iterable[Model]) -> dict[str, set[str]]:
    """Format -> the variants that any of the models builds, and those that the format knows."""
    found = {name: set(formats.spec(name).variants) for name in formats.names()}
    for model in models:
        for name, variants in model.formats.items():
            found.setdefault(name, set()).update(variants)
    return found


def _check_directions(policy: Gates, where: str) -> list[str]:
    """Limits that are the wrong way round, which would let through what they are there to stop."""
    problems = []
    for task, patterns in policy.items():
        known = tasks.metrics(task) if task in tasks.names() else {}
        for pattern, limits in patterns.items():
            for metric, limit in limits.items():
                better = known[metric].better if metric in known else ""
                if (better, limit.max is None) in (("lower", True), ("higher", False)):
                    right = "max" if better == "lower" else "min"
                    problems.append(f"{where}.{task}.{pattern}.{metric}: {better} is better, so its limit is a {right}")
    return problems
