"""The gates of the shipped configuration, for tests of what measures accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from hallmark import gates, schema, tasks
from hallmark.config import Targets
from hallmark.gates import Limit


def limits(task: str) -> Mapping[str, Limit]:
    """Those that hold for every artifact of a task."""
    settings = yaml.safe_load((schema.ROOT / "config/targets.yaml").read_text(encoding="utf-8"))
    return Targets.model_validate(settings).policies["default"][task]["*/*/*"]


def failed(task: str, found: Mapping[str, Any]) -> set[str]:
    """The gates of accuracy that these metrics fail."""
    metrics = tasks.get(task).METRICS
    own = {name: (limit, "*/*/*") for name, limit in limits(task).items() if metrics[name].source == "accuracy"}
    verdict = gates.judge("m/f/v", "cpu", own, [{"artifact": "a", "metrics": found}], {}, "a", metrics=metrics)
    return {gate["metric"] for gate in verdict["gates"] if gate["verdict"] == "fail"}
