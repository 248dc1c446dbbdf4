"""Has MLPerf LoadGen send its traffic to one engine, in the toolchain `loadgen`. Computes no metric, judges nothing.

LoadGen decides when a query comes and takes the times; what answers is an engine process (`hallmark.worker`, action
`serve`) in the artifact's own toolchain, at the other end of a pipe. It answers one message at a time, so queries that
come meanwhile wait here, in their order. A request (see `hallmark.worker`) holds

    engine      {argv, env, log}: how the engine is started, and where what it prints goes
    task        its name; `together` of the task makes one request out of several
    samples     requests of the task, of which LoadGen draws
    scenarios   {name: settings}, see `hallmark.config.LoadGen`
    options     the task's, of which warm-up and time-out count here
    out         folder: LoadGen's logs of each scenario go into a folder of the scenario's name

An engine that fails ends this process, from whichever thread notices: an exception must not pass through LoadGen.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hallmark import progress, tasks
from hallmark.engine import Command, Engine, EngineError, gained
from hallmark.host import Watch

EMPTY = 200  # empty requests, which say what the pipe costs
BATCHES = 5  # before Offline, for the pace that LoadGen is told
SEED = 20240229
HEADROOM = 1.3  # LoadGen makes its queries beforehand; an engine this much faster than its warm-up still gets enough
FALLEN_BEHIND = 10  # times the latency bound, as a queue at the target rate: Server ends when more queries wait
SPARE = 100  # queries that may wait in any case
Request = Mapping[str, Any]


class Asked:
    """An engine at work: what it was asked, how long the answers took here and there, and what CPU time it used."""

    def __init__(self, engine: Engine, samples: Sequence[Any], task: str) -> None:
        self._engine, self._samples, self._task = engine, samples, tasks.get(task)
        self.overheads: list[float] = []  # seconds that an answer took beyond what the engine says
        self.worked = 0.0

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Ask, and keep what it cost."""
        started = time.perf_counter()
        answer = self._engine.ask(message)
        self.overheads.append(time.perf_counter() - started - answer["took_s"])
        self.worked += answer["waited_cpu_s"] + answer["cpu_s"]
        return answer

    def answer(self, places: Sequence[int]) -> float:
        """Have the samples at these places answered, several as one request; returns the seconds it took."""
        chosen = [self._samples[place] for place in places]
        request = chosen[0] if len(chosen) == 1 else self._task.together(chosen)
        started = time.perf_counter()
        self.ask({"do": "sample", "request": request})
        return time.perf_counter() - started

    def pipe_ms(self) -> dict[str, float]:
        """What a request that asks for nothing costs: the messages there and back, JSON included."""
        for _ in range(EMPTY):
            self.ask({"do": "soak", "request": []})
        spent, self.overheads = sorted(self.overheads), []
        return {"p50": _ms(median(spent)), "p99": _ms(spent[len(spent) * 99 // 100])}

    def warm_up(self, options: Mapping[str, Any]) -> tuple[float, float]:
        """Single samples until the engine gains no more, as in `hallmark.speed`: the fastest answer in seconds, and the
        share by which the last ones were faster than those before."""
        window, times = int(options["warmup_window"]), list[float]()
        gain = float("inf")
        for number in range(int(options["warmup_rounds"])):
            times.append(self.answer([number % len(self._samples)]))
            gain = gained(times, window)
            if gain <= float(options["warmup_tolerance"]):
                break
        return min(times), gain


class Driver:
    """Runs one scenario after another with LoadGen."""

    def __init__(self, asked: Asked, count: int, fastest: float, batch: int, out: Path) -> None:
        self._asked, self._count, self._fastest, self._batch, self._out = asked, count, fastest, batch, out

    def run(self, name: str, chosen: Mapping[str, Any]) -> None:
        """One scenario, to its end; its logs are in a folder of its name then."""
        import mlperf_loadgen as lg

        (self._out / name).mkdir()
        logs = lg.LogSettings()
        logs.log_output.outdir = str(self._out / name)
        waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        issue = {"single_stream": self._answer, "server": waiting.put, "offline": self._answer_in_batches}[name]
        if name == "server":  # queries come while others are answered
            threading.Thread(target=self._answer_all, args=(waiting,), daemon=True).start()
        sut = lg.ConstructSUT(issue, lambda: None)
        library = lg.ConstructQSL(self._count, self._count, lambda places: None, lambda places: None)
        lg.StartTestWithLogSettings(sut, library, self._settings(lg, name, chosen), logs)
        waiting.put(None)
        lg.DestroyQSL(library)
        lg.DestroySUT(sut)

    def _settings(self, lg: Any, name: str, chosen: Mapping[str, Any]) -> Any:
        settings = lg.TestSettings()
        settings.mode = lg.TestMode.PerformanceOnly
        settings.min_duration_ms = round(1000 * chosen["seconds"])
        settings.min_query_count = int(chosen["queries"])
        settings.qsl_rng_seed = settings.sample_index_rng_seed = settings.schedule_rng_seed = SEED
        if name == "single_stream":
            settings.scenario = lg.TestScenario.SingleStream
            settings.single_stream_expected_latency_ns = round(1e9 * self._fastest / HEADROOM)
        elif name == "server":
            settings.scenario = lg.TestScenario.Server
            settings.server_target_qps = float(chosen["target_qps"])
            settings.server_target_latency_ns = round(1e6 * chosen["latency_ms"])
            queued = FALLEN_BEHIND * chosen["latency_ms"] / 1000 * chosen["target_qps"]
            settings.server_max_async_queries = round(queued) + SPARE
        else:
            settings.scenario = lg.TestScenario.Offline
            places = [number % self._count for number in range(self._batch)]
            pace = min(self._asked.answer(places) for _ in range(BATCHES)) / self._batch
            settings.offline_expected_qps = HEADROOM / pace
        return settings

    def _answer(self, samples: Sequence[Any]) -> None:
        import mlperf_loadgen as lg

        try:
            self._asked.answer([sample.index for sample in samples])
        except BaseException:
            _end()
        lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0) for sample in samples])

    def _answer_in_batches(self, samples: Sequence[Any]) -> None:
        for place in range(0, len(samples), self._batch):
            self._answer(samples[place : place + self._batch])

    def _answer_all(self, waiting: queue.SimpleQueue[Any]) -> None:
        while (samples := waiting.get()) is not None:
            self._answer(samples)


