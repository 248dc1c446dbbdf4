"""MLPerf LoadGen's traffic: the real LoadGen in its toolchain against real engine processes, and what is read from it.

The engines serve an encoder that only sleeps, through the worker's own loop. None of these tests looks at how long
something took: engines answer in 2 ms, and limits are met or missed by far.
"""

import json
import sys
from pathlib import Path

import pytest

from hallmark import loadgen_results, tasks, toolchains
from hallmark.launcher import WorkerError, launch

PACKAGES = str(Path(tasks.__file__).parents[2])
PAIRS = tasks.get("sentence-similarity")
SAMPLES = [{"text": f"text {number}"} for number in range(16)]
OPTIONS = {"threads": 1, "warmup_rounds": 6, "warmup_window": 2, "warmup_tolerance": 9.0, "timeout_s": 2}
ALL = {
    "single_stream": {"queries": 100, "seconds": 0.3},
    "server": {"target_qps": 200, "latency_ms": 2000, "queries": 800, "seconds": 1},
    "offline": {"batch": 4, "queries": 200, "seconds": 0.3},
}
# An engine: `unit` seconds for a text alone; `step` is run before each.
SERVE = """
import os, sys, time
from contextlib import contextmanager
from hallmark import tasks, worker
log, count = open({log!r}, "a", buffering=1), 0
class Sleeper:
    about = {{"precision": "none"}}
    def embed(self, texts):
        global count
        count += 1
        log.write(f"one {{texts[0]}}\\n")
        {step}
        time.sleep({unit})
    def embed_together(self, texts):
        log.write(f"{{len(texts)}} together\\n")
        {together}
        time.sleep({unit})
@contextmanager
def opened():
    yield Sleeper()
worker.serve(opened, tasks.get("sentence-similarity"), 1000, sys.stdin.buffer, sys.stdout.buffer)
"""


@pytest.fixture
def drive(tmp_path):
    """A function that has LoadGen run scenarios against an engine; returns conditions, metrics and outcomes."""

    def run(scenarios, unit=0.002, step="pass", together="pass"):
        out, log = tmp_path / "out", tmp_path / "log"
        out.mkdir()
        code = SERVE.format(log=str(tmp_path / "calls"), unit=unit, step=step, together=together)
        engine = {"argv": [sys.executable, "-c", code], "env": {"PYTHONPATH": PACKAGES}, "log": str(log)}
        request = {
            "action": "loadgen",
            "engine": engine,
            "task": PAIRS.NAME,
            "samples": SAMPLES,
            "scenarios": scenarios,
            "options": OPTIONS,
            "out": str(out),
        }
        toolchain = toolchains.make("loadgen").folder
        answer = launch(toolchain, request, log=log, out=tmp_path, timeout_s=60)
        return answer["result"], *loadgen_results.read(out, list(scenarios))

    return run


def calls(tmp_path):
    return (tmp_path / "calls").read_text().splitlines()


@pytest.mark.slow
def test_every_scenario_is_driven_and_its_numbers_are_loadgens_own(drive, tmp_path):
    conditions, metrics, outcomes = drive(ALL)
    assert set(metrics) == set(loadgen_results.METRICS)
    assert {name: outcome["valid"] for name, outcome in outcomes.items()} == dict.fromkeys(ALL, True)
    for name, found in metrics.items():
        assert found["unit"] == PAIRS.METRICS[name].unit
        if found["low"] is not None:  # there is none where load on this machine makes neighbouring queries resemble
            assert found["low"] <= found["value"] <= found["high"]
    summary = (tmp_path / "out/single_stream/mlperf_log_summary.txt").read_text()
    nanoseconds = next(line for line in summary.splitlines() if line.startswith("90.00 percentile")).split()[-1]
    assert metrics["singlestream_p90_ms"]["value"] == pytest.approx(int(nanoseconds) / 1e6)
    assert metrics["singlestream_p90_ms"]["value"] >= 2
    assert outcomes["server"]["queries"] == metrics["server_p99_ms"]["n"] >= 800
    assert 0 < metrics["server_qps"]["value"] < 500  # what 2 ms an answer allow
    assert metrics["offline_samples_per_s"]["value"] < 2000  # four in 2 ms
    assert conditions["offline_batch"] == {"size": 4, "why": ""}
    assert conditions["engine"]["about"] == {"precision": "none"}
    assert 0 < conditions["pipe_ms"]["empty"]["p50"] <= conditions["pipe_ms"]["empty"]["p99"]
    assert conditions["host"]["threads"] == 1
    sizes = {call.split()[0] for call in calls(tmp_path)}
    assert {"one", "4"} <= sizes <= {"one", "1", "2", "3", "4"}  # the last batch holds what is left
    json.dumps([conditions, metrics, outcomes], allow_nan=False)


