"""Verifying and timing: one job per sweep, each with a GPU to itself. Shares of a sweep go ahead of it."""


# Records are appended to FOLDER/records, which is nobody's output: a job that runs again finds what it has there.
rule time_sweep:
    input:
        plan=rules.prepare_sweep.output.plan,
        shares=shares_of,
    output:
        measured=update(f"{FOLDER}/sweeps/{{sweep}}/measured.json"),
    log:
        f"{LOGS}/time_sweep/{{sweep}}.log",
    priority: 10
    threads: measuring_threads
    resources:
        gpu=1,
    params:
        conditions=lambda wildcards: conditions_of(wildcards.sweep),
        share="",
    message:
        "Measuring {wildcards.sweep}"
    shell:
        "ladder measure {input.plan:q} {params.share} > {log} 2>&1"


use rule time_sweep as time_share with:
    input:
        plan=rules.prepare_sweep.output.plan,
    output:
        measured=update(f"{FOLDER}/sweeps/{{sweep}}/share-{{share}}.json"),
    log:
        f"{LOGS}/time_share/{{sweep}}-{{share}}.log",
    params:
        conditions=lambda wildcards: conditions_of(wildcards.sweep),
        share=lambda wildcards: f"--share {wildcards.share}",
    message:
        "Measuring share {wildcards.share} of {wildcards.sweep}"


# Measuring alone, without tables: what a timing of the pipeline itself wants.
for _name in RULE_INPUTS.sweeps if RUN.measures else ():

    rule:
        name:
            f"measure_{_name}"
        input:
            f"{FOLDER}/sweeps/{_name}/measured.json",
