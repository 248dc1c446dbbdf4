"""
Brings checkpoints and data, each file verified against the lock, and reads the checkpoint before anything is spent on it.
INPUTS:
    the network or a local folder, as the model's source says
OUTPUTS:
    checkpoint = <store>/fetch/{source}/weights/{key}/files/    a Hugging Face folder
    docs       = <store>/fetch/{source}/docs/{key}/files/       README, licence
    data       = <store>/fetch/{source}/data/{key}/files/       text.jsonl or pairs.jsonl
    findings   = <store>/lint/{model}/{key}/files/lint.json
"""


rule fetch:
    input:
        inputs_of("fetch"),
    output:
        ready="<store>/fetch/{source}/{part}/{key}/ready",
    log:
        "<logs>/fetch/{source}/{part}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: threads_of("fetch")
    resources:
        mem_mb=memory_of("fetch"),
        disk_mb=disk_of("fetch"),
    params:
        node=node_of("fetch"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"


rule lint:
    input:
        inputs_of("lint"),
    output:
        ready="<store>/lint/{model}/{key}/ready",
    log:
        "<logs>/lint/{model}/{key}.log",
    conda:
        "../envs/core.yaml"
    threads: threads_of("lint")
    resources:
        mem_mb=memory_of("lint"),
    params:
        node=node_of("lint"),
        settings=SETTINGS,
    script:
        "../scripts/entry.py"
