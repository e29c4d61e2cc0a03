"""Figures, report and page, and publishing."""


rule draw_figures:
    input:
        tables=rules.collect_tables.output.tables,
    output:
        [
            shown(figure, sweep)
            for sweep in RULE_INPUTS.chosen
            for figure in figures_of(sweep, f"{FOLDER}/figures")
        ],
    log:
        f"{LOGS}/draw_figures.log",
    threads: cores
    params:
        folder=run_folder,
        sweeps=RULE_INPUTS.chosen,
        published=STANDS_IN,
        tree=TREE,
    message:
        "Drawing the figures"
    shell:
        "ladder figures {params.folder:q} {params.sweeps:q} {params.published} --jobs {threads} > {log} 2>&1"


# One sweep on its own, beside what a run makes of all of them.
for _name in RULE_INPUTS.sweeps:

    rule:
        name:
            f"sweep_{_name}"
        input:
            tables=tables_in(f"{FOLDER}/sweeps/{_name}"),
        output:
            figures_of(_name, f"{FOLDER}/sweeps/{_name}"),
        log:
            f"{LOGS}/draw_sweep/{_name}.log",
        params:
            sweep=_name,
            folder=run_folder,
            into=lambda wildcards, input: Path(input.tables[0]).parent,
            published=STANDS_IN,
            tree=TREE,
        message:
            f"Drawing the figures of {_name}"
        shell:
            "ladder figures {params.folder:q} {params.sweep:q} {params.published} --into {params.into:q} > {log} 2>&1"


rule figures:
    input:
        rules.draw_figures.output,


rule write_report:
    input:
        tables=rules.collect_tables.output.tables,
        claims=rules.decide_claims.output.tables,
        environment=rules.record_environment.output.environment,
        plans=expand(rules.prepare_sweep.output.plan, sweep=RULE_INPUTS.chosen),
        beside=[f"{folder}/timings.csv" for folder in beside()],
    output:
        report=report(
            f"{FOLDER}/report.md", caption="../report/report.rst", category="Report"
        ),
        methodology=RUN.folder.methodology.as_posix(),
        evidence=RUN.folder.evidence.as_posix(),
        page=RUN.folder.page.as_posix(),
        pages=[RUN.folder.sweep_page(sweep).as_posix() for sweep in RULE_INPUTS.chosen],
    log:
        f"{LOGS}/write_report.log",
    params:
        folder=run_folder,
        sweeps=RULE_INPUTS.chosen,
        # No input: a report is no reason to sanitize again.
        sanitizer=contents(Path(FOLDER).glob("sanitizer.json")),
        tree=TREE,
        beside=[f"--beside {shlex.quote(folder)}" for folder in beside()],
    message:
        "Writing report and page"
    shell:
        "ladder report {params.folder:q} {params.sweeps:q} {params.beside} > {log} 2>&1"


rule report:
    input:
        rules.collect_tables.output.samples,
        rules.write_report.input,
        rules.write_report.output,
        rules.draw_figures.output,


# Without output: it runs whenever it is asked for. Objections can be overruled by hand: ladder publish --force
rule publish:
    input:
        rules.report.input,
        rules.compile.input,
    log:
        f"{LOGS}/publish.log",
    params:
        run=RUN.config.run,
        device=RUN.device,
        files=[
            f"--configfile {shlex.quote(str(file))}"
            for file in workflow.overwrite_configfiles
        ],
        config=[f"--config {shlex.quote(word)}" for word in WORDS],
    message:
        "Publishing the run"
    shell:
        "ladder publish {params.run:q} {params.device:q} {params.files} {params.config} 2>&1 | tee {log}"
