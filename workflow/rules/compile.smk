"""Plans, and one compile job per sweep."""


rule plan_sweep:
    input:
        # Its time does not matter: the params carry the digest of what the plan says.
        sweep=ancient("config/sweeps/{sweep}.yaml"),
    output:
        plan=f"{FOLDER}/plans/{{sweep}}.json",
    log:
        f"{LOGS}/plan_sweep/{{sweep}}.log",
    params:
        arch=RUN.arch,
        settings=plan_settings,
        content=plan_digest,
    message:
        "Planning {wildcards.sweep}"
    shell:
        "python -m ladder --log {log} plan {wildcards.sweep} {output.plan} --arch {params.arch} {params.settings}"


rule compile_sweep:
    input:
        # As above: what the compiler is asked says it all.
        sweep=ancient("config/sweeps/{sweep}.yaml"),
    output:
        compiled=f"{FOLDER}/sweeps/{{sweep}}/compiled.json",
    log:
        f"{LOGS}/compile_sweep/{{sweep}}.log",
    # Ahead of measuring, so that no compiler disturbs a timing.
    priority: 100
    threads: compiling_threads
    params:
        arch=RUN.arch,
        settings=f"--config compile={shlex.quote(RUN.config.compile.model_dump_json())}",
        asked=asked_of_the_compiler,
    message:
        "Compiling {wildcards.sweep}"
    shell:
        "python -m ladder --log {log} compile {wildcards.sweep} {output.compiled} --jobs {threads}"
        " --arch {params.arch} {params.settings}"


rule compile:
    input:
        expand(rules.compile_sweep.output, sweep=RUN.sweeps),
        expand(rules.plan_sweep.output, sweep=RUN.sweeps),
