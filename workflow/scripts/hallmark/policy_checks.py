"""What a policy names against what there is: tasks, metrics, models, formats, variants. Judges nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hallmark.gates import ANY, Policy
from hallmark.options import no_such


@dataclass(frozen=True)
class Known:
    """What a policy may name: metrics by task, the task of each model, the variants of each format."""

    metrics: Mapping[str, Collection[str]]
    models: Mapping[str, str]
    formats: Mapping[str, Collection[str]]


def check_policy(policy: Policy, known: Known, where: str = "gates") -> list[str]:
    """What the policy names that does not exist, one line each: the key, the name, the alternatives."""
    problems = []
    for task, by_pattern in policy.items():
        if task not in known.metrics:
            problems.append(f"{where}: {no_such('task', task, known.metrics)}")
            continue
        have = known.metrics[task]
        for pattern, limits in by_pattern.items():
            found = _check_pattern(pattern, task, known)
            found += [no_such(f"metric of {task}", metric, have) for metric in limits if metric not in have]
            problems += [f"{where}.{task}.{pattern}: {problem}" for problem in found]
    return problems


def _check_pattern(pattern: str, task: str, known: Known) -> list[str]:
    parts = pattern.split("/")
    if len(parts) != 3 or not all(parts):
        return [f"a pattern is model/format/variant, each a name or {ANY!r}, for example {ANY}/gguf/{ANY}"]
    model, family, variant = parts
    problems = []
    if model != ANY and model not in known.models:
        problems.append(no_such("model", model, known.models))
    elif model != ANY and known.models[model] != task:
        problems.append(f"{model} is a {known.models[model]} model, so this gate never applies")
    if family != ANY and family not in known.formats:
        return [*problems, no_such("format", family, known.formats)]
    have = known.formats[family] if family != ANY else {name for names in known.formats.values() for name in names}
    if variant != ANY and variant not in have:
        problems.append(no_such("variant" if family == ANY else f"{family} variant", variant, have))
    return problems
