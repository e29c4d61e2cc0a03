"""compute-sanitizer over every kernel: one job, which is slow and made only when it is asked for."""


rule sanitize:
    output:
        seen=RUN.folder.sanitizer.as_posix(),
    log:
        f"{LOGS}/sanitize.log",
    threads: cores
    resources:
        gpu=every_gpu,
    params:
        folder=run_folder,
        arch=RUN.arch,
        settings=settings_of,
        tree=TREE,
    message:
        "Sanitizing every kernel at a small size"
    shell:
        "ladder sanitize {params.folder:q} --jobs {threads} --arch {params.arch:q}"
        " {params.settings} > {log} 2>&1"
