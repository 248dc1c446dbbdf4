"""What each rule that writes a store entry does: the function with the rule's name. Schedules and stores nothing.

Each gets a `jobs.Job`, writes files into its draft and returns notes for the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import formats, progress, tasks, toolchains
from hallmark.jobs import Job
from hallmark.launcher import launch
from hallmark.once import machine
from hallmark.surroundings import worker_env

# The rest is imported by the bodies that need it: each job is a process of its own, and half of them only read JSON.
if TYPE_CHECKING:
    from hallmark import report as reports
    from hallmark.engine import Command


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
        return _work(job, "materialise", inputs={"source": str(next(raw.glob("*.gguf")))}, options={})
    return {}


def lint(job: Job) -> Mapping[str, Any]:
    """Read a checkpoint's headers. Raises LintError when it must not be converted."""
    from hallmark import checkpoint

    found = checkpoint.lint_report(job.inputs["source"].files)
    _write_json(job, "lint.json", found)
    checkpoint.refuse(job.subject, found)
    return {}


def convert(job: Job) -> Mapping[str, Any]:
    """Write one artifact, and hold the adapter to the files that it promises."""
    inputs = {role: str(entry.files) for role, entry in job.inputs.items()}
    notes = _work(job, "convert", format=job.recipe["format"], inputs=inputs, options=job.recipe["options"])
    lost = [name for name in job.recipe["files"] if not (job.draft.files / name).is_file()]
    if lost:
        raise RuntimeError(f"{job.subject}: the conversion ended well but left no {', '.join(lost)}")
    return notes


def inspect(job: Job) -> Mapping[str, Any]:
    """Open an artifact without running it."""
    artifact = job.inputs["artifact"]
    found = formats.get(job.recipe["format"]).inspect(artifact.files)
    content = {
        "subject": job.subject,
        "artifact": artifact.digest,
        "metrics": dict(found.metrics),
        "facts": found.facts,
    }
    _write_json(job, "inspection.json", content)
    return {}


def reference(job: Job) -> Mapping[str, Any]:
    """What the source answers on the evaluation data."""
    paths = {role: str(entry.files) for role, entry in job.inputs.items()}
    return _work(job, "reference", task=job.recipe["task"], **paths, options=job.recipe["options"])


def measure_accuracy(job: Job) -> Mapping[str, Any]:
    """An artifact on the inputs of the reference."""
    artifact, recipe = job.inputs["artifact"], job.recipe
    notes = _work(
        job,
        "accuracy",
        task=recipe["task"],
        format=recipe["format"],
        variant=recipe["variant"],
        files=str(artifact.files),
        reference=str(job.inputs["reference"].files),
        data=str(job.inputs["data"].files),
        options=recipe["options"],
    )
    conditions = {"options": recipe["options"], "threads": job.node["cpus"], "versions": notes["versions"]}
    _write_measurement(job, "accuracy", notes.pop("result"), conditions)
    return notes


def measure_speed(job: Job) -> Mapping[str, Any]:
    """An artifact and its source in turns; nothing else runs meanwhile."""
    from hallmark import speed

    recipe = job.recipe
    options = {**recipe["options"], "threads": recipe["threads"]}
    common = {"action": "serve", "task": recipe["task"], "options": options}
    files = str(job.inputs["artifact"].files)
    artifact = _engine(
        job, "worker", {**common, "format": recipe["format"], "variant": recipe["variant"], "files": files}
    )
    source = _engine(job, "torch", {**common, "source": str(job.inputs["source"].files)})
    reference_files = job.inputs["reference"].files
    metrics, samples, conditions = speed.measure(artifact, source, recipe["task"], reference_files, options, job.log)
    conditions |= {"hardware_class": recipe["hardware_class"], "attempt": recipe["attempt"]}
    _write_json(job, "samples.json", samples)
    _write_measurement(job, "speed", metrics, conditions)
    return {}


def judge(job: Job) -> Mapping[str, Any]:
    """The verdict on an artifact for a target. A failed gate is a result."""
    from hallmark import gates

    recipe, artifact = job.recipe, job.inputs["artifact"]
    *subject, target = job.node["subject"]
    verdict = gates.judge(
        "/".join(subject),
        target,
        gates.from_json(recipe["gates"]),
        [job.inputs[kind].json("measurement.json") for kind in ("accuracy", "speed")],
        job.inputs["inspection"].json("inspection.json"),
        artifact.digest,
        metrics=tasks.get(recipe["task"]).METRICS,
        device_available=recipe["present"],
    )
    _write_json(job, "verdict.json", verdict)
    return {}


def select(job: Job) -> Mapping[str, Any]:
    """The best candidate of a target among those that pass."""
    from hallmark import selection

    model, target = job.node["subject"]
    verdicts = {candidate: entry.json("verdict.json") for candidate, entry in job.inputs.items()}
    _write_json(job, "selection.json", selection.choose(model, target, job.recipe["candidates"], verdicts))
    return {}


