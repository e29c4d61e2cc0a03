"""A second clock: when the GPU began and ended each kernel, by the activity records of CUPTI.

Events count what lies between two commands of a stream. That is a kernel and a few microseconds more, which differ
between hosts. Activity records hold the kernel alone.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

from ladder.model.errors import LadderError

_BUFFER_BYTES = 4 * 2**20
_KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET")
_WAIT_FOR_ALL = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED


class Stamp(NamedTuple):
    """What the GPU did from `begin` to `end`, in ns, on a stream; copies and memsets have no name."""

    begin: int
    end: int
    name: str
    stream: int = 0


class OtherStream(Exception):
    """A launch enqueues on another stream than that which it is given."""


class DeviceClock:
    """Times of launches between kernels named `ahead` and `behind`. Raises LadderError where CUPTI is missing."""

    def __init__(self, ahead: str, behind: str) -> None:
        self._marks = ahead, behind
        self._seen: list[Stamp] = []
        self._alone = False
        try:
            load_nvidia_dynamic_lib("cupti")
            from cupti import cupti
        except (ImportError, DynamicLibNotFoundError) as error:
            raise LadderError(f"no device timestamps: {error}") from error
        self._cupti = cupti
        self._kinds = [getattr(cupti.ActivityKind, kind) for kind in _KINDS]
        with self._refusing():
            cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._take)
        with self.recording():  # or it is refused now
            pass

    def _take(self, records: Iterable[Any]) -> None:
        # Copied now: the records' memory is CUPTI's.
        for record in records:
            name = getattr(record, "name", "")
            stamp = Stamp(record.start, record.end, name, record.stream_id)
            self._seen.append(stamp)

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except self._cupti.cuptiError as error:
            raise LadderError(f"no device timestamps: {error}") from error

    @contextlib.contextmanager
    def recording(self, alone: bool = False) -> Iterator[None]:
        """Inside, what is enqueued is recorded, and if `alone` on the marks' stream only.

        Raises LadderError where CUPTI refuses, as under a profiler.
        """
        self._alone = alone
        with self._refusing():
            for kind in self._kinds:
                self._cupti.activity_enable(kind)
        try:
            yield
        except BaseException:
            self._flush()  # Nobody will ask for these.
            raise
        finally:
            for kind in self._kinds:
                self._cupti.activity_disable(kind)

    def _flush(self) -> list[Stamp]:
        self._cupti.activity_flush_all(_WAIT_FOR_ALL)
        stamps, self._seen = self._seen, []
        return stamps

    def times(self, count: int) -> list[float]:
        """Time in us of each of the `count` launches since the last call, in order; the stream must be idle.

        Raises OtherStream where the marks' stream is not alone, LadderError for more or fewer between the marks.
        """
        stamps = self._flush()
        if self._alone:
            refuse_other_streams(stamps, self._marks[0])
        times = spans(stamps, *self._marks)
        if len(times) != count:
            raise LadderError(
                f"device timestamps of {len(times)} launches instead of {count}"
            )
        return times


def refuse_other_streams(stamps: Sequence[Stamp], mark: str) -> None:
    """Raises OtherStream where something ran on another stream than the mark, whenever that was."""
    streams = {stamp.stream for stamp in stamps if stamp.name == mark}
    others = [stamp for stamp in stamps if stamp.stream not in streams]
    if others:
        name = others[0].name or "a copy or memset"
        more = f" and {len(others) - 1} more" if others[1:] else ""
        raise OtherStream(
            f"enqueues on another stream than the one it is given: {name}{more}"
        )


def spans(stamps: Sequence[Stamp], ahead: str, behind: str) -> list[float]:
    """Time in us from the first begin to the last end between each mark `ahead` and the next `behind`, if any."""
    times: list[float] = []
    between: list[Stamp] | None = None
    for stamp in sorted(stamps):
        if stamp.name == ahead:
            between = []
        elif between is None:
            continue
        elif stamp.name != behind:
            between.append(stamp)
        else:
            if between:
                end = max(launched.end for launched in between)
                times.append((end - between[0].begin) / 1e3)
            between = None
    return times
