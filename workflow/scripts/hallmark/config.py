"""What a user writes in `config/`: its models, its defaults, and clear errors. It looks nothing up on disk but YAML.

The schema in `workflow/schemas/` and the tables in the documentation are generated from these models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hallmark import datasets, devices, formats, gates, tasks
from hallmark.gates import Limit, no_such
from hallmark.sources import Gguf, Hub, Package
from hallmark.sources import Path as PathSource

RESERVED = ("store", "logs", "report", "releases")  # folders below artifacts/, where models are linked
NAME = r"^[a-z0-9][a-z0-9_.-]*$"
Name = Annotated[str, Field(pattern=NAME)]
Source = Annotated[Hub | PathSource | Package | Gguf, Field(discriminator="kind")]


class ConfigError(Exception):
    """The configuration cannot be used. The text names file, key and alternatives, a line for each problem."""


class Section(BaseModel):
    """A part of the config that takes no key it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            for key in value:
                if key not in cls.model_fields:
                    raise ValueError(no_such("key", str(key), cls.model_fields))
        return value


class VariantChoice(Section):
    """One variant to build. With `base`, a new variant made from a known one with other options."""

    base: str | None = Field(None, description="Known variant that this one changes; default: the variant's own name")
    options: dict[str, Any] = Field(default_factory=dict, description="Options that override those of the variant")


