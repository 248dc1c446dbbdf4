"""Tries defects of stage `runner`: an engine with the defect is measured as a build does, and judged. Stores nothing.

Each artifact comes first without a defect, and no gate may fail it. Accuracy is judged by the shipped policy, on the
stored inspection; language models are measured on the first few windows of the reference. Speed is measured against the
same artifact without the defect, and judged by `behaviour.LIMITS`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.mutations import behaviour, subjects
from tests.mutations.catalogue import Mutation, Outcome
from tests.mutations.checkpoint_edits import linked, read_json
from tests.mutations.subjects import Subject

from hallmark import gates, speed
from hallmark.engine import Command
from hallmark.surroundings import worker_env

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
    env["PYTHONPATH"] = f"{env['PYTHONPATH']}:{subjects.ROOT}"
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
    shipped = {name: gate for name, gate in subject.resolved.items() if subject.metrics[name].source not in gates.TIMED}
    return subject.judge([measure_accuracy(subject, defect, scratch)], inspected, shipped)


def outcome(mutation: Mutation | None, name: str, judged: Mapping[str, Mapping[str, Any]]) -> Outcome:
    """The gates that were judged, as what came of the defect."""
    failed, unsure = (
        tuple(gate for gate, found in judged.items() if found["verdict"] == word) for word in ("fail", "inconclusive")
    )
    wanted = mutation.caught_by if mutation else failed
    return Outcome(mutation, name, failed, unsure, "; ".join(judged[gate]["why"] for gate in wanted if gate in judged))


def outcomes(
    chosen: Mapping[str, Sequence[Mutation]], artifacts: Path, scratch: Path, blocks: int
) -> Iterator[Outcome]:
    """What comes of the defects, by artifact (`chosen`): first of the engine as it is, then of each.

    `blocks`: windows of text of a language model.
    """
    for name, mutations in chosen.items():
        subject, place = subjects.read(artifacts, name, subjects.TARGETS), scratch / name
        reference = shortened(subject.accuracy_inputs["reference"], place / "reference", blocks)
        subject = replace(subject, accuracy_inputs={**subject.accuracy_inputs, "reference": reference})
        inspected = subject.inspect(subject.files)
        kinds = {mutation: set(mutation.caught_by) <= behaviour.LIMITS.keys() for mutation in mutations}
        for timed in sorted(set(kinds.values())):
            yield outcome(None, name, try_one(subject, inspected, "", timed, place / f"sound-{timed}"))
        for mutation, timed in kinds.items():
            judged = try_one(subject, inspected, mutation.name, timed, place / mutation.name)
            yield outcome(mutation, name, judged)
