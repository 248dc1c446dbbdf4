"""What a person is told of a run: progress files, durations, and the logger plugin under the real Snakemake."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.tests import MockOutputSettings, TestLogHandlerBase

from hallmark import console
from hallmark.console import Cost, Durations, Job, Progress, TimeLeft
from snakemake_logger_plugin_hallmark import LogHandler, wording

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"
SNAKEFILE = """
rule all:
    input: expand("out/measure/tiny/gguf/{variant}/{key}", variant=config["variants"].split(), key="0123abcd"),

rule convert:
    output: "out/convert/{model}/{format}/{variant}/{key}"
    log: "logs/convert/{model}/{format}/{variant}/{key}.log"
    shell:
        "exec > {log} 2>&1; echo 'reading {wildcards.variant}'; "
        "case {wildcards.variant} in "
        "bad) seq 100; echo '100 columns, 256 do not divide them'; exit 3;; dead) kill -9 $$;; none) exit 0;; "
        "slow) echo '{{\\"done\\": 3, \\"of\\": 4, \\"what\\": \\"tensors\\"}}' > {log}.progress; sleep 1.2;; esac; "
        "touch {output}"

rule measure:
    input: "out/convert/{model}/{format}/{variant}/{key}"
    output: "out/measure/{model}/{format}/{variant}/{key}"
    log: "logs/measure/{model}/{format}/{variant}/{key}.log"
    threads: workflow.cores
    shell: "touch {output} > {log}"
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv(console.STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_progress_goes_through_a_file_beside_the_log(tmp_path):
    log = tmp_path / "convert.log"
    console.publish(log, 3, 10, "tensors")
    assert console.latest(log, since=time.time()) == Progress(3, 10, "tensors")
    assert str(console.latest(log)) == "3 of 10 tensors"
    assert [path.name for path in tmp_path.iterdir()] == ["convert.log.progress"]
    console.clear(log)
    console.clear(log)
    assert not list(tmp_path.iterdir())


def test_reports_that_follow_too_fast_are_dropped_but_the_last_one(tmp_path):
    log = tmp_path / "convert.log"
    for done in range(1, 11):
        console.publish(log, done, 10, "tensors")
        assert console.latest(log).done == (10 if done == 10 else 1)


def test_a_report_that_a_killed_run_left_is_not_taken(tmp_path):
    log = tmp_path / "convert.log"
    console.publish(log, 3, 10, "tensors")
    assert console.latest(log, since=time.time() + 60) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"done": 1}', '{"done": "x", "of": 2, "what": "y"}'])
def test_a_damaged_report_is_none(tmp_path, text):
    console.progress_file(tmp_path / "a.log").write_text(text)
    assert console.latest(tmp_path / "a.log") is None


def test_publishing_never_fails_the_job(tmp_path):
    console.publish(tmp_path / "missing" / "a.log", 1, 2, "blocks")


@pytest.mark.parametrize(
    ("wildcards", "subject"),
    [
        ({"key": "12ab", "variant": "q8_0", "format": "gguf", "model": "smollm2"}, "smollm2/gguf/q8_0"),
        ({"model": "smollm2", "format": "gguf", "variant": "q8_0", "target": "cpu"}, "smollm2/gguf/q8_0/cpu"),
        ({"model": "smollm2", "key": "12ab"}, "smollm2"),
        ({"toolchain": "torch", "key": "12ab"}, "torch"),
        ({}, ""),
    ],
)
def test_subject(wildcards, subject):
    assert console.subject(wildcards) == subject


def job(rule="convert", subject="m/gguf/q8_0", threads=1, started=0.0, progress=None):
    return Job(rule, subject, threads, started, progress=progress)


def test_durations_are_remembered_and_fall_back_to_the_rules_median(state):
    durations = Durations(state)
    for subject, seconds in {"a": 10.0, "b": 20.0, "c": 90.0}.items():
        durations.record(job(subject=subject), seconds, cores=8)
    durations.record(job("measure", "a", threads=8), 30.0, cores=8)
    durations.save()
    known = Durations(state)
    assert known.expected("convert", "b") == Cost(20.0, 1)
    assert known.expected("convert", "new") == known.expected("convert") == Cost(20.0, 1)
    assert known.expected("measure", "a") == Cost(30.0, 8, exclusive=True)
    assert known.expected("judge", "a") is None


def test_saving_keeps_what_another_run_wrote_meanwhile(state):
    first, second = Durations(state), Durations(state)
    for durations, subject in ((first, "a"), (second, "b")):
        durations.record(job(subject=subject), 1.0, cores=2)
        durations.save()
    assert set(json.loads((state / "durations.json").read_text())) == {"convert a", "convert b"}
    assert [path.name for path in state.iterdir()] == ["durations.json"]


