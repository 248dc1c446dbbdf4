"""Before a run: damage in the store is set aside, links point at the plan, what cannot fit is said. Builds nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from hallmark import digest, estimates, history, links, release, release_checks, store
from hallmark.config import ConfigError
from hallmark.node import Node
from hallmark.plan import Plan
from hallmark.processes import available_memory

STATE = Path("artifacts/.state")
KEY = re.compile("[0-9a-f]{12}")
SPARE_MEMORY = 500  # MB left to the system and to Snakemake itself


def before_run(plan: Plan, say: Callable[[str], None], dry_run: bool = False) -> None:
    """Set damaged entries aside, check that what is missing fits this machine, refresh links, remember the plan.

    The last two are left out for a dry run. Raises ConfigError for what cannot fit, for a release that is not as it was
    published, and for a file in a link's place.
    """
    memory = digest.Memory(STATE / "digests.sqlite")
    for message in check_entries(plan, memory):
        say(message)
    problems = _altered(plan, memory)
    memory.save()
    missing = [node for node in plan.nodes() if not node.manifest(plan.root).exists()]
    problems += [*_too_large(missing), *_no_space(plan, missing)]
    if problems:
        raise ConfigError("\n".join(problems))
    if not dry_run:
        link_readable(plan)
        history.remember(plan)


def _altered(plan: Plan, memory: digest.Memory) -> list[str]:
    folder = release.FOLDER / plan.release
    problems = release_checks.altered(folder, memory)
    remedy = f"what is published is never replaced: restore it, or move {folder} away and run again"
    return [*problems, remedy] if problems else []


def check_entries(plan: Plan, memory: digest.Memory) -> Iterator[str]:
    """Verify every entry of the plan that is there; what is damaged, or made from other bytes than its inputs now hold,
    is set aside, so that Snakemake finds it missing and builds it. Yields a message for each.

    What lies behind an entry that is missing loses its mark: Snakemake follows time stamps that are nobody's here, and
    would run what reads the new one, but not what reads that. Their jobs compare digests, and keep what holds.
    """
    found: dict[int, store.Entry] = {}
    for node in plan.nodes():
        place = plan.root / node.place
        if not (place / store.MANIFEST).exists() and not (place / store.READY).exists():
            continue
        try:
            entry = store.verify(place, memory)
            _check_inputs(node, entry, found)
        except store.Damaged as error:
            aside = store.set_aside(plan.root, place)
            yield f"{error}; set aside as {aside}, it will be built again"
        else:
            if all(id(upstream) in found for upstream in node.inputs.values()):
                found[id(node)] = entry
                store.mark(place)
            elif node.verb != "bundle":  # which runs all the same, and whose release would begin anew without its mark
                store.unmark(place)


def _check_inputs(node: Node, entry: store.Entry, found: dict[int, store.Entry]) -> None:
    made_from = entry.manifest.get("inputs", {})
    for role, upstream in node.inputs.items():
        now = found.get(id(upstream))
        if now and now.digest != made_from.get(role):
            raise store.Damaged(f"{entry.path}: made from other bytes than {upstream.place} holds now")


def memory_mb() -> int:
    """Memory that jobs may take together, in MB."""
    return max(1, available_memory() // estimates.MB - SPARE_MEMORY)


def _too_large(missing: list[Node]) -> Iterator[str]:
    have = memory_mb()
    for node in missing:
        if node.memory_mb > have:
            yield (
                f"{node.verb} {node.name} needs about {node.memory_mb} MB of memory, and {have} MB are available here: "
                "end other programs, take a larger machine, or leave it out of the config to build the rest"
            )


def _no_space(plan: Plan, missing: list[Node]) -> Iterator[str]:
    folder = plan.root
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free // estimates.MB
    needed = sum(node.disk_mb for node in missing)
    if needed > free:
        yield (
            f"{plan.root}: {len(missing)} entries to build need about {needed} MB of disk, and {free} MB are free; "
            "free some space, run `hallmark gc`, or set `store` in the config to a larger disk"
        )


def link_readable(plan: Plan) -> None:
    """`artifacts/<model>/<format>/<variant>` and `artifacts/report` point at the plan's entries that are there."""
    for node in plan.nodes():
        if node.link and node.manifest(plan.root).exists():
            try:
                links.point(node.link, plan.root / node.place)
            except FileExistsError as error:
                raise ConfigError(str(error)) from None


def _entries(root: Path) -> list[Path]:
    """Every entry of a store: a folder with a manifest below a verb's, named by a key. A store may lie among other
    folders with manifests, like releases, and those inside an entry are its own files."""
    from hallmark.bodies import BODIES

    manifests = [path for verb in BODIES for path in root.glob(f"{verb}/**/{store.MANIFEST}")]
    entries = [path.parent for path in manifests if store.FILES not in path.relative_to(root).parts]
    return sorted(entry for entry in entries if KEY.fullmatch(entry.name))


def collect_garbage(plan: Plan, keep_plans: int, dry_run: bool) -> Iterator[tuple[Path, int]]:
    """Remove what no plan of the last `keep_plans` runs refers to; yields each folder and its size in bytes."""
    wanted = {node.place for node in plan.nodes()} | history.places(plan.root, keep_plans)
    entries = [path for path in _entries(plan.root) if path.relative_to(plan.root).as_posix() not in wanted]
    for path in [*entries, *sorted((plan.root / ".damaged").glob("*"))]:
        if path.exists():  # else another clean-up was faster
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            if not dry_run:
                # Moved first: an entry that is removed by half, and no more, would look like one to Snakemake.
                with suppress(FileNotFoundError):  # another clean-up removes it, too
                    shutil.rmtree(store.set_aside(plan.root, path) if path in entries else path)
            yield path, size
    if not dry_run:
        store.clear_abandoned(plan.root)
