"""Looks at an artifact that may go wrong without ending the measurement. Knows no task."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping

from hallmark import statistics
from hallmark.statistics import Estimate
from hallmark.tasks import Metric

SHOWN = 300  # characters of an error in a verdict


def attempt(metrics: Mapping[str, Metric], look: Callable[[], dict[str, Estimate]]) -> dict[str, Estimate]:
    """What a look finds of its metrics. When it fails with an error all are null, which no gate passes.

    An artifact with a fixed axis, a small cache or another vocabulary raises: that is what the look is for, not a
    failed job. The error goes to the log, and its first line into the verdict. What the machine lacks (memory, a file)
    is no finding, and is raised.
    """
    try:
        return look()
    except (MemoryError, OSError):
        raise
    except Exception as error:  # whatever the artifact's runtime raises
        print(f"measuring {', '.join(metrics)} failed, so they are null:", file=sys.stderr)
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}".splitlines()[0][:SHOWN]
        return {name: statistics.unknown(0, metric.unit, why) for name, metric in metrics.items()}