@pytest.mark.parametrize("text", ["", "[1]", '{"convert a": 3}', '{"convert a": {"hours": 3}}'])
def test_damaged_durations_are_forgotten(state, text):
    state.mkdir()
    (state / "durations.json").write_text(text)
    assert Durations(state).expected("convert", "a") is None


def test_time_left_counts_core_seconds_and_all_cores_for_exclusive_jobs(state):
    known = Durations(state)
    known.record(job(), 40.0, cores=4)
    known.record(job("measure", threads=4), 60.0, cores=4)
    left = console.time_left({"convert": 4, "measure": 2}, [job(started=100.0)], known, cores=4, now=110.0)
    assert left == TimeLeft((4 * 40 + 2 * 60 * 4 + 30) / 4)
    assert str(left) == "about 3 min left"


def test_time_left_is_never_less_than_the_longest_running_job(state):
    known = Durations(state)
    known.record(job(), 40.0, cores=4)
    assert console.time_left({}, [job(started=0.0)], known, cores=4, now=10.0) == TimeLeft(30.0)


def test_time_left_of_the_first_run(state):
    known, running = Durations(state), job(started=0.0)
    assert console.time_left({"measure": 1}, [running], known, cores=2, now=30.0) is None
    running.progress = Progress(1, 4, "blocks")
    left = console.time_left({"measure": 1}, [running], known, cores=2, now=30.0)
    assert str(left) == "2 min left, and 1 job of unknown length"


@pytest.mark.parametrize(
    ("seconds", "measured", "estimated"),
    [
        (0.04, "0.0 s", "1 s"),
        (12.34, "12.3 s", "10 s"),
        (59.97, "1 min 00 s", "1 min"),
        (75, "1 min 15 s", "1 min"),
        (3780, "1 h 03 min", "63 min"),
        (6000, "1 h 40 min", "1 h 40 min"),
    ],
)
def test_how_durations_are_written(seconds, measured, estimated):
    assert (console.span(seconds), console.rounded(seconds)) == (measured, estimated)


def test_tail_is_plain_text(tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(b"first\r\n10%\r50%\r100%\n\x1b[31mred\x1b[0m \xff\n" + b"x" * 1000 + b"\n\n\n")
    assert console.tail(log, 3) == ["100%", "red \ufffd", "x" * 400 + " ..."]
    log.write_bytes(b"\n")
    assert console.tail(log) == []


def test_tail_of_a_huge_log_reads_only_its_end(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("\n".join(str(number) for number in range(200_000)))
    assert console.tail(log, 2) == ["199998", "199999"]


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("Command 'set -euo pipefail' returned non-zero exit status 3.", "exit status 3"),
        ("Command 'x' returned non-zero exit status 137.", "killed by SIGKILL, perhaps out of memory"),
        ("Command 'x' died with <Signals.SIGSEGV: 11>.", "killed by SIGSEGV"),
        ("LockException", ""),
    ],
)
def test_how_a_process_ended(text, ending):
    assert wording.ending(text) == ending


def test_errors_for_users_carry_no_traceback():
    text = 'ConfigError in file "Snakefile", line 4:\nno format q9\n  File "Snakefile", line 4, in <module>'
    assert wording.for_user(text, "ConfigError") == 'ConfigError in file "Snakefile", line 4:\nno format q9'
    assert wording.for_user(text, "KeyError") == text
    planned = 'WorkflowError in file "/a/workflow/rules/common.smk", line 30:\nconfig/config.yaml: no format q9'
    assert wording.for_user(planned, "WorkflowError") == "config/config.yaml: no format q9"
    told = wording.for_user("WorkflowError:\nConfig file is not valid JSON or YAML. In case of", "WorkflowError")
    assert "`hallmark plan`, with the same --configfile, says in which line" in told


class TestPlugin(TestLogHandlerBase):
    """The interface's own checks: each kind of event is taken without an error."""

    __test__ = True

    def get_log_handler_cls(self):
        return LogHandler

    def get_log_handler_settings(self):
        return None

    @pytest.fixture(autouse=True)
    def no_hidden_errors(self, capsys):
        self.handlers = []
        yield
        for handler in self.handlers:
            handler.close()
        assert "Traceback" not in capsys.readouterr().err.replace("Traceback (most recent call last):\n  ...", "")

    def _create_handler(self):
        self.handlers.append(super()._create_handler())
        return self.handlers[-1]


