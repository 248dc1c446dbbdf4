"""The speed measurement: two real engine processes that take turns, and what happens when one of them misbehaves.

The engines serve a language model that only sleeps, for known times, through the worker's own loop.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hallmark import against_release, speed, tasks
from hallmark.engine import Command, Engine, EngineError, gained

PACKAGES = str(Path(tasks.__file__).parents[2])
LM = tasks.get("causal-lm")
OPTIONS = {
    **tasks.defaults(LM.OPTIONS),
    "rounds": 12,
    "least_seconds": 0,
    "warmup_rounds": 4,
    "warmup_tolerance": 9.0,
    "loads": 2,
    "soak_requests": 8,
    "timeout_s": 20,
    "prompt_tokens": 8,
    "decode_tokens": 2,
    "threads": 1,
}
GROWTH = "memory_growth_mb_per_1000"
# An engine: `unit` seconds for a decoded token, three for a prompt; `prelude` is run before, `step` before each prompt.
SERVE = """
import os, sys, time
from contextlib import contextmanager
from hallmark import tasks, worker
unit, log = {unit}, open({log!r}, "a", buffering=1)
{prelude}
class Sleeper:
    about = {{"precision": "none"}}
    def prefill(self, ids):
        global unit, fresh
        log.write(f"{name} {{ids[0]}}\\n")
        {step}
        time.sleep(3 * unit)
        return 1
    def decode(self, token):
        time.sleep(unit)
        return 1
@contextmanager
def opened():
    global fresh
    fresh = 2
    log.write("{name} opens\\n")
    yield Sleeper()
