"""The frame of every job: inputs verified, one entry written or none, and a message that says why not."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cases.checkpoints import parts
from tests.cases.checkpoints import write as write_checkpoint
from tests.unit.plans import asked, build, encoders, planned

from hallmark import bodies, formats, jobs, speed, speed_jobs, store, toolchains, verdict_jobs, workers
from hallmark.node import Node
from hallmark.plan import Artifact, Plan


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "STATE", tmp_path / "state")
    monkeypatch.setattr(jobs, "end_with_main", lambda: None)
    plan = planned()
    monkeypatch.setattr(toolchains, "cache_folder", lambda: tmp_path / "cache")  # no real run is waited for
    return plan


@contextmanager
def own_output() -> Iterator[None]:
    """A job sends its output to its log for good; afterwards it is as before. pytest's streams end in no descriptor."""
    kept = os.dup(1), os.dup(2)
    with (
        redirect_stdout(os.fdopen(1, "w", buffering=1, closefd=False)),
        redirect_stderr(os.fdopen(2, "w", buffering=1, closefd=False)),
    ):
        yield
    for number, descriptor in enumerate(kept, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)


def run(plan: Plan, node: Node, make: Callable[[jobs.Job], Mapping[str, Any]], code: int | None = None) -> str:
    """Run a job as its script does; what its log says."""
    settings = {"store": str(plan.root), "time_limit_minutes": 1, "torch_build": "cpu"}
    log = Path("logs/job.log")
    params = SimpleNamespace(node=node.job(), settings=settings)
    given = SimpleNamespace(params=params, log=[str(log)], threads=2)
    ended = None
    with own_output():
        try:
            jobs.write_entry(given, make)
        except SystemExit as error:
            ended = error.code
    assert ended == code, log.read_text(encoding="utf-8")
    return log.read_text(encoding="utf-8")


def write(job: jobs.Job) -> Mapping[str, Any]:
    (job.draft.files / "made.txt").write_text(job.subject)
    os.write(1, b"said by a tool\n")
    return {"result": 7}


def ready(plan: Plan, convert: Node, *findings: dict[str, str]) -> None:
    """Build what a conversion reads and waits for, lint with these findings."""
    report = {"findings": findings, "facts": {"architecture": "LlamaForCausalLM"}}
    build(plan, convert.inputs["source"])
    build(plan, convert.after["lint"], {"lint.json": json.dumps(report)})


def ready_to_inspect(plan: Plan, artifact: Artifact) -> None:
    for node in artifact.inspect.inputs.values():
        build(plan, node)


def read_by(plan: Plan, node: Node) -> dict[str, str]:
    """The digests of what an entry is made from, by role."""
    return {role: store.read(plan.root / other.place).digest for role, other in node.inputs.items()}


def left(plan: Plan) -> list[Path]:
    return [path for path in plan.root.rglob("*") if path.is_file()]


def test_every_rule_that_writes_an_entry_has_a_body(plan: Plan) -> None:
    only_where_a_gate_asks = {"measure_release"}
    verbs = {node.verb for plan in (encoders({"offline": {}}), planned(asked())) for node in plan.nodes()}
    assert verbs == set(bodies.BODIES) - only_where_a_gate_asks


def test_an_entry_holds_what_was_made_its_components_and_its_inputs_digests(plan: Plan) -> None:
    artifact = plan.artifacts[0]
    ready_to_inspect(plan, artifact)
    log = run(plan, artifact.inspect, write)
    entry = store.verify(plan.root / artifact.inspect.place)
    assert (entry.files / "made.txt").read_text() == "tiny/gguf/f16"
    assert entry.manifest["components"] == artifact.inspect.components
    assert entry.manifest["inputs"] == read_by(plan, artifact.inspect)
    assert entry.manifest["notes"]["result"] == 7
    assert "said by a tool" in log


