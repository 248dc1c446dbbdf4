"""What MLPerf LoadGen says of its runs, read from its logs, with intervals. Runs nothing and judges nothing.

A number is LoadGen's own, from `mlperf_log_detail.txt`. It counts only when LoadGen calls its run VALID and met no
error; else it is null, which no gate passes. The interval is from the time of every query in `mlperf_log_trace.json`:

    percentiles        the ranks of the queries' latencies, in the order in which they were due
    samples a second   Offline's batches one after another, in up to BLOCKS blocks, whose rates are taken to be
                       log-normal: neighbouring batches resemble each other, blocks hardly
    queries a second   none: what Server could take is not looked for, only whether it can take what is asked

The modules that run in toolchains import this one for METRICS, so at module level it needs the standard library alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hallmark import intervals, statistics
from hallmark.statistics import Estimate
from hallmark.tasks import Metric

DETAIL, TRACE = "mlperf_log_detail.txt", "mlperf_log_trace.json"
LINE, SAMPLE = ":::MLLOG ", '{"name":"Sample","cat":"default","ph":"b"'
WANTED = re.compile(r'"key": "(result_|early_stopping_|num_errors|error_)')
BLOCKS = 20


def _metric(unit: str, better: Any, meaning: str) -> Metric:
    return Metric("loadgen", unit, better, meaning, "clock", grows=False)


METRICS = {
    "singlestream_p90_ms": _metric("ms", "lower", "one query after another, 90th percentile of the latency"),
    "server_p99_ms": _metric("ms", "lower", "queries at random times at `target_qps`, 99th percentile of the latency"),
    "server_qps": _metric("queries/s", "higher", "such queries answered a second, where `latency_ms` is kept"),
    "offline_samples_per_s": _metric("samples/s", "higher", "samples answered a second when all are there at once"),
}
OF = {"singlestream": "single_stream", "server": "server", "offline": "offline"}  # metric's beginning -> scenario
KEYS = {
    "singlestream_p90_ms": ("result_90.00_percentile_latency_ns", 1e-6),
    "server_p99_ms": ("result_99.00_percentile_latency_ns", 1e-6),
    "server_qps": ("result_completed_samples_per_sec", 1),
    "offline_samples_per_s": ("result_samples_per_second", 1),
}


def read(folder: Path, scenarios: Sequence[str]) -> tuple[dict[str, Estimate], dict[str, dict[str, Any]]]:
    """The metrics of the scenarios whose logs lie below `folder`, and of each whether its run is valid, or why not.

    Raises ValueError for a log without a result: LoadGen did not come to its end.
    """
    details = {name: _detail(folder / name / DETAIL) for name in scenarios}
    outcomes = {name: _outcome(detail) for name, detail in details.items()}
    metrics = {}
    for metric, (key, factor) in KEYS.items():
        scenario = OF[metric.partition("_")[0]]
        if scenario in details:
            number = float(details[scenario][key]) * factor if outcomes[scenario]["valid"] else None
            metrics[metric] = _estimate(metric, number, _latencies(folder / scenario / TRACE))
    return metrics, outcomes


def _detail(path: Path) -> dict[str, Any]:
    """What a log says of its result: key -> value, of errors all that there are."""
    found: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(LINE) and WANTED.search(line):
            entry = json.loads(line.removeprefix(LINE))
            key, value = entry["key"], entry["value"]
            found[key] = [*found.get(key, []), value] if key.startswith("error_") else value
    if "result_validity" not in found:
        raise ValueError(f"{path}: holds no result, so LoadGen did not come to its end")
    return found


def _outcome(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a run counts, and what LoadGen says where it does not."""
    errors = [text for key, texts in detail.items() if key.startswith("error_") for text in texts]
    valid = detail["result_validity"] == "VALID" and not detail.get("num_errors", 0)
    reasons = [] if valid else [detail.get("result_invalid_reason", ""), *errors]
    if not valid and not detail.get("early_stopping_met", True):
        reasons.append(detail["early_stopping_result"])
    return {
        "valid": valid,
        "result": detail["result_validity"],
        "queries": detail["result_query_count"],
        "why": [" ".join(reason.replace("*", " ").split()) for reason in reasons if reason.strip()],
    }


def _latencies(path: Path) -> list[tuple[int, int]]:
    """The query and the latency in ns of each sample, in the order in which they were due. The file as a whole is no
    JSON: LoadGen quotes some names twice."""
    found = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(SAMPLE):
                times = json.loads(line.rstrip().rstrip(","))["args"]
                found.append((times["sample_seq"], times["complete_ns"]))
    return sorted(found)


def _estimate(metric: str, number: float | None, samples: Sequence[tuple[int, int]]) -> Estimate:
    unit, error = METRICS[metric].unit, intervals.ERROR / intervals.ATTEMPTS  # each attempt is looked at once
    if number is None:
        return statistics.unknown(len(samples), unit)
    times = [latency for _, latency in samples]
    if metric == "server_qps":
        return statistics.exact(number, len(times), unit)
    if metric == "offline_samples_per_s":
        found = intervals.inverse(intervals.typical(_seconds_a_sample(times), error), unit)
    else:
        found = intervals.quantile(times, 0.9 if "p90" in metric else 0.99, error, unit, 1e-6)
    low, high = found["low"], found["high"]
    if low is None or high is None:
        return Estimate(value=number, low=None, high=None, n=len(times), unit=unit)
    return statistics.estimate(number, min(low, number), max(high, number), len(times), unit)


def _seconds_a_sample(times: Sequence[int]) -> list[float]:
    """Of each block of Offline's batches the seconds that a sample took. Samples of a batch end at the same time."""
    ends = sorted(set(times))
    counts = dict.fromkeys(ends, 0)
    for time in times:
        counts[time] += 1
    blocks = min(BLOCKS, len(ends))
    bounds = [len(ends) * number // blocks for number in range(blocks + 1)]
    found = []
    for first, last in pairwise(bounds):
        began = ends[first - 1] if first else 0
        found.append((ends[last - 1] - began) / 1e9 / sum(counts[end] for end in ends[first:last]))
    return found
