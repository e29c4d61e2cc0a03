"""Accesses beyond buffers that no result shows: a kernel is launched where nothing is mapped behind them."""

import contextlib
import itertools
from collections.abc import Iterable

from ladder.gpu.instance import Instance
from ladder.gpu.unmapped import at_ends, mapped
from ladder.measure.bench import Bench, CellOutcome
from ladder.model.cell import size_label
from ladder.model.errors import LadderError
from ladder.model.plan import Launch

_LOST = ("ILLEGAL_ADDRESS", "LAUNCH_FAILED")
"""What CUDA says of an access where nothing is mapped; of some that the TMA makes the second."""
_WEIGHTS = ((1.0, 0.0), (1.0, 0.5))  # alpha and beta: with the second C is read as well


def refuse_accesses_beyond(
    bench: Bench, launches: Iterable[tuple[Launch, Instance]]
) -> None:
    """Launch what was verified, once more in buffers that begin or end where nothing is mapped beyond.

    Raises CellOutcome where a launch fails there, which loses the context. A note says where there is no such memory.
    """
    todo, sizes = list(launches), dict[str, int]()
    for launch, instance in todo:
        for name in _buffers(launch):
            sizes[name] = max(sizes.get(name, 0), instance.tensors[name].buffer.size)
    with contextlib.ExitStack() as memory, bench.timer.working():
        try:
            if (needed := sum(sizes.values())) > (half := bench.gpu.free_bytes() // 2):
                raise LadderError(
                    f"that takes {needed} bytes of device memory, of which {half} may be taken"
                )
            ends = {
                name: memory.enter_context(mapped(bench.gpu, size))
                for name, size in sizes.items()
            }
        except LadderError as error:
            bench.note(
                "unmapped memory",
                f"accesses beyond buffers were not looked for: {error}",
            )
            return
        for launch, instance in todo:
            _launch(bench, launch, instance, ends)


def _buffers(launch: Launch) -> set[str]:
    """Those that a kernel takes."""
    return {
        one[kind]
        for one in launch.arguments
        for kind in ("pointer", "tensor_map")
        if kind in one
    }


def _launch(
    bench: Bench, launch: Launch, instance: Instance, ends: dict[str, tuple[int, int]]
) -> None:
    both = {
        name: at_ends(*ends[name], instance.tensors[name].buffer.size)
        for name in _buffers(launch)
    }
    own, weights = (
        instance.scalars,
        _WEIGHTS if "beta" in bench.problem.scalars else _WEIGHTS[:1],
    )
    for end, (alpha, beta) in itertools.product((0, 1), weights):
        instance.use_scalars(alpha, beta)
        try:
            with instance.kept_in(
                {name: buffers[end] for name, buffers in both.items()}
            ):
                bench.load(launch, instance)()
                bench.gpu.sync()
        except CellOutcome:
            raise
        except Exception as error:
            if not any(word in str(error) for word in _LOST):
                raise
            why = "accesses memory beyond its buffers: it fails where nothing is mapped there"
            raise CellOutcome(
                "out_of_bounds", f"at {size_label(instance.size)}: {why}", spoilt=True
            ) from error
        finally:
            instance.use_scalars(own.get("alpha", 1.0), own.get("beta", 0.0))
