# What `snakemake` finds; the workflow itself is workflow/Snakefile.


include: "workflow/Snakefile"


rule default:
    default_target: True
    input:
        rules.all.input,
    message:
        "Everything is there"