@pytest.mark.slow
def test_a_server_that_misses_its_bound_is_invalid_and_has_no_number(drive):
    wanted = {"server": {"target_qps": 300, "latency_ms": 1, "queries": 500, "seconds": 0.5}}
    _, metrics, outcomes = drive(wanted)
    assert not outcomes["server"]["valid"] and outcomes["server"]["result"] == "INVALID"
    assert "Reduce target QPS" in outcomes["server"]["why"][0]
    assert [metrics[name]["value"] for name in ("server_p99_ms", "server_qps")] == [None, None]


@pytest.mark.slow
def test_a_server_that_falls_behind_is_not_waited_for(drive, tmp_path):
    wanted = {"server": {"target_qps": 2000, "latency_ms": 5, "queries": 500, "seconds": 20}}
    _, metrics, outcomes = drive(wanted, unit=0.005)
    assert outcomes["server"]["queries"] < 5000  # of 40,000
    assert any("outstanding" in reason for reason in outcomes["server"]["why"])
    assert metrics["server_p99_ms"]["value"] is None


@pytest.mark.slow
def test_too_few_queries_to_prove_a_percentile_are_invalid(drive):
    _, metrics, outcomes = drive({"single_stream": {"queries": 20, "seconds": 0.01}})
    assert "Need to process at least 64 queries" in outcomes["single_stream"]["why"][-1]
    assert metrics["singlestream_p90_ms"]["value"] is None


@pytest.mark.slow
@pytest.mark.parametrize("together", ["raise ValueError('4 texts: no room')", "os.kill(os.getpid(), 9)"])
def test_where_the_runtime_takes_no_batch_samples_go_one_by_one(drive, tmp_path, together):
    conditions, metrics, outcomes = drive({"offline": ALL["offline"]}, together=together)
    assert outcomes["offline"]["valid"] and metrics["offline_samples_per_s"]["value"] < 500
    assert conditions["offline_batch"]["size"] == 1
    why = conditions["offline_batch"]["why"]
    assert ("no room" if "raise" in together else "ended by SIGKILL") in why
    assert calls(tmp_path)[0] == "4 together" and "4 together" not in calls(tmp_path)[1:]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ALL)
@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("if count == 60: os._exit(3)", "engine of the artifact: exit code 3"),
        ("if count == 60: time.sleep(60)", "engine of the artifact: gave no answer for 2 s"),
    ],
)
def test_an_engine_that_dies_or_hangs_ends_the_measurement(drive, tmp_path, scenario, step, message):
    with pytest.raises(WorkerError, match=message):
        drive({scenario: {**ALL[scenario], **({"batch": 1} if scenario == "offline" else {})}}, step=step)


def log(folder, times, validity="VALID", errors=(), **results):
    """Write what LoadGen leaves of a run, in its own lines; `times` are latencies in ns in the order of the queries."""
    folder.mkdir()
    found = {"result_validity": validity, "result_query_count": len(times), "num_errors": len(errors), **results}
    entries = [*found.items(), *(("error_runtime", text) for text in errors)]
    lines = [f':::MLLOG {{"key": "{key}", "value": {json.dumps(value)}, "time_ms": 1.0}}' for key, value in entries]
    (folder / "mlperf_log_detail.txt").write_text("\n".join(lines) + "\n")
    samples = [
        f'{{"name":"Sample","cat":"default","ph":"b","pid":1,"id":{place},"ts":1.2,"args":{{"sample_seq":{place},'
        f'"query_seq":{place},"sample_idx":0,"issue_start_ns":1,"complete_ns":{time}}}}},'
        for place, time in enumerate(times)
    ]
    other = '{"name":"LogDetail","ph":"X","args":{"key":""twice quoted""}},'
    text = "\n".join(['{"traceEvents":[', *samples[::-1], other, '{"name":"LastTrace"}', "],"])
    (folder / "mlperf_log_trace.json").write_text(text + "\n")


