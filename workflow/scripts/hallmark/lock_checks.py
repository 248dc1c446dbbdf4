"""What keeps a configuration from being planned with its lock: what is not pinned, and what no format could carry."""

from __future__ import annotations

from collections.abc import Iterator

from hallmark import formats, lock
from hallmark.config import Config
from hallmark.lint.findings import ROPE


def problems(config: Config, locked: lock.Lock) -> list[str]:
    """A line for each source that is not pinned; when all are, for each format or variant that cannot carry its model.

    Only what the lock's facts know is looked at; lint finds the rest.
    """
    unpinned = [
        f"{config.lock_file}: {problem}"
        for kind, wanted in (("models", config.models), ("data", config.data))
        for name, item in wanted.items()
        for problem in lock.check(kind, name, item.source, locked)
    ]
    return unpinned or [problem for model in config.models for problem in _uncarried(config, locked, model)]


def _uncarried(config: Config, locked: lock.Lock, model: str) -> Iterator[str]:
    details, facts = config.models[model], locked.models[model].facts
    architecture = str(facts.get("architecture"))
    able = _able(details.task, architecture)
    for name in details.formats:
        place = f"models.{model}.formats.{name}"
        if name not in able:
            can = ", ".join(able) or "none"
            yield f"{place}: {name} cannot carry {architecture} for {details.task}; formats that can: {can}"
            continue
        for kind in facts.get("rope", ()):
            yield from (f"{place}.{problem}" for problem in _scaled(config, model, name, architecture, kind))


def _able(task: str, architecture: str) -> list[str]:
    """The formats that can carry an architecture for a task."""
    found = []
    for name in formats.names():
        known = formats.spec(name).architectures.get(task)
        if known is not None and (not known or architecture in known):
            found.append(name)
    return found


def _scaled(config: Config, model: str, format_name: str, architecture: str, kind: str) -> Iterator[str]:
    """The variants of a format that would lose the model's kind of rotary scaling."""
    details, spec = config.models[model], formats.spec(format_name)
    trait = f"{ROPE}{kind}"
    can = ", ".join(formats.able(trait, details.task, architecture)) or "none"
    for variant, choice in details.formats[format_name].items():
        base = spec.variants[choice.base or variant]
        if not spec.carries(trait, base, {**base.options, **choice.options}, architecture):
            yield f"{variant}: cannot carry rotary scaling {kind!r} of {architecture}; artifacts that can: {can}"
