"""One bash script that calls the tools of a plan by hand, one after the other. It runs nothing itself.

A job is the same request to the same worker, a speed measurement one line of Python. Lint,
inspect, judge, select, bundle, release and report have no tool that a person would call, and are left out; and so are
store, digests, verification and Snakemake. Sources are fetched before, and only copied by the script.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hallmark import sources, toolchains
from hallmark.node import Node
from hallmark.plan import Plan
from hallmark.processes import usable_cpus
from hallmark.surroundings import worker_env

BY_HAND = ("fetch", "convert", "reference", "measure_accuracy", "measure_speed")  # what a person would do
SET_FOR_EACH_WORKER = {"PATH", "HALLMARK_TOOLCHAIN"}
CORE_STEP = Path(__file__).with_name("core_step.py")
START = """\
#!/usr/bin/env bash
set -euo pipefail
cd {folder}
{variables}

worker() {{ # toolchain, request
    HALLMARK_TOOLCHAIN="$1" PATH="$1/bin:$PATH" "$1/bin/python" -m hallmark.worker \\
        "$PWD/requests/$2.json" "$PWD/responses/$2.json" >"logs/$2.log" 2>&1
}}
core() {{ # request
    {python} {step} "$PWD/requests/$1.json" >"logs/$1.log" 2>&1
}}
"""


def write(plan: Plan, checkout: Path) -> Path:
    """The script of a plan, in `<checkout>/by_hand/`, with its requests and what it copies; outputs go to `out/`."""
    folder = checkout / "by_hand"
    for name in ("requests", "responses", "logs", "raw"):
        (folder / name).mkdir(parents=True)
    script = folder / "all.sh"
    lines = [line for node in plan.nodes() for line in _lines(node, folder, checkout)]
    script.write_text("\n".join([_start(folder, checkout), *lines, ""]), encoding="utf-8")
    return script


def out_of(node: Node, folder: Path) -> Path:
    """Where the script leaves what a node of the plan would be."""
    return folder / "out" / node.verb / node.name


def _start(folder: Path, checkout: Path) -> str:
    """The variables of a worker, which a person had to set too: threads, no waiting in circles, no telemetry."""
    (folder / "scratch").mkdir()
    wanted = worker_env(Path(), usable_cpus(), folder / "scratch")
    wanted |= {"PYTHONPATH": str(checkout / "workflow/scripts")}
    changed = {name: wanted[name] for name in sorted(wanted) if wanted[name] != os.environ.get(name)}
    gone = sorted(os.environ.keys() - wanted.keys())
    variables = [
        f"export {name}={shlex.quote(value)}" for name, value in changed.items() if name not in SET_FOR_EACH_WORKER
    ]
    if gone:
        variables.insert(0, f"unset {' '.join(gone)}")
    python, step = shlex.quote(sys.executable), shlex.quote(str(CORE_STEP))
    return START.format(folder=shlex.quote(str(folder)), variables="\n".join(variables), python=python, step=step)


def _lines(node: Node, folder: Path, checkout: Path) -> Iterator[str]:
    """The lines of a node; none for what has no tool."""
    if node.verb not in BY_HAND:
        return
    out, name = out_of(node, folder), "-".join((node.verb, *node.subject))
    raw = _fetched(node, folder / "raw" / name, checkout) if node.verb == "fetch" else Path()
    yield f"mkdir -p {out.relative_to(folder)}"
    if node.verb == "fetch" and node.subject[-1] != "data" and not node.toolchains:
        yield f"cp -r {raw.relative_to(folder)}/. {out.relative_to(folder)}"
        return
    request = _request(node, {role: str(out_of(other, folder)) for role, other in node.inputs.items()}, raw, out)
    (folder / f"requests/{name}.json").write_text(json.dumps(request, indent=1), encoding="utf-8")
    if "action" in request:
        yield f"worker {shlex.quote(str(node.toolchains['worker'].folder))} {name}"
    else:
        yield f"core {name}"


def _fetched(node: Node, raw: Path, checkout: Path) -> Path:
    """The files of a source as they come."""
    raw.mkdir()
    name, part = node.subject
    with contextlib.chdir(checkout):
        source = sources.parse(node.hints["source"])
        sources.fetch(source, node.recipe["files"], raw, part, toolchains.cache_folder(), name)
    return raw


def _request(node: Node, inputs: Mapping[str, str], raw: Path, out: Path) -> dict[str, Any]:
    """What a job asks of its worker (`hallmark.bodies`), or a line of Python of the core, with every usable CPU."""
    recipe, threads = node.recipe, {"threads": usable_cpus()}
    options = {**recipe.get("options", {}), **threads}
    common = {"out": str(out), "options": options}
    match node.verb:
        case "fetch" if node.subject[-1] == "data":
            return {"step": "data", "raw": str(raw), "reader": recipe["reader"], **common, "options": recipe["options"]}
        case "fetch":
            return {"action": "materialise", "inputs": {"source": str(next(raw.glob("*.gguf")))}, **common}
        case "convert":
            return {"action": "convert", "format": recipe["format"], "inputs": dict(inputs), **common}
        case "reference":
            return {"action": "reference", "task": recipe["task"], **inputs, **common}
    runner = {name: recipe[name] for name in ("task", "format", "variant")} | {"files": inputs["artifact"]}
    if node.verb == "measure_accuracy":
        return {"action": "accuracy", **runner, "reference": inputs["reference"], "data": inputs["data"], **common}
    serve = {"action": "serve", "options": options}
    source = {**serve, "task": recipe["task"], "source": inputs["source"]}
    engines = {
        "artifact": {"toolchain": str(node.toolchains["worker"].folder), "request": {**serve, **runner}},
        "source": {"toolchain": str(node.toolchains["torch"].folder), "request": source},
    }
    asked = {"task": recipe["task"], "reference": inputs["reference"], "limits": node.hints["limits"]}
    return {"step": "speed", **engines, **asked, **common}
