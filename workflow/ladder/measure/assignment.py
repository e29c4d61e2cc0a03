"""What the supervisor has a worker measure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Assignment:
    """A task of the plan by its index, to be timed in some regimes; or if `choice` one of the plan's choices.

    against: by regime what to time it against where there was a choice, as `reference` and `algorithm`, or why there is
    none, as `absent`.
    """

    index: int
    regimes: Sequence[str]
    choice: bool = False
    against: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
