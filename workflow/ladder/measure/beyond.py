"""Accesses beyond buffers that no result shows: a kernel is launched where nothing is mapped behind them."""

import contextlib
from collections.abc import Sequence

from cuda.core import Buffer

from ladder.gpu.instance import Instance
from ladder.gpu.unmapped import at_ends, mapped
from ladder.measure.bench import CellOutcome
from ladder.measure.references import BenchWithReferences
from ladder.model.cell import size_label
from ladder.model.errors import LadderError
from ladder.model.plan import Launch

_LOST = ("ILLEGAL_ADDRESS", "LAUNCH_FAILED")
"""What CUDA says of an access where nothing is mapped; of some that the TMA makes the second."""
_WEIGHTS = ((1.0, 0.0), (1.0, 0.5))  # alpha and beta: with the second C is read as well


def refuse_accesses_beyond(
    bench: BenchWithReferences, launches: Sequence[tuple[Launch, Instance]]
) -> None:
    """Launch what was verified, once more in buffers that begin or end where nothing is mapped beyond.

    Raises CellOutcome where a launch fails there, which loses the context. A note says where there is no such memory.
    """
    sizes = dict[str, int]()
    for launch, instance in launches:
        for name in _buffers(launch):
            sizes[name] = max(sizes.get(name, 0), instance.tensors[name].buffer.size)
    with contextlib.ExitStack() as memory, bench.timer.working():
        try:
            needed = sum(sizes.values())
            most = bench.gpu.free_bytes() // 2
            if needed > most:
                raise LadderError(
                    f"that takes {needed} bytes of device memory, of which {most} may be taken"
                )
            areas = {
                name: memory.enter_context(mapped(bench.gpu, size))
                for name, size in sizes.items()
            }
        except LadderError as error:
            note = f"accesses beyond buffers were not looked for: {error}"
            bench.notes["unmapped memory"] = note
            return
        for launch, instance in launches:
            begins = dict[str, Buffer]()
            ends = dict[str, Buffer]()
            for name in _buffers(launch):
                size = instance.tensors[name].buffer.size
                begins[name], ends[name] = at_ends(*areas[name], size)
            _launch_in(bench, launch, instance, begins)
            _launch_in(bench, launch, instance, ends)


def _buffers(launch: Launch) -> set[str]:
    """Those that a kernel takes."""
    names = {each.get("pointer", each.get("tensor_map")) for each in launch.arguments}
    return names - {None}


def _launch_in(
    bench: BenchWithReferences,
    launch: Launch,
    instance: Instance,
    buffers: dict[str, Buffer],
) -> None:
    usual = instance.scalars
    weights = _WEIGHTS if "beta" in bench.problem.scalars else _WEIGHTS[:1]
    for alpha, beta in weights:
        instance.use_scalars(alpha, beta)
        try:
            with instance.kept_in(buffers):
                bench.load(launch, instance)()
                bench.gpu.sync()
        except CellOutcome:
            raise
        except Exception as error:
            if not any(word in str(error) for word in _LOST):
                raise
            why = "accesses memory beyond its buffers: it fails where nothing is mapped there"
            reason = f"at {size_label(instance.size)}: {why}"
            raise CellOutcome("out_of_bounds", reason, spoilt=True) from error
        finally:
            instance.use_scalars(usual.get("alpha", 1.0), usual.get("beta", 0.0))
