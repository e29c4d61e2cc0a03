"""Raw records to tables, tables to verdicts. Where nothing is measured, the published tables stand in."""


rule describe_device:
    input:
        harness=rules.compile_harness.output.harness if RUN.measures else [],
        published=published_files("environment.json"),
    output:
        device=f"{FOLDER}/device.json",
    log:
        f"{LOGS}/describe_device.log",
    threads: measuring_threads if RUN.measures else 1
    resources:
        gpu=1 if RUN.measures else 0,
    params:
        arch=RUN.arch,
        device=RUN.device,
        made=lambda wildcards, input: f"--harness {input.harness}" if RUN.measures else STANDS_IN,
    message:
        "Describing the device"
    shell:
        "python -m ladder --log {log} environment --arch {params.arch} --device {params.device}"
        " {params.made} --out {output.device}"


# What figures and tables need of the device stands in device.json, so that making one sweep does not wait for all.
rule record_environment:
    input:
        harness=rules.describe_device.input.harness,
        jobs=expand(rules.measure_sweep.output.job, sweep=RUN.sweeps) if RUN.measures else [],
        cubins=[] if RUN.measures else [cubins_of(sweep) for sweep in RUN.sweeps],
        published=published_files("environment.json", "resources.csv"),
    output:
        environment=f"{FOLDER}/environment.json",
    log:
        f"{LOGS}/record_environment.log",
    threads: measuring_threads if RUN.measures else 1
    resources:
        gpu=1 if RUN.measures else 0,
    params:
        arch=RUN.arch,
        device=RUN.device,
        made=lambda wildcards, input: f"--harness {input.harness}" if RUN.measures else STANDS_IN,
        jobs=lambda wildcards, input: [f"--job {job}" for job in input.jobs],
        cubins=cubins_folder,
        tree=tree_digest(Path()),
    message:
        "Recording the environment"
    shell:
        "python -m ladder --log {log} environment --arch {params.arch} --device {params.device}"
        " {params.made} {params.jobs} --cubins {params.cubins} --out {output.environment}"


rule collect_sweep:
    input:
        records=records_of,
        device=ancient(rules.describe_device.output.device),
        sweep="config/sweeps/{sweep}.yaml",
        facts=lambda wildcards: facts_of(wildcards.sweep),
        code=code_of("collect"),
    output:
        tables=tables_in(f"{FOLDER}/sweeps/{{sweep}}"),
    log:
        f"{LOGS}/collect_sweep/{{sweep}}.log",
    params:
        folder=run_folder,
        published=STANDS_IN,
    message:
        "Collecting {wildcards.sweep}"
    shell:
        "python -m ladder --log {log} collect --sweep {wildcards.sweep} --run-folder {params.folder}"
        " --environment {input.device} {params.published}"


rule merge_tables:
    input:
        tables=expand(rules.collect_sweep.output.tables, sweep=RUN.sweeps),
        published=published_files("clock_nvbench.csv", "clock_aa.csv", "throughput.json"),
        code=code_of("merge"),
    output:
        tables=tables_in(f"{FOLDER}/tables"),
    log:
        f"{LOGS}/merge_tables.log",
    params:
        folder=run_folder,
        published=STANDS_IN,
        sweeps=[f"--sweep {name}" for name in RUN.sweeps],
    message:
        "Joining the tables of all sweeps"
    shell:
        "python -m ladder --log {log} merge --run-folder {params.folder} {params.published} {params.sweeps}"


rule decide_claims:
    input:
        claims="config/claims.yaml",
        tables=rules.merge_tables.output.tables,
        code=code_of("claims"),
    output:
        tables=tables_in(f"{FOLDER}/tables", ["claims"]),
    log:
        f"{LOGS}/decide_claims.log",
    params:
        folder=run_folder,
    message:
        "Deciding the claims"
    shell:
        "python -m ladder --log {log} claims --run-folder {params.folder} --claims {input.claims}"
