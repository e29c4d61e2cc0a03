"""Locked SM clocks of one GPU, held by a process of their own: they are given back however the measuring job ends."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from subprocess import PIPE, Popen

from cuda.bindings import nvml

from ladder.model.errors import LadderError

_LOCKED = "locked"
_LEAVING_S = 30.0


def keep(uuid: str, mhz: int) -> int:
    """Lock the clock, say so, and give it back when standard input ends: its other end closes with the job."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        nvml.init_v2()
        handle = nvml.device_get_handle_by_uuid(uuid)
        nvml.device_set_gpu_locked_clocks(handle, mhz, mhz)
    except nvml.NvmlError as error:
        print(error)
        return 1
    try:
        print(_LOCKED, flush=True)
        sys.stdin.read()
    finally:
        nvml.device_reset_gpu_locked_clocks(handle)
    return 0


@contextlib.contextmanager
def locked_clocks(uuid: str, mhz: float | None) -> Iterator[None]:
    """Hold the SM clock at `mhz`, if any, and give it back afterwards. Raises LadderError if the driver refuses."""
    if mhz is None:
        yield
        return
    # A session of its own, so that a signal to the job's group does not reach it.
    command = [sys.executable, "-m", "ladder.gpu.clocks", uuid, f"{mhz:.0f}"]
    keeper = Popen(command, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True)
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        if (said := keeper.stdout.readline().strip()) != _LOCKED:
            raise LadderError(
                f"measure.lock_clocks: {mhz} MHz was refused by the driver: {said}"
            )
        yield
    finally:
        keeper.stdin.close()
        keeper.wait(_LEAVING_S)
        keeper.stdout.close()


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1], int(sys.argv[2])))
