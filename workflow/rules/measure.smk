"""Verifying and timing: one job per sweep, each with a GPU to itself."""


rule measure_sweep:
    input:
        plan=rules.plan_sweep.output.plan,
        harness=rules.compile_harness.output.harness,
        cubins=lambda wildcards: cubins_of(wildcards.sweep),
    output:
        cells=update(f"{FOLDER}/sweeps/{{sweep}}/cells.jsonl"),
        job=update(f"{FOLDER}/sweeps/{{sweep}}/job.json"),
    log:
        f"{LOGS}/measure_sweep/{{sweep}}.log",
    priority: 10
    threads: measuring_threads
    resources:
        gpu=1,
    params:
        cubins=cubins_folder,
        deadline=RUN.config.measure.deadline_s,
        busy=RUN.config.measure.busy,
        throttle=RUN.config.measure.throttle_share,
        clocks=f"--lock-clocks {RUN.config.measure.lock_clocks}" if RUN.config.measure.lock_clocks else "",
        remeasure="--remeasure" if RUN.config.measure.remeasure else "",
    message:
        "Measuring {wildcards.sweep}"
    shell:
        "python -m ladder --log {log} measure --plan {input.plan} --cubins {params.cubins}"
        " --harness {input.harness} --deadline-s {params.deadline} --busy {params.busy}"
        " --throttle-share {params.throttle} {params.clocks} {params.remeasure}"
        " --cells {output.cells} --job {output.job}"


rule check_clock:
    input:
        # The clock is tried, not the kernels: it need not be tried again because a kernel changed.
        plan=ancient(expand(rules.plan_sweep.output.plan, sweep=RUN.config.clock.sweep)),
        cells=ancient(expand(rules.measure_sweep.output.cells, sweep=RUN.config.clock.sweep)),
        cubins=ancient(cubins_of(RUN.config.clock.sweep)),
        harness=ancient(rules.compile_harness.output.harness),
        code=modules("clock", "timing"),
    output:
        tables_in(f"{FOLDER}/tables", ["clock_nvbench", "clock_aa"]),
    log:
        f"{LOGS}/check_clock.log",
    threads: measuring_threads
    resources:
        gpu=1,
    params:
        cubins=cubins_folder,
        folder=lambda wildcards: f"{FOLDER}/tables",
        trials=RUN.config.clock.trials,
    message:
        "Holding the timer against NVBench and against itself"
    shell:
        "python -m ladder --log {log} clock --plan {input.plan} --cells {input.cells} --cubins {params.cubins}"
        " --harness {input.harness} --trials {params.trials} --out-folder {params.folder}"


# Measuring alone, without tables: what a timing of the pipeline itself wants.
for _name in RUN.every_sweep if RUN.measures else ():

    rule:
        name:
            f"measure_{_name}"
        input:
            f"{FOLDER}/sweeps/{_name}/cells.jsonl",
            f"{FOLDER}/sweeps/{_name}/job.json",
