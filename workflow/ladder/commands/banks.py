"""Predict bank conflicts of a shared-memory access."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument(
        "offset",
        help="byte offset of a lane as an expression over lane, such as 'lane * 8' or '(lane %% 8) * 144'",
    )
    parser.add_argument("--width", type=int, default=4, choices=[1, 2, 4, 8, 16], help="bytes per lane")
    parser.add_argument("--lanes", type=int, default=32, help="active lanes, from lane 0")


def run(arguments: argparse.Namespace) -> int:
    """Print wavefronts, conflict degree and the lanes each bank serves."""
    from ladder.bank_model import BANKS, LANES, WORD_BYTES, conflict_degree, phases, wavefronts
    from ladder.errors import LadderError, refuse
    from ladder.expressions import evaluate_int

    if not 1 <= arguments.lanes <= LANES:
        raise refuse("command line", "--lanes", arguments.lanes, "1 to 32")
    offsets = [evaluate_int(arguments.offset, {"lane": lane}) for lane in range(arguments.lanes)]
    try:
        count = wavefronts(offsets, arguments.width)
    except ValueError as error:
        raise LadderError(f"command line: offset: {error}") from error
    print(f"wavefronts {count}, conflict degree {conflict_degree(offsets, arguments.width):g}")
    lanes = LANES // phases(arguments.width)
    for phase in range(phases(arguments.width)):
        held: dict[int, list[int]] = {}
        for lane in range(phase * lanes, min((phase + 1) * lanes, len(offsets))):
            for word in range(arguments.width // WORD_BYTES or 1):
                held.setdefault((offsets[lane] // WORD_BYTES + word) % BANKS, []).append(lane)
        print(f"phase {phase}:")
        for bank in range(BANKS):
            print(f"  bank {bank:2d}: {' '.join(str(lane) for lane in held.get(bank, []))}")
    return 0
