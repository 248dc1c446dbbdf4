"""Looks at an artifact that may go wrong without ending the measurement. Knows no task."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping

from hallmark import statistics
from hallmark.statistics import Estimate
from hallmark.tasks import Metric


def attempt(metrics: Mapping[str, Metric], look: Callable[[], dict[str, Estimate]]) -> dict[str, Estimate]:
    """What a look finds of its metrics. When it fails with an error all are null, which no gate passes.

    An artifact with a fixed axis or a small cache raises at another length: that is what the look is for, not a failed
    job. The error goes to the log.
    """
    try:
        return look()
    except Exception:  # whatever the artifact's runtime raises
        print(f"measuring {', '.join(metrics)} failed, so they are null:", file=sys.stderr)
        traceback.print_exc()
        return {name: statistics.unknown(0, metric.unit) for name, metric in metrics.items()}