P90, P99 = "result_90.00_percentile_latency_ns", "result_99.00_percentile_latency_ns"


def test_a_percentile_is_loadgens_and_its_interval_that_of_the_ranks(tmp_path):
    times = [1_000_000 + 1000 * (7919 * place % 1000) for place in range(1000)]  # 1 to 2 ms, shuffled
    log(tmp_path / "single_stream", times, **{P90: 1_900_000})
    metrics, outcomes = loadgen_results.read(tmp_path, ["single_stream"])
    found = metrics["singlestream_p90_ms"]
    assert (found["value"], found["n"], found["unit"]) == (1.9, 1000, "ms")
    assert 1.85 < found["low"] < 1.89 and 1.91 < found["high"] < 1.95
    assert outcomes["single_stream"] == {"valid": True, "result": "VALID", "queries": 1000, "why": []}


def test_queries_that_resemble_their_neighbours_count_for_less_and_too_few_have_no_interval(tmp_path):
    times = [10**9 if place // 10 % 100 == 7 else 10**6 for place in range(4000)]  # ten in a row are late
    log(tmp_path / "server", times, **{P99: 10**9, "result_completed_samples_per_sec": 42.5})
    metrics, _ = loadgen_results.read(tmp_path, ["server"])
    assert (metrics["server_p99_ms"]["value"], metrics["server_p99_ms"]["low"]) == (1000, None)
    assert metrics["server_qps"] == {"value": 42.5, "low": 42.5, "high": 42.5, "n": 4000, "unit": "queries/s"}


def test_the_rate_of_batches_has_the_interval_of_its_blocks(tmp_path):
    ends = [0]
    for number in range(100):
        ends.append(ends[-1] + 9_000_000 + 20_000 * (37 * number % 100))  # 9 to 11 ms for a batch of four
    log(tmp_path / "offline", [end for end in ends[1:] for _ in range(4)], result_samples_per_second=400.6)
    found = loadgen_results.read(tmp_path, ["offline"])[0]["offline_samples_per_s"]
    assert (found["value"], found["n"]) == (400.6, 400)
    assert 390 < found["low"] < 400.6 < found["high"] < 412


@pytest.mark.parametrize(("validity", "errors"), [("INVALID", ()), ("VALID", ("Ending early: ran out",))])
def test_a_run_that_does_not_count_has_no_number(tmp_path, validity, errors):
    reasons = {"result_invalid_reason": "Reduce target QPS. ", "early_stopping_met": False,
               "early_stopping_result": " * Processed 3 queries.  * Need more."}  # fmt: skip
    log(tmp_path / "single_stream", [5, 6, 7], validity, errors, **{P90: 7}, **reasons)
    metrics, outcomes = loadgen_results.read(tmp_path, ["single_stream"])
    assert metrics["singlestream_p90_ms"] == {"value": None, "low": None, "high": None, "n": 3, "unit": "ms"}
    why = ["Reduce target QPS.", *errors, "Processed 3 queries. Need more."]
    assert outcomes["single_stream"] == {"valid": False, "result": validity, "queries": 3, "why": why}


def test_a_log_without_a_result_is_an_error_that_names_it(tmp_path):
    log(tmp_path / "offline", [1])
    detail = tmp_path / "offline/mlperf_log_detail.txt"
    detail.write_text(':::MLLOG {"key": "loadgen_version", "value": "6"}\n')
    with pytest.raises(ValueError, match=f"{detail}: holds no result"):
        loadgen_results.read(tmp_path, ["offline"])
