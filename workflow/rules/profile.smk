"""Counters: one profiler process per sweep."""


rule profile_sweep:
    input:
        plan=rules.prepare_sweep.output.plan,
        measured=rules.time_sweep.output.measured,
    output:
        profiled=update(f"{FOLDER}/sweeps/{{sweep}}/profiled.json"),
    log:
        f"{LOGS}/profile_sweep/{{sweep}}.log",
    priority: 5
    threads: measuring_threads
    resources:
        gpu=int(RUN.config.profile.enabled),
    params:
        conditions=lambda wildcards: conditions_of(wildcards.sweep),
    message:
        "Profiling {wildcards.sweep}"
    shell:
        "ladder profile {input.plan:q} > {log} 2>&1"