def bundle(job: Job) -> Mapping[str, Any]:
    """The files for one target, or the refusal."""
    from hallmark import bundle as bundles

    chosen = job.inputs["selection"].json("selection.json")
    candidates = [candidate["artifact"] for candidate in chosen["candidates"]]
    verdicts = {name: job.inputs[f"{name}/verdict"].json("verdict.json") for name in candidates}
    origin = bundles.Origin(job.inputs["docs"].files, job.recipe["pins"])
    name = chosen["selected"]
    choice = None
    if name:
        artifact = job.inputs[f"{name}/artifact"]
        made, task = artifact.manifest["components"], job.recipe["task"]
        adapter = formats.get(name.partition("/")[0])
        choice = bundles.Choice(
            files=artifact.files,
            expected=artifact.manifest["files"],
            usage=adapter.usage(task, made["recipe"]["options"]),
            recipe={
                **made["recipe"],
                "toolchains": made["toolchains"],
                "notes": artifact.manifest["notes"].get("result"),
            },
            components=made,
            inspection=job.inputs[f"{name}/inspection"].json("inspection.json"),
            measurements=[job.inputs[f"{name}/{kind}"].json("measurement.json") for kind in ("accuracy", "speed")],
            metrics=tasks.get(task).METRICS,
        )
    bundles.assemble(job.draft.files, chosen, verdicts, choice, origin, job.recipe["version"])
    return {}


def report(job: Job) -> Mapping[str, Any]:
    """One page that shows everything."""
    from hallmark import report as reports

    recipe = job.recipe
    artifacts = [_reported(job, name) for name in recipe["artifacts"]]
    inputs = reports.Inputs(
        title=recipe["title"],
        hallmark=recipe["version"],
        release=recipe["release"],
        machine=recipe["hardware_class"],
        models=[reports.Model(**model) for model in recipe["models"]],
        artifacts=artifacts,
        verdicts=[job.inputs[role].json("verdict.json") for role in sorted(job.inputs) if "/judge/" in role],
        selections=[job.inputs[role].json("selection.json") for role in job.inputs if role.endswith("/select")],
        metrics={model["task"]: tasks.get(model["task"]).METRICS for model in recipe["models"]},
        times={model["task"]: tasks.get(model["task"]).TIMES for model in recipe["models"]},
    )
    (job.draft.files / "index.html").write_text(reports.build(inputs), encoding="utf-8")
    return {}


def _reported(job: Job, name: str) -> reports.Artifact:
    """One artifact as the report shows it."""
    from hallmark import report as reports

    converted, speeds = job.inputs[f"{name}/convert"], job.inputs[f"{name}/speed"]
    notes = converted.manifest["notes"]
    model, format_name, variant = name.split("/")
    return reports.Artifact(
        model=model,
        format=format_name,
        variant=variant,
        digest=converted.digest,
        bytes=sum(entry["size"] for entry in converted.manifest["files"].values()),
        seconds=notes["seconds"],
        recipe=converted.manifest["components"]["recipe"]["options"],
        notes=notes["result"],
        inspection=job.inputs[f"{name}/inspect"].json("inspection.json"),
        measurements=[job.inputs[f"{name}/accuracy"].json("measurement.json"), speeds.json("measurement.json")],
        samples=speeds.json("samples.json"),
    )


def _work(job: Job, action: str, **request: Any) -> dict[str, Any]:
    """Have a worker of the job's toolchain write the entry's files; returns its response."""
    options = {**request.pop("options"), "threads": job.node["cpus"]}
    asked = {"action": action, **request, "out": str(job.draft.files), "options": options}
    with machine(toolchains.cache_folder(), alone=False):
        return launch(
            Path(job.node["toolchains"]["worker"]),
            asked,
            log=job.log,
            out=job.draft.scratch("worker"),
            timeout_s=60 * job.settings["time_limit_minutes"],
            on_progress=progress.report,
        )


def _engine(job: Job, toolchain: str, request: Mapping[str, Any]) -> Command:
    """The command that starts one engine of a speed measurement."""
    from hallmark.engine import Command

    folder, scratch = Path(job.node["toolchains"][toolchain]), job.draft.scratch(toolchain)
    asked = scratch / "request.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    argv = [str(folder / "bin/python"), "-m", "hallmark.worker", str(asked), str(scratch / "response.json")]
    return Command(argv, worker_env(folder, request["options"]["threads"], scratch))


def _write_measurement(job: Job, kind: str, metrics: Mapping[str, Any], conditions: Mapping[str, Any]) -> None:
    content = {
        "kind": kind,
        "subject": job.subject,
        "task": job.recipe["task"],
        "artifact": job.inputs["artifact"].digest,
        "reference": job.inputs["reference"].digest,
        "metrics": metrics,
        "conditions": conditions,
    }
    _write_json(job, "measurement.json", content)


def _write_json(job: Job, name: str, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (job.draft.files / name).write_text(text + "\n", encoding="utf-8")


BODIES: Mapping[str, Callable[[Job], Mapping[str, Any]]] = {
    body.__name__: body
    for body in (
        fetch, lint, convert, inspect, reference, measure_accuracy, measure_speed, judge, select, bundle, report,
    )
}  # fmt: skip
