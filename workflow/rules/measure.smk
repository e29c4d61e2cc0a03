"""Verifying and timing: one job per sweep, each with a GPU to itself."""


# Records are appended to FOLDER/records, which is nobody's output: a job that runs again finds what it has there.
rule time_sweep:
    input:
        plan=rules.prepare_sweep.output.plan,
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
    message:
        "Measuring {wildcards.sweep}"
    shell:
        "ladder measure {input.plan:q} > {log} 2>&1"


# Measuring alone, without tables: what a timing of the pipeline itself wants.
for _name in RULE_INPUTS.sweeps if RUN.measures else ():

    rule:
        name:
            f"measure_{_name}"
        input:
            f"{FOLDER}/sweeps/{_name}/measured.json",
