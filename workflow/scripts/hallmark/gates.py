"""Gates: which limits hold for an artifact, and what the measurements say of them. Measures nothing, releases nothing.

Which limit holds is looked up per metric, from the most specific pattern to the least. For `smollm2/gguf/q4_k_m`:

    1  smollm2/gguf/q4_k_m   all three parts named
    2  smollm2/gguf/*        ┐
    3  smollm2/*/q4_k_m      ├ two parts named; the model says more than the format, the format more than the variant
    4  */gguf/q4_k_m         ┘
    5  smollm2/*/*           ┐
    6  */gguf/*              ├ one part named
    7  */*/q4_k_m            ┘
    8  */*/*                 the default

Each metric is looked up by itself: a pattern that names one metric leaves the others to the patterns below it. A
variant that the config makes from a known one (`base`) is meant by its own name first, and by its base's where that
says nothing: what a limit says of int8 holds for every int8, whatever it is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hallmark import digest, disturbance, quantities
from hallmark.disturbance import Disturbance
from hallmark.tasks import Metric

ANY = "*"
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Word = Literal["pass", "fail", "inconclusive", "not_run"]
NOT_APPLICABLE = "not_applicable"  # of a gate alone: there is nothing to compare with
# Sources of metrics that are measured on a clock, and what a verdict calls that such a measurement could settle it.
REPEATED = {"speed": "noisy", "loadgen": "loadgen_noisy", "release": "release_noisy"}


class Limit(BaseModel):
    """One limit on a metric: the whole interval must be at most `max`, or at least `min`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max: Number | None = Field(None, description="The metric may be at most this.")
    min: Number | None = Field(None, description="The metric must be at least this.")

    @model_validator(mode="before")
    @classmethod
    def _is_mapping(cls, value: Any) -> Any:
        if not isinstance(value, Mapping | Limit):
            raise ValueError(f"a limit is either {{max: number}} or {{min: number}}, not {value!r}")
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Limit:
        if (self.max is None) == (self.min is None):
            raise ValueError("a limit is either {max: number} or {min: number}")
        return self

    @property
    def bound(self) -> float:
        value = self.max if self.max is not None else self.min
        assert value is not None
        return value

    def to_json(self) -> dict[str, float]:
        """`{"max": 0.1}` or `{"min": 0.9}`."""
        return {"max": self.max} if self.max is not None else {"min": self.bound}

    def compare(self, low: float, high: float) -> Word:
        """`pass` when all of [low, high] is on the right side (the limit itself is), `fail` when none of it is."""
        sign = 1 if self.max is not None else -1
        best, worst = sorted((sign * low, sign * high))
        if worst <= sign * self.bound:
            return "pass"
        return "fail" if best > sign * self.bound else "inconclusive"


# The gates of a target: task -> pattern (`model/format/variant`, each a name or `*`) -> metric -> limit.
Policy = Mapping[str, Mapping[str, Mapping[str, Limit]]]
# The gates of one artifact: metric -> (limit, the pattern it comes from).
Resolved = Mapping[str, tuple[Limit, str]]


def patterns(subject: str, base: str = "") -> list[str]:
    """The patterns that match `model/format/variant`, the most specific first (the table above); `base` is the variant
    that this one is made from, if it is another."""
    model, family, variant = subject.split("/")
    named = [(m, f, v) for m in (True, False) for f in (True, False) for v in (True, False)]
    named.sort(key=sum, reverse=True)  # stable, so among equals the model comes before the format and the variant
    found = []
    for keeps in named:
        for name in (variant, base or variant):
            parts = zip((model, family, name), keeps, strict=True)
            found.append("/".join(part if keep else ANY for part, keep in parts))
    return list(dict.fromkeys(found))


def resolve(policy: Policy, task: str, subject: str, base: str = "") -> dict[str, tuple[Limit, str]]:
    """The gates of one artifact: metric -> (limit, the pattern it comes from). Empty when no pattern matches."""
    found: dict[str, tuple[Limit, str]] = {}
    by_pattern = policy.get(task, {})
    for pattern in patterns(subject, base):
        for metric, limit in by_pattern.get(pattern, {}).items():
            found.setdefault(metric, (limit, pattern))
    return dict(sorted(found.items()))


def as_json(resolved: Resolved) -> dict[str, Any]:
    """The gates of one artifact as plain JSON: metric -> {"limit": {"max": 0.1}, "pattern": ...}."""
    return {name: {"limit": limit.to_json(), "pattern": pattern} for name, (limit, pattern) in resolved.items()}


def from_json(gates: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Limit, str]]:
    """What `as_json` wrote."""
    return {name: (Limit(**gate["limit"]), str(gate["pattern"])) for name, gate in gates.items()}


