"""What each rule that writes a store entry does: the function with the rule's name. Schedules and stores nothing.

Each gets a `jobs.Job`, writes files into its draft and returns notes for the manifest. Those that bring and convert are
here, and in no key: they hand on what recipe and inputs say. Those that measure and judge are in modules of their own,
which are in the keys of what they write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hallmark import (
    accuracy_jobs,
    choice_jobs,
    formats,
    loadgen_jobs,
    records,
    speed_jobs,
    toolchains,
    verdict_jobs,
    workers,
)
from hallmark.jobs import Job
from hallmark.once import machine


def fetch(job: Job) -> Mapping[str, Any]:
    """Bring one part of a source. Data is read into the task's form, a GGUF is turned back into a checkpoint."""
    from hallmark import datasets, sources

    name, part = job.node["subject"]
    recipe, out = job.recipe, job.draft.files
    raw = job.draft.scratch("raw") if part == "data" or recipe.get("kind") == "gguf" else out
    source = sources.parse(job.node["hints"]["source"])
    sources.fetch(source, recipe["files"], raw, part, toolchains.cache_folder(), name)
    if part == "data":
        return datasets.prepare(raw, recipe["reader"], recipe["options"], out)
    if raw != out:
        return workers.run(job, "materialise", inputs={"source": str(next(raw.glob("*.gguf")))}, options={})
    return {}


def lint(job: Job) -> Mapping[str, Any]:
    """Look for what is wrong with a checkpoint. Raises LintError when it must not be converted at all."""
    from hallmark.lint import findings, report

    source, allowed = job.inputs["source"].files, job.recipe["allow_remote_code"]

    def compare() -> Mapping[str, Any]:
        answer = workers.run(job, "compare", inputs={"source": str(source)}, options={"remote_code": allowed})
        compared: Mapping[str, Any] = answer["result"]
        return compared

    with machine(toolchains.cache_folder(), alone=False):
        found = report.of_folder(source, allowed, compare)
    workers.write_json(job, "lint.json", found)
    findings.refuse(job.subject, found)
    return {}


def convert(job: Job) -> Mapping[str, Any]:
    """Write one artifact, and hold the adapter to the files that it promises.

    Raises LintError, before any work, when the checkpoint has what this recipe would lose.
    """
    from hallmark.lint import report

    spec, recipe = formats.spec(job.recipe["format"]), job.recipe
    found = job.after["lint"].json("lint.json")
    report.refuse_artifact(job.subject, found, spec, job.node["hints"]["base"], recipe["task"], recipe["options"])
    inputs = {role: str(entry.files) for role, entry in job.inputs.items()}
    notes = workers.run(job, "convert", format=job.recipe["format"], inputs=inputs, options=job.recipe["options"])
    lost = [name for name in job.recipe["files"] if not (job.draft.files / name).is_file()]
    if lost:
        raise RuntimeError(f"{job.subject}: the conversion ended well but left no {', '.join(lost)}")
    return notes


def inspect(job: Job) -> Mapping[str, Any]:
    """Compare an artifact with its source, without running it."""
    artifact, recipe = job.inputs["artifact"], job.recipe
    source = job.inputs["source"].files
    with machine(toolchains.cache_folder(), alone=False):
        found = formats.get(recipe["format"]).inspect(artifact.files, source, recipe["task"], recipe["options"])
    workers.write_json(job, records.INSPECTION, records.inspection(job, found))
    return {}


BODIES: Mapping[str, Callable[[Job], Mapping[str, Any]]] = {
    body.__name__: body
    for body in (
        fetch, lint, convert, inspect, accuracy_jobs.reference, accuracy_jobs.measure_accuracy,
        speed_jobs.measure_speed, speed_jobs.measure_release, loadgen_jobs.measure_loadgen,
        choice_jobs.reference_choices, choice_jobs.measure_choices, verdict_jobs.judge, verdict_jobs.select,
        verdict_jobs.bundle, verdict_jobs.report,
    )
}  # fmt: skip
