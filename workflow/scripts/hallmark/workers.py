"""What the bodies of rules have workers do: one action to its end, or an engine that stays. Measures nothing itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import progress, toolchains
from hallmark.jobs import Job
from hallmark.launcher import launch
from hallmark.once import machine
from hallmark.surroundings import worker_env

if TYPE_CHECKING:
    from hallmark.engine import Command


def with_code(job: Job, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a worker that opens the source: where the model's own code is allowed, they say so."""
    return {**options, "remote_code": True} if job.recipe.get("allow_remote_code") else dict(options)


def run(job: Job, action: str, *, alone: bool = False, **request: Any) -> dict[str, Any]:
    """Have a worker of the job's toolchain write the entry's files, `alone` on the machine; returns its response."""
    options = {**request.pop("options"), "threads": job.node["cpus"]}
    with machine(toolchains.cache_folder(), alone=alone):
        return launch(
            Path(job.node["toolchains"]["worker"]),
            {"action": action, **request, "out": str(job.draft.files), "options": options},
            log=job.log,
            out=job.draft.scratch("worker"),
            timeout_s=60 * job.settings["time_limit_minutes"],
            on_progress=progress.report,
        )


def engine(job: Job, toolchain: str, request: Mapping[str, Any], folder: str = "") -> Command:
    """The command that starts an engine, a worker that serves `request`, in one of the job's toolchains, or in the one
    in `folder`."""
    from hallmark.engine import Command

    place, scratch = Path(folder or job.node["toolchains"][toolchain]), job.draft.scratch(toolchain)
    asked = scratch / "request.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    argv = [str(place / "bin/python"), "-m", "hallmark.worker", str(asked), str(scratch / "response.json")]
    return Command(argv, worker_env(place, request["options"]["threads"], scratch))


def write_json(job: Job, name: str, content: Any) -> None:
    """Write a file of the entry."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (job.draft.files / name).write_text(text + "\n", encoding="utf-8")
