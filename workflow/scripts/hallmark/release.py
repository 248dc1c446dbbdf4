"""Releases: folders of bundles that passed, with an index. The only place that refuses; it judges nothing.

A release is `<releases>/<version>-<digest8>/` with `<target>/<model>/…`, `index.json` and `index.md`; the plan gives it
its name, so that other content has another name. Bundles are added to it one by one, each whole or not at all; a bundle
that is there is never replaced by another. `latest` links to the release that was published to last.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hallmark import bundle, digest, gates, store, tasks
from hallmark.release_checks import INDEX, INDEX_TABLE, check_bundle
from hallmark.templates import render

VERSION = 1
FOLDER = Path("artifacts/releases")
LATEST = "latest"
AFTER = "after"  # in an index: the release that `latest` pointed to before, None for the first one of all
PARTIAL = ".partial-"


class ReleaseError(Exception):
    """A release cannot be written, or what is there is another one; the text says what to do."""


@dataclass(frozen=True)
class Offer:
    """A bundle offered for release: its folder, and the digest of the current policy for each candidate of the target.

    `policies` maps `format/variant` to `gates.policy_digest` of the gates that hold for it now.
    """

    target: str
    model: str
    folder: Path
    policies: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"{self.target}/{self.model}"


def publish(offer: Offer, release: Path) -> dict[str, Any] | None:
    """Add a bundle to the release, or refuse it. Returns the refusal, as it is in the index, or None when published.

    Doing it again changes nothing. Raises ReleaseError when another bundle is published there, or a damaged one.
    """
    entry, refusal = _consider(offer)
    release.mkdir(parents=True, exist_ok=True)
    with _alone(release):
        if entry:
            _publish(offer.folder, release, entry)
            link_latest(release)
        else:
            _record(release, refusal, "refused")
    return refusal or None


def describe_refusals(refused: Sequence[Mapping[str, Any]]) -> str:
    """For the person who ran it: target, model, and for each candidate the gate, the number and the limit."""
    lines = []
    for refusal in refused:
        lines.append(f"not released: {refusal['model']} for {refusal['target']}")
        lines += [f"  {reason['artifact']} ({reason['verdict']}): {reason['why']}" for reason in refusal["reasons"]]
        if any(reason["verdict"] == "inconclusive" for reason in refusal["reasons"]):
            lines.append("  what is inconclusive is measured again by the next run, where that can settle it")
    return "\n".join(lines)


def _consider(offer: Offer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The index entry of a bundle that may be released, or that of its refusal; the other is empty."""
    names = {"target": offer.target, "model": offer.model}
    refusal = offer.folder / bundle.REFUSAL
    if refusal.exists():
        reasons = [
            {name: candidate[name] for name in ("artifact", "verdict", "why", "gates")}
            for candidate in json.loads(refusal.read_text(encoding="utf-8"))["candidates"]
        ]
        return {}, {**names, "reasons": reasons}
    manifest, problems = check_bundle(offer.folder)
    problems = problems or _check_verdict(offer, manifest)
    if problems:
        artifact = manifest.get("artifact", {}).get("subject", "bundle")
        reasons = [{"artifact": artifact, "verdict": "refused", "why": problem, "gates": []} for problem in problems]
        return {}, {**names, "reasons": reasons}
    return {
        **names,
        "artifact": manifest["artifact"]["subject"],
        "digest": manifest["artifact"]["digest"],
        "policy": manifest["verdict"]["policy"],
        "bytes": sum(entry["size"] for entry in manifest["files"].values()),
        "bundle": digest.of_file(offer.folder / bundle.MANIFEST),
    }, {}


def _check_verdict(offer: Offer, manifest: Mapping[str, Any]) -> list[str]:
    """Why the verdict in a whole bundle does not allow its release now."""
    verdict = json.loads((offer.folder / bundle.VERDICT).read_text(encoding="utf-8"))
    subject = manifest["artifact"]["subject"]
    model, _, candidate = subject.partition("/")
    problems = []
    if (model, manifest["target"]) != (offer.model, offer.target):
        problems.append(f"the bundle is {model} for {manifest['target']}")
    if (verdict["subject"], verdict["target"]) != (subject, offer.target):
        problems.append(f"the verdict is on {verdict['subject']} for {verdict['target']}")
    if verdict["artifact"] != manifest["artifact"]["digest"]:
        problems.append(f"the verdict is on artifact {verdict['artifact'][:12]}, the bundle holds another")
    asked = gates.policy_digest(gates.from_json({gate["metric"]: gate for gate in verdict["gates"]}))
    if asked != verdict["policy"]:
        problems.append(f"its gates are those of policy {asked[:12]}, and it names {verdict['policy'][:12]}")
    if candidate not in offer.policies:
        problems.append(f"{candidate} is not a candidate of {offer.target}")
    elif verdict["policy"] != offer.policies[candidate]:
        problems.append(
            f"judged by policy {verdict['policy'][:12]}, the current one is {offer.policies[candidate][:12]}"
        )
    # A gate on a ratio to the last release does not apply where there is none, or where it is this very artifact.
    words = [gate["verdict"] for gate in verdict["gates"] if not _needs_no_number(gate)]
    if not words or {verdict["verdict"], *words} != {"pass"}:
        problems.append(f"its verdict is {verdict['verdict']}: {verdict['why']}")
    return problems


