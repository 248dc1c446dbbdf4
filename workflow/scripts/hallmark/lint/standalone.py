"""Lint of a folder outside any plan, for `hallmark lint`: it uses the toolchain if there is one, and says if not."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from hallmark import tasks, toolchains
from hallmark.config import Config
from hallmark.launcher import launch
from hallmark.lint import report as reports
from hallmark.lint.findings import errors
from hallmark.progress import heard_by
from hallmark.toolchains import Toolchain

TOOLCHAIN, TIMEOUT_S = "torch", 1800
NOT_MADE = "the toolchain torch is not made yet; --make-toolchain makes it, and so does any build"
BUILDS = get_args(Config.model_fields["torch_build"].annotation)


def lint(folder: Path, remote_code: bool, make: bool) -> dict[str, Any]:
    """The report of `report.of_folder`, with `artifacts`: trait -> those that cannot be made of this checkpoint.

    With `make`, a toolchain that is not there is made first.
    """
    toolchain = _made() or (toolchains.make(TOOLCHAIN) if make else None)
    with tempfile.TemporaryDirectory(prefix="hallmark-lint-") as scratch:

        def compare() -> Mapping[str, Any]:
            assert toolchain is not None
            request = {"action": "compare", "inputs": {"source": str(folder.absolute())}}
            options = {"remote_code": remote_code, "threads": 1}
            log, out = Path(scratch) / "log", Path(scratch) / "out"
            answer = launch(toolchain.folder, {**request, "options": options}, log=log, out=out, timeout_s=TIMEOUT_S)
            compared: Mapping[str, Any] = answer["result"]
            return compared

        with heard_by(lambda *_: None):
            found = reports.of_folder(folder, remote_code, compare if toolchain else None, NOT_MADE)
    return {**found, "artifacts": reports.limited(found, tasks.names())}


def _made() -> Toolchain | None:
    """The toolchain in any of its builds, if one of them is complete."""
    builds = (toolchains.get(TOOLCHAIN, build) for build in BUILDS)
    return next((toolchain for toolchain in builds if toolchain.made), None)


def describe(report: Mapping[str, Any]) -> str:
    """The report for a person: each finding in two lines, what was not looked at, and what follows."""
    lines = []
    for finding in report["findings"]:
        trait = finding["trait"]
        if trait and trait not in report["artifacts"]:
            continue  # every format can carry it
        of = f", for {', '.join(report['artifacts'][trait])}" if trait else ""
        lines += [f"{finding['level']}: {finding['place']}: {finding['message']}  [{finding['code']}{of}]"]
        lines += [f"    {finding['remedy']}"]
    lines += [f"not checked: {reason}" for reason in report["not_checked"]]
    refused = len(errors(report))
    lost = sorted({name for names in report["artifacts"].values() for name in names})
    if refused:
        lines.append(f"refused: {refused} error{'s' if refused > 1 else ''}")
    elif lost:
        lines.append(f"sound, but not for {', '.join(lost)}")
    else:
        lines.append("nothing is wrong" if not report["not_checked"] else "nothing is wrong in what was checked")
    return "\n".join(lines)
