"""Records to tables, tables to verdicts. Where nothing is measured, the published records stand in."""


rule collect_tables:
    input:
        plans=expand(rules.prepare_sweep.output.plan, sweep=RULE_INPUTS.chosen),
        accounts=[accounts_of(sweep) for sweep in RULE_INPUTS.chosen],
        published=published_files("sanitizer.json"),
    output:
        tables=tables_in(f"{FOLDER}/tables"),
        samples=f"{FOLDER}/tables/{SAMPLES}",
    log:
        f"{LOGS}/collect_tables.log",
    params:
        folder=run_folder,
        published=STANDS_IN,
        sweeps=RULE_INPUTS.chosen,
        conditions=[conditions_of(sweep) for sweep in RULE_INPUTS.chosen],
        tree=TREE,
    message:
        "Collecting the tables"
    shell:
        "ladder collect {params.folder:q} {params.sweeps:q} {params.published} > {log} 2>&1"


rule collect_sweep:
    input:
        plan=rules.prepare_sweep.output.plan,
        accounts=lambda wildcards: accounts_of(wildcards.sweep),
    output:
        tables=tables_in(f"{FOLDER}/sweeps/{{sweep}}"),
        samples=f"{FOLDER}/sweeps/{{sweep}}/{SAMPLES}",
    log:
        f"{LOGS}/collect_sweep/{{sweep}}.log",
    params:
        folder=run_folder,
        published=STANDS_IN,
        into=lambda wildcards, output: Path(output.tables[0]).parent,
        conditions=lambda wildcards: conditions_of(wildcards.sweep),
        tree=TREE,
    message:
        "Collecting the tables of {wildcards.sweep}"
    shell:
        "ladder collect {params.folder:q} {wildcards.sweep:q} {params.published} --into {params.into:q} > {log} 2>&1"


rule record_environment:
    input:
        tables=rules.collect_tables.output.tables,
        published=published_files("environment.json", "resources.csv"),
    output:
        environment=f"{FOLDER}/environment.json",
    log:
        f"{LOGS}/record_environment.log",
    params:
        folder=run_folder,
        arch=RUN.arch,
        published=STANDS_IN,
        tree=TREE,
    message:
        "Recording where the numbers are from"
    shell:
        "ladder environment {params.folder:q} --arch {params.arch:q} {params.published} > {log} 2>&1"


rule decide_claims:
    input:
        tables=rules.collect_tables.output.tables,
    output:
        tables=tables_in(f"{FOLDER}/tables", ["claims"]),
    log:
        f"{LOGS}/decide_claims.log",
    params:
        folder=run_folder,
        sweeps=RULE_INPUTS.chosen,
        tree=TREE,
    message:
        "Deciding the claims"
    shell:
        "ladder claims {params.folder:q} {params.sweeps:q} > {log} 2>&1"
