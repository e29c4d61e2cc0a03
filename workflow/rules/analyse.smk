"""Raw records to tables, tables to verdicts. Where nothing is measured, the published tables stand in."""


rule record_environment:
    input:
        harness=rules.compile_harness.output.harness if RUN.measures else [],
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
        made=lambda wildcards, input: (
            f"--harness {input.harness}" if RUN.measures else f"--cubins {cubins_folder(wildcards)}"
        ),
        published=STANDS_IN,
        tree=tree_digest(Path()),
    message:
        "Recording the environment"
    shell:
        "python -m ladder --log {log} environment --arch {params.arch} --device {params.device}"
        " {params.made} {params.published} --out {output.environment}"


rule collect_sweep:
    input:
        records=records_of,
        # Only the device's peaks are read from it: its time does not matter.
        environment=ancient(rules.record_environment.output.environment) if RUN.measures else [],
        sweep="config/sweeps/{sweep}.yaml",
        facts=lambda wildcards: facts_of(wildcards.sweep),
        code=modules("collect", "tables", "intervals", "statistics"),
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
        " {params.published}"


rule merge_tables:
    input:
        tables=expand(rules.collect_sweep.output.tables, sweep=RUN.sweeps),
        published=published_files("clock_nvbench.csv", "clock_aa.csv", "throughput.json"),
        code=modules("collect", "tables"),
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
        code=modules("ledger", "verdicts", "evidence"),
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
