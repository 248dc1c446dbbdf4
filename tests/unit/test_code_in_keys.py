"""Every module that can decide the bytes of an entry is in its key: the plan knows all that the entry's job reaches."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.plans import asked, encoders, planned
from tests.unit.reachable import Place, modules

from hallmark import bodies, formats, tasks
from hallmark.node import Node
from hallmark.plan import Plan

# Modules that a job passes through and that decide no byte of what it leaves, by why that is.
HANDS_ON = {
    "runs a worker, waits for the machine or ends it": {
        "engine", "launcher", "once", "processes", "progress", "sessions", "surroundings", "toolchains", "workers",
    },
    "hands on what recipe and inputs say": {"bodies"},
    "brings the files that the recipe names by their sha256": {
        "datasets", "hub", "packages", "questions", "source_errors", "sources", "wheels",
    },
    "is a registry: what is taken from it is in the key": {"formats", "tasks"},
    "may refuse, and then leaves nothing": {
        "lint.findings", "lint.report", "onnx_architectures", "options", "openvino_architectures", "run.onnx_generate",
    },
    "what it finds is in the recipe": {"devices"},
    "computes a digest": {"digest"},
    "words messages": {"quantities"},
}  # fmt: skip
# Where the tasks declare metrics of other modules; those are in the keys of what measures them.
DECLARED = {"choices", "distributions", "loadgen_results", "speed"}


def roots(node: Node) -> Iterator[Place]:
    """Where the work of a node begins: its body, and what is looked up by name for it."""
    body = bodies.BODIES[node.verb]
    yield body.__module__, node.verb
    recipe = node.recipe
    task = tasks.get(recipe["task"]).__name__ if recipe.get("task") else ""
    adapter = f"hallmark.formats.{recipe['format']}" if "format" in recipe else ""
    if node.verb == "fetch" and recipe.get("kind") == "gguf":
        yield "hallmark.materialise", "materialise"
    if node.verb == "lint":
        yield "hallmark.lint.model_class", "compare"
    if node.verb in ("convert", "inspect"):
        yield adapter, node.verb
    if node.verb in ("reference", "measure_speed", "reference_choices"):
        yield task, "open_reference"
    if node.verb.startswith("measure_"):
        yield adapter, "open"
    if node.verb == "reference":
        yield task, "reference"
    if node.verb == "measure_accuracy":
        yield task, "accuracy"
    if node.verb in ("measure_speed", "measure_release", "measure_loadgen"):
        yield from (
            (task, name)
            for name in ("requests", "sample", "speed", "together")
            if hasattr(tasks.get(recipe["task"]), name)
        )
    if node.verb.endswith("_choices"):
        yield "hallmark.harness", "ask"
        yield from (("hallmark.choices", name) for name in ("encode", "score"))
    if node.verb == "measure_loadgen":
        yield "hallmark.loadgen", "drive"


def in_key(node: Node) -> set[str]:
    """The modules whose digests are in a node's key, by itself or through its inputs' keys."""
    return set(node.code).union(*(in_key(upstream) for upstream in node.inputs.values()))


def plans() -> Iterator[Plan]:
    """A language model with every variant of every format, asked labelled questions; an encoder under LoadGen."""
    raw = asked()
    raw["models"]["tiny"]["formats"] = {
        name: [
            title
            for title, variant in spec.variants.items()
            if "causal-lm" in spec.tasks_of(variant) and not variant.intermediate
        ]
        for name in formats.names()
        if (spec := formats.spec(name))
    }
    yield planned(raw)
    yield encoders({"single_stream": {}})


def test_what_a_job_reaches_is_in_its_key(tmp_path, monkeypatch):
    exempt = {f"hallmark.{name}" for names in (*HANDS_ON.values(), DECLARED) for name in names}
    lost = {}
    monkeypatch.chdir(tmp_path)
    for plan in plans():
        for node in plan.nodes():
            missing = modules(roots(node)) - in_key(node) - exempt
            if missing:
                lost[f"{node.verb} {node.name}"] = sorted(missing)
    assert not lost