def _end() -> None:
    """Say what went wrong and end this process; the engine ends with it."""
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 4)


def _engine(request: Request) -> Engine:
    made = request["engine"]
    command = Command(made["argv"], made["env"])
    # Asked at once: no other engine waits for its turn.
    return Engine("artifact", command, Path(made["log"]), float(request["options"]["timeout_s"]), pause_s=0)


def batches(request: Request) -> tuple[int, str]:
    """How many samples go into a batch of Offline, and why they go one by one though the settings ask for batches.

    A trial with the longest samples says whether the runtime takes so many at once, in an engine of its own: what comes
    of a batch that is too much depends on the runtime. Whether a batch's answers are those of its samples alone is not
    looked at here: that is an accuracy (`batch_change` of encoders).
    """
    size = int(request["scenarios"].get("offline", {}).get("batch", 1))
    if size == 1:
        return 1, ""
    longest = sorted(request["samples"], key=lambda sample: len(json.dumps(sample)), reverse=True)[:size]
    with _engine(request) as engine:
        engine.reply()
        try:
            engine.ask({"do": "sample", "request": tasks.get(request["task"]).together(longest)})
        except EngineError as error:
            return 1, f"no batch of {size}: {str(error).splitlines()[-1]}"
    return size, ""


def drive(request: Request) -> dict[str, Any]:
    """Run the request's scenarios; returns the conditions. Raises EngineError when the engine fails before or between
    them."""
    options, samples, scenarios = request["options"], request["samples"], request["scenarios"]
    size, why = batches(request)
    with _engine(request) as engine:
        engine.reply()
        asked = Asked(engine, samples, request["task"])
        pipe = asked.pipe_ms()
        fastest, gain = asked.warm_up(options)
        driver = Driver(asked, len(samples), fastest, size, Path(request["out"]))
        watch, before = Watch(), asked.worked + time.process_time()
        asked.overheads = []
        for done, (name, chosen) in enumerate(scenarios.items()):
            progress.report(done, len(scenarios), "scenarios")
            driver.run(name, chosen)
            watch.look()
        host = watch.summary(asked.worked + time.process_time() - before)
        state = engine.ask({"do": "state"})
    return {
        "engine": {name: state[name] for name in ("versions", "about")},
        "pipe_ms": {"empty": pipe, "query_p50": _ms(median(asked.overheads))},
        "offline_batch": {"size": size, "why": why} if "offline" in scenarios else None,
        "host": {**host, "threads": int(options["threads"])},
        "settled": gain <= float(options["warmup_tolerance"]),
        "warmup_gain": round(min(max(gain, 0.0), 10.0), 3),
    }