@pytest.fixture
def handler():
    """A function that makes a handler which writes into a string; settings can be given."""
    made = []

    def make(**settings):
        common = MockOutputSettings()
        common.__dict__.update(settings)
        made.append(LogHandler(common_settings=common, settings=None))
        made[-1].stream = io.StringIO()
        return made[-1]

    yield make
    for each in made:
        each.close()


def send(handler, event=None, msg="", level=20, **fields):
    record = TestPlugin()._create_event_record(event, msg, level, **fields)
    record.created = fields.get("at", record.created)
    handler.handle(record)


def start(handler, number, rule="convert", at=1000.0, **fields):
    info = {"wildcards": {"model": "m", "format": "gguf", "variant": "q8_0"}, "threads": 1, "reason": "", "log": []}
    send(handler, LogEvent.JOB_INFO, jobid=number, rule_name=rule, at=at, **{**info, "output": ["x"], **fields})


def test_snakemakes_inner_workings_are_left_out_and_everything_else_is_shown(handler):
    shown = handler()
    for text in ("Building DAG of jobs...", "Using shell: /bin/bash", "Select jobs to execute...", "Elapsed time: 0"):
        send(shown, msg=text)
    send(shown, msg="debugging", level=10)
    assert shown.stream.getvalue() == ""
    send(shown, msg="Unlocked working directory.")
    send(shown, msg="the clock is wrong", level=30)
    assert shown.stream.getvalue() == "Unlocked working directory.\nthe clock is wrong\n"


def test_quiet_keeps_failures_and_warnings_and_quiet_all_keeps_nothing(handler, tmp_path):
    for quiet, expected in (({Quietness.PROGRESS, Quietness.RULES}, True), ({Quietness.ALL}, False)):
        shown = handler(quiet=quiet)
        send(shown, LogEvent.RUN_INFO, stats={"convert": 2, "total": 2})
        start(shown, 1)
        start(shown, 2)
        send(shown, LogEvent.JOB_FINISHED, job_id=1)
        send(shown, msg="careful", level=30)
        failure = {"rule_msg": None, "aux": {}, "shellcmd": "false", "log": []}
        send(shown, LogEvent.JOB_ERROR, level=40, jobid=2, rule_name="convert", **failure)
        shown.close()
        text = shown.stream.getvalue()
        assert ("careful\n" in text and "FAILED convert m/gguf/q8_0" in text) == expected
        assert ("1 of 2 jobs failed:\n" in text) == expected
        assert "start" not in text and "[1/2]" not in text


def test_long_jobs_tell_their_progress_every_15_seconds_without_a_terminal(handler, tmp_path):
    shown, log = handler(), tmp_path / "a.log"
    start(shown, 1, at=time.time() - 40, log=[str(log)])
    shown.stream.truncate(0)
    now = shown.run.clock()
    console.publish(log, 45, 120, "blocks")
    shown.run.poll()
    for later in (0, 5, 14, 15, 20):
        shown.tell_progress(now + later)
    lines = shown.stream.getvalue().strip("\0").splitlines()
    assert [line.split(", ")[1] for line in lines] == ["45 of 120 blocks"] * 2


def test_a_job_that_is_tried_again_and_ends_well_is_no_failure(handler):
    shown = handler()
    send(shown, LogEvent.RUN_INFO, stats={"fetch": 1, "total": 1})
    start(shown, 1, rule="fetch")
    failure = {"rule_msg": "no network", "aux": {}, "shellcmd": None, "log": []}
    send(shown, LogEvent.JOB_ERROR, level=40, jobid=1, rule_name="fetch", **failure)
    start(shown, 1, rule="fetch", at=1002.0)
    send(shown, LogEvent.JOB_FINISHED, job_id=1, at=1004.5)
    shown.close()
    assert "no network" in shown.stream.getvalue()
    assert "[1/1] fetch m/gguf/q8_0  2.5 s" in shown.stream.getvalue()
    assert "jobs failed" not in shown.stream.getvalue()


def test_a_record_that_breaks_the_plugin_is_still_shown(handler, capsys):
    shown = handler()
    send(shown, LogEvent.JOB_FINISHED, msg="Finished jobid: 1")
    assert "Finished jobid: 1" in shown.stream.getvalue()
    assert "KeyError" in capsys.readouterr().err


@pytest.fixture
def workflow(tmp_path):
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    return tmp_path


def command(*arguments, variants="good"):
    options = ["--cores", "2", "--latency-wait", "0", "--config", f"variants={variants}", "--logger", "hallmark"]
    return [sys.executable, "-m", "snakemake", *arguments, *options]


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(SCRIPTS), **more}


