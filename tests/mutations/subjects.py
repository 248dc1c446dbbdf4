"""A demo's artifact with what was measured of it, and the verdict of the gates on a spoilt copy. Lists no defect."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hallmark import config, formats, gates, store, tasks, toolchains
from hallmark.launcher import launch
from hallmark.tasks import Metric

REFUSED = "refused"
COPY = "a copy"  # stands for the digest of whatever is judged: only what was measured may decide
MINUTES = 30
ROOT = Path(__file__).parents[2]
TARGETS = ROOT / "config/targets.yaml"


class NotBuilt(Exception):
    """The folder holds no such part of the demo, or no measurement of it."""


@dataclass(frozen=True)
class Subject:
    """An artifact in a store, its source, its measurements, and what an accuracy job of it is asked."""

    name: str
    files: Path
    source: Path
    task: str
    recipe: Mapping[str, Any]
    measured: Mapping[str, Mapping[str, Any]]
    accuracy_inputs: Mapping[str, Path]
    accuracy_options: Mapping[str, Any]
    resolved: gates.Resolved

    @property
    def format(self) -> str:
        return self.name.split("/")[1]

    @property
    def variant(self) -> str:
        return self.name.split("/")[2]

    def inspect(self, files: Path) -> dict[str, Any]:
        """The metrics of an inspection. Raises ValueError or OSError where the files cannot be read."""
        found = formats.get(self.format).inspect(files, self.source, self.task, self.recipe)
        return dict(found.metrics)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return tasks.metrics(self.task)

    @property
    def toolchain(self) -> Path:
        spec = formats.spec(self.format)
        return toolchains.get(spec.toolchain_of(spec.variants[self.variant])).folder

    def judge(
        self, measurements: Iterable[Mapping[str, Any]], inspected: Mapping[str, Any], limits: gates.Resolved
    ) -> dict[str, dict[str, Any]]:
        """The judged gates by metric, as if all that is given had been measured on the same files."""
        given = [{**found, "artifact": COPY} for found in measurements]
        inspection = {"artifact": COPY, "metrics": inspected}
        verdict = gates.judge(self.name, "", limits, given, inspection, COPY, metrics=self.metrics)
        return {gate["metric"]: gate for gate in verdict["gates"]}

    def failed(self, inspected: Mapping[str, Any], accuracy: Mapping[str, Any] | None = None) -> list[str]:
        """The gates that fail on what was found; what was not measured anew is the sound artifact's."""
        measured = dict(self.measured) if accuracy is None else {**self.measured, "accuracy": accuracy}
        judged = self.judge(measured.values(), inspected, self.resolved)
        return [name for name, gate in judged.items() if gate["verdict"] == "fail"]

    def request(self, action: str, files: Path, out: Path) -> dict[str, Any]:
        """What a worker is asked, to measure accuracy or to serve for a measurement of speed."""
        accuracy, speed = (self.measured[kind]["conditions"] for kind in ("accuracy", "speed"))
        options = self.accuracy_options if action == "accuracy" else speed["options"]
        threads = accuracy["threads"] if action == "accuracy" else speed["host"]["threads"]
        return {
            "action": action, "task": self.task, "format": self.format, "variant": dict(self.recipe),
            "files": str(files), **{role: str(path) for role, path in self.accuracy_inputs.items()},
            "out": str(out), "options": {**options, "threads": threads},
        }  # fmt: skip

    def measure_accuracy(self, files: Path, out: Path, log: Path) -> dict[str, Any]:
        """What the accuracy job finds. Raises WorkerError where the engine refuses the files."""
        out.mkdir(parents=True)
        asked = self.request("accuracy", files, out)
        answer = launch(self.toolchain, asked, log=log, out=out, timeout_s=60 * MINUTES)
        return {"kind": "accuracy", "metrics": answer["result"]}


def read(artifacts: Path, name: str, targets: Path) -> Subject:
    """The artifact at the readable link `artifacts/<name>`, as its store and the current gates know it.

    Raises NotBuilt when it was not built or not measured.
    """
    kept, converted = artifacts / "store", (artifacts / name).resolve().parent
    if not (converted / store.MANIFEST).is_file():
        raise NotBuilt(f"{artifacts / name}: not built")
    made = store.read(converted)
    task = str(made.manifest["components"]["recipe"]["task"])
    model = name.split("/")[0]
    found = {kind: _latest(kept, f"measure_{kind}", name, made.digest) for kind in ("accuracy", "speed")}
    asked = found["accuracy"].manifest["components"]
    settings = config.Targets.model_validate(config.load_yaml(targets))
    inputs = asked["inputs"]
    return Subject(
        name=name,
        files=made.files,
        source=kept / "fetch" / model / "weights" / made.manifest["components"]["inputs"]["source"] / store.FILES,
        task=task,
        recipe=made.manifest["components"]["recipe"]["options"],
        measured={kind: entry.json("measurement.json") for kind, entry in found.items()},
        accuracy_inputs={
            "reference": kept / "reference" / model / inputs["reference"] / store.FILES,
            "data": next((kept / "fetch").glob(f"*/data/{inputs['data']}")) / store.FILES,
        },
        accuracy_options=asked["recipe"]["options"],
        resolved=gates.resolve(next(iter(settings.policies.values())), task, name),
    )


def _latest(kept: Path, verb: str, name: str, digest: str) -> store.Entry:
    """The newest measurement of an artifact with this digest."""
    entries = (store.read(path.parent) for path in (kept / verb / name).glob(f"*/{store.MANIFEST}"))
    own = [entry for entry in entries if entry.manifest["inputs"].get("artifact") == digest]
    if not own:
        raise NotBuilt(f"{kept / verb / name}: no measurement of {digest[:12]}")
    return max(own, key=lambda entry: (entry.path / store.MANIFEST).stat().st_mtime)


@contextmanager
def spoilable(subject: Subject, artifacts: Path, scratch: Path) -> Iterator[Path]:
    """A folder that a defect may spoil: a copy of the artifact, with links to its siblings beside it."""
    folder = scratch / subject.name
    folder.parent.mkdir(parents=True)
    for sibling in (artifacts / subject.name).parent.iterdir():
        if sibling.name != subject.variant:
            (folder.parent / sibling.name).symlink_to(sibling.resolve())
    shutil.copytree(subject.files, folder, copy_function=shutil.copyfile)
    try:
        yield folder
    finally:
        shutil.rmtree(scratch)


def short(error: BaseException) -> str:
    """An error in a line."""
    lines = str(error).splitlines() or [""]
    return json.dumps(f"{type(error).__name__}: {lines[0]}"[:160])
