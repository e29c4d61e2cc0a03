"""Records to tables, tables to verdicts. Where nothing is measured, the published records stand in."""


rule collect_sweep:
    input:
        plan=rules.prepare_sweep.output.plan,
        accounts=lambda wildcards: accounts_of(wildcards.sweep),
        code=code_of("collect"),
    output:
        tables=tables_in(f"{FOLDER}/sweeps/{{sweep}}"),
    log:
        f"{LOGS}/collect_sweep/{{sweep}}.log",
    params:
        published=STANDS_IN,
        conditions=conditions_of,
    message:
        "Collecting {wildcards.sweep}"
    shell:
        "python -m ladder --log {log} collect {input.plan} {params.published}"


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
        sweeps=list(RUN.sweeps),
    message:
        "Joining the tables of all sweeps"
    shell:
        "python -m ladder --log {log} merge {params.published} {params.folder} {params.sweeps}"


rule record_environment:
    input:
        tables=rules.merge_tables.output.tables,
        published=published_files("environment.json", "resources.csv"),
    output:
        environment=f"{FOLDER}/environment.json",
    log:
        f"{LOGS}/record_environment.log",
    params:
        folder=run_folder,
        arch=RUN.arch,
        published=STANDS_IN,
        tree=tree_digest(Path()),
    message:
        "Recording where the numbers are from"
    shell:
        "python -m ladder --log {log} environment {params.folder} --arch {params.arch} {params.published}"


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
        content=sha256(RUN.project.claims.read_bytes()),
    message:
        "Deciding the claims"
    shell:
        "python -m ladder --log {log} claims {params.folder} --claims {input.claims}"
