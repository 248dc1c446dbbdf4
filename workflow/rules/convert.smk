"""
Writes one artifact, and compares it with its source without running it. Knows nothing of gates.
INPUTS:
    checkpoint = <store>/fetch/{model}/weights/{key}/files/
    other variants of the same format, and calibration data, where the variant asks for them
OUTPUTS:
    artifact   = <store>/convert/{model}/{format}/{variant}/{key}/files/
    facts      = <store>/inspect/{model}/{format}/{variant}/{key}/files/inspection.json
"""


rule convert:
    input:
        inputs_of("convert"),
    output:
        ready="<store>/convert/{model}/{format}/{variant}/{key}/ready",
    log:
        "<logs>/convert/{model}/{format}/{variant}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: threads_of("convert")
    resources:
        mem_mb=memory_of("convert"),
        disk_mb=disk_of("convert"),
    params:
        node=node_of("convert"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule inspect:
    input:
        inputs_of("inspect"),
    output:
        ready="<store>/inspect/{model}/{format}/{variant}/{key}/ready",
    log:
        "<logs>/inspect/{model}/{format}/{variant}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: 1
    resources:
        mem_mb=300,
    params:
        node=node_of("inspect"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"