def policy_digest(resolved: Resolved) -> str:
    """sha256 of the gates of one artifact, patterns included because a verdict quotes them; order does not matter."""
    return digest.of_value(as_json(resolved))


def judge(
    subject: str,
    target: str,
    resolved: Resolved,
    measurements: Sequence[Mapping[str, Any]],
    inspection: Mapping[str, Any],
    artifact: str,
    *,
    metrics: Mapping[str, Metric],
    device_available: bool = True,
    last_release: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The verdict on an artifact for a target, as JSON. Never raises for a bad number: that is a failed gate.

    `measurements` of all kinds and `inspection` are as their files hold them, `artifact` is the tree digest of the
    artifact's files, `metrics` are the task's. What was measured on another artifact counts as not measured. An
    artifact that no gate applies to fails. `last_release` is what the plan found to compare with, {"absent": why} where
    there is nothing.
    """
    found = {**_inspected(inspection, artifact), **_measured(measurements, artifact)}
    conditions = {kind: _conditions(measurements, artifact, kind) for kind in REPEATED}
    noise = {kind: disturbance.of(of_kind) for kind, of_kind in conditions.items()}
    needless = _needless(last_release, conditions["release"])
    judged = [
        _judge_gate(name, *gate, found.get(name), metrics.get(name), noise, device_available, needless)
        for name, gate in resolved.items()
    ]
    word = _overall(judged, device_available)
    return {
        "subject": subject,
        "target": target,
        "verdict": word,
        "artifact": artifact,
        "policy": policy_digest(resolved),
        **_settled_by(judged if word == "inconclusive" else [], metrics),
        "why": _why(judged, target, word),
        **({"last_release": last_release} if last_release else {}),
        "gates": judged,
    }


def _is_from(gate: Mapping[str, Any], metrics: Mapping[str, Metric], *sources: str) -> bool:
    return gate["metric"] in metrics and metrics[gate["metric"]].source in sources


def _settled_by(judged: Sequence[Mapping[str, Any]], metrics: Mapping[str, Metric]) -> dict[str, bool]:
    """What could settle an inconclusive verdict, from its gates.

    `noisy`: a new speed measurement; all that keeps it from passing are timed gates that are inconclusive, one at least
    of speed. `loadgen_noisy`, `release_noisy`: the same of traffic and of the measurement against the last release.
    `short_of_samples`: more text; nothing fails, and an accuracy gate that it could narrow is inconclusive.
    """
    open_gates = [gate for gate in judged if gate["verdict"] == "inconclusive"]
    timed = all(_can_repeat(gate, metrics) for gate in open_gates)
    grow = [gate for gate in open_gates if gate["metric"] in metrics and metrics[gate["metric"]].grows]
    return {
        **{
            name: timed and any(_is_from(gate, metrics, kind) for gate in open_gates) for kind, name in REPEATED.items()
        },
        "short_of_samples": any(_is_from(gate, metrics, "accuracy") for gate in grow),
    }


def _can_repeat(gate: Mapping[str, Any], metrics: Mapping[str, Metric]) -> bool:
    """Whether a new measurement could settle an open gate: not one without interval that would get as few units."""
    if not _is_from(gate, metrics, *REPEATED):
        return False
    return gate["low"] is not None or gate["value"] is None or metrics[gate["metric"]].grows


def _needless(last_release: Mapping[str, Any] | None, conditions: Mapping[str, Any]) -> str:
    """Why gates against the last release do not apply, or ''."""
    if last_release and "absent" in last_release:
        return str(last_release["absent"])
    if last_release and conditions.get("release", {}).get("same"):
        return f"it is the artifact of release {last_release['name']}, run by the same toolchain"
    return ""


def _inspected(inspection: Mapping[str, Any], artifact: str) -> dict[str, Any]:
    if inspection.get("artifact") != artifact:
        return {}
    found = inspection.get("metrics", {}).items()
    return {name: {"value": value, "low": value, "high": value} for name, value in found}


def _measured(measurements: Sequence[Mapping[str, Any]], artifact: str) -> dict[str, Any]:
    own = (measurement for measurement in measurements if measurement.get("artifact") == artifact)
    return {name: estimate for measurement in own for name, estimate in measurement.get("metrics", {}).items()}


def _conditions(measurements: Sequence[Mapping[str, Any]], artifact: str, kind: str) -> Mapping[str, Any]:
    own = (one for one in measurements if one.get("kind") == kind and one.get("artifact") == artifact)
    return next((measurement["conditions"] for measurement in own if "conditions" in measurement), {})


def _judge_gate(
    metric: str,
    limit: Limit,
    pattern: str,
    estimate: Any,
    known: Metric | None,
    noises: Mapping[str, Disturbance],
    device_available: bool,
    needless: str,
) -> dict[str, Any]:
    unit, noise = (known.unit, noises.get(known.source, Disturbance())) if known else ("", Disturbance())
    gate: dict[str, Any] = {"metric": metric, "unit": unit, "limit": limit.to_json(), "pattern": pattern}
    gate |= {"value": None, "low": None, "high": None}
    if not device_available:
        return gate | {"verdict": "not_run", "why": f"{metric} not measured on such a device ({pattern})"}
    if needless and known and known.source == "release":
        return gate | {"verdict": NOT_APPLICABLE, "why": f"{metric} does not apply: {needless} ({pattern})"}
    if estimate is None:
        return gate | {"verdict": "fail", "why": f"{metric} was not measured on this artifact ({pattern})"}
    problem = _problem(estimate)
    if problem and noise.why and known and known.source == "loadgen" and estimate.get("value", 0) is None:
        return gate | {"verdict": "inconclusive", "why": f"{metric} has no valid run, but {noise.why} ({pattern})"}
    if problem:
        return gate | {"verdict": "fail", "why": f"{metric} {problem}, which never passes ({pattern})"}
    if _has_no_interval(estimate):
        why = f"{metric} {estimate['value']:.4g} from {estimate['n']} units, too few for an interval ({pattern})"
        return gate | {"value": float(estimate["value"]), "verdict": "inconclusive", "why": why}
    numbers = {name: float(estimate[name]) for name in ("value", "low", "high")}
    gate |= numbers | {"unit": estimate.get("unit") or unit}
    word = limit.compare(numbers["low"], numbers["high"])
    if known and known.timed and word != limit.compare(*noise.widen(numbers["low"], numbers["high"], known)):
        return gate | {"verdict": "inconclusive", "why": f"{_reason(gate, limit, word)}, but {noise.why}"}
    return gate | {"verdict": word, "why": _reason(gate, limit, word)}


def _problem(estimate: Any) -> str:
    """What is wrong with an estimate, or ''. An interval that does not hold its value cannot be trusted either."""
    if not isinstance(estimate, Mapping):
        return f"is {estimate!r}"
    if estimate.get("why"):
        return f"could not be measured ({estimate['why']})"
    for name in ("value",) if _has_no_interval(estimate) else ("value", "low", "high"):
        number = estimate.get(name)
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            return f"has {name} {number!r}"
    low, value, high = estimate["low"], estimate["value"], estimate["high"]
    if not _has_no_interval(estimate) and not low <= value <= high:
        return f"is {value!r}, outside its interval [{low!r}, {high!r}]"
    return ""


def _has_no_interval(estimate: Mapping[str, Any]) -> bool:
    """Whether an estimate says itself that its units are too few (see `statistics.Estimate`)."""
    return "n" in estimate and estimate.get("low", 0) is None and estimate.get("high", 0) is None


def _overall(judged: Sequence[Mapping[str, Any]], device_available: bool) -> Word:
    if not device_available:
        return "not_run"
    words = {gate["verdict"] for gate in judged} - {NOT_APPLICABLE}
    if not words or "fail" in words:
        return "fail"
    return "inconclusive" if "inconclusive" in words else "pass"


def _why(judged: Sequence[Mapping[str, Any]], target: str, word: Word) -> str:
    """One line: what decided. All reasons of the deciding kind, in the order of the gates."""
    if word == "not_run":
        return f"no device for {target} here"
    needless = [gate["why"] for gate in judged if gate["verdict"] == NOT_APPLICABLE]
    count = len(judged) - len(needless)
    if not count:
        return "; ".join(["no gate applies, and what is not judged is not released", *needless])
    if word == "pass":
        return "; ".join([f"{count} of {count} gates passed", *needless])
    return "; ".join(gate["why"] for gate in judged if gate["verdict"] == word)


def _reason(gate: Mapping[str, Any], limit: Limit, word: Word) -> str:
    """`kl_mean 0.564 [0.541, 0.588] nat > 0.1 (smollm2/onnx/*)`."""
    low, high = gate["low"], gate["high"]
    value, low_text, high_text, bound = quantities.distinct(gate["value"], low, high, limit.bound)
    interval = "" if low == high else f" [{low_text}, {high_text}]"
    unit = f" {gate['unit']}" if gate["unit"] else ""
    right, wrong = ("<=", ">") if limit.max is not None else (">=", "<")
    relation = {"pass": right, "fail": wrong}.get(word, f"not clearly {right}")
    return f"{gate['metric']} {value}{interval}{unit} {relation} {bound} ({gate['pattern']})"
