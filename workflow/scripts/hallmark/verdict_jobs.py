"""The bodies of the rules that decide and show: verdict, choice, bundle and report. They run no artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hallmark import formats, records, tasks, workers
from hallmark.jobs import Job

# The rest is imported by the bodies that need it: each job is a process of its own, and half of them only read JSON.
if TYPE_CHECKING:
    from hallmark import report as reports


def judge(job: Job) -> Mapping[str, Any]:
    """The verdict on an artifact for a target. A failed gate is a result."""
    from hallmark import gates

    recipe, artifact = job.recipe, job.inputs["artifact"]
    *subject, target = job.node["subject"]
    verdict = gates.judge(
        "/".join(subject),
        target,
        gates.from_json(recipe["gates"]),
        _measurements(job),
        job.inputs["inspection"].json(records.INSPECTION),
        artifact.digest,
        metrics=tasks.metrics(recipe["task"]),
        device_available=recipe["present"],
        last_release=recipe.get("release"),
    )
    workers.write_json(job, "verdict.json", verdict)
    return {}


def select(job: Job) -> Mapping[str, Any]:
    """The best candidate of a target among those that pass."""
    from hallmark import selection

    model, target = job.node["subject"]
    verdicts = {candidate: entry.json("verdict.json") for candidate, entry in job.inputs.items()}
    workers.write_json(job, "selection.json", selection.choose(model, target, job.recipe["candidates"], verdicts))
    return {}


def bundle(job: Job) -> Mapping[str, Any]:
    """The files for one target, or the refusal.

    Raises LintError for an artifact that lint would not have converted: it may know more now than it did then.
    """
    from hallmark import bundle as bundles
    from hallmark.lint import report

    chosen = job.inputs["selection"].json("selection.json")
    candidates = [candidate["artifact"] for candidate in chosen["candidates"]]
    verdicts = {name: job.inputs[f"{name}/verdict"].json("verdict.json") for name in candidates}
    origin = bundles.Origin(job.inputs["docs"].files, job.recipe["pins"])
    name = chosen["selected"]
    choice = None
    if name:
        artifact = job.inputs[f"{name}/artifact"]
        made, task = artifact.manifest["components"], job.recipe["task"]
        adapter, options = formats.get(name.partition("/")[0]), made["recipe"]["options"]
        found, base = job.inputs["lint"].json("lint.json"), job.recipe["bases"][name]
        report.refuse_artifact(f"{job.subject}: {name}", found, adapter.SPEC, base, task, options)
        usage = adapter.usage(task, options)
        if bundles.digest_of_texts(usage) != job.recipe["texts"][name]:
            raise RuntimeError(f"{job.subject}: how to run {name} was edited while this run was under way; run again")
        choice = bundles.Choice(
            files=artifact.files,
            expected=artifact.manifest["files"],
            usage=usage,
            recipe={
                **made["recipe"],
                "toolchains": made["toolchains"],
                "notes": artifact.manifest["notes"].get("result"),
            },
            components=made,
            inspection=job.inputs[f"{name}/inspection"].json(records.INSPECTION),
            measurements=_measurements(job, f"{name}/"),
            metrics=tasks.metrics(task),
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
        missing=recipe["missing"],
        verdicts=[job.inputs[role].json("verdict.json") for role in sorted(job.inputs) if "/judge/" in role],
        selections=[job.inputs[role].json("selection.json") for role in job.inputs if role.endswith("/select")],
        metrics={model["task"]: tasks.metrics(model["task"]) for model in recipe["models"]},
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
    # Against releases first: the others' numbers have other names, and of two targets' the first one's is shown.
    against = [entry for role, entry in sorted(job.inputs.items(), reverse=True) if role.startswith(f"{name}/release/")]
    return reports.Artifact(
        model=model,
        format=format_name,
        variant=variant,
        digest=converted.digest,
        bytes=sum(entry["size"] for entry in converted.manifest["files"].values()),
        seconds=notes["seconds"],
        recipe=converted.manifest["components"]["recipe"]["options"],
        notes=notes["result"],
        inspection=job.inputs[f"{name}/inspect"].json(records.INSPECTION),
        measurements=[*(entry.json(records.MEASUREMENT) for entry in against), *_measurements(job, f"{name}/")],
        samples=speeds.json("samples.json"),
    )


def _measurements(job: Job, of: str = "") -> list[Any]:
    """The measurements among a job's inputs, `of` being what their roles begin with: those that the plan has."""
    roles = (f"{of}{kind}" for kind in records.KINDS)
    return [job.inputs[role].json(records.MEASUREMENT) for role in roles if role in job.inputs]
