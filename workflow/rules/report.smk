"""Figures, the report, and publishing."""

for _name in RUN.every_sweep:

    rule:
        name:
            f"draw_{_name}"
        input:
            tables=tables_in(f"{FOLDER}/sweeps/{_name}"),
            sweep=f"config/sweeps/{_name}.yaml",
            code=code_of("figures"),
        output:
            report(
                figures_of(_name),
                caption="../report/figure.rst",
                category="Figures",
                subcategory=_name,
            ),
        log:
            f"{LOGS}/draw_figures/{_name}.log",
        params:
            sweep=_name,
            folder=run_folder,
            published=STANDS_IN,
            # For the caption.
            title=RUN.every_sweep[_name].title,
            question=RUN.every_sweep[_name].question,
        message:
            "Drawing the figures of a sweep"
        shell:
            "python -m ladder --log {log} figures {params.folder} {params.sweep} {params.published}"

    rule:
        name:
            f"sweep_{_name}"
        input:
            tables_in(f"{FOLDER}/sweeps/{_name}"),
            figures_of(_name),


rule figures:
    input:
        [figures_of(sweep) for sweep in RUN.sweeps],


rule write_report:
    input:
        tables=rules.merge_tables.output.tables,
        claims=rules.decide_claims.output.tables,
        clock=clock_tables(),
        throughput=throughput_record(),
        environment=rules.record_environment.output.environment,
        plans=expand(rules.prepare_sweep.output.plan, sweep=RUN.sweeps),
        sweeps=expand("config/sweeps/{sweep}.yaml", sweep=RUN.sweeps),
        code=code_of("report"),
        templates=sorted((WORKFLOW / "report").glob("*.j2")),
    output:
        report=report(f"{FOLDER}/report.md", caption="../report/report.rst", category="Report"),
    log:
        f"{LOGS}/write_report.log",
    params:
        folder=run_folder,
        sweeps=list(RUN.sweeps),
    message:
        "Writing the report"
    shell:
        "python -m ladder --log {log} report {params.folder} {params.sweeps}"


rule report:
    input:
        rules.write_report.output,
        rules.figures.input,


# Without output: it runs whenever it is asked for. Objections can be overruled by hand: python -m ladder publish --force
rule publish:
    input:
        rules.report.input,
        rules.compile.input,
    log:
        f"{LOGS}/publish.log",
    params:
        run=RUN.config.run,
        device=RUN.device,
        files=[f"--configfile {shlex.quote(str(file))}" for file in workflow.overwrite_configfiles],
        config=[f"--config {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in config.items()],
    message:
        "Publishing the run"
    shell:
        "python -m ladder --log {log} publish {params.run} {params.device}" " {params.files} {params.config}"
