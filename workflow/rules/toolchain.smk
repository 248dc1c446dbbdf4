"""
Makes the locked environments that convert and run artifacts, in a cache folder that all checkouts share.
INPUTS:
    lock       = workflow/envs/{toolchain}.txt
OUTPUTS:
    ready      = <toolchains>/{toolchain}/ready.json
"""


rule toolchain:
    output:
        ready="<toolchains>/{toolchain}/ready.json",
    log:
        "<logs>/toolchain/{toolchain}.log",
    conda:
        "../envs/core.yaml"
    # Compiling takes every CPU; installing does not mind.
    threads: workflow.cores or usable_cpus()
    resources:
        mem_mb=2_000,
    params:
        name=tool_of,
        settings=SETTINGS,
    script:
        "../scripts/toolchain.py"