worker.serve(opened, tasks.get("causal-lm"), {size}, sys.stdin.buffer, sys.stdout.buffer)
"""


@pytest.fixture
def reference(tmp_path):
    folder = tmp_path / "reference"
    folder.mkdir()
    np.save(folder / "pool.npy", np.arange(1000, dtype=np.int32))
    return folder


@pytest.fixture
def engine(tmp_path):
    """A function that makes the command of an engine."""

    def command(name, unit=0.001, size=1000, prelude="pass", step="pass"):
        code = SERVE.format(name=name, unit=unit, size=size, prelude=prelude, step=step, log=str(tmp_path / "calls"))
        return Command([sys.executable, "-c", code], {"PYTHONPATH": PACKAGES})

    return command


@pytest.fixture
def measure(reference, tmp_path):
    def run(artifact, source, limits=None, **options):
        chosen = {**OPTIONS, **options}
        return speed.measure(
            artifact, source, "causal-lm", reference, chosen, tmp_path / "log", limits or {}, lambda *_: None
        )

    return run


def calls(tmp_path):
    return [line.split() for line in (tmp_path / "calls").read_text().splitlines()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_engines_take_turns_on_requests_that_never_repeat(engine, measure, tmp_path):
    _, samples, conditions = measure(engine("a"), engine("s"))
    asked = [call for call in calls(tmp_path) if call[1] != "opens"]
    count = conditions["warmup_rounds"] + OPTIONS["rounds"]
    rounds = [asked[place : place + 2] for place in range(0, 2 * count, 2)]
    timed = rounds[conditions["warmup_rounds"] :]
    assert ["artifact" if pair[0][0] == "a" else "source" for pair in timed] == samples["first"]
    assert {"".join(name for name, _ in pair) for pair in timed} == {"as", "sa"}
    assert all(pair[0][1] == pair[1][1] for pair in rounds)
    assert len({pair[0][1] for pair in rounds}) == count
    assert (len(samples["artifact"]), len(samples["source"])) == (12, 12)
    assert len(samples["artifact_load"]) == len(samples["source_load"]) == 2
    assert len(samples["artifact_soak"]) == 8


@pytest.fixture
def looks(monkeypatch):
    """A function that says after how many rounds, of a second each, the looks are satisfied, after how many looks,
    and by what; the artifact is three times as fast as the source."""

    def ended(limits, jitter=0.0, **options):
        now = iter(range(100))
        monkeypatch.setattr(speed.time, "monotonic", lambda: next(now))
        chosen = {"precision": 0.02, "least_seconds": 0, "seconds": 1000, **options}
        looking, sides = speed._Looks(LM, chosen, limits), ([], [])
        for number in range(1, 31):
            for side, pace in zip(sides, (0.01, 0.03), strict=True):
                pace *= 1 + jitter * (-1) ** number
                side.append({"first": 3 * pace, "per_prompt_token": pace, "per_token": pace, "per_token_cpu": pace})
            if looking.enough(*sides, number == 30):
                break
        found = looking.conditions()
        return number, found["looks"], found["rounds_ended_by"]

    return ended


def test_rounds_end_when_they_are_clear_of_every_limit_or_precise_or_too_many(looks):
    assert looks({"decode_ratio": [1.0, 2.0], "kl_mean": [0.1]}, precision=0.001) == (12, 1, "settled")
    assert looks({"decode_ratio": [1.0, 3.0]}, precision=0.001) == (30, 4, "rounds")
    assert looks({"decode_ratio": [1.0, 3.0]}) == (12, 1, "settled")
    assert looks({}) == (12, 1, "settled")
    assert looks({}, precision=0.001) == (30, 4, "rounds")
    assert looks({"ttft_ms": [50.0]}, jitter=0.1) == (12, 1, "settled")
    assert looks({"ttft_ms": [31.0]}, jitter=0.1) == (30, 4, "rounds")


def test_rounds_last_for_the_least_seconds_and_not_beyond_the_most(looks):
    assert looks({"decode_ratio": [1.0]}, least_seconds=20) == (20, 1, "settled")
    assert looks({"decode_ratio": [3.0]}, seconds=14, precision=0.001) == (14, 2, "seconds")
    assert looks({"decode_ratio": [3.0]}, seconds=3, precision=0.001) == (12, 1, "seconds")


def test_metrics_and_conditions(engine, measure):
    metrics, samples, conditions = measure(engine("a", unit=0.004, size=4_000_000), engine("s", unit=0.012))
    assert set(metrics) == {name for name, metric in LM.METRICS.items() if metric.source == "speed"}
    assert all(metrics[name]["unit"] == LM.METRICS[name].unit for name in metrics)
    assert 2 < metrics["decode_ratio"]["value"] < 3.5
    assert metrics["decode_ratio"]["low"] <= metrics["decode_ratio"]["value"] <= metrics["decode_ratio"]["high"]
    assert metrics["ttft_ms"]["value"] >= 12
    assert metrics["load_s"]["value"] >= 0.016
    assert metrics["file_size_mb"]["value"] == 4
    assert 5 < metrics["peak_memory_mb"]["value"] < 500
    assert all(times["per_token"] >= 0.004 for times in samples["artifact"])
    assert conditions["engines"]["artifact"]["about"] == {"precision": "none"}
    assert conditions["cpus_used_while_waiting"]["source"] < 0.2
    host = conditions["host"]
    assert [len(load) for load in host["load_average"]] == [3, 3]
    assert 0 <= host["cpus_stolen"] <= host["cpus_used_by_others"] <= host["cpus"]
    assert host["pace"] >= 1
    assert host["threads"] == 1
    assert metrics["warmup_s"]["value"] >= 0
    json.dumps([metrics, samples, conditions], allow_nan=False)


@pytest.fixture
def compare(reference, tmp_path):
    def run(artifact, released, limits=None):
        return against_release.measure(
            artifact, released, "causal-lm", reference, OPTIONS, tmp_path / "log", limits or {}
        )

    return run


def test_against_a_release_the_ratios_have_names_of_their_own_and_nothing_speaks_of_a_source(engine, compare):
    limits = {"release_decode_ratio": [0.97], "release_size_ratio": [0.9]}
    metrics, samples, conditions = compare(engine("a", unit=0.004), engine("r", unit=0.012), limits)
    known = {name for name, metric in tasks.metrics("causal-lm").items() if metric.source == "release"}
    assert set(metrics) == known - {"release_size_ratio"}
    assert 2 < metrics["release_decode_ratio"]["value"] < 3.5
    assert set(samples["first"]) == {"artifact", "release"}
    assert len(samples["release"]) == len(samples["artifact"]) == 12
    assert set(conditions["engines"]) == {"artifact", "release"}
    assert "source" not in json.dumps([metrics, samples, conditions])


def test_a_released_engine_that_fails_is_named(engine, compare):
    with pytest.raises(EngineError, match=r"the engine of the last release: exit code 1(.|\n)*damaged file"):
        compare(engine("a"), engine("r", prelude="raise OSError('damaged file')"))


def test_warm_up_ends_when_the_engines_gain_no_more(engine, measure):
    conditions = measure(engine("a"), engine("s"))[2]
    assert (conditions["warmup_rounds"], conditions["settled"]) == (3, True)
    faster = "unit *= 0.7"  # of its last pace, with each request
    conditions = measure(engine("a", unit=0.02, step=faster), engine("s"), warmup_tolerance=0.1)[2]
    assert (conditions["warmup_rounds"], conditions["settled"]) == (4, False)
    assert 0.5 < conditions["warmup_gain"] < 1.2


def test_the_gain_is_seen_through_noise_that_only_slows_down():
    assert gained([1.0, 1.3, 1.0, 2.0], 2) == 0
    assert gained([2.0, 1.5, 1.0, 1.6], 2) == 0.5
    assert gained([1.0, 1.0], 2) == math.inf


def test_what_the_first_answers_after_an_opening_lose_is_the_warm_up(engine, measure):
    cold = "time.sleep(0.05 if fresh > 0 else 0); fresh -= 1"
    metrics = measure(engine("a", step=cold), engine("s"))[0]
    assert metrics["warmup_s"]["value"] > 0.08  # two slow answers; a busy machine adds to it


@pytest.mark.parametrize(("leak", "least", "most"), [(1_000_000, 900, 1100), (0, -20, 20)])
def test_a_megabyte_a_request_is_seen_and_an_allocator_is_not(engine, measure, leak, least, most):
    step = f"held.append(bytes([1]) * {leak}); noise = bytes(random.randrange(300_000))"
    prelude = "import random; random.seed(3); held = []"
    growth = measure(engine("a", prelude=prelude, step=step), engine("s"), soak_requests=48)[0][GROWTH]
    assert least < growth["low"] <= growth["value"] <= growth["high"] < most


def test_what_a_spinning_engine_takes_is_recorded(engine, measure):
    spin = "import threading; threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()"
    conditions = measure(engine("a", unit=0.003, prelude=spin), engine("s", unit=0.003))[2]
    assert conditions["cpus_used_while_waiting"]["artifact"] > 0.2
    assert conditions["cpus_used_while_waiting"]["source"] < 0.2


def test_memory_of_child_processes_counts(engine, measure):
    big = "x = bytes(range(256)) * 400_000; input()"  # 102 MB
    child = f"import subprocess; child = subprocess.Popen([sys.executable, '-c', {big!r}], stdin=-1)"
    metrics = measure(engine("a", prelude=child, step="time.sleep(0.1)"), engine("s"))[0]
    assert metrics["peak_memory_mb"]["value"] > metrics["source_peak_memory_mb"]["value"] + 90


def pids(tmp_path):
    return [int(path.name) for path in (tmp_path / "pids").iterdir()]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("raise ValueError('no such layer')", "engine of the artifact: exit code 1(.|\n)*no such layer"),
        ("os._exit(3)", "engine of the artifact: exit code 3"),
        ("os.kill(os.getpid(), 9)", "engine of the artifact: ended by SIGKILL"),
        ("time.sleep(60)", "engine of the artifact: gave no answer for 2 s"),
        ("os.write(1, b'loading\\n')", "engine of the artifact: answered b'loading', which is not JSON"),
    ],
)
def test_a_failing_engine_ends_both_and_says_why(engine, measure, tmp_path, step, message):
    (tmp_path / "pids").mkdir()
    mark = f"open({str(tmp_path / 'pids')!r} + f'/{{os.getpid()}}', 'w').close()"
    started = time.monotonic()
    with pytest.raises(EngineError, match=message):
        measure(engine("a", prelude=mark, step=step), engine("s", prelude=mark), timeout_s=2)
    assert time.monotonic() - started < 15
    assert len(pids(tmp_path)) == 2
    assert not any(alive(pid) for pid in pids(tmp_path))


def test_an_engine_that_cannot_open_its_model_says_why(engine, measure):
    with pytest.raises(EngineError, match=r"engine of the source: exit code 1(.|\n)*damaged file"):
        measure(engine("a"), engine("s", prelude="raise OSError('damaged file')"))


def test_an_engine_ends_when_its_input_does(engine, tmp_path):
    with Engine("artifact", engine("a"), tmp_path / "log", 20) as running:
        assert running.reply() == {"size_bytes": 1000}
        pid = running._process.pid
        assert alive(pid)
    assert not alive(pid)
    assert running._process.returncode == 0


def test_an_engine_dies_with_the_measuring_process(engine, tmp_path):
    command = engine("a", prelude=f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))")
    child = os.fork()
    if child == 0:
        Engine("artifact", command, tmp_path / "log", 20).reply()
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    deadline = time.monotonic() + 5
    pid = int((tmp_path / "pid").read_text())
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)
