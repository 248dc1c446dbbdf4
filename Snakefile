"""Hallmark: builds every deployable form of a model, measures each against its source, releases only what passes.

`snakemake --cores 8 all` is the whole interface. What each rule makes, and under which key, is decided by the plan
(workflow/scripts/hallmark/planner.py) before Snakemake builds its graph; docs/architecture.md shows the way of the data.
"""

from snakemake.utils import min_version

min_version("9.27")


if not config.get("models"):  # --configfile replaces the default configuration, it does not add to it

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


pathvars:
    store=STORE,
    logs="artifacts/logs",
    releases=RELEASES,
    toolchains=TOOLCHAINS,


# In the order of the work.
include: "workflow/rules/toolchain.smk"
include: "workflow/rules/fetch.smk"
include: "workflow/rules/convert.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/judge.smk"
include: "workflow/rules/release.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    judge,
    select,
    release,
    report,


onstart:
    # To keep `--max-jobs-per-timespan` (100 a second by default), Snakemake 9 sets a timer of a second for each job that has
    # ended, which sets itself again while others wait: after a hundred jobs it looks at all of them a hundred times a second
    # and takes a seventh of a CPU from the engines that are timed. Jobs on this machine need no such limit.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None


onsuccess:
    from hallmark import ending

    for line in ending.lines(PLAN):
        logger.info(line)


onerror:
    # A report of what was built nevertheless, where the whole one could not be made.
    from hallmark import interim  # not needed by a run that goes well

    page = None if PLAN.report.manifest(PLAN.root).exists() else interim.write(PLAN)
    if page:
        logger.warning(f"{page} shows what was built; what is missing is named there")


rule all:
    default_target: True
    input:
        # All of them: Snakemake lets a missing intermediate file be when what was made from it is there.
        entries=entries_of(*PLAN.nodes()),
        released=collect("<releases>/{choice.target}/{choice.model}/manifest.json", choice=PLAN.choices),
