"""
What all rules share: the plan of this configuration, and functions that look a job up in it.
INPUTS:
    config                  the merged configuration (see config/README.md)
    config/lock.yaml        the pins of every source
OUTPUTS:
    PLAN                    every store entry to be, each with its key
"""

import math
import os
import sys

sys.path.insert(0, str(Path(workflow.basedir, "workflow", "scripts")))

from hallmark import planner, release, toolchains, upkeep
from hallmark.config import ConfigError, load_yaml
from hallmark.processes import identity, usable_cpus

# Jobs end when this process does, however it ends; and they find the state of this checkout.
os.environ.setdefault("HALLMARK_MAIN_PID", identity(os.getpid()))
os.environ.setdefault("HALLMARK_STATE", str(upkeep.STATE))

CONFIG_FILE = str(workflow.configfiles[-1]) if workflow.configfiles else "the configuration"
try:
    for file in workflow.configfiles:
        load_yaml(Path(file))  # Snakemake takes a key that stands twice
    PLAN = planner.load(config, CONFIG_FILE)
    if workflow.is_main_process:
        upkeep.before_run(PLAN, say=logger.warning, dry_run=workflow.output_settings.dryrun)
except (ConfigError, OSError) as error:  # OSError: a store that cannot be written
    raise WorkflowError(str(error)) from None

STORE = str(PLAN.root)
RELEASES = str(release.FOLDER / PLAN.release)
TOOLCHAINS = str(toolchains.cache_folder() / "toolchains")
NODES = {(node.verb, *node.subject, node.key): node for node in PLAN.nodes()}
TOOLS = {tool.folder.name: tool for tool in PLAN.toolchains()}
CHOICES = {(choice.target, choice.model): choice for choice in PLAN.choices}
SETTINGS = {
    "store": STORE,
    "time_limit_minutes": PLAN.settings.config.time_limit_minutes,
    "torch_build": PLAN.settings.config.torch_build,
}

if workflow.is_main_process and "mem_mb" not in workflow.global_resources:
    workflow.register_resource("mem_mb", upkeep.memory_mb())


wildcard_constraints:
    key="[0-9a-f]{12}",
    source="[a-z0-9][a-z0-9_.-]*",
    model="[a-z0-9][a-z0-9_.-]*",
    part="weights|docs|data",
    format="[a-z0-9_]+",
    variant="[a-z0-9_.-]+",
    target="[a-z0-9][a-z0-9_.-]*",
    toolchain="[a-z0-9_]+-[0-9a-f]{12}",


def node_of(verb):
    """Params function: the planned node of a job, as JSON for its script."""
    return lambda wildcards: planned(verb, wildcards).job()


def planned(verb, wildcards):
    place = verb, *wildcards
    if place not in NODES:
        raise WorkflowError(f"{place} is not in this plan: see Clusters in docs/operating.md")
    return NODES[place]


def inputs_of(verb):
    """Input function: the marker files of the entries that a job reads or waits for, and the toolchains it runs in.

    They are `ancient`: their keys say whether they changed, a time stamp never does.
    """

    def paths(wildcards):
        node = planned(verb, wildcards)
        markers = {str(tool.ready) for tool in node.toolchains.values()}
        return [ancient(path) for path in [*entries_of(*node.upstream()), *sorted(markers)]]

    return paths


def entries_of(*nodes):
    return [str(node.ready(PLAN.root)) for node in nodes]


def memory_of(verb):
    return lambda wildcards: planned(verb, wildcards).memory_mb


def disk_of(verb):
    return lambda wildcards: planned(verb, wildcards).disk_mb


def threads_of(verb):
    """Threads in Snakemake's count: with `--cores` above the usable CPUs, a CPU of work takes several of them."""
    usable = usable_cpus()
    cores = workflow.cores or usable
    return lambda wildcards: max(1, min(cores, math.ceil(planned(verb, wildcards).cpus * max(1, cores / usable))))


def tool_of(wildcards):
    """Params function: the name of the toolchain that a folder in the cache belongs to."""
    return TOOLS[wildcards.toolchain].name


def bundle_of(wildcards):
    return [ancient(path) for path in entries_of(CHOICES[wildcards.target, wildcards.model].bundle)]


def offer_of(wildcards):
    """Params function: a bundle offered for release, with the policy that its verdict must name."""
    return CHOICES[wildcards.target, wildcards.model].offer()
