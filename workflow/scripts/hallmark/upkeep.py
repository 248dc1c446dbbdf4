"""Before a run: damage in the store is set aside, links point at the plan, what cannot fit is said. Builds nothing."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from hallmark import digest, estimates, history, store
from hallmark.config import ConfigError
from hallmark.node import Node
from hallmark.plan import Plan
from hallmark.processes import available_memory

STATE = Path("artifacts/.state")
READABLE = Path("artifacts")
SPARE_MEMORY = 500  # MB left to the system and to Snakemake itself


def before_run(plan: Plan, say: Callable[[str], None]) -> None:
    """Set damaged entries aside, check that what is missing fits this machine, refresh links, remember the plan."""
    memory = digest.Memory(STATE / "digests.sqlite")
    for message in check_entries(plan, memory):
        say(message)
    memory.save()
    missing = [node for node in plan.nodes() if not node.manifest(plan.root).exists()]
    problems = [*_too_large(missing), *_no_space(plan, missing)]
    if problems:
        raise ConfigError("\n".join(problems))
    link_readable(plan)
    history.remember(plan)


def check_entries(plan: Plan, memory: digest.Memory) -> Iterator[str]:
    """Verify every entry of the plan that is there; what is damaged, or made from other bytes than its inputs now hold,
    is set aside, so that Snakemake finds it missing and builds it. Yields a message for each."""
    found: dict[int, store.Entry] = {}
    for node in plan.nodes():
        place = plan.root / node.place
        if not (place / store.MANIFEST).exists():
            continue
        try:
            entry = store.verify(place, memory)
            _check_inputs(node, entry, found)
        except store.Damaged as error:
            aside = store.set_aside(plan.root, place)
            yield f"{error}; set aside as {aside}, it will be built again"
        else:
            found[id(node)] = entry


def _check_inputs(node: Node, entry: store.Entry, found: dict[int, store.Entry]) -> None:
    for role, digest_then in entry.manifest["inputs"].items():
        upstream = found.get(id(node.inputs[role]))
        if upstream and upstream.digest != digest_then:
            raise store.Damaged(f"{entry.path}: made from other bytes than {node.inputs[role].place} holds now")


def memory_mb() -> int:
    """Memory that jobs may take together, in MB."""
    return max(1, available_memory() // estimates.MB - SPARE_MEMORY)


def _too_large(missing: list[Node]) -> Iterator[str]:
    have = memory_mb()
    for node in missing:
        if node.memory_mb > have:
            yield f"{node.verb} {node.name} needs about {node.memory_mb} MB of memory, and {have} MB are available here"


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
    """`artifacts/<model>/<format>/<variant>`, `artifacts/report` point at the plan's."""
    for artifact in plan.artifacts:
        _point(READABLE / artifact.name, plan.root / artifact.convert.place / store.FILES)
    _point(READABLE / "report", plan.root / plan.report.place / store.FILES)


def _point(link: Path, target: Path) -> None:
    """Make or move a link in one step; a target that is not there yet gets none."""
    if not target.exists():
        return
    relative = os.path.relpath(target, link.parent)
    if link.is_symlink() and str(link.readlink()) == relative:
        return
    if link.exists() and not link.is_symlink():
        raise ConfigError(f"{link}: there is a file or folder where a link to {target} belongs; move it away")
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{link.name}-{uuid.uuid4().hex[:6]}")
    fresh.symlink_to(relative)
    fresh.replace(link)


def collect_garbage(plan: Plan, keep_plans: int, dry_run: bool) -> Iterator[tuple[Path, int]]:
    """Remove what no plan of the last `keep_plans` runs refers to; yields each folder and its size in bytes."""
    wanted = {node.place for node in plan.nodes()} | history.places(plan.root, keep_plans)
    entries = [path.parent for path in plan.root.glob(f"**/{store.MANIFEST}") if path.parent.name != store.FILES]
    damaged = sorted((plan.root / ".damaged").glob("*"))
    for path in [*sorted(entries), *damaged]:
        if path in damaged or path.relative_to(plan.root).as_posix() not in wanted:
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            if not dry_run:
                shutil.rmtree(path)
            yield path, size
    if not dry_run:
        store.clear_abandoned(plan.root)
