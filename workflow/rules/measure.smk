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


rule check_clock:
    input:
        # The timer is tried, not the kernels: it need not be tried again because a kernel changed.
        plans=ancient(expand(rules.prepare_sweep.output.plan, sweep=RUN.config.clock.sweeps)),
        measured=ancient(expand(rules.time_sweep.output.measured, sweep=RUN.config.clock.sweeps)),
    output:
        tables_in(f"{FOLDER}/tables", ["clock_nvbench"]),
    log:
        f"{LOGS}/check_clock.log",
    # Every GPU at once, and nothing else beside it.
    threads: cores
    resources:
        gpu=every_gpu,
    params:
        timing=TIMING_VERSION["cold"],
    message:
        "Holding the timer against NVBench"
    shell:
        "ladder clock {input.plans:q} --jobs {resources.gpu} > {log} 2>&1"


# Measuring alone, without tables: what a timing of the pipeline itself wants.
for _name in RULE_INPUTS.sweeps if RUN.measures else ():

    rule:
        name:
            f"measure_{_name}"
        input:
            f"{FOLDER}/sweeps/{_name}/measured.json",
