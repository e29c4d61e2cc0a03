"""Counters: one profiler process per sweep."""


rule profile_sweep:
    input:
        plan=rules.plan_sweep.output.plan,
        harness=rules.compile_harness.output.harness,
        cubins=lambda wildcards: cubins_of(wildcards.sweep),
        cells=rules.measure_sweep.output.cells,
    output:
        profile=update(f"{FOLDER}/sweeps/{{sweep}}/profile.jsonl"),
    log:
        f"{LOGS}/profile_sweep/{{sweep}}.log",
    priority: 5
    threads: measuring_threads
    resources:
        gpu=1,
    params:
        cubins=cubins_folder,
        timeout=RUN.config.profile.timeout_s,
        disabled="" if RUN.config.profile.enabled else "--disabled",
    message:
        "Profiling {wildcards.sweep}"
    shell:
        "python -m ladder --log {log} profile --plan {input.plan} --cubins {params.cubins}"
        " --harness {input.harness} --cells {input.cells} --timeout-s {params.timeout} {params.disabled}"
        " --out {output.profile}"
