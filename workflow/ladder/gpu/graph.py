"""CUDA graphs of back-to-back launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cuda.core import Stream

from ladder.gpu.device import Launcher


@dataclass(frozen=True)
class Captured:
    """A CUDA graph of several launches: calling it enqueues the graph."""

    stream: Stream
    graph: Any

    def __call__(self) -> None:
        self.graph.launch(self.stream)

    def close(self) -> None:
        """Free the graph."""
        self.graph.close()


def capture(stream: Stream, launcher: Launcher, launches: int) -> Captured:
    """A graph of `launches` back-to-back calls of `launcher`, which enqueues on `stream`."""
    builder = stream.create_graph_builder()
    builder.begin_building("relaxed")
    for _ in range(launches):
        launcher()
    builder.end_building()
    graph = builder.complete()
    graph.upload(stream)
    stream.sync()
    return Captured(stream, graph)