def snakemake(folder, *arguments, variants="good"):
    """Exit status and what was printed, standard output first."""
    ran = subprocess.run(
        command(*arguments, variants=variants), cwd=folder, env=environment(), capture_output=True, text=True
    )
    return ran.returncode, ran.stdout + ran.stderr


def on_terminal(folder, *arguments, variants="good"):
    """The same, on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        command(*arguments, variants=variants),
        cwd=folder,
        env=environment(TERM="xterm-256color", COLUMNS="100", LINES="20"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            received = os.read(ours, 65536)
        except OSError:  # how Linux tells that the other end of a terminal is closed
            break
        shown += received
    os.close(ours)
    return run.wait(), shown.decode()


@pytest.mark.slow
def test_without_a_terminal_a_run_is_told_in_lines(workflow, state):
    status, text = snakemake(workflow, "--keep-going", variants="good bad dead none")
    assert status == 1
    assert re.search(r"9 jobs on 2 cores(, of which there are 1)?: 4 convert, 4 measure, 1 all\n", text)
    assert "start convert tiny/gguf/good\n" in text
    assert re.search(r"\[\d/9\] measure tiny/gguf/good  \d\.\d s", text)
    assert re.search(r"\nFAILED convert tiny/gguf/bad  after \d\.\d s, exit status 3\n", text)
    assert "  | 82\n" in text and "  | 81\n" not in text
    assert "  | 100 columns, 256 do not divide them\n" in text
    assert re.search(r"FAILED convert tiny/gguf/dead  after \d\.\d s, killed by SIGKILL", text)
    assert "some output files are missing" in text and "FAILED convert tiny/gguf/none" in text
    assert "3 of 9 jobs failed, 2 done, 4 not run:\n" in text
    assert str(workflow / "logs/convert/tiny/gguf/bad/0123abcd.log") in text
    for noise in ("set -euo pipefail", "CalledProcessError", "Building DAG", "At least one job", "\x1b"):
        assert noise not in text
    assert set(json.loads((state / "durations.json").read_text())) == {
        "convert tiny/gguf/good",
        "measure tiny/gguf/good",
    }


@pytest.mark.slow
def test_on_a_terminal_running_jobs_move_and_finished_ones_scroll_by(workflow):
    status, text = on_terminal(workflow, variants="slow")
    assert status == 0
    assert "3 of 4 tensors" in text
    assert "0 of 3 jobs done" in text
    assert re.search(r"\[1/3\]\S* convert tiny/gguf/slow  1\.\d s", text)
    assert "start convert" not in text
    assert text.rstrip().endswith("s") and "3 jobs done in" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden, and comes back
    assert not list(workflow.rglob("*.progress"))


@pytest.mark.slow
def test_dry_run_and_nothing_to_do(workflow):
    status, text = snakemake(workflow, "-n")
    assert status == 0
    assert "convert tiny/gguf/good  (missing output files)\n" in text
    assert text.index("measure tiny/gguf/good") < text.index("convert        1\n") < text.index("This was a dry-run")
    assert text.count("Job stats:") == 1
    assert not (workflow / "out").exists()
    (workflow / "Snakefile").write_text("rule all:\n    input: 'Snakefile'\n")
    assert snakemake(workflow) == (0, "Nothing to be done (all requested files are present and up to date).\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("snakefile", "arguments", "expected"),
    [
        ("raise WorkflowError('config.yaml: no format q9, have gguf')", (), "config.yaml: no format q9, have gguf"),
        ("rule a:\n    input: 'nope.txt'\n    output: 'x'", (), "affected files:\n        nope.txt"),
        ("rule a:\n    output: 'x.{y}'\nrule b:\n    output: 'x.{z}'", ("x.1",), "are ambiguous for the file x.1"),
        (SNAKEFILE, ("elsewhere",), "No rule to produce elsewhere"),
        (SNAKEFILE, (), "--unlock"),
    ],
    ids=["parse", "missing input", "ambiguous", "no rule", "locked"],
)
def test_what_a_user_needs_of_snakemakes_errors_comes_through(workflow, request, snakefile, arguments, expected):
    (workflow / "Snakefile").write_text(f"from snakemake.exceptions import WorkflowError\n{snakefile}\n")
    if "locked" in request.node.name:
        (workflow / ".snakemake/locks").mkdir(parents=True)
        (workflow / ".snakemake/locks/0.output.lock").write_text("out/convert/tiny/gguf/good/0123abcd\n")
    status, text = snakemake(workflow, *arguments)
    assert status == 1
    assert expected in text
    assert "Traceback" not in text
