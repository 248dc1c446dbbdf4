"""
Puts together what each target needs, and publishes it. `release` is the only rule that refuses: it takes a bundle only with
a passing verdict that names the artifact's digest and the policy's.
INPUTS:
    selection  = <store>/select/{model}/{target}/{key}/files/selection.json
    artifacts, verdicts and measurements of the candidates
OUTPUTS:
    bundle     = <store>/bundle/{model}/{target}/{key}/files/
    release    = <releases>/{target}/{model}/
"""


rule bundle:
    input:
        inputs_of("bundle"),
    output:
        ready="<store>/bundle/{model}/{target}/{key}/ready",
    log:
        "<logs>/bundle/{model}/{target}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: 1
    resources:
        mem_mb=300,
        disk_mb=disk_of("bundle"),
    params:
        node=node_of("bundle"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule release:
    input:
        bundle_of,
    output:
        manifest="<releases>/{target}/{model}/manifest.json",
    log:
        "<logs>/release/{target}/{model}.log",
    conda:
        "../envs/core.yaml"
    threads: 1
    resources:
        mem_mb=300,
    params:
        offer=offer_of,
        settings=SETTINGS,
    script:
        "../scripts/release.py"
