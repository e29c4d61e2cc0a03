"""What was compiled for a sweep, as its compiled.json says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.model.errors import LadderError
from ladder.model.files import read_json
from ladder.model.plan import Plan, Task

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Compiled:
    """Facts of the harness and of each variant by id; `cubin` among them names the file in the cache of cubins."""

    harness: Facts
    variants: Mapping[str, Facts]

    def broken(self, task: Task) -> str | None:
        """Why the task's own variant did not compile, or None."""
        facts = self.variants[task.launch.variant] if task.launch else {}
        return str(facts.get("reason")) if facts.get("status", "ok") != "ok" else None


def read_compiled(path: Path, plan: Plan) -> Compiled:
    """What was compiled for a plan. Raises LadderError where something of it was not."""
    if (found := read_json(path)) is None:
        raise LadderError(f"{path}: missing; compile the sweep {plan.sweep} first")
    made = Compiled(**found)
    for variant in plan.variants:
        if variant not in made.variants:
            raise LadderError(f"{path}: lacks the variant {variant}; compile the sweep {plan.sweep} again")
    return made
