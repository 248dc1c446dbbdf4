"""The command `hallmark`: plans, locks, explains, verifies and cleans. Building is Snakemake's; this builds nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hallmark.config import ConfigError

if TYPE_CHECKING:
    from hallmark.node import Node
    from hallmark.plan import Plan

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
PIPED_WIDTH = 160  # else a pipe gets 80 columns, and names cut short
DEFAULT_CONFIG = Path("config/config.yaml")
ConfigFile = Annotated[Path, typer.Option("--configfile", help="The configuration, as given to Snakemake.")]


def _fail(message: str) -> typer.Exit:
    typer.secho(message, err=True, fg=typer.colors.RED)
    return typer.Exit(1)


def _plan(configfile: Path) -> Plan:
    from hallmark import config, planner

    try:
        return planner.load(config.load_yaml(configfile), str(configfile))
    except ConfigError as error:
        raise _fail(str(error)) from None


@app.command()
def plan(configfile: ConfigFile = DEFAULT_CONFIG, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Print every entry of the plan, its key, and whether it is in the store."""
    found = _plan(configfile)
    rows = [(node.verb, node.name, node.key, node.manifest(found.root).exists()) for node in found.nodes()]
    if as_json:
        fields = ("verb", "subject", "key", "built")
        typer.echo(json.dumps([dict(zip(fields, row, strict=True)) for row in rows], indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "of", "key", "in the store", box=None, header_style="bold")
    for verb, name, key, built in rows:
        table.add_row(verb, name, key, "yes" if built else "no")
    console = Console()
    console.width = console.width if console.is_terminal else PIPED_WIDTH
    console.print(table)
    typer.echo(f"{len(rows)} entries, {sum(not built for *_, built in rows)} to build; release {found.release}")
    again = sorted({node.name for node in found.nodes() if _is_again(node) and not node.manifest(found.root).exists()})
    if again:
        typer.echo(f"to be measured again, because a verdict was inconclusive: {', '.join(again)}")


def _is_again(node: Node) -> bool:
    """Whether a node measures what was measured before."""
    return bool(node.recipe.get("attempt")) or "more" in node.recipe.get("options", {})


@app.command()
def why(
    subject: Annotated[str, typer.Argument(help="model/format/variant, as in `hallmark plan`")],
    configfile: ConfigFile = DEFAULT_CONFIG,
) -> None:
    """Say which component of an artifact's keys changed since the run before."""
    from hallmark import history
    from hallmark.options import no_such

    found = _plan(configfile)
    mine = [node for node in found.nodes() if node.name == subject or node.name.startswith(f"{subject}/")]
    if not mine:
        raise _fail(no_such("artifact", subject, [artifact.name for artifact in found.artifacts]))
    for node in mine:
        state = "in the store" if node.manifest(found.root).exists() else "to build"
        typer.echo(f"{node.verb} {node.name} {node.key} ({state})")
        for line in _reasons(found, node, history.before(found.root, _label(node), node.components)):
            typer.echo(f"    {line}")


# Components that the plan changes by itself.
AGAIN = {
    "recipe.options.more": "that is so many times the text, because an accuracy was inconclusive",
    "recipe.attempt": "that is measured again, because a speed was inconclusive",
}


def _label(node: Node) -> str:
    return f"{node.verb} {node.name}"


def _reasons(found: Plan, node: Node, old: object) -> list[str]:
    """What changed, followed upstream to where it began."""
    from collections.abc import Mapping

    from hallmark import history

    if not isinstance(old, Mapping):
        return ["first planned as it is now; no run before had other components"]
    lines = history.changes({**old, "inputs": {}}, {**node.components, "inputs": {}})
    lines += [why for place, why in AGAIN.items() if any(line.startswith(f"{place}:") for line in lines)]
    for role, key in sorted(node.components["inputs"].items()):
        if old["inputs"].get(role) != key:
            upstream = node.inputs[role]
            before = history.before(found.root, _label(upstream), upstream.components)
            lines += [f"{role} <- {_label(upstream)}: {line}" for line in _reasons(found, upstream, before)]
    return lines


@app.command()
def report(configfile: ConfigFile = DEFAULT_CONFIG) -> None:
    """Write the report of what is in the store now, also while a run is under way or after one that failed."""
    from hallmark import interim

    found = _plan(configfile)
    page = interim.write(found)
    if page is None:
        raise _fail(f"{found.root}: no artifact of this plan is there with its measurements and verdicts")
    typer.echo(str(page))


@app.command()
def lock(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models and data to lock anew; default: what is missing")
    ] = None,
    configfile: ConfigFile = DEFAULT_CONFIG,
    toolchains: Annotated[bool, typer.Option("--toolchains", help="Resolve the toolchains' locks anew.")] = False,
) -> None:
    """Pin every source by the sha256 of its files, and show what changed."""
    from hallmark import config
    from hallmark import lock as locks
    from hallmark import toolchains as toolchain_locks

    if toolchains:
        for name in toolchain_locks.all_toolchains():
            typer.echo(f"{name}: {'changed' if toolchain_locks.relock(name) else 'unchanged'}")
        return
    try:
        settings = config.parse(config.load_yaml(configfile), str(configfile))
        path = Path(settings.config.lock_file)
        new, changes = locks.lock_sources(
            settings.config, locks.read(path), toolchain_locks.cache_folder(), names or []
        )
    except ConfigError as error:
        raise _fail(str(error)) from None
    locks.write(new, path)
    typer.echo("\n".join(changes) or f"{path}: nothing changed")


