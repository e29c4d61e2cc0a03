"""Plans, and one compile job per variant."""


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


rule compile_variant:
    input:
        kernel=lambda wildcards: variant_of(wildcards).kernel.path,
        sources=sources_of,
        code=modules("build/nvrtc", "build/cubin", "build/occupancy"),
    output:
        cubin=f"{FOLDER}/cubins/{{variant}}.cubin",
        facts=f"{FOLDER}/cubins/{{variant}}.json",
    log:
        f"{LOGS}/compile_variant/{{variant}}.log",
    # Ahead of measuring, so that no compiler disturbs a timing.
    priority: 100
    params:
        parameters=lambda wildcards: json.dumps(dict(variant_of(wildcards).params), sort_keys=True),
        dtype=lambda wildcards: variant_of(wildcards).dtype,
        layout=layout_option,
        arch=RUN.arch,
        options=[f"--option={option}" for option in RUN.config.compile.options],
        made_of=made_of,
    message:
        "Compiling {wildcards.variant}"
    shell:
        "python -m ladder --log {log:q} compile --kernel {input.kernel:q} --params {params.parameters:q}"
        " --dtype {params.dtype} {params.layout} --arch {params.arch} {params.options:q}"
        " --cubin {output.cubin:q} --facts {output.facts:q}"


rule compile_harness:
    input:
        code=modules("build/nvrtc", "build/cubin", "gpu/harness"),
    output:
        harness=f"{FOLDER}/cubins/harness-{{problem}}.bin",
    log:
        f"{LOGS}/compile_harness/{{problem}}.log",
    priority: 100
    params:
        arch=RUN.arch,
        kernels=lambda wildcards: list(PROBLEMS[wildcards.problem].harness),
        nvrtc=nvrtc_version(),
        source=lambda wildcards: source_digest(harness_source(wildcards.problem), INCLUDE),
    message:
        "Compiling the measuring harness of {wildcards.problem}"
    shell:
        "python -m ladder --log {log} harness {wildcards.problem} {output.harness} --arch {params.arch}"


rule compile:
    input:
        [cubins_of(sweep) for sweep in RUN.sweeps],
        [harness_of(sweep) for sweep in RUN.sweeps],
        expand(rules.plan_sweep.output, sweep=RUN.sweeps),
