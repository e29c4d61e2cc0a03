"""Plans and cubins: one job per sweep."""


rule prepare_sweep:
    input:
        # Its time does not matter: the params carry the digest of what follows from it.
        sweep=ancient("config/sweeps/{sweep}.yaml"),
    output:
        plan=f"{FOLDER}/plans/{{sweep}}.json",
        # Goes when the cache is deleted, so that measuring finds the cubins again.
        cubins=(
            touch(f"{RUN.config.compile.cache}/{FOLDER}/{{sweep}}")
            if RUN.measures
            else []
        ),
    log:
        f"{LOGS}/prepare_sweep/{{sweep}}.log",
    # Ahead of measuring, so that no compiler disturbs a timing.
    priority: 100
    threads: compiling_threads
    params:
        folder=run_folder,
        arch=RUN.arch,
        settings=settings_of,
        cells=cells_of,
        published=STANDS_IN,
        digest=lambda wildcards: RULE_INPUTS.sweeps[wildcards.sweep].digest,
    message:
        "Preparing {wildcards.sweep}"
    shell:
        "ladder prepare {params.folder:q} {wildcards.sweep:q} --jobs {threads}"
        " --arch {params.arch:q} {params.settings} {params.cells} {params.published} > {log} 2>&1"


rule compile:
    input:
        expand(rules.prepare_sweep.output.plan, sweep=RULE_INPUTS.chosen),
