"""The account of a measuring job, kept beside the tables of its sweep."""

from dataclasses import dataclass, field

from ladder.measure.store import now


@dataclass
class Job:
    """What a measuring job did: tasks of the plan, kept and measured, wall and GPU time, and when."""

    cells: int = 0
    kept: int = 0
    measured: int = 0
    wall_s: float = 0.0
    gpu_s: float = 0.0
    check_s: float = 0.0
    worker_starts: int = 0
    started: str = field(default_factory=now)
    finished: str = ""
