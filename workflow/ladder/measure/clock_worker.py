"""The program that tries the timer on one GPU with cells of one plan.

Started as `python -m ladder.measure.clock_worker PLAN CUBINS REQUEST`. REQUEST is JSON: `clock_aa` and `clock_nvbench`
with pairs of a task's index and its median in µs, `trials`, and `out`, the JSON to write: rows by table.
"""

import json
import sys
from pathlib import Path

from ladder.measure.bench import Bench
from ladder.measure.clock import check_clock
from ladder.measure.clocking import TABLES, subject
from ladder.measure.parents import die_with_parent
from ladder.measure.worker import stopping_rule
from ladder.model.files import write_json
from ladder.model.plan import read_plan


def main() -> int:
    die_with_parent()
    plan, request = read_plan(Path(sys.argv[1])), json.loads(sys.argv[3])
    itself, others = ([subject(plan, *given) for given in request[table]] for table in TABLES)
    bench = Bench(plan, Path(sys.argv[2]))
    found = check_clock(bench, stopping_rule(plan), itself, others, request["trials"])
    write_json(Path(request["out"]), dict(zip(TABLES, found, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
