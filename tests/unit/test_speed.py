"""The speed measurement: two real engine processes that take turns, and what happens when one of them misbehaves.

The engines serve a language model that only sleeps, for known times, through the worker's own loop.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hallmark import speed, tasks
from hallmark.engine import Command, Engine, EngineError

PACKAGES = str(Path(tasks.__file__).parents[2])
LM = tasks.get("causal-lm")
OPTIONS = {
    **tasks.defaults(LM.OPTIONS),
    "rounds": 4,
    "warmup_rounds": 3,
    "warmup_tolerance": 9.0,
    "loads": 2,
    "timeout_s": 20,
    "prompt_tokens": 8,
    "decode_tokens": 2,
    "threads": 1,
}
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
        log.write(f"{name} {{ids[0]}}\\n")
        {step}
        time.sleep(3 * unit)
        return 1
    def decode(self, token):
        time.sleep(unit)
        return 1
@contextmanager
def opened():
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
    def run(artifact, source, **options):
        return speed.measure(
            artifact, source, "causal-lm", reference, {**OPTIONS, **options}, tmp_path / "log", lambda *_: None
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
    rounds = [asked[place : place + 2] for place in range(0, len(asked), 2)]
    timed = rounds[conditions["warmup_rounds"] : -OPTIONS["loads"]]
    assert ["".join(name for name, _ in pair) for pair in timed] == ["as", "sa", "as", "sa"]
    assert all(pair[0][1] == pair[1][1] for pair in rounds)
    prompts = [pair[0][1] for pair in rounds[: -OPTIONS["loads"]]]
    assert len(set(prompts)) == len(prompts)
    assert (len(samples["artifact"]), len(samples["source"])) == (4, 4)
    assert len(samples["artifact_load"]) == len(samples["source_load"]) == 2


def test_metrics_and_conditions(engine, measure):
    metrics, samples, conditions = measure(
        engine("a", unit=0.01, size=4_000_000), engine("s", unit=0.03), warmup_rounds=1
    )
    assert set(metrics) == {name for name, metric in LM.METRICS.items() if metric.source == "speed"}
    assert all(metrics[name]["unit"] == LM.METRICS[name].unit for name in metrics)
    assert 2 < metrics["decode_ratio"]["value"] < 3.5
    assert metrics["decode_ratio"]["low"] <= metrics["decode_ratio"]["value"] <= metrics["decode_ratio"]["high"]
    assert metrics["ttft_ms"]["value"] >= 30
    assert metrics["load_s"]["value"] >= 0.04
    assert metrics["file_size_mb"]["value"] == 4
    assert 5 < metrics["peak_memory_mb"]["value"] < 500
    assert all(times["per_token"] >= 0.01 for times in samples["artifact"])
    assert conditions["engines"]["artifact"]["about"] == {"precision": "none"}
    assert conditions["cpus_used_while_waiting"]["source"] < 0.2
    assert len(conditions["load_average_before"]) == 3
    json.dumps([metrics, samples, conditions], allow_nan=False)


def test_warm_up_ends_when_times_settle(engine, measure):
    assert measure(engine("a"), engine("s"), warmup_tolerance=99.0)[2]["warmup_rounds"] == 2
    conditions = measure(engine("a"), engine("s"), warmup_tolerance=0.0)[2]
    assert (conditions["warmup_rounds"], conditions["settled"]) == (3, False)


def test_settled_means_that_all_times_of_the_window_are_alike():
    steady, rising = [{"x": 1.0}] * 3, [{"x": 1.0}, {"x": 1.0}, {"x": 1.2}]
    assert speed._has_settled(steady, 3, 0.1)
    assert not speed._has_settled(steady[:2], 3, 0.1)
    assert not speed._has_settled(rising, 3, 0.1)
    assert speed._has_settled(rising, 3, 0.2)


def test_what_a_spinning_engine_takes_is_recorded(engine, measure):
    spin = "import threading; threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()"
    short = {"rounds": 2, "warmup_rounds": 1, "loads": 1}
    conditions = measure(engine("a", unit=0.02, prelude=spin), engine("s", unit=0.02), **short)[2]
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
