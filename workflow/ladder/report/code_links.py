"""Where a rung's technique stands: its kernel's parameters, or its file and the lines that the file before lacks."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ladder.model.kernel import Kernel, Variant
from ladder.model.sweep import Entry, Sweep

_MOST = 8  # stretches of a file that are linked: of more those with the most new names


@dataclass(frozen=True)
class CodeLink:
    """A place in the code: what it is called, and a path from docs."""

    text: str
    href: str


def _link(path: Path, text: str, first: int = 0, last: int = 0) -> CodeLink:
    """A link to a file, which `path` names from the project's root, or to some of its lines."""
    lines = f"#L{first}" + (f"-L{last}" if last > first else "") if first else ""
    return CodeLink(text, f"../{path.as_posix()}{lines}")


def file_link(kernel: Kernel, root: Path) -> CodeLink:
    source = kernel.source.relative_to(root)
    return _link(source, source.name)


def is_file_of_a_rung(kernel: Kernel) -> bool:
    """Whether the file spells out one rung: its name begins with a number."""
    return kernel.source.stem[0].isdigit()


def file_of(entry: Entry, sweeps: Mapping[str, Sweep]) -> Kernel | None:
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


def file_before(
    entry: Entry, sweep: Sweep, sweeps: Mapping[str, Sweep]
) -> Variant | None:
    """The file of the nearest rung below that has another file than this one, or of a branch of that rung.

    With the parameters of that rung where the file is its kernel, else at its defaults.
    """
    own, by_id = file_of(entry, sweeps), {one.variant.id: one for one in sweep.entries}
    earlier = sweep.entries[: sweep.entries.index(by_id[entry.variant.id])]
    below = entry.baseline
    while below is not None:
        rung = by_id[below.variant.id]
        branches = [
            one
            for one in earlier
            if one.baseline and one.baseline.variant.id == rung.variant.id
        ]
        for one in (rung, *branches):
            file = file_of(one, sweeps)
            if file is not None and file is not own:
                return (
                    one.variant
                    if one.variant.kernel is file
                    else file.variant({}, one.variant.dtype)
                )
        below = rung.baseline
    return None


def _code(kernel: Kernel) -> list[str]:
    """Lines without what no rung is about: their indent, comments, and the kernel's name."""
    lines = kernel.source.read_text(encoding="utf-8").splitlines()
    name = kernel.entry.partition("<")[0]
    return [line.partition("//")[0].strip().replace(name, "kernel") for line in lines]


def _bodies(lines: list[str]) -> Iterator[int]:
    """Numbers of lines that say what is done: no includes, assertions or casts, and no head (`template` to a brace)."""
    inside = False
    for number, line in enumerate(lines):
        inside = inside or line.startswith("template ")
        aside = line.startswith(("#", "static_assert(")) or "reinterpret_cast" in line
        if not (inside or aside) and any(map(str.isalnum, line)):
            yield number
        inside = inside and not line.endswith("{")


def _names(lines: list[str]) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", " ".join(lines)))


def changed_lines(kernel: Kernel, before: Kernel, root: Path) -> list[CodeLink]:
    """Links to what a file has and the one before lacks, head and includes aside.

    Of many stretches those whose names are new: the others rename or move what the file before has.
    """
    own, other = _code(kernel), _code(before)
    bodies, known, found = (
        set(_bodies(own)),
        _names(other),
        list[tuple[int, int, int]](),
    )
    blocks = difflib.SequenceMatcher(None, other, own, autojunk=False).get_opcodes()
    for kind, _, _, first, last in blocks:
        places = [place for place in range(first, last) if place in bodies]
        if kind in ("insert", "replace") and places:
            new = len(_names([own[place] for place in places]) - known)
            found.append((new, places[0] + 1, places[-1] + 1))
    best = sorted(found, key=lambda each: (-each[0], each[1] - each[2], each[1]))[
        :_MOST
    ]
    kept = [each for each in best if each[0]] or best
    source = kernel.source.relative_to(root)
    return [
        _link(
            source, f"{first}" if first == last else f"{first} to {last}", first, last
        )
        for _, first, last in sorted(kept, key=lambda each: each[1])
    ]


def new_code(
    entry: Entry, sweep: Sweep, sweeps: Mapping[str, Sweep], root: Path
) -> list[CodeLink]:
    """Links to what is new in the file that spells a rung out: `changed_lines`.

    Where that is the file of the rung that it changes, the headers of the types that its parameters name.
    """
    own, below = file_of(entry, sweeps), entry.baseline
    if own is not None and below is not None and file_of(below, sweeps) is own:
        before = below.variant.params
        given = [
            str(value)
            for name, value in entry.variant.params.items()
            if before.get(name) != value
        ]
        types = re.compile(
            rf"^struct ({'|'.join(map(re.escape, given))})\b", re.MULTILINE
        )
        headers = sorted((root / "kernels" / "include").rglob("*.cuh"))
        found = [
            path for path in headers if types.search(path.read_text(encoding="utf-8"))
        ]
        return [_link(path.relative_to(root), path.name) for path in found]
    other = file_before(entry, sweep, sweeps)
    return (
        changed_lines(own, other.kernel, root)
        if own is not None and other is not None
        else []
    )


def _in_sweep(entry: Entry, path: Path) -> tuple[int, int]:
    """The lines of a sweep's file that describe a rung."""
    lines = path.read_text(encoding="utf-8").splitlines()
    (place,) = [
        number
        for number, line in enumerate(lines)
        if line.strip() == f"rung: {entry.rung}"
    ]
    first = max(
        number for number in range(place + 1) if lines[number].startswith("  - ")
    )
    after = (
        number
        for number in range(place, len(lines))
        if number > first and lines[number][:4] != "    "
    )
    return first + 1, next(after, len(lines))


def code_links(entry: Entry, sweep: Sweep, root: Path) -> list[CodeLink]:
    """Links to the code of a ladder's rung: the file that is its kernel, with all at its defaults; else its kernel,
    and the parameters that the sweep gives it."""
    variant = entry.variant
    usual = all(
        value == variant.kernel.parameters[name].default
        for name, value in variant.params.items()
    )
    file = file_link(variant.kernel, root)
    if is_file_of_a_rung(variant.kernel) and usual:
        return [file]
    path = Path("config", "sweeps", f"{sweep.name}.yaml")
    return [file, _link(path, "parameters", *_in_sweep(entry, root / path))]
