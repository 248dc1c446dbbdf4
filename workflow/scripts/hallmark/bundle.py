"""Bundles: everything that one target needs to run one model, in a folder that checks itself. Publishes nothing.

A bundle holds the artifact's files at its top, and beside them

    README.md           how to run it, and the numbers          run.json           the same for programs
    MODEL_CARD.md       the source's, with what was done to it  LICENSE, NOTICE    the source's
    verdict.json        why it may be released                  measurements.json  every number with its conditions
    provenance.json     source pins, recipe, plan components    manifest.json      every file with size and sha256
    SHA256SUMS          the same for `sha256sum -c`

Nothing in it varies by itself: the same inputs give the same bytes. When no candidate passed, the folder holds
`refusal.json` alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import yaml

from hallmark import digest, quantities, templates
from hallmark.formats import Usage
from hallmark.tasks import Metric

VERSION = 1
MANIFEST, SUMS, REFUSAL, VERDICT = "manifest.json", "SHA256SUMS", "refusal.json", "verdict.json"
LICENCE = re.compile(r"(licen[cs]e|notice|copying|use_policy|.*terms)([._-].*)?", re.IGNORECASE)
README = re.compile(r"readme([._-].*)?\.(md|markdown)", re.IGNORECASE)
FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
COPY_CHUNK = 1 << 30
TEMPLATES = ("bundle.md.j2", "model_card.md.j2", "numbers.md.j2")


class BundleError(Exception):
    """A bundle cannot be made from what was given; the text names the file and what is wrong with it."""


@dataclass(frozen=True)
class Origin:
    """Where a model comes from: the folder with the source's README and licence, and its pins from the lock."""

    docs: Path
    pins: Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """The artifact that a target takes. `files` is its folder, `expected` what its manifest says is in there.

    `recipe` says how it was made (format, variant, options, toolchain, notes of the conversion), `components` are those
    of its plan key; both are plain JSON. `metrics` are its task's, for what the numbers mean.
    """

    files: Path
    expected: digest.Described
    usage: Usage
    recipe: Mapping[str, Any]
    components: Mapping[str, Any]
    inspection: Mapping[str, Any]
    measurements: Sequence[Mapping[str, Any]]
    metrics: Mapping[str, Metric]


def digest_of_texts(usage: Usage) -> str:
    """Digest of what a bundle says and carries to run an artifact: its usage, and the templates of its documents."""
    return digest.of_value([asdict(usage), templates.digest_of(*TEMPLATES)])[:16]


def assemble(
    out: Path,
    selection: Mapping[str, Any],
    verdicts: Mapping[str, Mapping[str, Any]],
    choice: Choice | None,
    origin: Origin,
    hallmark: str,
) -> None:
    """Write the bundle of a selection into the empty folder `out`, or the refusal when nothing was selected.

    `verdicts` maps every candidate (`format/variant`) to its verdict, `hallmark` is the version of this program.
    Raises BundleError when the artifact is not what its manifest or the verdict says, or when names collide.
    """
    selected = selection["selected"]
    if selected is None:
        _write(out, REFUSAL, _json(_refusal(selection, verdicts)))
        return
    if choice is None:
        raise BundleError(f"{selection['model']}/{selected}: selected, but not given")
    verdict = verdicts[selected]
    artifact = digest.of_tree(choice.expected)
    if verdict["artifact"] != artifact:
        raise BundleError(
            f"{verdict['subject']}: the verdict is on artifact {verdict['artifact'][:12]}, not on {artifact[:12]}"
        )
    for name, expected in sorted(choice.expected.items()):
        copy_file(choice.files / name, out / name, expected)
    facts = _facts(selection, verdict, choice, origin, hallmark)
    texts = {**choice.usage.files, **_documents(facts, origin.docs), **_records(facts, verdict, choice, origin)}
    for name, text in texts.items():
        _write(out, name, text)
    for path in _licences(origin.docs):
        _write(out, path.name, path.read_bytes())
    _seal(out, facts, verdict, choice)


