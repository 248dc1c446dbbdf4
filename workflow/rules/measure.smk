"""
Runs each artifact and its source on the same inputs: accuracy, labelled questions where the config names some, and speed;
where a gate asks for it, speed also in turns with the last release, and where the config asks for it, an artifact under
MLPerf LoadGen's traffic. Numbers with their conditions, no judgement.
INPUTS:
    artifact   = <store>/convert/{model}/{format}/{variant}/{key}/files/
    checkpoint = <store>/fetch/{model}/weights/{key}/files/
    data       = <store>/fetch/{source}/data/{key}/files/
    released   = artifacts/releases/{an earlier one}/{target}/{model}/
OUTPUTS:
    reference  = <store>/reference/{model}/{key}/files/
    chosen     = <store>/reference_choices/{model}/{key}/files/choices.json
    accuracy   = <store>/measure_accuracy/{model}/{format}/{variant}/{key}/files/measurement.json
    choices    = <store>/measure_choices/{model}/{format}/{variant}/{key}/files/measurement.json
    speed      = <store>/measure_speed/{model}/{format}/{variant}/{key}/files/measurement.json
    compared   = <store>/measure_release/{model}/{format}/{variant}/{target}/{key}/files/measurement.json
    traffic    = <store>/measure_loadgen/{model}/{format}/{variant}/{key}/files/measurement.json
"""


rule reference:
    input:
        inputs_of("reference"),
    output:
        ready="<store>/reference/{model}/{key}/ready",
    log:
        "<logs>/reference/{model}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: threads_of("reference")
    resources:
        mem_mb=memory_of("reference"),
        disk_mb=disk_of("reference"),
    params:
        node=node_of("reference"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule measure_accuracy:
    input:
        inputs_of("measure_accuracy"),
    output:
        ready="<store>/measure_accuracy/{model}/{format}/{variant}/{key}/ready",
    log:
        "<logs>/measure_accuracy/{model}/{format}/{variant}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: threads_of("measure_accuracy")
    resources:
        mem_mb=memory_of("measure_accuracy"),
        disk_mb=disk_of("measure_accuracy"),
    params:
        node=node_of("measure_accuracy"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule reference_choices:
    input:
        inputs_of("reference_choices"),
    output:
        ready="<store>/reference_choices/{model}/{key}/ready",
    log:
        "<logs>/reference_choices/{model}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: threads_of("reference_choices")
    resources:
        mem_mb=memory_of("reference_choices"),
        disk_mb=disk_of("reference_choices"),
    params:
        node=node_of("reference_choices"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule measure_choices:
    input:
        inputs_of("measure_choices"),
    output:
        ready="<store>/measure_choices/{model}/{format}/{variant}/{key}/ready",
    log:
        "<logs>/measure_choices/{model}/{format}/{variant}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: threads_of("measure_choices")
    resources:
        mem_mb=memory_of("measure_choices"),
        disk_mb=disk_of("measure_choices"),
    params:
        node=node_of("measure_choices"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule measure_speed:
    input:
        inputs_of("measure_speed"),
    output:
        ready="<store>/measure_speed/{model}/{format}/{variant}/{key}/ready",
    log:
        "<logs>/measure_speed/{model}/{format}/{variant}/{key}.log",
    conda:
        "../envs/core.yaml"
    # Alone on the machine, or it measures its neighbours.
    threads: workflow.cores or usable_cpus()
    resources:
        mem_mb=memory_of("measure_speed"),
        disk_mb=disk_of("measure_speed"),
    params:
        node=node_of("measure_speed"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule measure_release:
    input:
        inputs_of("measure_release"),
    output:
        ready="<store>/measure_release/{model}/{format}/{variant}/{target}/{key}/ready",
    log:
        "<logs>/measure_release/{model}/{format}/{variant}/{target}/{key}.log",
    conda:
        "../envs/core.yaml"
    # Alone on the machine, or it measures its neighbours.
    threads: workflow.cores or usable_cpus()
    resources:
        mem_mb=memory_of("measure_release"),
        disk_mb=disk_of("measure_release"),
    params:
        node=node_of("measure_release"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule measure_loadgen:
    input:
        inputs_of("measure_loadgen"),
    output:
        ready="<store>/measure_loadgen/{model}/{format}/{variant}/{key}/ready",
    log:
        "<logs>/measure_loadgen/{model}/{format}/{variant}/{key}.log",
    conda:
        "../envs/core.yaml"
    # Alone on the machine, like measure_speed.
    threads: workflow.cores or usable_cpus()
    resources:
        mem_mb=memory_of("measure_loadgen"),
        disk_mb=disk_of("measure_loadgen"),
    params:
        node=node_of("measure_loadgen"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"
