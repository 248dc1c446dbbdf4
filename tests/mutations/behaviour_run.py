"""Tries every seeded defect of a running engine, measures it as a build does, and judges it by the shipped gates.

    python -m tests.mutations.behaviour_run --artifacts FOLDER [--only PATTERN] [--subject PATTERN] [--blocks 4]

FOLDER is a built checkout's `artifacts`, from which files, references, inspections and options are read; nothing is
stored. Each artifact comes first without a defect, and no gate may fail it. Accuracy is judged by the shipped policy,
on the stored inspection; language models are measured on the first few windows of the reference. Speed is measured
against the same artifact without the defect, and judged by `behaviour.LIMITS`. Exits 1 when a defect is not caught.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from tests.mutations import behaviour, subjects
from tests.mutations.catalogue import Mutation
from tests.mutations.checkpoint_edits import linked, read_json
from tests.mutations.subjects import Subject

from hallmark import gates, speed
from hallmark.engine import Command
from hallmark.surroundings import worker_env

ROOT = Path(__file__).parents[2]
TARGETS = ROOT / "config/targets.yaml"
CUT = ("tokens.npy", "logprobs.npy")  # of a language model's reference, one row a window
TIMEOUT_S = 1200


def shortened(reference: Path, out: Path, blocks: int) -> Path:
    """The reference with its first windows alone, where it has windows."""
    linked(reference, out)
    for name in CUT:
        if (out / name).exists():
            rows = np.load(reference / name, mmap_mode="r")[:blocks]
            (out / name).unlink()
            np.save(out / name, rows)
    return out


def command(subject: Subject, action: str, defect: str, scratch: Path) -> Command:
    """How a worker is started that does the action with the defect, or with none ('')."""
    scratch.mkdir(parents=True)
    asked = scratch / "request.json"
    request = subject.request(action, subject.files, scratch)
    asked.write_text(json.dumps(request), encoding="utf-8")
    program = ["tests.mutations.mutated_worker", defect] if defect else ["hallmark.worker"]
    env = worker_env(subject.toolchain, request["options"]["threads"], scratch)
    env["PYTHONPATH"] = f"{env['PYTHONPATH']}:{ROOT}"
    argv = [str(subject.toolchain / "bin/python"), "-m", *program, str(asked), str(scratch / "response.json")]
    return Command(argv, env)


def measure_accuracy(subject: Subject, defect: str, scratch: Path) -> dict[str, Any]:
    """The accuracy's measurement of the artifact with a defect. Raises RuntimeError when the worker fails."""
    asked = command(subject, "accuracy", defect, scratch)
    done = subprocess.run(
        asked.argv, env=dict(asked.env), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{subject.name} with {defect or 'no defect'}:\n{done.stderr[-2000:]}")
    return {"kind": "accuracy", "metrics": read_json(scratch / "response.json")["result"]}


def measure_speed(subject: Subject, defect: str, scratch: Path) -> dict[str, Any]:
    """The speed's measurement of the artifact with a defect, against the same artifact without it."""
    engines = command(subject, "serve", defect, scratch / "own"), command(subject, "serve", "", scratch / "sound")
    options = subject.request("serve", subject.files, scratch)["options"]
    limits = {name: list(limit.values()) for name, limit in behaviour.LIMITS.items()}
    reference = subject.accuracy_inputs["reference"]
    metrics, _, conditions = speed.measure(
        *engines, subject.task, reference, options, scratch / "log", limits, lambda *_: None
    )
    return {"kind": "speed", "metrics": metrics, "conditions": conditions}


def try_one(
    subject: Subject, inspected: Mapping[str, Any], defect: str, timed: bool, scratch: Path
) -> dict[str, dict[str, Any]]:
    """The judged gates by metric: those of accuracy and the inspection, or those of speed that are tried here."""
    if timed:
        tried = {name: (gates.Limit(**limit), "tried here") for name, limit in behaviour.LIMITS.items()}
        return subject.judge([measure_speed(subject, defect, scratch)], inspected, tried)
    shipped = {name: gate for name, gate in subject.resolved.items() if subject.metrics[name].source != "speed"}
    return subject.judge([measure_accuracy(subject, defect, scratch)], inspected, shipped)


def row(defect: str, subject: str, judged: Mapping[str, Mapping[str, Any]], wanted: Sequence[str]) -> bool:
    """Print what was found; whether that is as wanted: one of these gates failed, or with none wanted none did."""
    failed = [name for name, gate in judged.items() if gate["verdict"] == "fail"]
    unsure = [name for name, gate in judged.items() if gate["verdict"] == "inconclusive"]
    good = bool(set(failed) & set(wanted)) if wanted else not failed
    word = ("caught" if good else "NOT") if wanted else ("sound" if good else "NOT sound")
    why = "; ".join(judged[name]["why"] for name in wanted if name in judged)
    found = ", ".join([*failed, *(f"({name})" for name in unsure)])
    print(f"| {defect or 'none'} | {subject} | {found} | {' or '.join(wanted)} | {why} | {word} |", flush=True)
    return good


def chosen(only: str, artifacts: str) -> dict[str, list[Mutation]]:
    """The defects to try, by artifact."""
    found: dict[str, list[Mutation]] = {}
    for mutation in behaviour.MUTATIONS:
        for name in mutation.subjects:
            if fnmatch(mutation.name, only) and fnmatch(name, artifacts):
                found.setdefault(name, []).append(mutation)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--artifacts", type=Path, required=True, help="the folder artifacts of a built checkout")
    parser.add_argument("--only", default="*", help="names of defects, with * and ?")
    parser.add_argument("--subject", default="*", help="names of artifacts, with * and ?")
    parser.add_argument("--blocks", type=int, default=4, help="windows of text of a language model")
    asked = parser.parse_args()
    print("| defect | artifact | failed (and unsure) | wanted | why | |\n|---|---|---|---|---|---|", flush=True)
    missed = tried = 0
    with tempfile.TemporaryDirectory(prefix="hallmark-mutation-") as folder:
        for name, mutations in chosen(asked.only, asked.subject).items():
            subject = subjects.read(asked.artifacts.resolve(), name, TARGETS)
            reference = shortened(subject.accuracy_inputs["reference"], Path(folder) / name / "reference", asked.blocks)
            subject = replace(subject, accuracy_inputs={**subject.accuracy_inputs, "reference": reference})
            inspected = subject.inspect(subject.files)
            kinds = {mutation: set(mutation.caught_by) <= behaviour.LIMITS.keys() for mutation in mutations}
            for timed in sorted(set(kinds.values())):
                judged = try_one(subject, inspected, "", timed, Path(folder) / name / f"sound-{timed}")
                missed += not row("", name, judged, ())
            for mutation, timed in kinds.items():
                judged = try_one(subject, inspected, mutation.name, timed, Path(folder) / name / mutation.name)
                caught = row(mutation.name, name, judged, mutation.caught_by)
                tried, missed = tried + 1, missed + (not caught)
    print(f"\n{tried} defects tried, {missed} missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
