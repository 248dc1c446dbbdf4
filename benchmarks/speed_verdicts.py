"""How often a speed gate is wrong: an artifact against itself, and against itself made slower, alone and beside others.

    python -m benchmarks.speed_verdicts minilm/onnx/int8_dynamic [--repeats 200] [--limits 0.98 1.0] [--slower 0.05]
                                        [--option seconds=25] [--scenario "itself, quiet"]

Run in a built checkout. Both engines serve the same artifact, so the true ratio is 1, or 1 / 1.05 when one of them does
5 % more work (`slowed_engine`). `busy` runs as many endless loops beside it as there are CPUs. Each repeat starts both
engines anew and is judged as any measurement is. Prints a table in Markdown; stores nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.checkouts import plan_of
from benchmarks.timing import heading, row, summary

from hallmark import gates, speed, tasks, toolchains
from hallmark.engine import Command
from hallmark.once import machine
from hallmark.options import no_such
from hallmark.plan import Plan
from hallmark.processes import usable_cpus
from hallmark.surroundings import worker_env

SLOWED = Path(__file__).with_name("slowed_engine.py")
SCENARIOS = {  # name -> (slower, busy)
    "itself, quiet": (False, False),
    "itself, busy": (False, True),
    "slower, quiet": (True, False),
    "slower, busy": (True, True),
}
WORDS = ("pass", "fail", "inconclusive")
RATIOS = {
    "causal-lm": ("decode_ratio", "decode_cpu_ratio"),
    "sentence-similarity": ("latency_ratio", "latency_cpu_ratio"),
}


@dataclass(frozen=True)
class Subject:
    """What both engines serve: a worker's request, the Python that runs it, and the reference's folder."""

    python: Path
    request: Mapping[str, Any]
    reference: Path

    def engine(self, scratch: Path, slower: float = 0.0) -> Command:
        scratch.mkdir()
        asked = scratch / "request.json"
        asked.write_text(json.dumps(self.request), encoding="utf-8")
        program = [str(SLOWED), str(slower)] if slower else ["-m", "hallmark.worker"]
        argv = [str(self.python), *program, str(asked), str(scratch / "response.json")]
        return Command(argv, worker_env(self.python.parents[1], self.request["options"]["threads"], scratch))


@dataclass
class Tally:
    """What the repeats of one scenario said."""

    words: dict[tuple[str, float], list[str]] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)


def subject_of(plan: Plan, name: str, options: Mapping[str, float]) -> Subject:
    """An artifact of the plan, by the name model/format/variant. Raises when it is none of its."""
    found = {artifact.name: artifact for artifact in plan.artifacts}
    if name not in found:
        raise SystemExit(no_such("artifact", name, found))
    node = found[name].measurements["speed"]
    recipe = node.recipe
    files, reference = (plan.root / node.inputs[role].place / "files" for role in ("artifact", "reference"))
    chosen = {**recipe["options"], **options, "threads": usable_cpus()}
    request = {"action": "serve", "options": chosen, "files": str(files.absolute())}
    request |= {key: recipe[key] for key in ("task", "format", "variant")}
    return Subject(node.toolchains["worker"].folder / "bin/python", request, reference.absolute())


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Endless loops beside the block."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def repeat(subject: Subject, tally: Tally, slower: float, busy: bool, limits: Sequence[float]) -> None:
    """One measurement, judged against each of the limits."""
    task = subject.request["task"]
    ratios = RATIOS[task]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, loops(usable_cpus() if busy else 0):
        place = Path(scratch)
        artifact, source = subject.engine(place / "artifact", slower), subject.engine(place / "source")
        metrics, _, conditions = speed.measure(
            artifact,
            source,
            task,
            subject.reference,
            subject.request["options"],
            place / "log",
            {ratios[0]: limits},
            lambda *_: None,
        )
    tally.seconds.append(time.monotonic() - started)
    tally.others.append(conditions["host"]["cpus_used_by_others"])
    measured = {"kind": "speed", "artifact": "it", "metrics": metrics, "conditions": conditions}
    for ratio in ratios:
        tally.values.setdefault(ratio, []).append(metrics[ratio]["value"] or float("nan"))
        for limit in limits:
            resolved = {ratio: (gates.Limit(min=limit), "*/*/*")}
            verdict = gates.judge("it", "here", resolved, [measured], {}, "it", metrics=tasks.get(task).METRICS)
            tally.words.setdefault((ratio, limit), []).append(verdict["verdict"])


def show(scenario: str, tally: Tally) -> None:
    for (ratio, limit), words in tally.words.items():
        counts = [str(words.count(word)) for word in WORDS]
        values, spread = tally.values[ratio], statistics.pstdev(tally.values[ratio])
        numbers = [
            f"{statistics.median(values):.3f} (sd {spread:.4f})",
            summary(tally.others),
            summary(tally.seconds, 0),
        ]
        print(row(scenario, f"{ratio} ≥ {limit:g}", *counts, *numbers), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact", help="model/format/variant")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--limits", type=float, nargs="+", default=[0.98, 1.0])
    parser.add_argument("--slower", type=float, default=0.05, help="share of more work that one of the engines does")
    parser.add_argument("--option", action="append", default=[], help="measuring option, name=number")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="default: all")
    asked = parser.parse_args()
    options = {name: float(value) for name, _, value in (option.partition("=") for option in asked.option)}
    subject = subject_of(plan_of(Path()), asked.artifact, options)
    print(f"{heading()}; `{asked.artifact}`, {asked.repeats} repeats of each, {asked.slower:.0%} slower\n")
    heads = ("scenario", "gate", *WORDS, "ratio, median", "CPUs used by others", "s a verdict")
    print(row(*heads), row(*["---"] * len(heads)), sep="\n", flush=True)
    for scenario in asked.scenario or SCENARIOS:
        slower, busy = SCENARIOS[scenario]
        tally = Tally()
        with machine(toolchains.cache_folder(), alone=True):
            for _ in range(asked.repeats):
                repeat(subject, tally, asked.slower if slower else 0.0, busy, asked.limits)
        show(scenario, tally)


if __name__ == "__main__":
    main()