def test_an_entry_that_is_there_is_kept_unless_its_input_was_built_again_with_other_bytes(plan: Plan) -> None:
    artifact = plan.artifacts[0]
    ready_to_inspect(plan, artifact)
    run(plan, artifact.inspect, write)
    run(plan, artifact.inspect, lambda job: pytest.fail("made twice"))
    store.set_aside(plan.root, plan.root / artifact.convert.place)
    build(plan, artifact.convert, {"file.txt": "other bytes under the same key"})
    run(plan, artifact.inspect, write)
    entry = store.verify(plan.root / artifact.inspect.place)
    assert entry.manifest["inputs"] == read_by(plan, artifact.inspect)


def test_an_entry_with_a_readable_name_gets_its_link(plan: Plan) -> None:
    convert = plan.artifacts[0].convert
    ready(plan, convert)
    run(plan, convert, write)
    assert Path("artifacts/tiny/gguf/f16/made.txt").read_text() == "tiny/gguf/f16"


def test_a_job_that_fails_leaves_nothing_and_says_why(plan: Plan) -> None:
    def fail(job: jobs.Job) -> Mapping[str, Any]:
        (job.draft.files / "half.txt").write_text("half")
        raise ValueError("the model is odd; take another")

    node = next(node for node in plan.nodes() if node.verb == "fetch")
    log = run(plan, node, fail, code=1)
    assert log.rstrip().endswith("ValueError: the model is odd; take another")
    assert left(plan) == []


def test_a_damaged_input_is_found_before_anything_is_done(plan: Plan) -> None:
    artifact = plan.artifacts[0]
    place = build(plan, artifact.convert)
    (place / "files/file.txt").chmod(0o644)
    (place / "files/file.txt").write_text("other")
    log = run(plan, artifact.inspect, lambda job: pytest.fail("ran on damaged bytes"), code=1)
    assert "Damaged store entry" in log and "file.txt" in log
    assert not artifact.inspect.manifest(plan.root).exists()


def test_a_full_disk_is_said_in_words(plan: Plan) -> None:
    def fill(job: jobs.Job) -> Mapping[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device", str(job.draft.files / "big"))

    node = next(node for node in plan.nodes() if node.verb == "fetch")
    log = run(plan, node, fill, code=1)
    assert "The disk is full" in log.splitlines()[-1]
    assert left(plan) == []


def test_a_conversion_that_leaves_out_a_promised_file_fails(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "launch", lambda *arguments, **named: {"result": {}})
    convert = plan.artifacts[0].convert
    ready(plan, convert)
    log = run(plan, convert, bodies.convert, code=1)
    assert "tiny/gguf/f16: the conversion ended well but left no model.gguf" in log
    assert not convert.manifest(plan.root).exists()


def test_a_worker_gets_the_threads_of_the_plan(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, Any]] = []

    def launch(toolchain: Path, request: Mapping[str, Any], **named: Any) -> dict[str, Any]:
        asked.append(request)
        (Path(request["out"]) / "model.gguf").write_bytes(b"x")
        return {"result": {}}

    monkeypatch.setattr(workers, "launch", launch)
    convert = plan.artifacts[0].convert
    ready(plan, convert)
    run(plan, convert, bodies.convert)
    assert asked[0]["options"]["threads"] == convert.cpus
    assert asked[0]["options"]["type"] == "F16"
    assert asked[0]["inputs"] == {"source": str(plan.root.absolute() / convert.inputs["source"].place / "files")}


