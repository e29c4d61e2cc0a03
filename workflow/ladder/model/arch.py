"""GPU architectures by name: sm_90, sm_90a."""

DEFAULT_ARCH = "sm_90a"
"""Architecture to compile for where no device says otherwise."""

CLUSTERS_FROM = 90


def arch_number(arch: str) -> int:
    """90 for sm_90 and sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("a"))


def runs_on(minimum: str, arch: str) -> bool:
    """Whether a kernel written for `minimum` may run on `arch`; sm_90a code runs on sm_90a alone."""
    if minimum.endswith("a"):
        return arch == minimum
    return arch_number(arch) >= arch_number(minimum)
