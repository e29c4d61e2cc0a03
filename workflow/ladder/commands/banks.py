"""Predict bank conflicts of a shared-memory access."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    from ladder.bank_model import DEFAULT_MERGE, MERGE

    parser.add_argument(
        "offset",
        help="byte offset of a lane as an expression over lane, such as 'lane * 8' or '(lane %% 8) * 144'",
    )
    parser.add_argument(
        "--width", type=int, default=4, choices=[1, 2, 4, 8, 16], help="bytes per lane, read or written"
    )
    parser.add_argument("--lanes", type=int, default=32, help="active lanes, from lane 0")
    parser.add_argument(
        "--matrices",
        type=int,
        choices=[1, 2, 4],
        help="the access is ldmatrix of as many matrices, the offsets are its row addresses",
    )
    parser.add_argument(
        "--merge",
        default=DEFAULT_MERGE,
        choices=list(MERGE),
        help="when phases of wide accesses are served together (see ladder/bank_model.py)",
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="draw the banks and the lanes each serves"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print wavefronts, conflict degree and the lanes each bank serves; draw them where asked."""
    from ladder.bank_model import BANKS, LANES, MATRIX_ROWS, ROW_BYTES, conflict_degree, served, wavefronts
    from ladder.errors import LadderError, refuse
    from ladder.expressions import evaluate_int

    lanes, width, merge = arguments.lanes, arguments.width, arguments.merge
    if not 1 <= lanes <= LANES:
        raise refuse("command line", "--lanes", lanes, "1 to 32")
    picture: Path | None = arguments.picture
    if picture is not None and picture.suffix != ".png":
        raise refuse("command line", "--picture", str(picture), "a file name that ends in .png")
    if arguments.matrices is not None:
        lanes, width, merge = MATRIX_ROWS * arguments.matrices, ROW_BYTES, "none"
    offsets = [evaluate_int(arguments.offset, {"lane": lane}) for lane in range(lanes)]
    try:
        count = wavefronts(offsets, width, merge)
    except ValueError as error:
        raise LadderError(f"command line: offset: {error}") from error
    degree = conflict_degree(offsets, width, merge)
    print(f"wavefronts {count}, conflict degree {degree:g}")
    phases = served(offsets, width, merge)
    for number, phase in enumerate(phases):
        print(f"phase {number}:")
        for bank in range(BANKS):
            held = [lane for lanes in phase.get(bank, {}).values() for lane in lanes]
            print(f"  bank {bank:2d}: {' '.join(str(lane) for lane in sorted(held))}")
    if picture is not None:
        from ladder.figures.bank_map import draw_banks

        access = "ldmatrix rows" if arguments.matrices is not None else "lanes"
        asked = f"{access} at byte {arguments.offset}, {width} bytes each"
        title = f"{asked}: conflict degree {degree:g}, {count} wavefronts"
        try:
            draw_banks(phases, title, picture)
        except OSError as error:
            raise LadderError(f"command line: --picture: {picture} cannot be written: {error}") from error
    return 0
