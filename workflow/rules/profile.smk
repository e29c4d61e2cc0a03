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
    # Where nothing is counted a job only notes that, and all can run at once.
    threads: measuring_threads if RUN.config.profile.enabled else 1
    resources:
        gpu=int(RUN.config.profile.enabled),
    params:
        conditions=lambda wildcards: conditions_of(wildcards.sweep),
    message:
        "Profiling {wildcards.sweep}"
    shell:
        "ladder profile {input.plan:q} > {log} 2>&1"
