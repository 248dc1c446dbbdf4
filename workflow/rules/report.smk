"""
One page that shows every artifact, its numbers and why it was released or not.
INPUTS:
    inspections, measurements, verdicts and selections of the whole plan
OUTPUTS:
    report     = <store>/report/{scope}/{key}/files/index.html, linked as artifacts/report
"""


rule report:
    input:
        inputs_of("report"),
    output:
        ready="<store>/report/{scope}/{key}/ready",
    log:
        "<logs>/report/{scope}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: 1
    resources:
        mem_mb=300,
    params:
        node=node_of("report"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"
