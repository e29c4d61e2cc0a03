"""Figures, the report, and publishing."""

for _name in RUN.every_sweep:

    rule:
        name:
            f"draw_{_name}"
        input:
            tables=tables_in(f"{FOLDER}/sweeps/{_name}", ["timings", "metrics", "resources"]),
            sweep=f"config/sweeps/{_name}.yaml",
            environment=ancient(rules.record_environment.output.environment),
            code=sorted((WORKFLOW / "ladder/figures").glob("*.py")),
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
        message:
            "Drawing the figures of a sweep"
        shell:
            "python -m ladder --log {log} figures --sweep {params.sweep} --run-folder {params.folder}"

    rule:
        name:
            f"sweep_{_name}"
        input:
            tables_in(f"{FOLDER}/sweeps/{_name}"),
            figures_of(_name),


rule figures:
    input:
        [figures_of(sweep) for sweep in RUN.sweeps],


rule report:
    input:
        rules.decide_claims.output,
        rules.record_environment.output,
        clock_tables(),
