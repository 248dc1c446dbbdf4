"""Lint's order of work: headers, pickles, the model class, values; and what a single artifact is refused for.

It starts no worker: whoever can, passes a function that asks `model_class.compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from hallmark import checkpoint as checkpoints
from hallmark import formats
from hallmark.checkpoint import Checkpoint
from hallmark.lint import chat_template, files, model_class, pickles, settings, tokens, values
from hallmark.lint.findings import Finding, LintError, as_json, errors, found, line

CODE = (
    "hallmark.checkpoint",
    *(f"hallmark.lint.{name}" for name in ("findings", "files", "settings", "vocabulary", "tokens", "values")),
    *(f"hallmark.lint.{name}" for name in ("chat_template", "pickles", "model_class", "report")),
    "hallmark.chat",
)
# Without a model or its weights there is nothing to compare, and a quantised one has other tensors than its class.
NO_CLASS = {
    "no_config", "no_architecture", "no_weights", "only_pickles", "bad_header", "quantised_source", "unknown_rope",
    "remote_code", "remote_code_missing", "remote_code_elsewhere", "training_prefix", "unmerged_adapter",
}  # fmt: skip
Compare = Callable[[], Mapping[str, Any]]


def libraries() -> dict[str, str]:
    """Versions of what else decides the findings."""
    return {name: metadata.version(name) for name in ("jinja2", "picklescan")}


def of_headers(checkpoint: Checkpoint, remote_code: bool = False) -> list[Finding]:
    """What the headers and the small files show. `remote_code`: whether the checkpoint's own code is allowed."""
    before = [finding for check in settings.CHECKS for finding in check(checkpoint)]
    before += settings.remote_code(checkpoint, remote_code)
    checks = (*files.CHECKS, *tokens.CHECKS, chat_template.check)
    return before + [finding for check in checks for finding in check(checkpoint)]


def of_folder(folder: Path, remote_code: bool, compare: Compare | None, excuse: str = "") -> dict[str, Any]:
    """Everything that is wrong with the checkpoint in a folder.

    {"findings": [...], "facts": {...}, "class": what `compare` answered or None, "not_checked": [why something was not
    looked at]}. `excuse` says why there is no `compare`.
    """
    checkpoint = checkpoints.of_folder(folder)
    findings = [_with_imports(finding, checkpoint, folder) for finding in of_headers(checkpoint, remote_code)]
    findings += pickles.check(checkpoint, folder)
    answer, left_out = None, []
    in_the_way = sorted(NO_CLASS & {finding.code for finding in findings if not finding.trait})
    if in_the_way:
        left_out.append(f"tensors against the model class: {', '.join(in_the_way)} first")
    elif compare is None:
        left_out.append(f"tensors against the model class: {excuse}")
    else:
        answer = compare()
        findings += model_class.judge(answer, checkpoint)
    findings += values.check(checkpoint, folder)
    findings += _tied(checkpoint, folder, answer or {"tied": []})
    return {
        "findings": as_json(findings),
        "facts": checkpoints.facts(checkpoint),
        "class": answer,
        "not_checked": left_out,
    }


def _with_imports(finding: Finding, checkpoint: Checkpoint, folder: Path) -> Finding:
    if finding.code != "only_pickles":
        return finding
    return replace(finding, message=f"{finding.message}, which import {pickles.named(checkpoint, folder)}")


def _tied(checkpoint: Checkpoint, folder: Path, answer: Mapping[str, Any]) -> Iterator[Finding]:
    for first, second in answer["tied"]:
        if not values.same(checkpoint, folder, first, second):
            yield found("tied_but_different", first, f"differs from {second}, to which the config ties it")


def refuse_artifact(subject: str, report: Mapping[str, Any], spec: formats.Spec, variant: str, task: str,
                    options: Mapping[str, Any]) -> None:  # fmt: skip
    """Raise LintError when the checkpoint has a trait that this recipe cannot carry; the text names those that can."""
    architecture = str(report["facts"]["architecture"])
    traits = {
        trait for trait in traits_of(report) if not spec.carries(trait, spec.variants[variant], options, architecture)
    }
    if traits:
        lines = [
            f"{subject}: {line(finding)}; artifacts that can: {_able(finding['trait'], task, architecture)}"
            for finding in errors(report, traits)
        ]
        raise LintError("\n".join(lines))


def _able(trait: str, task: str, architecture: str) -> str:
    return ", ".join(formats.able(trait, task, architecture)) or "none"


def traits_of(report: Mapping[str, Any]) -> list[str]:
    """What the checkpoint asks of a format, by its findings, sorted."""
    return sorted({finding["trait"] for finding in report["findings"] if finding["trait"]})


def limited(report: Mapping[str, Any], tasks: Iterable[str]) -> dict[str, list[str]]:
    """Trait -> the artifacts (`gguf/f16`) of the tasks that cannot carry it, where there are any."""
    architecture = str(report["facts"]["architecture"])
    found_in = {
        trait: sorted({name for task in tasks for name in formats.unable(trait, task, architecture)})
        for trait in traits_of(report)
    }
    return {trait: names for trait, names in found_in.items() if names}