@app.command()
def verify(
    folders: Annotated[list[Path] | None, typer.Argument(help="Releases or bundles; default: the store")] = None,
    configfile: ConfigFile = DEFAULT_CONFIG,
) -> None:
    """Check every file of the store, or of a release, against its checksum. Exits 1 when one differs."""
    from hallmark import release_checks, store

    problems: list[str] = []
    if folders:
        for folder in folders:
            problems += release_checks.verify(folder)
        checked = f"{len(folders)} of releases and bundles"
    else:
        found = _plan(configfile)
        entries = [found.root / node.place for node in found.nodes() if node.manifest(found.root).exists()]
        if not entries:
            raise _fail(f"{found.root}: nothing of this plan is there; build it with: snakemake --cores 8 all")
        for entry in entries:
            try:
                store.verify(entry)
            except store.Damaged as error:
                problems.append(str(error))
        checked = f"{len(entries)} entries of the store"
    for problem in problems:
        typer.secho(problem, err=True, fg=typer.colors.RED)
    typer.echo(f"{checked} checked, {len(problems)} problems")
    raise typer.Exit(1 if problems else 0)


@app.command()
def gc(
    configfile: ConfigFile = DEFAULT_CONFIG,
    keep: Annotated[int, typer.Option(min=0, help="Keep what the last so many plans refer to.")] = 5,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be removed.")] = False,
) -> None:
    """Remove store entries that no recent plan refers to, and damaged ones that were set aside."""
    from hallmark import upkeep

    removed = list(upkeep.collect_garbage(_plan(configfile), keep, dry_run))
    for path, size in removed:
        typer.echo(f"{size / 1e6:10.1f} MB  {path}")
    total = sum(size for _, size in removed) / 1e6
    typer.echo(f"{'would remove' if dry_run else 'removed'} {len(removed)} entries, {total:.1f} MB")


@app.command()
def lint(
    folder: Annotated[Path, typer.Argument(help="A checkpoint in Hugging Face's form")],
    allow_remote_code: Annotated[
        bool, typer.Option("--allow-remote-code", help="Run the Python code that the checkpoint brings.")
    ] = False,
    make_toolchain: Annotated[
        bool, typer.Option("--make-toolchain", help="Make the toolchain torch first, if it is not there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Say what is wrong with a checkpoint. Exits 1 when no artifact could be made of it."""
    from hallmark.lint import findings, standalone

    if not folder.is_dir():
        raise _fail(f"{folder}: no such folder")
    report = standalone.lint(folder, allow_remote_code, make_toolchain)
    refused = bool(findings.errors(report))
    typer.echo(json.dumps(report, indent=1, ensure_ascii=False) if as_json else standalone.describe(report))
    raise typer.Exit(1 if refused else 0)


@app.command()
def rebuild(
    subject: Annotated[str, typer.Argument(help="model/format/variant of an artifact in the store")],
    configfile: ConfigFile = DEFAULT_CONFIG,
    scratch: Annotated[Path, typer.Option(help="Existing folder for the second conversion.")] = Path(),
) -> None:
    """Convert an artifact once more, and compare it with the stored one file by file. Exits 1 when they differ."""
    from hallmark import rebuild as rebuilds
    from hallmark import store
    from hallmark.launcher import WorkerError
    from hallmark.options import no_such

    found = _plan(configfile)
    known = {artifact.name: artifact for artifact in found.artifacts}
    if subject not in known:
        raise _fail(no_such("artifact", subject, known))
    try:
        limit = 60 * found.settings.config.time_limit_minutes
        proof = rebuilds.rebuild(known[subject], found.root, scratch, limit)
    except (store.Damaged, OSError, WorkerError) as error:
        raise _fail(str(error)) from None
    for line in proof.lines:
        typer.echo(line)
    raise typer.Exit(0 if proof.same_bytes else 1)
