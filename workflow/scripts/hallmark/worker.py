"""The worker: does one action in a toolchain, as a JSON request says. Knows no store, no key and no gate.

    python -m hallmark.worker request.json response.json

A request names its action, paths as text, and `options`, which always hold `threads`:

    convert      format, inputs {name: folder}, out, options       the adapter's convert; options are the variant's
    materialise  inputs {name: path}, out, options                 a GGUF turned back into a float checkpoint
    compare      inputs {source: folder}, options                  a checkpoint's tensors against its class, for lint
    loadgen      engine {argv, env, log}, task, samples, scenarios, out, options         LoadGen's traffic to an engine
    questions    engine {name, argv, env, log}, data, reference or null, out, options    labelled questions, asked
    reference    task, source, data, out, options                  what the source answers
    accuracy     task, format, files, variant, reference, data, out, options     an artifact against the reference
    serve        task, options, and source, or format, files and variant         an engine, see `serve`

In the last two `options` are the task's and `variant` the variant's; the adapter's `open` gets both, the task's on
top. The response is `{"result": what the action returned, "versions": {distribution: version}}`, written only on
success; on failure a traceback goes to standard error and the exit code is 1. `serve` answers on standard output
instead.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from hallmark import choices, formats, tasks
from hallmark.processes import peak_memory

Request = Mapping[str, Any]
Open = Callable[[], AbstractContextManager[Any]]


def convert(request: Request) -> Any:
    return formats.get(request["format"]).convert(_inputs(request), Path(request["out"]), request["options"])


def materialise(request: Request) -> Any:
    made = importlib.import_module("hallmark.materialise")
    return made.materialise(_inputs(request), Path(request["out"]), request["options"])


def compare(request: Request) -> Any:
    made = importlib.import_module("hallmark.lint.model_class")
    return made.compare(_inputs(request), request["options"])


def reference(request: Request) -> Any:
    task = tasks.get(request["task"])
    with opener(request)() as runner:
        return task.reference(runner, Path(request["data"]), Path(request["out"]), request["options"])


def accuracy(request: Request) -> Any:
    task = tasks.get(request["task"])
    folders = (Path(request[name]) for name in ("reference", "data", "out"))
    with opener(request)() as runner:
        return task.accuracy(runner, *folders, request["options"])


def loadgen(request: Request) -> Any:
    return importlib.import_module("hallmark.loadgen").drive(request)


def questions(request: Request) -> Any:
    made = importlib.import_module("hallmark.harness")
    reference, timeout_s = request["reference"], request["options"]["timeout_s"]
    folders = Path(request["data"]), Path(reference) if reference else None, Path(request["out"])
    return made.ask(request["engine"], *folders, timeout_s)


ACTIONS = {body.__name__: body for body in (convert, materialise, compare, reference, accuracy, questions, loadgen)}


def _inputs(request: Request) -> dict[str, Path]:
    return {name: Path(path) for name, path in request["inputs"].items()}


def opener(request: Request) -> Open:
    """What opens the request's runner: the source on PyTorch, or an artifact with its format's adapter."""
    if "source" in request:
        return lambda: tasks.get(request["task"]).open_reference(Path(request["source"]), request["options"])
    options = {**request.get("variant", {}), **request["options"]}
    return lambda: formats.get(request["format"]).open(Path(request["files"]), request["task"], options)


def versions() -> dict[str, str]:
    """Versions of the distributions that this process has imported from, by name."""
    packages = metadata.packages_distributions()
    found = {name for module, names in packages.items() if module in sys.modules for name in names}
    return {name.lower(): metadata.version(name) for name in sorted(found, key=str.lower)}


class _Engine:
    """A runner that is open for the length of a `with` block and can be opened anew inside it."""

    def __init__(self, open_runner: Open, task: ModuleType) -> None:
        self._open, self._task, self._opened = open_runner, task, ExitStack()

    def __enter__(self) -> _Engine:
        self.runner = self._opened.enter_context(self._open())
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def sample(self, request: Any) -> dict[str, Any]:
        return {"seconds": self._task.sample(self.runner, request)}

    def load(self, request: Any) -> dict[str, Any]:
        self.runner = None  # nothing may keep the model alive while it is opened again
        self._opened.close()
        gc.collect()
        started = time.perf_counter()
        self.runner = self._opened.enter_context(self._open())
        opened = time.perf_counter()
        self._task.sample(self.runner, request)
        answered = time.perf_counter()
        return {"seconds": {"load": answered - started, "answer": answered - opened}}

    def soak(self, requests: Any) -> dict[str, Any]:
        seconds, held = [], []
        for request in requests:
            started = time.perf_counter()
            self._task.sample(self.runner, request)
            seconds.append(time.perf_counter() - started)
            held.append(_private_bytes())
        return {"seconds": seconds, "private_bytes": held}

    def encode(self, request: Any) -> dict[str, Any]:
        return choices.encode(self.runner, request)

    def score(self, request: Any) -> dict[str, Any]:
        return choices.score(self.runner, request)

    def state(self, request: Any) -> dict[str, Any]:
        peak = peak_memory() + _peak_below("self")
        return {"peak_bytes": peak, "about": getattr(self.runner, "about", {}), "versions": versions()}


def serve(open_runner: Open, task: ModuleType, size_bytes: int, messages: IO[bytes], answers: IO[bytes]) -> None:
    """Answer one JSON line for each that comes, until the input ends. What goes wrong is raised and not answered.

    First, unasked, when the model is open: {"size_bytes": ...}. Then
        {"do": "sample", "request": ...}   {"seconds": task.sample(...)}
        {"do": "load", "request": ...}     {"seconds": {"load", "answer"}}: closed, opened again and this request
                                           answered; and the answer's part of that
        {"do": "soak", "request": [...]}   {"seconds": [...], "private_bytes": [...]}: of each of the requests what it
                                           took, and what this process held after it
        {"do": "encode", "request": ...}   see `hallmark.choices`, and so for "score"
        {"do": "state"}                    {"peak_bytes", "versions", "about"}
    each with `waited_s` and `waited_cpu_s`, the time from the last answer to the message and the CPU time that this
    process used in it, and `took_s` and `cpu_s`, what the answer took. `peak_bytes` is of this process and those below
    it; `about` is the runner's attribute of that name, if it has one: the settings that its runtime really uses.
    """
    with _Engine(open_runner, task) as engine:
        _answer(answers, {"size_bytes": size_bytes})
        answered = time.perf_counter(), time.process_time()
        for line in messages:
            arrived = time.perf_counter(), time.process_time()
            message = json.loads(line)
            answer = getattr(engine, message["do"])(message.get("request"))
            took = {"took_s": time.perf_counter() - arrived[0], "cpu_s": time.process_time() - arrived[1]}
            waited = {"waited_s": arrived[0] - answered[0], "waited_cpu_s": arrived[1] - answered[1]}
            _answer(answers, {**answer, **waited, **took})
            answered = time.perf_counter(), time.process_time()


def _answer(answers: IO[bytes], message: Mapping[str, Any]) -> None:
    answers.write(json.dumps(message, allow_nan=False).encode() + b"\n")
    answers.flush()


def _private_bytes() -> int:
    """Resident bytes of this process that no file backs (proc(5)); its peak where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return peak_memory()
    return (
        sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:"))) * 1024
    )


def _peak_below(pid: int | str) -> int:
    """Sum of the peak resident bytes of all processes below `pid`; those that end meanwhile do not count (proc(5))."""
    total = 0
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text(encoding="ascii").split():
            with suppress(OSError):
                status = Path(f"/proc/{child}/status").read_text(encoding="utf-8", errors="replace")
                total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024
                total += _peak_below(child)
    return total


def _serve(request: Request) -> None:
    """Serve on standard input and output; what libraries print goes to standard error instead."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    size = sum(
        path.stat().st_size for path in Path(request.get("files") or request["source"]).rglob("*") if path.is_file()
    )
    with answers:
        serve(opener(request), tasks.get(request["task"]), size, sys.stdin.buffer, answers)


def main(request_path: Path, response_path: Path) -> None:
    """Do what the request says."""
    request = json.loads(request_path.read_text(encoding="utf-8"))
    if request["action"] == "serve":
        _serve(request)
    else:
        response = {"result": ACTIONS[request["action"]](request), "versions": versions()}
        response_path.write_text(json.dumps(response, allow_nan=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
