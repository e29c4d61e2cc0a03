"""Numbers of a row that several claims read: wavefronts per access of shared memory, and what is without conflicts."""

from collections.abc import Callable

from ladder.results.counters import SHARED_REQUESTS_OF, SHARED_WAVEFRONTS_OF, STALL_FOR
from ladder.results.run_data import Row

LOADS = "wavefronts per shared load over the fewest"
ENOUGH = 1.05  # times the fewest wavefronts still count as without conflicts: other traffic adds some
FEW = 0.05  # conflicts an access still count as none, for the same reason


def metric(name: str) -> Callable[[Row], float]:
    return lambda row: row.metric(name)


def conflicts(row: Row, access: str = "ld") -> float:
    """Conflicts by the hardware's own counter per shared load (ld) or store (st)."""
    counted = row.metric(
        f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{access}.sum"
    )
    return counted / row.metric(SHARED_REQUESTS_OF.format(access))


def stalled(reason: str) -> Callable[[Row], float]:
    """Warps waiting for a reason per instruction issued."""
    return metric(STALL_FOR.format(reason))


def wavefronts(row: Row, access: str = "ld") -> float:
    """Wavefronts of shared loads (ld) or stores (st)."""
    return row.metric(SHARED_WAVEFRONTS_OF.format(access))


def per_request(row: Row, access: str = "ld") -> float:
    """Wavefronts per instruction."""
    return wavefronts(row, access) / row.metric(SHARED_REQUESTS_OF.format(access))


def over_fewest(row: Row) -> float:
    """Wavefronts per shared load over the fewest: one for an LDS.32, two for an LDS.128 with 16 addresses or fewer."""
    words, vectors = row["lds_32"], row["lds_128"]
    return float(per_request(row) * (words + vectors) / (words + 2 * vectors))
