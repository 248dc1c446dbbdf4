"""The two rules that time an artifact: against its source, and against the last release. Times nothing itself.

Each runs alone on the machine. What is measured, and how, is in `speed`; which release is the last one, in
`last_release`; how numbers against a release are written down, in `against_release`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import records, toolchains, workers
from hallmark.jobs import Job
from hallmark.once import machine

# The engines' modules are imported by the bodies: other jobs import this one with `bodies` and run no engine.
if TYPE_CHECKING:
    from hallmark.engine import Command


def measure_speed(job: Job) -> Mapping[str, Any]:
    """An artifact and its source in turns; nothing else runs meanwhile."""
    from hallmark import speed

    recipe, options = job.recipe, _options(job)
    asked = {**_common(job), "source": str(job.inputs["source"].files), "options": workers.with_code(job, options)}
    engines = _artifact(job), workers.engine(job, "torch", asked)
    with machine(toolchains.cache_folder(), alone=True):
        metrics, samples, conditions = speed.measure(
            *engines, recipe["task"], job.inputs["reference"].files, options, job.log, job.node["hints"]["limits"]
        )
    _write(job, "speed", metrics, samples, conditions)
    return {}


def measure_release(job: Job) -> Mapping[str, Any]:
    """An artifact and the last release in turns, each in its toolchain; sizes alone where no gate asks for more.

    What was released is copied, and so verified, file by file. Where it is the very same, nothing is measured.
    """
    from hallmark import against_release

    recipe, released, hints = job.recipe, job.recipe["release"], job.node["hints"]
    samples: Mapping[str, Any] = {}
    conditions: dict[str, Any] = {}
    toolchain = job.node["components"]["toolchains"]["worker"]
    same = (released["artifact"], released["toolchain"]) == (job.inputs["artifact"].digest, toolchain)
    metrics = {} if same else against_release.sizes(job.inputs["artifact"].manifest["files"], released["bytes"])
    if recipe["timed"] and not same:
        files = against_release.copy(Path(hints["bundle"]), released["artifact"], job.draft.scratch("bundle"))
        request = {**_common(job), **{name: released[name] for name in ("format", "variant")}, "files": str(files)}
        engines = _artifact(job), workers.engine(job, "released", request, hints["toolchain"])
        with machine(toolchains.cache_folder(), alone=True):
            timed, samples, conditions = against_release.measure(
                *engines, recipe["task"], job.inputs["reference"].files, _options(job), job.log, hints["limits"]
            )
        metrics |= timed
    _write(job, "release", metrics, samples, {**conditions, "release": {**released, "same": same}})
    return {}


def _options(job: Job) -> dict[str, Any]:
    return {**job.recipe["options"], "threads": job.recipe["threads"]}


def _common(job: Job) -> dict[str, Any]:
    """What the requests of both engines have in common."""
    return {"action": "serve", "task": job.recipe["task"], "options": _options(job)}


def _artifact(job: Job) -> Command:
    """The command that starts the engine of the job's artifact."""
    request = {**_common(job), "format": job.recipe["format"], "variant": job.recipe["variant"]}
    files = str(job.inputs["artifact"].files)
    return workers.engine(job, "worker", {**request, "files": files})


def _write(
    job: Job, kind: str, metrics: Mapping[str, Any], samples: Mapping[str, Any], conditions: Mapping[str, Any]
) -> None:
    measured_as = {name: job.recipe[name] for name in ("hardware_class", "attempt")}
    workers.write_json(job, "samples.json", samples)
    workers.write_json(job, records.MEASUREMENT, records.measurement(job, kind, metrics, {**conditions, **measured_as}))
