"""The accounts of measuring jobs: what each did, kept beside the tables of its sweep."""

from dataclasses import dataclass, field

from ladder.measure.store import now
from ladder.model.plan import Plan


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


def accounts(plan: Plan) -> list[str]:
    """The accounts of a plan's measuring jobs: that of the whole plan, ahead of it those of shares."""
    parts = int(plan.job["split"])
    return [*(f"share-{share}" for share in range(1, parts + 1) if parts > 1), "measured"]
