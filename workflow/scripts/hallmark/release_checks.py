"""Whether a release or a bundle on disk is as it was published. It publishes and judges nothing.

`verify` reads everything, for whoever receives a release; `altered` is what each run asks of its own, and forgives
what a killed one has left.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hallmark import bundle, digest

INDEX, INDEX_TABLE = "index.json", "index.md"


def verify(folder: Path) -> list[str]:
    """What is wrong with a release or a bundle, one line each; empty when every file is as its checksum says."""
    if (folder / INDEX).exists():
        return _check_release(folder)
    if not (folder / bundle.MANIFEST).exists() and (
        releases := sorted(path.parent for path in folder.glob(f"*/{INDEX}"))
    ):
        return [f"{folder}: not a release, but it holds some: {', '.join(map(str, releases))}"]
    if sorted(path.name for path in folder.glob("*")) == [bundle.REFUSAL]:
        return []
    return check_bundle(folder)[1]


def _check_release(folder: Path) -> list[str]:
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        places = {f"{entry['target']}/{entry['model']}": entry["bundle"] for entry in index["published"]}
        table = digest.of_file(folder / INDEX_TABLE)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{folder / INDEX}: not an index ({type(error).__name__}: {error})"]
    problems = []
    if table != index.get("table"):
        problems.append(f"{folder / INDEX_TABLE}: not the table of {INDEX}")
    there = {path.relative_to(folder).as_posix() for path in [*folder.glob("*"), *folder.glob("*/*")] if _holds(path)}
    known = {INDEX, INDEX_TABLE, *places, *(place.partition("/")[0] for place in places)}
    problems += [f"{folder / extra}: not in the index" for extra in sorted(there - known)]
    for place, sealed in places.items():
        problems += check_bundle(folder / place)[1]
        manifest = folder / place / bundle.MANIFEST
        if manifest.is_file() and digest.of_file(manifest) != sealed:
            problems.append(f"{manifest}: not the bundle that the index names")
    return problems


def altered(release: Path, memory: digest.Memory) -> list[str]:
    """What is not as it was published, one line each. Bundles that are not there are no finding: a run that was killed
    while it published has named one that it had not moved yet, and the next run goes on from there."""
    there = [path.parent for path in sorted(release.glob(f"*/*/{bundle.MANIFEST}"))]
    if not there:
        return []
    try:
        index = json.loads((release / INDEX).read_text(encoding="utf-8"))
        sealed = {release / entry["target"] / entry["model"]: entry["bundle"] for entry in index["published"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{release / INDEX}: not an index ({type(error).__name__}: {error})"]
    problems = []
    for folder in there:
        found = check_bundle(folder, memory)[1]
        if not found and digest.of_file(folder / bundle.MANIFEST) != sealed.get(folder):
            found = [f"{folder / bundle.MANIFEST}: not the bundle that the index names"]
        problems += found
    return problems


def check_bundle(folder: Path, memory: digest.Memory | None = None) -> tuple[dict[str, Any], list[str]]:
    """The manifest of a bundle, and what in its folder is not as the manifest says (every file that `memory` does not
    know is read)."""
    try:
        text = (folder / bundle.MANIFEST).read_text(encoding="utf-8")
        manifest: dict[str, Any] = json.loads(text)
        listed: digest.Described = manifest["files"]
        artifact = {name: listed[name] for name in manifest["artifact"]["files"]}
        stated = manifest["artifact"]["digest"]
        found = digest.describe(folder, memory)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {}, [f"{folder}: not a bundle ({type(error).__name__}: {error})"]
    problems = _differences(folder, listed, found)
    if not problems and (folder / bundle.SUMS).read_bytes() != bundle.sums(listed, text).encode():
        problems.append(f"{folder / bundle.SUMS}: not the checksums of {bundle.MANIFEST}")
    if digest.of_tree(artifact) != stated:
        problems.append(
            f"{folder}: its artifact's files have digest {digest.of_tree(artifact)[:12]}, not {stated[:12]}"
        )
    return manifest, problems


def _differences(folder: Path, listed: digest.Described, found: digest.Described) -> list[str]:
    own = {bundle.MANIFEST, bundle.SUMS}
    problems = [f"{folder / name}: missing" for name in sorted((listed.keys() | own) - found.keys())]
    problems += [f"{folder / name}: not in the manifest" for name in sorted(found.keys() - listed.keys() - own)]
    for name in sorted(listed.keys() & found.keys()):
        if listed[name] != found[name]:
            want, have = listed[name], found[name]
            problems.append(
                f"{folder / name}: {have['size']} bytes, sha256 {have['sha256'][:12]}; "
                f"the manifest says {want['size']} bytes, {want['sha256'][:12]}"
            )
    return problems


def _holds(path: Path) -> bool:
    """Whether there is a file at or below a path: refused bundles leave empty folders."""
    return not path.is_dir() or any(not below.is_dir() for below in path.rglob("*"))
