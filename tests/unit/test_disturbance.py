"""What others on the machine make of a verdict: they can take certainty away, and never give any."""

import pytest

from hallmark import disturbance, loadgen_results
from hallmark.gates import Limit, judge, resolve
from hallmark.tasks import timed

METRICS = {
    "warmup_s": timed("s", "lower", "a difference of times", "difference"),
    "decode_ratio": timed("", "higher", "a ratio"),
    "ttft_ms": timed("ms", "lower", "a time"),
    "decode_cpu_ratio": timed("", "higher", "a ratio of CPU time", "cpu"),
    "decode_tokens_per_s": timed("tokens/s", "higher", "a rate"),
    **loadgen_results.METRICS,
}


def conditions(others=0.0, stolen=0.0, threads=2, cpus=2, pace=1.0, quotas=(), **more):
    host = {"cpus": cpus, "cpus_used_by_others": others, "cpus_stolen": stolen, "threads": threads, "pace": pace}
    host["quotas"] = list(quotas)
    return {"host": host, "settled": True, "warmup_gain": 0.0, **more}


def verdict(metric, limit, low, high, measured_under):
    found = {"value": (low + high) / 2, "low": low, "high": high, "n": 20, "unit": METRICS[metric].unit}
    speed = {"kind": "speed", "artifact": "a", "metrics": {metric: found}, "conditions": measured_under}
    resolved = resolve({"lm": {"*/*/*": {metric: Limit(**limit)}}}, "lm", "m/f/v")
    return judge("m/f/v", "cpu", resolved, [speed], {}, "a", metrics=METRICS)


def test_a_quiet_machine_widens_nothing():
    assert disturbance.of(conditions(0.09)) == disturbance.Disturbance()
    assert disturbance.of({}) == disturbance.Disturbance()
    assert disturbance.of(conditions(30.0, threads=2, cpus=64)) == disturbance.Disturbance()


@pytest.mark.parametrize(
    ("measured_under", "ratio", "time"),
    [
        (conditions(1.0), 4.0, 4.0),
        (conditions(0.5), 16 / 9, 16 / 9),
        (conditions(63.0, threads=2, cpus=64), 4.0, 4.0),
        (conditions(1.8), float("inf"), float("inf")),
        (conditions(settled=False, warmup_gain=0.2), 1.2, 1.2),
        (conditions(pace=1.2), 1.0, 1.2),
        (conditions(2.0, threads=2, cpus=64, quotas=[{"cpus": 2.0, "cpus_used_by_others": 1.0}]), 4.0, 4.0),
    ],
)
def test_the_factors(measured_under, ratio, time):
    found = disturbance.of(measured_under)
    assert (found.ratio, found.time) == (pytest.approx(ratio), pytest.approx(time))
    assert found.why


def test_what_others_could_explain_is_inconclusive_and_what_they_could_not_stays():
    words = {
        numbers: verdict("decode_ratio", {"min": 1.0}, *numbers, conditions(0.5))["verdict"]
        for numbers in ((2.0, 3.0), (1.2, 1.5), (0.7, 0.9), (0.3, 0.5))
    }
    assert list(words.values()) == ["pass", "inconclusive", "inconclusive", "fail"]
    found = verdict("decode_ratio", {"min": 1.0}, 1.2, 1.5, conditions(0.5))
    assert found["why"] == "decode_ratio 1.35 [1.2, 1.5] >= 1 (*/*/*), but others used 0.5 of 2 CPUs"
    assert found["noisy"]


def test_cpu_time_suffers_less():
    busy = conditions(1.0)
    assert verdict("decode_cpu_ratio", {"min": 1.0}, 1.2, 1.3, busy)["verdict"] == "pass"
    assert verdict("decode_cpu_ratio", {"min": 1.0}, 1.1, 1.3, busy)["verdict"] == "inconclusive"
    assert verdict("decode_ratio", {"min": 1.0}, 1.2, 1.3, busy)["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("metric", "limit", "good", "bad"),
    [("ttft_ms", {"max": 100}, (80, 90), (110, 120)), ("decode_tokens_per_s", {"min": 10}, (11, 12), (8, 9))],
)
def test_a_time_can_only_have_come_out_too_long(metric, limit, good, bad):
    busy = conditions(0.5)
    assert verdict(metric, limit, *good, busy)["verdict"] == "pass"
    assert verdict(metric, limit, *bad, busy)["verdict"] == "inconclusive"
    assert verdict(metric, limit, *bad, conditions())["verdict"] == "fail"


def test_no_disturbance_lets_anything_pass_that_did_not():
    for others in (0.0, 0.3, 1.0, 1.9):
        for low, high in ((0.5, 0.6), (0.9, 1.1), (1.1, 1.2)):
            word = verdict("decode_ratio", {"min": 1.0}, low, high, conditions(others))["verdict"]
            assert word in (verdict("decode_ratio", {"min": 1.0}, low, high, conditions())["verdict"], "inconclusive")


@pytest.mark.parametrize(
    ("measured_under", "word", "again"), [(conditions(), "fail", False), (conditions(0.5), "inconclusive", True)]
)
def test_a_run_of_loadgen_that_does_not_count_fails_unless_others_could_explain_it(measured_under, word, again):
    found = {"value": None, "low": None, "high": None, "n": 20, "unit": "ms"}
    traffic = {"kind": "loadgen", "artifact": "a", "metrics": {"server_p99_ms": found}, "conditions": measured_under}
    resolved = resolve({"lm": {"*/*/*": {"server_p99_ms": Limit(max=50)}}}, "lm", "m/f/v")
    judged = judge("m/f/v", "cpu", resolved, [traffic], {}, "a", metrics=METRICS)
    assert (judged["verdict"], judged["loadgen_noisy"], judged["noisy"]) == (word, again, False)


def test_what_happened_beside_loadgen_is_not_held_against_the_speed():
    quiet, busy = conditions(), conditions(1.0)
    ratio = {"value": 1.2, "low": 1.1, "high": 1.3, "n": 20, "unit": ""}
    late = {"value": 60.0, "low": 55.0, "high": 65.0, "n": 20, "unit": "ms"}
    measurements = [
        {"kind": "speed", "artifact": "a", "metrics": {"decode_ratio": ratio}, "conditions": quiet},
        {"kind": "loadgen", "artifact": "a", "metrics": {"server_p99_ms": late}, "conditions": busy},
    ]
    limits = {"decode_ratio": Limit(min=1.0), "server_p99_ms": Limit(max=50)}
    resolved = resolve({"lm": {"*/*/*": limits}}, "lm", "m/f/v")
    judged = judge("m/f/v", "cpu", resolved, measurements, {}, "a", metrics=METRICS)
    words = {gate["metric"]: gate["verdict"] for gate in judged["gates"]}
    assert words == {"decode_ratio": "pass", "server_p99_ms": "inconclusive"}
    assert judged["loadgen_noisy"] and not judged["noisy"]


def test_a_difference_of_times_says_nothing_where_the_machine_was_busy():
    # What is taken off may be longer, so 0 is what a slow opening gives, too.
    assert verdict("warmup_s", {"max": 1.0}, 0.0, 0.0, conditions(0.0))["verdict"] == "pass"
    assert verdict("warmup_s", {"max": 1.0}, 0.0, 0.0, conditions(0.5))["verdict"] == "inconclusive"
    assert verdict("warmup_s", {"max": 1.0}, 3.0, 4.0, conditions(0.5))["verdict"] == "inconclusive"
