"""The steps of the script in `by_hand` that run in the core: read data, measure a speed. Knows no plan and no store.

python core_step.py request.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hallmark import datasets, speed
from hallmark.engine import Command
from hallmark.surroundings import worker_env


def data(request: Mapping[str, Any]) -> None:
    datasets.prepare(Path(request["raw"]), request["reader"], request["options"], Path(request["out"]))


def measure_speed(request: Mapping[str, Any]) -> None:
    out, options = Path(request["out"]), request["options"]
    with tempfile.TemporaryDirectory() as scratch:
        artifact, source = (_engine(request[side], options["threads"], Path(scratch, side)) for side in speed.SIDES)
        place, limits = Path(request["reference"]), request["limits"]
        found = speed.measure(artifact, source, request["task"], place, options, out / "log", limits)
    (out / "measurement.json").write_text(json.dumps(found), encoding="utf-8")


def _engine(side: Mapping[str, Any], threads: int, scratch: Path) -> Command:
    toolchain, asked = Path(side["toolchain"]), scratch / "request.json"
    scratch.mkdir()
    asked.write_text(json.dumps(side["request"]), encoding="utf-8")
    argv = [str(toolchain / "bin/python"), "-m", "hallmark.worker", str(asked), str(scratch / "response.json")]
    return Command(argv, worker_env(toolchain, threads, scratch))


STEPS = {"data": data, "speed": measure_speed}

if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    STEPS[asked["step"]](asked)