class Model(Section):
    """A source checkpoint and what to make of it."""

    source: Source = Field(description="Where the checkpoint comes from; see Sources")
    task: str = Field(description="What the model is for: causal-lm or sentence-similarity")
    evaluation: Name = Field(description="Name of the data that accuracy is measured on")
    calibration: Name | None = Field(None, description="Name of the data for calibrated variants; not the evaluation's")
    formats: dict[str, dict[Name, VariantChoice]] = Field(description="Formats with the variants to build of each")
    measure: dict[str, int | float] = Field(
        default_factory=dict, description="Measuring options of this model alone; see Measuring"
    )

    @field_validator("formats", mode="before")
    @classmethod
    def _lists_are_names(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {name: _variants(variants) for name, variants in value.items()}


def _variants(value: Any) -> Any:
    """`[f16, q8_0]` is short for `{f16: {}, q8_0: {}}`, and an empty value for `{}`."""
    if isinstance(value, list):
        return {str(name): {} for name in value}
    if isinstance(value, Mapping):
        return {str(name): {} if choice is None else choice for name, choice in value.items()}
    return value


class Dataset(Section):
    """Evaluation or calibration data, pinned like a model."""

    source: Source = Field(description="Where the files come from; see Sources")
    reader: str = Field(description="How the files are read: text, wikipedia or rated_pairs")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the reader, e.g. split: calibration")


class Target(Section):
    """A kind of hardware: what may be released for it, and under which policy."""

    device: str = Field("cpu", description="Device that must be present to measure for this target")
    candidates: list[str] = Field(min_length=1, description="format/variant, the most preferred first")
    models: list[Name] | None = Field(
        None, description="Models released for this target; default: all that have a candidate"
    )
    policy: Name = Field("default", description="Name of the policy that its artifacts must pass")


class Release(Section):
    """How a release is named."""

    version: str = Field(
        "0", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Version in the release folder's name"
    )


Gates = dict[str, dict[str, dict[str, Limit]]]


class Targets(Section):
    """`config/targets.yaml`: targets, and the policies they name (task -> pattern -> metric -> limit)."""

    targets: dict[Name, Target] = Field(description="Targets by name")
    policies: dict[Name, Gates] = Field(
        description="Policies by name: task, then model/format/variant pattern, then metric"
    )


class Config(Section):
    """`config/config.yaml`."""

    models: dict[Name, Model] = Field(min_length=1, description="Models by name")
    data: dict[Name, Dataset] = Field(description="Evaluation and calibration data by name")
    targets_file: str = Field("config/targets.yaml", description="File with targets and policies")
    lock_file: str = Field("config/lock.yaml", description="File that pins every source; written by `hallmark lock`")
    store: str = Field(
        "artifacts/store", min_length=1, description="Folder of the store; several checkouts may share one"
    )
    release: Release = Field(default_factory=Release, description="How the release is named")
    measure: dict[str, dict[str, int | float]] = Field(
        default_factory=dict, description="Measuring options by task; see Measuring"
    )
    torch_build: Literal["cpu", "cu126", "cu128", "cu130"] = Field(
        "cpu", description="Build of torch in the toolchains: cpu, or a CUDA version"
    )
    hardware_class: str = Field(
        "auto",
        description="Name of this machine's kind in the keys of speed measurements; auto: from CPU model and count",
    )
    time_limit_minutes: int = Field(240, gt=0, description="A job that runs longer is stopped and fails")

    @field_validator("store")
    @classmethod
    def _home(cls, value: str) -> str:
        return str(Path(value).expanduser())


class Settings(Section):
    """Config and targets together, checked against each other and against what formats and tasks there are."""

    config: Config
    targets: dict[str, Target]
    policies: dict[str, Gates]


def load_yaml(path: Path) -> Any:
    """Read a YAML file. Raises ConfigError when it is missing or is not YAML, with the line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {str(error).replace(chr(10), ' ')}") from None


def parse(raw: Mapping[str, Any], file: str) -> Settings:
    """Build the settings from the parsed config (of `file`, for messages) and the targets file that it names.

    Raises ConfigError with every problem found, a line each.
    """
    config = _validate(Config, raw, file)
    targets = _validate(Targets, load_yaml(Path(config.targets_file)), config.targets_file)
    settings = Settings.model_construct(config=config, targets=targets.targets, policies=targets.policies)
    problems = [f"{file}: {problem}" for problem in _check_models(config)]
    problems += [f"{config.targets_file}: {problem}" for problem in _check_targets(settings)]
    if problems:
        raise ConfigError("\n".join(problems))
    return settings


Part = TypeVar("Part", bound=Section)


def _validate(kind: type[Part], raw: Any, file: str) -> Part:
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            place = ".".join(str(part) for part in problem["loc"])
            message = problem["msg"].removeprefix("Value error, ")
            shown = "" if isinstance(problem["input"], Mapping | list) else f" (it is {problem['input']!r})"
            lines.append(f"{file}: {place or 'the file'}: {message}{shown}")
        raise ConfigError("\n".join(lines)) from None


def _check_models(config: Config) -> list[str]:
    problems = []
    for name, model in config.models.items():
        place = f"models.{name}"
        if name in RESERVED:
            problems.append(f"{place}: the names {', '.join(RESERVED)} are folders of Hallmark's own; choose another")
        if model.task not in tasks.names():
            problems.append(f"{place}.task: {no_such('task', model.task, tasks.names())}")
            continue
        for field in ("evaluation", "calibration"):
            dataset = getattr(model, field)
            if dataset is not None and dataset not in config.data:
                problems.append(f"{place}.{field}: {no_such('data', dataset, config.data)}")
        calibration, evaluation = (config.data.get(name or "") for name in (model.calibration, model.evaluation))
        if calibration is not None and calibration == evaluation:
            problems.append(f"{place}.calibration: {model.calibration!r} is the evaluation's data; keep the two apart")
        problems += _check_options(f"{place}.measure", model.measure, model.task)
        for format_name, variants in model.formats.items():
            problems += _check_variants(f"{place}.formats", model, format_name, variants)
    for name, dataset in config.data.items():
        problems += [f"data.{name}: {problem}" for problem in datasets.check(dataset.reader, dataset.options)]
    for task, options in config.measure.items():
        if task not in tasks.names():
            problems.append(f"measure: {no_such('task', task, tasks.names())}")
        else:
            problems += _check_options(f"measure.{task}", options, task)
    return problems


def _check_options(place: str, options: Mapping[str, Any], task: str) -> list[str]:
    known = tasks.get(task).OPTIONS
    problems = [f"{place}: {no_such('option', option, known)}" for option in options if option not in known]
    for option, value in options.items():
        whole = option in known and isinstance(known[option].default, int)
        if not math.isfinite(value) or value <= 0 or (whole and value != int(value)):
            problems.append(f"{place}.{option}: {value} is not a {'whole ' if whole else ''}number above 0")
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
        if variant.calibrated and model.calibration is None:
            problems.append(f"{here}: needs calibration data; set models.NAME.calibration")
        for option in choice.options:
            if option not in variant.options:
                problems.append(f"{here}.options: {no_such('option', option, variant.options)}")
    return problems


def _check_targets(settings: Settings) -> list[str]:
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
    known = gates.Known(
        metrics={task: tasks.get(task).METRICS for task in tasks.names()},
        models={name: model.task for name, model in models.items()},
        formats=_built(models.values()),
    )
    for name, policy in settings.policies.items():
        problems += gates.check_policy(policy, known, f"policies.{name}")
        problems += _check_directions(policy, f"policies.{name}")
    return problems


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
        known = tasks.get(task).METRICS if task in tasks.names() else {}
        for pattern, limits in patterns.items():
            for metric, limit in limits.items():
                better = known[metric].better if metric in known else ""
                if (better, limit.max is None) in (("lower", True), ("higher", False)):
                    right = "max" if better == "lower" else "min"
                    problems.append(f"{where}.{task}.{pattern}.{metric}: {better} is better, so its limit is a {right}")
    return problems
