"""Snakemake whose executor looks every second how its jobs are, where it else waits 40 s and more."""

import sys

import snakemake_executor_plugin_slurm as plugin
from snakemake.cli import main

plugin.Executor.next_seconds_between_status_checks = property(
    lambda self: 1, lambda self, value: None
)
sys.argv[0] = "snakemake"
main()
