"""
Turns measurements and policy into a verdict for each target, and picks each target's best candidate. A failed gate is a
result, not an error: neither rule fails on one.
INPUTS:
    inspection.json, measurement.json (accuracy, speed)
OUTPUTS:
    verdict    = <store>/judge/{model}/{format}/{variant}/{target}/{key}/files/verdict.json
    selection  = <store>/select/{model}/{target}/{key}/files/selection.json
"""


rule judge:
    input:
        inputs_of("judge"),
    output:
        ready="<store>/judge/{model}/{format}/{variant}/{target}/{key}/ready",
    log:
        "<logs>/judge/{model}/{format}/{variant}/{target}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: 1
    resources:
        mem_mb=300,
    params:
        node=node_of("judge"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule select:
    input:
        inputs_of("select"),
    output:
        ready="<store>/select/{model}/{target}/{key}/ready",
    log:
        "<logs>/select/{model}/{target}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: 1
    resources:
        mem_mb=300,
    params:
        node=node_of("select"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"
