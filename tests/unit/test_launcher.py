"""The launcher with a worker that does what the test says: what comes back, what is said, and that nothing lives on."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from hallmark import launcher
from hallmark.launcher import WorkerError, launch
from hallmark.processes import MAIN, identity, is_alive

# Stands in for `python -m hallmark.worker request.json response.json`: runs the request's Python source.
WORKER = textwrap.dedent("""\
    #!/bin/sh
    exec '{python}' -c '
    import json, os, subprocess, sys, time
    request, response = sys.argv[3:5]
    def answer(**fields):
        with open(response, "w") as file: json.dump(fields, file)
    def publish(name, text):
        with open(name + ".part", "w") as file: file.write(str(text))
        os.rename(name + ".part", name)
    exec(json.load(open(request))["source"])
    ' "$@"
""")


@pytest.fixture
def toolchain(tmp_path: Path) -> Path:
    program = tmp_path / "toolchain/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(WORKER.format(python=sys.executable))
    program.chmod(0o755)
    return program.parents[1]


def run(toolchain: Path, source: str, timeout_s: float = 20, **more: Any) -> dict[str, Any]:
    folder = toolchain.parent
    (folder / "out").mkdir(exist_ok=True)
    request = {"source": textwrap.dedent(source), **more.pop("request", {})}
    return launch(toolchain, request, log=folder / "log", out=folder / "out", timeout_s=timeout_s, **more)


def test_the_response_comes_back_with_what_the_worker_took(toolchain: Path) -> None:
    response = run(toolchain, "x = bytearray(150_000_000); print('hello'); answer(did=[1, 2])")
    assert response["did"] == [1, 2]
    assert 150_000_000 < response["process"]["peak_memory"] < 300_000_000
    assert response["process"]["cpu_seconds"] > 0 and 0 < response["process"]["seconds"] < 20
    assert (toolchain.parent / "log").read_text() == "hello\n"
    assert not list((toolchain.parent / "out").iterdir())


def test_request_reaches_the_worker_as_json(toolchain: Path) -> None:
    response = run(
        toolchain, "answer(got=json.load(open(request))['options'])", request={"options": {"threads": 1, "é": [0.5]}}
    )
    assert response["got"] == {"threads": 1, "é": [0.5]}


def test_progress_goes_to_the_console_and_not_to_the_log(toolchain: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    source = """
        from hallmark import progress
        for _ in progress.track(range(3), "blocks"): pass
        print('@progress {"done": 4, "of"W mixed with what a library says}'); print("@progress 7")
        print("10%", end="\\r"); print("20%"); print("no line end", end="")
        answer()
    """
    run(toolchain, source, on_progress=lambda *report: seen.append(report))
    assert seen == [(1, 3, "blocks"), (2, 3, "blocks"), (3, 3, "blocks")]
    assert (toolchain.parent / "log").read_text() == (
        '@progress {"done": 4, "of"W mixed with what a library says}\n@progress 7\n20%\nno line end\n'
    )


def test_no_setting_of_the_user_reaches_the_worker(toolchain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With another instruction set or allocator the same bytes give other numbers under the same key.
    computes = ("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
    for name in (
        "HF_HOME",
        "OMP_NUM_THREADS",
        "LC_NUMERIC",
        "PYTHONHASHSEED",
        "PYTHONDONTWRITEBYTECODE",
        "LLAMA_ARG_CTX",
        *computes,
    ):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    try:
        source = "answer(env=dict(os.environ), umask=os.umask(0), cwd=os.getcwd())"
        response = run(toolchain, source, request={"options": {"threads": 3}})
    finally:
        os.umask(before)
    env, out = response["env"], str(toolchain.parent / "out")
    assert not {"HF_HOME", "LC_NUMERIC", "PYTHONDONTWRITEBYTECODE", "LLAMA_ARG_CTX", *computes} & set(env)
    assert (env["OMP_NUM_THREADS"], env["PYTHONHASHSEED"], env["TZ"], env["LC_ALL"]) == ("3", "0", "UTC", "C.UTF-8")
    assert (env["HF_HUB_OFFLINE"], env["OMP_WAIT_POLICY"], env["GOMP_SPINCOUNT"]) == ("1", "passive", "0")
    assert env["HALLMARK_TOOLCHAIN"] == str(toolchain)
    assert env["HOME"].startswith(out) and env["TMPDIR"].startswith(out) and response["cwd"].startswith(out)
    assert response["umask"] == 0o022


def test_a_failure_shows_the_last_lines_and_the_log(toolchain: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        run(toolchain, "for n in range(50): print('line', n)\nraise ValueError('bad tensor')")
    text = str(caught.value)
    assert "exit code 1" in text and "ValueError: bad tensor" in text and str(toolchain.parent / "log") in text
    assert "line 49" in text and "line 20" not in text
    assert not list((toolchain.parent / "out").iterdir())


def test_exit_0_without_a_response_is_a_failure(toolchain: Path) -> None:
    with pytest.raises(WorkerError, match="left no response"):
        run(toolchain, "pass")


def test_a_full_disk_is_said(toolchain: Path) -> None:
    with pytest.raises(WorkerError, match="The disk is full"):
        run(toolchain, f"raise OSError({errno.ENOSPC}, os.strerror({errno.ENOSPC}))")


@pytest.mark.parametrize(
    ("source", "counts", "said"),
    [
        ("raise MemoryError", (0, 0), True),
        ("os.kill(os.getpid(), 9)", (4, 5), True),  # the kernel counts one more
        ("sys.exit(1)", (4, 5), True),  # it was a tool of the worker that was killed
        ("os.kill(os.getpid(), 9)", (None, None), True),  # the kernel does not say
        ("os.kill(os.getpid(), 9)", (4, 4), False),  # someone did it
        ("sys.exit(1)", (4, 4), False),
    ],
)
def test_memory_that_ran_out_is_said(
    toolchain: Path, monkeypatch: pytest.MonkeyPatch, source: str, counts: tuple[int | None, ...], said: bool
) -> None:
    counted = iter(counts)
    monkeypatch.setattr(launcher, "_out_of_memory_kills", lambda: next(counted))
    with pytest.raises(WorkerError) as caught:
        run(toolchain, source)
    assert ("Memory ran out" in str(caught.value)) is said


def test_a_worker_over_its_time_is_stopped_with_all_it_started(toolchain: Path) -> None:
    source = """
        child = subprocess.Popen(["sleep", "60"])
        publish(os.environ["HALLMARK_TOOLCHAIN"] + "/child", child.pid)
        print("started", flush=True)
        time.sleep(60)
    """
    with pytest.raises(WorkerError, match=r"stopped after 1 s[^$]*started"):
        run(toolchain, source, timeout_s=1)
    gone(int((toolchain / "child").read_text()), 1)


def test_what_a_worker_leaves_running_is_stopped_and_not_waited_for(toolchain: Path) -> None:
    source = 'child = subprocess.Popen(["sleep", "60"]); answer(child=child.pid)'
    gone(run(toolchain, source)["child"], 1)


def test_an_exception_in_the_launcher_stops_the_worker(toolchain: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    source = """
        from hallmark import progress
        publish(os.environ["HALLMARK_TOOLCHAIN"] + "/worker", os.getpid())
        progress.report(1, 2, "blocks")
        time.sleep(60)
    """
    with pytest.raises(KeyboardInterrupt):
        run(toolchain, source, on_progress=interrupt)
    gone(int((toolchain / "worker").read_text()), 1)


# A launcher of its own, whose worker has a tool that has one more; the tools know nothing of who started them.
LAUNCHER = """
import signal
import sys
from pathlib import Path
from hallmark.launcher import launch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
folder = Path(sys.argv[1])
(folder / "out").mkdir()
launch(folder / "toolchain", {"source": sys.argv[2]}, log=folder / "log", out=folder / "out", timeout_s=60)
"""
FAMILY = """
tool = subprocess.Popen(["sh", "-c", "set -m; sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
publish(os.environ["HALLMARK_TOOLCHAIN"] + "/family", f"{os.getpid()} {tool.pid} {tool.stdout.readline()}")
time.sleep(60)
"""


def start_family(toolchain: Path, main: int) -> tuple[subprocess.Popen[bytes], list[str]]:
    """A running launcher, and the identities of its worker, the worker's tool and the tool's tool."""
    env = dict(os.environ) | {"PYTHONPATH": str(Path(launcher.__file__).parents[1]), MAIN: identity(main)}
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER, toolchain.parent, FAMILY], env=env)
    deadline = time.monotonic() + 10
    while not (toolchain / "family").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    family = [identity(int(pid)) for pid in (toolchain / "family").read_text().split()]
    assert all(map(is_alive, family))
    return process, family


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_launcher_takes_worker_and_tools_along(toolchain: Path, number: signal.Signals) -> None:
    process, family = start_family(toolchain, os.getpid())
    process.send_signal(number)
    process.wait(5)
    for member in family:
        gone_identity(member, 2)
    left = list((toolchain.parent / "out").iterdir())
    assert number == signal.SIGKILL or not left


def test_a_killed_main_process_takes_launcher_worker_and_tools_along(toolchain: Path) -> None:
    main = subprocess.Popen(["sleep", "60"])
    process, family = start_family(toolchain, main.pid)
    main.kill()
    assert process.wait(3) == 128 + signal.SIGTERM
    for member in family:
        gone_identity(member, 1)
    main.wait()


def gone(pid: int, seconds: float) -> None:
    gone_identity(identity(pid), seconds)


def gone_identity(process: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while process.partition(":")[2] and is_alive(process):
        assert time.monotonic() < deadline, f"process {process} lives on"
        time.sleep(0.02)