def test_a_conversion_that_lint_refuses_does_no_work_and_others_go_on(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(toolchain: Path, request: Mapping[str, Any], **named: Any) -> Mapping[str, Any]:
        asked.append(request["action"])
        (Path(request["out"]) / "model.gguf").write_bytes(b"x")
        return {"result": {}}

    asked: list[str] = []
    monkeypatch.setattr(workers, "launch", launch)
    finding = {"level": "error", "code": "beyond_float16", "place": "norm", "message": "7e4", "remedy": "another"}
    half, other = plan.artifacts[0].convert, plan.artifacts[1].convert
    ready(plan, half, {**finding, "trait": "float16"})
    log = run(plan, half, bodies.convert, code=1)
    assert "LintError: tiny/gguf/f16: norm: 7e4; another [beyond_float16]; artifacts that can: gguf/q8_0" in log
    assert asked == []
    build(plan, other.inputs["f32"])
    run(plan, other, bodies.convert)
    assert asked == ["convert"]


def test_what_lint_has_learnt_to_refuse_is_not_released_from_a_warm_store(plan: Plan) -> None:
    finding = {"level": "error", "code": "beyond_float16", "place": "norm", "message": "7e4", "remedy": "another"}
    report = {"findings": [{**finding, "trait": "float16"}], "facts": {"architecture": "LlamaForCausalLM"}}
    chosen = {"selected": "gguf/f16", "candidates": [{"artifact": "gguf/q8_0"}, {"artifact": "gguf/f16"}]}
    content = {"lint.json": json.dumps(report), "selection.json": json.dumps(chosen), "verdict.json": "{}"}
    bundle = next(choice.bundle for choice in plan.choices if choice.target == "cpu-llamacpp")
    for node in {node.place: node for node in bundle.inputs.values()}.values():
        build(plan, node, content)
    log = run(plan, bundle, verdict_jobs.bundle, code=1)
    assert "LintError: tiny/cpu-llamacpp: gguf/f16: norm: 7e4; another [beyond_float16]; artifacts that can: " in log


def test_speed_is_measured_while_no_worker_of_any_run_is_at_work(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = plan.artifacts[0]
    for node in artifact.measurements["speed"].inputs.values():
        build(plan, node)
    cache = toolchains.cache_folder()
    held: list[bool] = []

    def measure(*arguments: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        with (cache / f"machine-{platform.node()}.lock").open("a") as lock, pytest.raises(BlockingIOError):
            held.append(True)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return {}, {}, {}

    monkeypatch.setattr(speed, "measure", measure)
    run(plan, artifact.measurements["speed"], speed_jobs.measure_speed)
    assert held == [True]


def test_an_inspection_waits_while_another_run_measures_speed(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    inspect = plan.artifacts[0].inspect
    for node in inspect.inputs.values():
        build(plan, node)
    held: list[bool] = []

    def look(*arguments: Any) -> formats.Inspection:
        with (toolchains.cache_folder() / f"machine-{platform.node()}.lock").open("a") as lock:
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            held.append(True)
        return formats.Inspection({})

    monkeypatch.setattr(formats.get(inspect.recipe["format"]), "inspect", look)
    run(plan, inspect, bodies.inspect)
    assert held == [True]


def test_lint_asks_the_toolchain_and_refuses_what_must_not_be_converted(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker answers here; what it really says is tested where lint is."""
    asked: list[Mapping[str, Any]] = []
    answer = {"class": "LlamaForCausalLM", "missing": ["a"], "surplus": [], "shapes": [], "incomplete": [],
              "tied": [], "failure": ""}  # fmt: skip

    def launch(toolchain: Path, request: Mapping[str, Any], **named: Any) -> Mapping[str, Any]:
        asked.append(request)
        return {"result": answer}

    monkeypatch.setattr(workers, "launch", launch)
    source = plan.artifacts[0].convert.inputs["source"]
    build(plan, source)
    made = parts()
    write_checkpoint(plan.root / source.place / "files", made)
    monkeypatch.setattr(store, "verify", lambda place, memory=None: store.read(place))
    log = run(plan, plan.artifacts[0].convert.after["lint"], bodies.lint, code=1)
    assert "LintError: tiny: a: 1 tensor of LlamaForCausalLM missing in the files: a" in log
    assert (asked[0]["action"], asked[0]["options"]["remote_code"]) == ("compare", False)
    answer["missing"] = []
    run(plan, plan.artifacts[0].convert.after["lint"], bodies.lint)
    entry = store.read(plan.root / plan.artifacts[0].convert.after["lint"].place)
    assert entry.json("lint.json")["class"]["class"] == "LlamaForCausalLM"
