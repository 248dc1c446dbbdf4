"""Child programs and limits of the machine: what is raised, what dies with whom, what a cgroup allows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hallmark import processes
from hallmark.processes import ToolError, identity, is_alive, run_tool


def test_output_and_error_come_back_mixed_and_line_by_line() -> None:
    seen: list[str] = []
    text = run_tool(["sh", "-c", r"echo one; echo two >&2; printf '10%%\r20%%\n'"], on_line=seen.append)
    assert text == "one\ntwo\n10%\n20%\n"
    assert seen == ["one", "two", "10%", "20%"]


def test_failure_names_the_command_its_exit_code_and_the_last_lines() -> None:
    with pytest.raises(ToolError) as caught:
        run_tool(["sh", "-c", "seq 1 30; exit 3"], on_line=lambda _: None)
    assert caught.value.code == 3
    assert caught.value.tail.splitlines() == [str(number) for number in range(11, 31)]
    assert "sh: exit code 3" in str(caught.value)


def test_a_signal_is_named() -> None:
    with pytest.raises(ToolError, match="ended by SIGKILL"):
        run_tool(["sh", "-c", "kill -9 $$"])


def test_output_that_is_not_utf8_is_passed_on() -> None:
    assert run_tool(["sh", "-c", r"printf '\377\n'"], on_line=lambda _: None) == "�\n"


def test_folder_and_environment_are_the_given_ones(tmp_path: Path) -> None:
    assert run_tool(["sh", "-c", "pwd; echo $WHO"], tmp_path, {"WHO": "me"}) == f"{tmp_path}\nme\n"


def test_an_interrupted_call_ends_its_child(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tool(["sh", "-c", f"echo $$ > {pid}; echo up; exec sleep 60"], on_line=interrupt)
    assert not is_alive(identity(int(pid.read_text())))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's parent-death signal is Linux's")
def test_a_tool_dies_with_its_parent(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    tool = f"echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 60"
    program = f"from hallmark.processes import run_tool; run_tool(['sh', '-c', {tool!r}])"
    parent = subprocess.Popen([sys.executable, "-c", program], env=with_package())
    child = identity(int(wait_for(pid)))
    assert is_alive(child)
    parent.kill()
    parent.wait()
    gone_within(child, 2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_with_a_session_of_its_own_the_tools_of_a_tool_die_too(tmp_path: Path, number: signal.Signals) -> None:
    pid = tmp_path / "pid"
    # with job control the shell gives what it starts a process group of its own, as ninja does
    tool = f"set -m; sleep 60 & echo $! > {pid}.part; mv {pid}.part {pid}; wait"
    program = f"from hallmark.processes import run_tool; run_tool(['sh', '-c', {tool!r}], own_session=True)"
    parent = subprocess.Popen([sys.executable, "-c", program], env=with_package())
    child = identity(int(wait_for(pid)))
    assert is_alive(child)
    parent.send_signal(number)
    parent.wait()
    gone_within(child, 2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_ends_with_the_main_one(tmp_path: Path, number: signal.Signals) -> None:
    main = subprocess.Popen(["sleep", "60"])
    program = (
        "import pathlib, time; from hallmark.processes import end_with_main; end_with_main();"
        f"pathlib.Path({str(tmp_path / 'up')!r}).write_text('up'); time.sleep(60)"
    )
    env = with_package() | {processes.MAIN: identity(main.pid)}
    bound = subprocess.Popen([sys.executable, "-c", program], env=env)
    wait_for(tmp_path / "up")
    assert bound.poll() is None
    main.send_signal(number)  # it stays a zombie until the end of this test, and that counts as gone
    assert bound.wait(3) == -signal.SIGTERM
    main.wait()


def test_a_process_that_never_was_is_not_alive() -> None:
    number, _, started = identity(os.getpid()).partition(":")
    assert is_alive(f"{number}:{started}")
    assert not is_alive(f"{number}:{int(started) + 1}")
    assert not is_alive(f"{2**22 - 1}:5")


CGROUP_V2 = "0::/box/inner\n"
CGROUP_V1 = "4:memory:/box\n3:cpuset:/\n1:cpu,cpuacct:/box\n0::/\n"


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """A root folder with a /proc and a /sys/fs/cgroup as given, and 8 GB available."""
    files = {"proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n", "proc/self/cgroup": cgroup} | files
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "cpus"),
    [
        ("", {}, 64),
        (CGROUP_V2, {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 64),
        (CGROUP_V2, {"sys/fs/cgroup/box/inner/cpu.max": "250000 100000\n"}, 2),
        (
            CGROUP_V2,
            {"sys/fs/cgroup/box/cpu.max": "50000 100000\n", "sys/fs/cgroup/box/inner/cpu.max": "max 1000\n"},
            1,
        ),
        (
            CGROUP_V1,
            {"sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "9\n"},
            64,
        ),
        (
            CGROUP_V1,
            {
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        # in a container the path is the host's, and only the mount's root is there
        (
            CGROUP_V1,
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "4000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "1000\n"},
            4,
        ),
    ],
)
def test_usable_cpus_heed_affinity_and_every_cgroup_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: str, files: dict[str, str], cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert processes.usable_cpus(machine(tmp_path, cgroup, files)) == cpus


@pytest.mark.parametrize(
    ("cgroup", "files", "available"),
    [
        ("", {}, 8_192_000_000),
        (
            CGROUP_V2,
            {"sys/fs/cgroup/box/memory.max": "max\n", "sys/fs/cgroup/box/memory.current": "5\n"},
            8_192_000_000,
        ),
        (
            CGROUP_V2,
            {
                "sys/fs/cgroup/box/memory.max": "1000000\n",
                "sys/fs/cgroup/box/memory.current": "900000\n",
                "sys/fs/cgroup/box/memory.stat": "anon 5\ninactive_file 300000\n",
            },
            400_000,
        ),
        (
            CGROUP_V1,
            {
                "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "1000000\n",
                "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "1000000\n",
            },
            0,
        ),
    ],
)
def test_available_memory_heeds_every_cgroup_above(
    tmp_path: Path, cgroup: str, files: dict[str, str], available: int
) -> None:
    assert processes.available_memory(machine(tmp_path, cgroup, files)) == available


def test_this_machine_has_something_to_use() -> None:
    assert processes.usable_cpus() >= 1
    assert processes.available_memory() > 2**20


def test_peak_memory_grows_with_what_a_process_holds() -> None:
    program = "from hallmark.processes import peak_memory; x = b'1' * 200_000_000; print(peak_memory())"
    peak = int(run_tool([sys.executable, "-c", program], env=with_package(), on_line=lambda _: None))
    assert 200_000_000 < peak < 300_000_000


def with_package() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": str(Path(processes.__file__).parents[1])}


def wait_for(path: Path, seconds: float = 5) -> str:
    """The text of a file that another process writes."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)
    return path.read_text()


def gone_within(process: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while is_alive(process):
        assert time.monotonic() < deadline, f"process {process} lives on"
        time.sleep(0.02)


def test_what_is_used_within_a_quota_is_read_from_either_kind_of_cgroup(tmp_path: Path) -> None:
    second = {
        "sys/fs/cgroup/box/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/box/cpu.stat": "usage_usec 7500000\nnr 1\n",
    }
    assert processes.quotas(machine(tmp_path / "2", CGROUP_V2, second)) == [(2.0, 7.5)]
    folder = "sys/fs/cgroup/cpu,cpuacct/box"
    first = {f"{folder}/cpu.cfs_quota_us": "300000\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    found = processes.quotas(machine(tmp_path / "1", CGROUP_V1, first | {f"{folder}/cpuacct.usage": "2500000000\n"}))
    assert found == [(3.0, 2.5)]
