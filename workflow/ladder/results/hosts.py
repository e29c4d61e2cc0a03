"""What a kind of host adds to a speed-up by class of cells, as earlier sessions say: nothing else of them is used.

It takes sessions on many kinds of host to estimate it, and those in hand are on few. A source is for sessions that
began after it ended, so that no session says twice how far hosts are apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Standard deviations of log speed-ups from kind of host to kind of host, by the first words of a class."""

    said: str
    ended: str
    deviations: Mapping[str, float]


SOURCES = (
    # 926 cells were read on both kinds, whose floors are 1.72 us apart. That of libraries and mixed pairs, of which
    # there are two, is the one of compute. For libraries from 100 to 1000 us it is that of 61 cells of the second
    # publication on both kinds, twice as large as in the first release (0.0027): so what that publication's coverage
    # says of this class without a kind of host is no independent test.
    Source(
        "sessions of the first release: seven H200s, on hosts with one GPU and with several",
        "2026-11-22T00:00:00Z",
        {
            "kernel, memory": 0.0036,
            "kernel, compute": 0.0035,
            "kernel, mixed": 0.0041,
            "library, memory": 0.0086,
            "library, compute, 100 to 1000 us": 0.0060,
            "library, compute": 0.0039,
            "library, mixed": 0.0039,
        },
    ),
    Source(
        "sessions of the second publication and of three more H200s: nine GPUs alone in their host, 15 as one of two",
        "2026-11-24T16:23:33Z",
        {
            "kernel, compute, 100 to 1000 us": 0.0062,  # 100 cells
            "kernel, compute, 20 to 100 us": 0.0029,  # 22 cells
            "kernel, compute, below 20 us": 0.0016,  # 74 cells
            "kernel, compute, over 1000 us": 0.0016,  # 72 cells
            "kernel, memory": 0.0051,  # 176 cells
            "kernel, mixed": 0.0086,  # 24 cells
            "library, compute, 100 to 1000 us": 0.0066,  # 86 cells
            "library, compute, 20 to 100 us": 0.0012,  # 183 cells
            "library, compute, below 20 us": 0.0059,  # 137 cells
            "library, compute, over 1000 us": 0.0010,  # 288 cells
            "library, memory": 0.0131,  # 29 cells
        },
    ),
)
"""The oldest first. `python tests/hosts.py` estimates the next one; the one before counts there as 20 cells do."""


def source_of(began: str) -> Source:
    """The latest source that had ended when the first of some sessions `began`; the oldest where none had."""
    return next((one for one in reversed(SOURCES) if one.ended < began), SOURCES[0])


def host_deviation(name: str, began: str) -> float:
    """What a kind of host adds to cells of the class `name`, for sessions of which the first `began` then.

    Of a source the most words count that the class begins with. What it has no words for an earlier one has.
    """
    for source in (*(one for one in reversed(SOURCES) if one.ended < began), SOURCES[0]):
        if words := max((one for one in source.deviations if name.startswith(one)), key=len, default=""):
            return source.deviations[words]
    raise KeyError(name)