def _refusal(selection: Mapping[str, Any], verdicts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    candidates = [
        {**candidate, "gates": [gate for gate in verdicts[candidate["artifact"]]["gates"] if gate["verdict"] != "pass"]}
        for candidate in selection["candidates"]
    ]
    return {"model": selection["model"], "target": selection["target"], "candidates": candidates}


def _facts(
    selection: Mapping[str, Any], verdict: Mapping[str, Any], choice: Choice, origin: Origin, hallmark: str
) -> dict[str, Any]:
    """What the texts of a bundle speak of."""
    preferred = [candidate for candidate in selection["candidates"] if candidate["verdict"] != "pass"]
    return {
        "hallmark": hallmark,
        "model": selection["model"],
        "target": selection["target"],
        "subject": verdict["subject"],
        "artifact": verdict["artifact"],
        "recipe": choice.recipe,
        "requirements": choice.usage.requirements,
        "install": shlex.join(["python", "-m", "pip", "install", *choice.usage.requirements]),
        "command": choice.usage.command.replace("{folder}", "."),
        "guides": sorted(name for name in choice.usage.files if name.endswith(".md")),
        "bytes": sum(entry["size"] for entry in choice.expected.values()),
        "verdict": verdict,
        "numbers": _numbers(verdict, choice),
        "machine": _conditions(choice).get("hardware_class", ""),
        "not_taken": _before(preferred, selection),
        "licences": [path.name for path in _licences(origin.docs)],
    }


def _conditions(choice: Choice) -> Mapping[str, Any]:
    """What speed was measured under; empty where it was not."""
    conditions: Iterator[Mapping[str, Any]] = (
        part.get("conditions", {}) for part in choice.measurements if part["kind"] == "speed"
    )
    return next(conditions, {})


def _numbers(verdict: Mapping[str, Any], choice: Choice) -> list[dict[str, Any]]:
    """Every number of the artifact, in the task's order: name, meaning, text, and the limit it passed, if any."""
    measured = {name: found for part in choice.measurements for name, found in part["metrics"].items()}
    inspected = choice.inspection["metrics"]
    gates = {gate["metric"]: gate for gate in verdict["gates"]}
    rows = []
    for name, metric in choice.metrics.items():
        if name in measured:
            text = quantities.estimate(measured[name])
        elif name in inspected:
            text = quantities.plain(inspected[name], metric.unit)
        else:
            continue
        limit = quantities.limit(gates[name]["limit"], metric.unit) if name in gates else ""
        rows.append({"name": name, "meaning": metric.meaning, "text": text, "limit": limit})
    return rows


def _before(refused: Sequence[Mapping[str, Any]], selection: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The candidates that were preferred to the selected one and did not pass."""
    order = [candidate["artifact"] for candidate in selection["candidates"]]
    ahead = order[: order.index(selection["selected"])]
    return [candidate for candidate in refused if candidate["artifact"] in ahead]


def _documents(facts: Mapping[str, Any], docs: Path) -> dict[str, str]:
    """README and model card."""
    readme = next((path for path in sorted(docs.iterdir()) if README.fullmatch(path.name)), None)
    source = readme.read_text(encoding="utf-8-sig", errors="replace") if readme else ""
    front_matter, body = split_front_matter(source)
    card = templates.render("model_card.md.j2", **facts, front_matter=front_matter, body=body.strip("\n"))
    return {
        "README.md": templates.render("bundle.md.j2", **facts, licence=_named_licence(front_matter)),
        "MODEL_CARD.md": card,
    }


def split_front_matter(text: str) -> tuple[str, str]:
    """A model card's YAML front matter (without its dashes) and the rest.

    Front matter that is not a YAML mapping becomes a code block of the rest: hubs refuse a card that opens with it.
    """
    text = text.replace("\r\n", "\n")
    found = FRONT_MATTER.match(text)
    if not found:
        return "", text
    try:
        valid = isinstance(yaml.safe_load(found[1]), dict)
    except yaml.YAMLError:
        valid = False
    return (found[1], text[found.end() :]) if valid else ("", f"```yaml\n{found[1]}```\n{text[found.end() :]}")


def _named_licence(front_matter: str) -> str:
    return str((yaml.safe_load(front_matter) or {}).get("license", ""))


def _licences(docs: Path) -> list[Path]:
    return [path for path in sorted(docs.iterdir()) if path.is_file() and LICENCE.fullmatch(path.name)]


def _records(facts: Mapping[str, Any], verdict: Mapping[str, Any], choice: Choice, origin: Origin) -> dict[str, str]:
    """The JSON files but the manifest."""
    run = {
        "model": facts["model"],
        "target": facts["target"],
        "runtime": choice.recipe["format"],
        "requirements": list(choice.usage.requirements),
        "command": choice.usage.command,
        "measured_under": _conditions(choice),
    }
    provenance = {
        "hallmark": facts["hallmark"],
        "source": origin.pins,
        "recipe": choice.recipe,
        "components": choice.components,
    }
    measurements = {"inspection": choice.inspection, "measurements": choice.measurements}
    return {
        "run.json": _json(run),
        VERDICT: _json(verdict),
        "measurements.json": _json(measurements),
        "provenance.json": _json(provenance),
    }


def _seal(out: Path, facts: Mapping[str, Any], verdict: Mapping[str, Any], choice: Choice) -> None:
    """Write the manifest, and the same for `sha256sum -c`."""
    manifest = {
        "version": VERSION,
        "hallmark": facts["hallmark"],
        "model": facts["model"],
        "target": facts["target"],
        "artifact": {"subject": verdict["subject"], "digest": verdict["artifact"], "files": sorted(choice.expected)},
        "verdict": {"verdict": verdict["verdict"], "policy": verdict["policy"]},
        "components": choice.components,
        "files": digest.describe(out),
    }
    text = _json(manifest)
    _write(out, MANIFEST, text)
    _write(out, SUMS, sums(manifest["files"], text))


def sums(files: digest.Described, manifest: str) -> str:
    """The text of SHA256SUMS: the manifest's files and the manifest itself."""
    lines = {name: entry["sha256"] for name, entry in files.items()}
    lines[MANIFEST] = hashlib.sha256(manifest.encode()).hexdigest()
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(lines.items()))


def _write(out: Path, name: str, content: str | bytes) -> None:
    """Write one file of the bundle. What is there already must be the same: the artifact may bring its own LICENSE."""
    path = out / _checked(name)
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() != data:
        raise BundleError(f"{name}: the artifact has a file of this name, which the bundle needs for its own")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _checked(name: str) -> str:
    """Names stay inside the bundle, and `sha256sum` would escape backslashes and line breaks."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
        raise BundleError(f"{name!r}: not a name for a file of a bundle")
    return name


def copy_file(source: Path, target: Path, expected: digest.FileDigest) -> None:
    """Copy one file and check the copy. Never a link: a person may edit a bundle, and the store must not change.

    Raises BundleError when the copy is not what `expected` says.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reader, target.open("xb") as writer:
        _copy_bytes(reader, writer)
    found = digest.of_file(target)
    if found != expected["sha256"]:
        raise BundleError(f"{source}: sha256 {found[:12]}, its manifest says {expected['sha256'][:12]}")


def _copy_bytes(reader: BinaryIO, writer: BinaryIO) -> None:
    """In the kernel where it can, which shares the blocks on file systems that copy on write (XFS, Btrfs)."""
    try:
        while os.copy_file_range(reader.fileno(), writer.fileno(), COPY_CHUNK):
            pass
    except (AttributeError, OSError):  # not on this system, or not between these two file systems
        reader.seek(0)
        writer.seek(0)
        writer.truncate()
        shutil.copyfileobj(reader, writer)


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
