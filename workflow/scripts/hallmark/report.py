"""The report: one page, one file, no network. It shows what was measured and judged, and computes nothing of its own.

Which numbers get a column: the first of each kind in the task's METRICS (the headline), and those that a gate names.
The same inputs give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hallmark import charts, figures, quantities
from hallmark.gates import NOT_APPLICABLE
from hallmark.tasks import Metric
from hallmark.templates import render

TEMPLATES = ("report.html.j2", "report.css.j2", "report.js.j2")
Cell = dict[str, Any]
ICONS = {"pass": "✓", "fail": "✗", "inconclusive": "≈", "not_run": "–"}
NEEDLESS = "does not apply"  # in the place of the number that such a gate has not
BY_SIZE = (quantities.SECONDS, quantities.BYTES)  # units that change with the number, so no heading can name them
WORDS = {"pass": "pass", "fail": "fail", "inconclusive": "inconclusive", "not_run": "not run"}


@dataclass(frozen=True)
class Model:
    """A source: where it comes from in one line, and the bytes of its checkpoint."""

    name: str
    task: str
    source: str
    bytes: int


@dataclass(frozen=True)
class Artifact:
    """All that is known of one artifact. `measurements` are the two files' content, `samples` those of the speed one.

    `recipe` are the options it was made with, `notes` what the conversion says of itself, `seconds` how long it took.
    """

    model: str
    format: str
    variant: str
    digest: str
    bytes: int
    seconds: float | None
    recipe: Mapping[str, Any]
    notes: Mapping[str, Any]
    inspection: Mapping[str, Any]
    measurements: Sequence[Mapping[str, Any]]
    samples: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.format}/{self.variant}"

    @property
    def subject(self) -> str:
        return f"{self.model}/{self.name}"

    @property
    def estimates(self) -> dict[str, Mapping[str, Any]]:
        return {name: found for part in self.measurements for name, found in part["metrics"].items()}


@dataclass(frozen=True)
class Inputs:
    """What the page is made of.

    `machine` says in words what was measured on, `missing` names what should be here and is not in the store, `metrics`
    are each task's, and `times` maps a task to those of its sampled times that are drawn, with their titles.
    """

    title: str
    hallmark: str
    release: str
    machine: str
    models: Sequence[Model]
    artifacts: Sequence[Artifact]
    missing: Sequence[str]
    verdicts: Sequence[Mapping[str, Any]]
    selections: Sequence[Mapping[str, Any]]
    metrics: Mapping[str, Mapping[str, Metric]]
    times: Mapping[str, Mapping[str, str]]


def build(inputs: Inputs) -> str:
    """The page as HTML."""
    series = {name: number for number, name in enumerate(sorted({artifact.format for artifact in inputs.artifacts}))}
    sections = [_section(inputs, model, series) for model in inputs.models]
    choices = [_choice(inputs, selection) for selection in inputs.selections]
    return render(
        "report.html.j2",
        inputs=inputs,
        sections=sections,
        choices=choices,
        released=sum(choice["selected"] is not None for choice in choices),
        targets=list(dict.fromkeys(selection["target"] for selection in inputs.selections)),
        icons=ICONS,
        words=WORDS,
    )


def _choice(inputs: Inputs, selection: Mapping[str, Any]) -> dict[str, Any]:
    """What one target takes for one model, with the numbers that let it pass."""
    subject = f"{selection['model']}/{selection['selected']}"
    found = next((artifact for artifact in inputs.artifacts if artifact.subject == subject), None)
    mine = [v for v in inputs.verdicts if (v["subject"], v["target"]) == (subject, selection["target"])]
    gates = []
    for gate in (gate for verdict in mine for gate in verdict["gates"]):
        value, interval, unit = quantities.parts(gate)
        needless = gate["verdict"] == NOT_APPLICABLE
        text = {"text": NEEDLESS if needless else f"{value} {unit}".strip(), "interval": interval}
        gates.append({**gate, **text, "bound": quantities.limit(gate["limit"], gate["unit"])})
    return {**selection, "bytes": found.bytes if found else None, "gates": gates}


def _section(inputs: Inputs, model: Model, series: Mapping[str, int]) -> dict[str, Any]:
    """One model: its table and its charts."""
    metrics = inputs.metrics[model.task]
    artifacts = [artifact for artifact in inputs.artifacts if artifact.model == model.name]
    verdicts = [verdict for verdict in inputs.verdicts if verdict["subject"].partition("/")[0] == model.name]
    released = {selection["selected"] for selection in inputs.selections if selection["model"] == model.name}
    columns = _columns(metrics, artifacts, verdicts)
    drawn = figures.Figures(model, metrics, artifacts, verdicts, released, series)
    return {
        "model": model,
        "columns": [{"name": name, **_metric_words(metrics, name)} for name in columns],
        "rows": [_row(artifact, model, metrics, columns, verdicts, released, series) for artifact in artifacts],
        "scatters": drawn.scatters(),
        "strips": drawn.strips(inputs.times[model.task]),
        "legend": [(name, number, charts.shape(number, 8, 8)) for name, number in drawn.series.items()],
    }


def _metric_words(metrics: Mapping[str, Metric], name: str) -> dict[str, str]:
    metric = metrics[name]
    unit = f", {metric.unit}" if metric.unit and metric.unit not in BY_SIZE else ""
    return {"words": name.replace("_", " ") + unit, "meaning": metric.meaning, "better": metric.better}


def _columns(
    metrics: Mapping[str, Metric], artifacts: Sequence[Artifact], verdicts: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The metrics worth a column, in the task's order: headlines and gated ones, of those that differ at all."""
    gated = figures.gated_metrics(verdicts)
    headlines = {figures.headline(metrics, kind, gated) for kind in ("accuracy", "speed")}
    wanted = [name for name in metrics if name in gated or name in headlines]
    return [name for name in wanted if name in headlines or len({_value(a, name) for a in artifacts}) > 1]


