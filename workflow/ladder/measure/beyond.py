"""Accesses beyond buffers that no result shows: a kernel is launched where nothing is mapped behind them."""

import contextlib
from collections.abc import Sequence

from cuda.core import Buffer

from ladder.gpu.instance import Instance
from ladder.gpu.unmapped import mapped
from ladder.measure.bench import CellOutcome
from ladder.measure.references import BenchWithReferences
from ladder.model.cell import size_label
from ladder.model.errors import LadderError
from ladder.model.plan import Launch

_WEIGHTS = ((1.0, 0.0), (1.0, 0.5))  # alpha and beta: with the second C is read as well


def refuse_accesses_beyond(
    bench: BenchWithReferences, launches: Sequence[tuple[Launch, Instance]]
) -> None:
    """Launch what was verified, once more in buffers that begin or end where nothing is mapped beyond.

    Raises CellOutcome where a launch fails there, which loses the context. A note says where there is no such memory.
    """
    for launch, instance in launches:
        names = _buffers(launch)
        own = [instance.tensors[name].buffer for name in names]
        with contextlib.ExitStack() as memory, bench.timer.working():
            try:
                needed = sum(buffer.size for buffer in own)
                most = bench.gpu.free_bytes() // 2
                if needed > most:
                    raise LadderError(
                        f"that takes {needed} bytes of device memory, of which {most} may be taken"
                    )
                both_ends = memory.enter_context(mapped(bench.gpu, own))
            except LadderError as error:
                note = f"accesses beyond buffers were not looked for: {error}"
                bench.notes["unmapped memory"] = note
                return
            for buffers in both_ends:
                by_name = dict(zip(names, buffers, strict=True))
                _launch_in(bench, launch, instance, by_name)


def _buffers(launch: Launch) -> list[str]:
    """Those that a kernel takes: inputs, outputs and workspaces."""
    names = {each.get("pointer", each.get("tensor_map")) for each in launch.arguments}
    return [*(names - {None})]


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
            if not bench.gpu.met_unmapped_memory():
                raise
            why = "accesses memory beyond its buffers: it fails where nothing is mapped there"
            reason = f"at {size_label(instance.size)}: {why}"
            raise CellOutcome("out_of_bounds", reason, spoilt=True) from error
        finally:
            instance.use_scalars(usual.get("alpha", 1.0), usual.get("beta", 0.0))
