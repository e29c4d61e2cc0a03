"""Where a rung's technique stands: the lines of its file that are not in the file before, or its lines in the sweep."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ladder.model.kernel import Kernel
from ladder.model.sweep import Entry, Sweep

_MOST = 4  # stretches of a file that are linked: of more the longest, and the later ones


@dataclass(frozen=True)
class CodeLink:
    """A place in the code: what it is called, and a path from docs."""

    text: str
    href: str


def _link(path: Path, text: str, first: int = 0, last: int = 0) -> CodeLink:
    """A link to a file, which `path` names from the project's root, or to some of its lines."""
    lines = f"#L{first}" + (f"-L{last}" if last > first else "") if first else ""
    return CodeLink(text, f"../{path.as_posix()}{lines}")


def is_file_of_a_rung(kernel: Kernel) -> bool:
    """Whether the file spells out one rung: its name begins with the rung's number."""
    return kernel.source.stem[0].isdigit()


def _twin(entry: Entry, sweeps: Mapping[str, Sweep]) -> Kernel | None:
    """The file that spells a rung out: its own kernel, or one that a sweep pairs with it."""
    if is_file_of_a_rung(entry.variant.kernel):
        return entry.variant.kernel
    pairs = [
        one.variant.kernel
        for sweep in sweeps.values()
        for one in sweep.entries
        if one.baseline is not None
        and one.baseline.variant.id == entry.variant.id
        and one.baseline.variant.kernel.name != one.variant.kernel.name
        and is_file_of_a_rung(one.variant.kernel)
    ]
    return pairs[0] if pairs else None


def _code(kernel: Kernel) -> list[str]:
    """Lines without what no rung is about: their indent, comments, and the kernel's name."""
    lines = kernel.source.read_text(encoding="utf-8").splitlines()
    name = kernel.entry.partition("<")[0]
    return [line.partition("//")[0].strip().replace(name, "kernel") for line in lines]


def _changed(kernel: Kernel, before: Kernel) -> list[tuple[int, int]]:
    """First and last line of each stretch of a file that the one before does not have; no includes."""
    own = _code(kernel)
    blocks = difflib.SequenceMatcher(None, _code(before), own, autojunk=False).get_opcodes()
    found = []
    for kind, _, _, first, last in blocks:
        places = [
            place for place in range(first, last) if own[place] and not own[place].startswith("#include")
        ]
        if kind in ("insert", "replace") and places:
            found.append((places[0] + 1, places[-1] + 1))
    return found


def _in_sweep(entry: Entry, path: Path) -> tuple[int, int]:
    """The lines of a sweep's file that describe a rung."""
    lines = path.read_text(encoding="utf-8").splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.strip() == f"rung: {entry.rung}"]
    first = max(number for number in range(place + 1) if lines[number].startswith("  - "))
    after = (number for number in range(place, len(lines)) if number > first and lines[number][:4] != "    ")
    return first + 1, next(after, len(lines))


def code_links(entry: Entry, sweep: Sweep, sweeps: Mapping[str, Sweep], root: Path) -> list[CodeLink]:
    """Links to the code of a ladder's rung.

    Where a file spells it out: that file, and the lines that the file before does not have. That one is the file of the
    nearest rung down the chain of baselines. Else its kernel, and the parameters that the sweep gives it.
    """
    by_id = {one.variant.id: one for one in sweep.entries}
    twin, below, file = _twin(entry, sweeps), entry.baseline, None
    while below is not None and file is None:
        file, below = _twin(below, sweeps), by_id[below.variant.id].baseline
    if twin is None or (file is not None and file.source == twin.source):
        kernel, path = (
            entry.variant.kernel.source.relative_to(root),
            Path("config", "sweeps", f"{sweep.name}.yaml"),
        )
        return [_link(kernel, kernel.name), _link(path, "parameters", *_in_sweep(entry, root / path))]
    source = twin.source.relative_to(root)
    changed = _changed(twin, file) if file else []
    longest = sorted(sorted(changed, key=lambda ends: (ends[0] - ends[1], -ends[0]))[:_MOST])
    lines = [(f"{first}" if first == last else f"{first} to {last}", first, last) for first, last in longest]
    return [_link(source, source.name), *(_link(source, *each) for each in lines)]