def _value(artifact: Artifact, name: str) -> float | None:
    value = artifact.estimates.get(name, {}).get("value", artifact.inspection.get("metrics", {}).get(name))
    return float(value) if isinstance(value, int | float) else None


def _row(
    artifact: Artifact,
    model: Model,
    metrics: Mapping[str, Metric],
    columns: Sequence[str],
    verdicts: Sequence[Mapping[str, Any]],
    released: set[str | None],
    series: Mapping[str, int],
) -> dict[str, Any]:
    own = [verdict for verdict in verdicts if verdict["subject"] == artifact.subject]
    number = series[artifact.format]
    return {
        "artifact": artifact,
        "share": artifact.bytes / model.bytes if model.bytes else None,
        "series": number,
        "mark": charts.shape(number, 8, 8),
        "released": artifact.name in released,
        "cells": [_cell(artifact, name, metrics[name], own) for name in columns],
        "verdicts": own,
        "numbers": [_cell(artifact, name, metrics[name], own) for name in metrics if _has(artifact, name)],
        "recipe": _json(artifact.recipe),
        "notes": _json(artifact.notes),
        "facts": _json({**artifact.inspection.get("metrics", {}), **artifact.inspection.get("facts", {})}),
    }


def _has(artifact: Artifact, name: str) -> bool:
    return name in artifact.estimates or name in artifact.inspection.get("metrics", {})


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) if value else ""


def _cell(artifact: Artifact, name: str, metric: Metric, verdicts: Sequence[Mapping[str, Any]]) -> Cell:
    """One number: value and interval as text without the unit, how it sorts, and what the gates say of it."""
    gates = [gate for verdict in verdicts for gate in verdict["gates"] if gate["metric"] == name]
    words = [gate["verdict"] for gate in gates]
    worst = next((word for word in ("fail", "inconclusive", "not_run", "pass", NOT_APPLICABLE) if word in words), "")
    limits = dict.fromkeys(quantities.limit(gate["limit"], metric.unit) for gate in gates)
    value = _value(artifact, name)
    exact = {"value": value, "low": value, "high": value, "unit": metric.unit}
    text, interval, unit = quantities.parts(artifact.estimates.get(name, exact))
    return {
        "name": name,
        "meaning": metric.meaning,
        "verdict": worst,
        "sort": value,
        "limit": ", ".join(limits),
        "value": text,
        "interval": interval,
        "unit": unit,
        "suffix": unit if metric.unit in BY_SIZE else unit.removesuffix(metric.unit).strip(),
    }
