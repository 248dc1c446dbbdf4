"""What a user writes in `config/`: its models, its defaults, and clear errors. It looks nothing up on disk but YAML.

The schema in `workflow/schemas/` and the tables in the documentation are generated from these models.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hallmark import config_checks
from hallmark.gates import Limit
from hallmark.options import no_such
from hallmark.sources import Gguf, Hub, Package
from hallmark.sources import Path as PathSource

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
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options that override those of the variant, or of the intermediate one that it is made of",
    )


class SingleStream(Section):
    """LoadGen's scenario SingleStream: the next query comes when the last one is answered."""

    queries: int = Field(200, ge=64, description="At least so many queries; fewer than 64 prove no 90th percentile")
    seconds: float = Field(10, gt=0, description="Queries go on for at least so long")


class Server(Section):
    """LoadGen's scenario Server: queries come at random times, whether the last one is answered or not."""

    target_qps: float = Field(gt=0, description="Queries a second, on average; the times are a Poisson process")
    latency_ms: float = Field(gt=0, description="99 of 100 queries must be answered within so many milliseconds")
    queries: int = Field(2000, ge=459, description="At least so many queries; fewer than 459 prove no 99th percentile")
    seconds: float = Field(10, gt=0, description="Queries go on for at least so long")


class Offline(Section):
    """LoadGen's scenario Offline: all samples are there from the start."""

    batch: int = Field(4, ge=1, description="Samples that are answered at once; 1 by 1 where the runtime cannot")
    queries: int = Field(200, ge=1, description="At least so many samples")
    seconds: float = Field(10, gt=0, description="Samples for at least so long, by the pace of the warm-up")


class LoadGen(Section):
    """Scenarios of MLPerf LoadGen to run, each with its settings."""

    single_stream: SingleStream | None = Field(None, description="One query after another; see below")
    server: Server | None = Field(None, description="Queries at random times; see below")
    offline: Offline | None = Field(None, description="All at once; see below")

    @model_validator(mode="before")
    @classmethod
    def _named_is_chosen(cls, value: Any) -> Any:
        """`single_stream:` with nothing after it is short for `single_stream: {}`."""
        if isinstance(value, Mapping):
            return {name: {} if settings is None else settings for name, settings in value.items()}
        return value

    @model_validator(mode="after")
    def _names_one(self) -> LoadGen:
        if not self.scenarios():
            raise ValueError(f"names no scenario, have {', '.join(LoadGen.model_fields)}")
        return self

    def scenarios(self) -> dict[str, Any]:
        """The chosen scenarios with their settings, as plain JSON."""
        return self.model_dump(mode="json", exclude_none=True)


class Model(Section):
    """A source checkpoint and what to make of it."""

    source: Source = Field(description="Where the checkpoint comes from; see Sources")
    task: str = Field(description="What the model is for: causal-lm or sentence-similarity")
    evaluation: Name = Field(description="Name of the data that accuracy is measured on")
    calibration: Name | None = Field(None, description="Name of the data for calibrated variants; not the evaluation's")
    multiple_choice: Name | None = Field(
        None, description="Name of the data with labelled questions to ask as well (causal-lm); see Labelled questions"
    )
    allow_remote_code: bool = Field(
        False, description="Run the Python code that the checkpoint brings, where its model or tokenizer needs it"
    )
    formats: dict[str, dict[Name, VariantChoice]] = Field(description="Formats with the variants to build of each")
    measure: dict[str, int | float] = Field(
        default_factory=dict, description="Measuring options of this model alone; see Measuring"
    )
    loadgen: LoadGen | None = Field(
        None, description="Traffic of MLPerf LoadGen to measure the artifacts under as well; see LoadGen"
    )

    def base_of(self, format_name: str, variant: str) -> str:
        """The known variant that one of the model's variants is made from."""
        return self.formats[format_name][variant].base or variant

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
    reader: str = Field(description="How the files are read: text, wikipedia, rated_pairs or multiple_choice")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the reader, e.g. split: calibration")


class Target(Section):
    """A kind of hardware: what may be released for it, and under which policy."""

    device: str = Field("cpu", description="Device that the numbers have to be measured on, else `not_run`")
    candidates: list[str] = Field(min_length=1, description="format/variant, the most preferred first")
    models: list[Name] | None = Field(
        None, description="Models released for this target; default: all that have a candidate"
    )
    policy: Name = Field("default", description="Name of the policy that its artifacts must pass")


class Release(Section):
    """How a release is named, and which earlier one it is compared with."""

    version: str = Field(
        "0", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Version in the release folder's name"
    )
    against: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*-[0-9a-f]{8}$",
        description="Folder of the release that `release_*` gates compare with; default: the last before this version",
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
    time_limit_minutes: int = Field(
        240, gt=0, description="A worker (conversion, reference, accuracy) that runs longer is stopped and fails"
    )

    def measuring(self, model: str) -> dict[str, float]:
        """Measuring options that are set for a model: those of its task, under its own."""
        details = self.models[model]
        return {**self.measure.get(details.task, {}), **details.measure}

    @field_validator("store")
    @classmethod
    def _home(cls, value: str) -> str:
        return str(Path(value).expanduser())


class Settings(Section):
    """Config and targets together, checked against each other and against what formats and tasks there are."""

    config: Config
    targets: dict[str, Target]
    policies: dict[str, Gates]


class _TwiceError(Exception):
    """A key that stands twice in one mapping."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads YAML as ever, but takes no key twice: the last one would count, and the first be gone without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                line = key.start_mark.line + 1
                if key.value in lines:
                    first = lines[key.value]
                    raise _TwiceError(f"line {line}: {key.value} stands in line {first} already; put both together")
                lines[key.value] = line
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


def load_yaml(path: Path) -> Any:
    """Read a YAML file. Raises ConfigError when it is missing, is not YAML or has a key twice, with the line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except _TwiceError as error:
        raise ConfigError(f"{path}: {error}") from None
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
    problems = [f"{file}: {problem}" for problem in config_checks.of_models(config)]
    problems += [f"{config.targets_file}: {problem}" for problem in config_checks.of_targets(settings)]
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
