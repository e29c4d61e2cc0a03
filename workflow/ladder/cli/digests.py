"""Every digest that decides what runs again, for the list in docs/measuring.md."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from ladder.cli.rules import STEP_MODULES, step_files
from ladder.measure.conditions import PACKAGES, SETTINGS, TIMER, measuring_files, timer_validation_files
from ladder.model.code import PACKAGE, digested
from ladder.results.templates import TEMPLATES


def code_digests() -> dict[str, list[str]]:
    """Digests of the package's own code by name: the files that each covers, relative to the package.

    Of what checks and counts, with the problem gemm; another problem has its own folder in its place.
    """
    problem = "ladder.problems.gemm.instance"
    check, counters = (measuring_files(f"ladder.measure.{task}", problem) for task in ("worker", "traced"))
    return {
        "check": [file for file in check if file not in TIMER],
        "timing": [*TIMER],
        "counters": [file for file in counters if file not in TIMER],
        "compile": _relative(digested(["ladder.build.nvrtc"])),
        "compile_triton": _relative(
            digested(["ladder.build.triton_request", "ladder.build.triton_compiler"])
        ),
        "facts": _relative(digested(["ladder.build.variants"])),
        "clock": timer_validation_files(),
        **{step: _relative(step_files(step)) for step in STEP_MODULES},
    }


def _relative(paths: Iterable[Path]) -> list[str]:
    return [path.relative_to(PACKAGE).as_posix() for path in paths]


def by_folder(files: Iterable[str]) -> str:
    """Files folder by folder: `gpu`: device, timing; `model`: cell."""
    split = (file.removesuffix(".py").removesuffix("/__init__").rpartition("/") for file in sorted(files))
    found = groupby(sorted(split), key=lambda one: one[0])
    return "; ".join(f"`{folder or 'ladder'}`: {', '.join(name for *_, name in of)}" for folder, of in found)


def digest_list() -> str:
    """The list, as Markdown."""
    files = code_digests()
    known: dict[str, object] = {
        "files": {name: by_folder(of) for name, of in files.items()},
        "settings": SETTINGS,
    }
    known["folders"] = {step: sorted({one.partition("/")[0] for one in files[step]}) for step in STEP_MODULES}
    known["packages"] = PACKAGES
    return TEMPLATES.get_template("digests.md.j2").render(known)