def _needs_no_number(gate: Mapping[str, Any]) -> bool:
    return bool(gate["verdict"] == gates.NOT_APPLICABLE and gate["metric"].startswith(tasks.RELEASE))


def _publish(source: Path, release: Path, entry: Mapping[str, Any]) -> None:
    """Copy the bundle that was considered beside its place, bring it to the disk, and name it in one step.

    The index is brought up to date just before: killed in between, the next run finds the bundle missing and goes on.
    """
    place = release / entry["target"] / entry["model"]
    manifest = (source / bundle.MANIFEST).read_bytes()
    if hashlib.sha256(manifest).hexdigest() != entry["bundle"]:
        raise ReleaseError(f"{source}: changed while it was being released; run it again")
    files: digest.Described = json.loads(manifest)["files"]
    own = {bundle.MANIFEST: manifest, bundle.SUMS: bundle.sums(files, manifest.decode()).encode()}
    if _is_there(place, files, own):
        _record(release, entry, "published")
        return
    partial = release / f"{PARTIAL}{entry['target']}-{entry['model']}"
    try:
        for name, expected in sorted(files.items()):
            bundle.copy_file(source / name, partial / name, expected)
        for name, data in own.items():
            (partial / name).write_bytes(data)
        store.settle(partial)
        _record(release, entry, "published")
        place.parent.mkdir(exist_ok=True)
        if place.exists():
            shutil.rmtree(place)  # empty, or less than the same bundle: `_is_there` has made sure
        partial.rename(place)
        store.open_folders(release.parent, place)
        store.sync_folder(place.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_there(place: Path, files: digest.Described, own: Mapping[str, bytes]) -> bool:
    """Whether the whole bundle is in its place. Raises ReleaseError when there is a file that is not the bundle's.

    Less than the bundle can be there: Snakemake makes the folder of an output, and removes the output, before a job.
    """
    described = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in own.items()}
    wanted = {**files, **described}
    found = digest.describe(place) if place.exists() else {}
    for name, entry in found.items():
        if wanted.get(name) != entry:
            raise ReleaseError(
                f"{place / name}: another file than the bundle's. What is published is never replaced: "
                f"move {place} away, or set another release version in the config, and run again"
            )
    return found.keys() == wanted.keys()


def _record(release: Path, entry: Mapping[str, Any], kind: str) -> None:
    """Add one bundle or refusal to the index. What is published stays, whatever is offered later."""
    index: dict[str, Any] = {"version": VERSION, "name": release.name, "published": [], "refused": []}
    if (release / INDEX).exists():
        index |= json.loads((release / INDEX).read_text(encoding="utf-8"))
    if kind == "published":
        index = {**index, **_begun_after(release)} if not index["published"] else index
        index["refused"] = [other for other in index["refused"] if _place_of(other) != _place_of(entry)]
    others = [other for other in index[kind] if _place_of(other) != _place_of(entry)]
    index[kind] = sorted([*others, entry], key=_place_of)
    table = render("index.md.j2", index=index)
    index["table"] = hashlib.sha256(table.encode()).hexdigest()
    _replace(release / INDEX_TABLE, table)
    _replace(release / INDEX, json.dumps(index, indent=1, ensure_ascii=False) + "\n")


def _begun_after(release: Path) -> dict[str, str | None]:
    """What an index says of the release before this one, as its first bundle is published (see `last_release`)."""
    link = release.with_name(LATEST)
    if link.is_symlink():
        before = link.readlink().name
        return {AFTER: before} if before != release.name else {}
    others = [path for path in release.parent.glob(f"*/*/*/{bundle.MANIFEST}") if release not in path.parents]
    return {} if others else {AFTER: None}


def _place_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["target"], entry["model"]


def _replace(path: Path, text: str) -> None:
    """Write a file in one step; one that says so already is left alone."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    fresh = path.with_name(f"{PARTIAL}{path.name}")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.chmod(store.MODE)
    fresh.replace(path)
    store.sync_folder(path.parent)


@contextmanager
def _alone(release: Path) -> Iterator[None]:
    """One publisher at a time; what a killed one left is removed."""
    with (release.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for abandoned in [*release.glob(f"{PARTIAL}*"), *release.parent.glob(f"{PARTIAL}*")]:
            shutil.rmtree(abandoned) if abandoned.is_dir() and not abandoned.is_symlink() else abandoned.unlink()
        yield


def link_latest(release: Path) -> None:
    """Point `latest` at a release, in one step. A link that points there already is left alone."""
    link = release.with_name(LATEST)
    if link.is_symlink() and link.readlink() == Path(release.name):
        return
    fresh = release.with_name(f"{PARTIAL}{LATEST}")
    fresh.symlink_to(release.name)
    fresh.replace(link)
    store.sync_folder(link.parent)
