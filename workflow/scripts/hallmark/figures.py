"""The charts that a model gets in the report: size and speed against accuracy, times one by one. It draws no SVG."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from hallmark import charts, quantities
from hallmark.tasks import Metric

if TYPE_CHECKING:
    from hallmark.report import Artifact, Model

Source = Literal["accuracy", "speed"]


def gated_metrics(verdicts: Sequence[Mapping[str, Any]]) -> set[str]:
    """The metrics that some verdict has a gate on."""
    return {gate["metric"] for verdict in verdicts for gate in verdict["gates"]}


def headline(metrics: Mapping[str, Metric], kind: Source, gated: Collection[str]) -> str | None:
    """The number that artifacts are plotted by: of the task's metrics of a kind the first that a gate names, else the
    first; of speed a ratio to the source where there is one."""
    of_kind = [name for name, metric in metrics.items() if metric.source == kind]
    ratios = [name for name in of_kind if name.endswith("_ratio") and kind == "speed"] or of_kind
    return next((name for name in ratios if name in gated), ratios[0] if ratios else None)


class Figures:
    """The charts of one model."""

    def __init__(
        self,
        model: Model,
        metrics: Mapping[str, Metric],
        artifacts: Sequence[Artifact],
        verdicts: Sequence[Mapping[str, Any]],
        released: set[str | None],
        series: Mapping[str, int],
    ) -> None:
        self.model, self.metrics, self.artifacts, self.verdicts = model, metrics, artifacts, verdicts
        self.released = released
        self.series = {name: number for name, number in series.items() if any(a.format == name for a in artifacts)}
        gated = gated_metrics(verdicts)
        self.accuracy, self.speed = headline(metrics, "accuracy", gated), headline(metrics, "speed", gated)

    def scatters(self) -> list[dict[str, str]]:
        """Size and speed against accuracy."""
        if self.accuracy is None:
            return []
        found = [self._scatter("Size and accuracy", None)]
        if self.speed is not None:
            found.append(self._scatter("Speed and accuracy", self.speed))
        return [chart for chart in found if chart]

    def _interval(self, artifact: Artifact, name: str | None) -> charts.Interval | None:
        if name is None:
            return (artifact.bytes, artifact.bytes, artifact.bytes)
        estimate = artifact.estimates.get(name)
        if estimate is None or estimate["value"] is None:
            return None
        value = estimate["value"]
        low, high = (value if estimate[end] is None else estimate[end] for end in ("low", "high"))
        return (value, low, high)

    def _scatter(self, title: str, name: str | None) -> dict[str, str]:
        assert self.accuracy is not None
        points = []
        for artifact in self.artifacts:
            x, y = self._interval(artifact, name), self._interval(artifact, self.accuracy)
            if x and y:
                points.append(self._point(artifact, x, y))
        if not points:
            return {}
        x_lines, y_lines = self._limits(name, horizontal=False), self._limits(self.accuracy, horizontal=True)
        y_axis = self._axis(self.accuracy, [point.y for point in points], y_lines)
        if name is None:
            x_axis = charts.axis("size, MB", [*(point.x for point in points), (0, 0, 0)], 1e6)
        else:
            x_axis = self._axis(name, [point.x for point in points], x_lines)
        drawn = charts.scatter(f"{title} of {self.model.name}", points, x_axis, y_axis, [*x_lines, *y_lines])
        return {"title": title, "svg": drawn, "best": "top left" if name is None else "top right"}

    def _axis(self, name: str, intervals: Sequence[charts.Interval], lines: Sequence[charts.Line]) -> charts.Axis:
        metric = self.metrics[name]
        title = f"{name.replace('_', ' ')}{f', {metric.unit}' if metric.unit else ''} ({metric.better} is better)"
        bounds = [(line.value, line.value, line.value) for line in lines]
        return charts.axis(title, [*intervals, *bounds], top_is=metric.better)

    def _limits(self, name: str | None, *, horizontal: bool) -> list[charts.Line]:
        """The limits that gates set on a metric, each once; more than three would hide the points."""
        gates = [gate for verdict in self.verdicts for gate in verdict["gates"] if gate["metric"] == name]
        found = {quantities.limit(gate["limit"], gate["unit"]): next(iter(gate["limit"].values())) for gate in gates}
        lines = [charts.Line(value, f"gate: {text}", horizontal) for text, value in sorted(found.items())]
        return lines if len(lines) <= 3 else []

    def _point(self, artifact: Artifact, x: charts.Interval, y: charts.Interval) -> charts.Point:
        words = [verdict["verdict"] for verdict in self.verdicts if verdict["subject"] == artifact.subject]
        numbers = [f"{artifact.name}, {quantities.size(artifact.bytes)}"]
        for name in (self.accuracy, self.speed):
            if name is not None and self._interval(artifact, name):
                numbers.append(f"{name} {quantities.estimate(artifact.estimates[name])}")
        return charts.Point(
            x,
            y,
            artifact.variant,
            "; ".join(numbers),
            self.series[artifact.format],
            hollow="pass" not in words,
            ringed=artifact.name in self.released,
        )

    def strips(self, times: Mapping[str, str]) -> list[dict[str, str]]:
        """One chart for each time (name in the samples -> title)."""
        sampled = [artifact for artifact in self.artifacts if artifact.samples.get("artifact")]
        return [self._strips(name, title, sampled) for name, title in times.items()] if sampled else []

    def _strips(self, name: str, title: str, sampled: Sequence[Artifact]) -> dict[str, str]:
        rows = []
        for artifact in sampled:
            sides = [[times[name] for times in artifact.samples.get(side, [])] for side in ("artifact", "source")]
            rows.append(charts.Strip(artifact.name, self.series[artifact.format], sides[0], sides[1]))
        rows.sort(key=lambda row: (median(row.own), row.label))
        spans = [(min(side), min(side), max(side)) for row in rows for side in (row.own, row.source) if side]
        x_axis = charts.axis(f"{title}, ms", [*spans, (0, 0, 0)], 1e-3)
        return {"title": title, "svg": charts.strips(f"{title} of {self.model.name}", rows, x_axis)}
