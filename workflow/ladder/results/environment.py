"""environment.json: on which GPUs, when, with what and from which checkout the numbers are, as records say."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired

from pandas import DataFrame
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from ladder.measure import host
from ladder.measure.host import BUILDS
from ladder.measure.store import Records, now
from ladder.model.document import reading
from ladder.model.errors import LadderError
from ladder.model.files import read_json
from ladder.model.folders import RunFolder
from ladder.model.record import Card, Session, Tree, Versions
from ladder.model.schemas import Fields, TableRow
from ladder.results import tables
from ladder.results.statistics import grouped


class _Card(Card, total=False):
    started: str | None
    finished: str | None


class _Environment(TypedDict):
    """What a report needs of environment.json, which says more."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    device: str
    arch: str
    started: str
    driver: str | None
    nvrtc: str | None
    cublas: str | None
    timings_from: Literal["measured", "published", "none"]
    gpu: _Card | None
    gpus: NotRequired[list[_Card]]
    trees: NotRequired[list[Tree]]
    host: dict[str, Any]
    packages: dict[str, Any]
    builds: NotRequired[dict[str, list[str]]]
    reproduced_cubins: dict[str, int] | None
    published: "_Environment | None"


def read_as(kind: TypeAdapter[Any], path: Path) -> TableRow | None:
    """A JSON object of a kind, or None where the file is missing. Raises LadderError where it is something else."""
    document = read_json(path)
    if document is not None:
        with reading(path):
            kind.validate_python(document)
    return document


def read_environment(folder: RunFolder) -> TableRow:
    """What environment.json of a folder says. Raises LadderError where it or one of its fields is missing or wrong."""
    document = read_as(TypeAdapter(_Environment), folder.environment)
    if document is None:
        raise LadderError(f"{folder.environment}: the file is missing")
    return document


def boost_clock_mhz(gpu: Fields) -> float | None:
    """The SM clock that CUDA gives for a GPU, at which its peaks are taken; None where no record has it.

    Earlier records have NVML's highest in its place. On an H200, which all of these are of, both are 1980 MHz.
    """
    return gpu.get("boost_clock_mhz") or gpu.get("sm_clock_max_mhz")


def measured_on(records: Records, table: DataFrame) -> TableRow:
    """What the sessions in a table say together: GPUs, the first of them as `gpu`, software, trees, start and end.

    Empty where no session of the table has records. Columns: session.
    """
    names = table["session"].dropna().unique()
    sessions = [records.sessions[name] for name in names if name in records.sessions]
    if not sessions:
        return {}
    sessions.sort(key=lambda session: session.started)
    by_gpu = grouped(sessions, lambda session: session.gpu.get("uuid") or session.id)
    gpus = [_gpu(records, of_gpu) for of_gpu in by_gpu.values()]
    trees = {session.tree.get("digest"): session.tree for session in sessions}
    last = sessions[-1]
    versions = {
        name: version
        for name, version in last.versions.items()
        if name in Versions.__annotations__
    }
    return {
        "gpu": gpus[0],
        "gpus": gpus,
        **versions,
        "host": last.host,
        "builds": _builds(records, sessions),
        "tree": last.tree,
        "trees": list(trees.values()),
        "started": sessions[0].started,
        "finished": max(gpu["finished"] for gpu in gpus),
    }


def _gpu(records: Records, sessions: Sequence[Session]) -> TableRow:
    """What the sessions on one GPU say of it, in the order of their start; the last one describes GPU and host."""
    last = sessions[-1]
    names = {session.id for session in sessions}
    times = [record.time for record in records if record.session in names]
    return {
        **last.gpu,
        "host": last.host,
        "clock_floor_us": last.clock_floor_us,
        "driver": last.versions.get("driver"),
        "cublas": last.versions.get("cublas"),
        "sessions": len(sessions),
        "cells": len(times),
        "started": sessions[0].started,
        "finished": max([*times, last.started]),
    }


def _builds(records: Records, sessions: Sequence[Session]) -> dict[str, list[str]]:
    """By sweep the packages that its references of one's own may go by, as far as sessions tell: torch 2.11.0."""
    told = {session.id: session.versions.get("packages", {}) for session in sessions}
    builds = defaultdict[str, set[str]](set)
    for record in records:
        if "external" in record.conditions.tree:
            packages = builds[record.sweep]  # also where its session does not tell
            for name, version in told.get(record.session, {}).items():
                if version and name in BUILDS.split():
                    packages.add(f"{name} {version}")
    return {sweep: sorted(names) for sweep, names in builds.items() if names}


def analysed_here(root: Path, device: str, arch: str) -> TableRow:
    """The analysis that made the tables: its host, software and checkout."""
    from ladder.build.nvrtc import nvrtc_version  # CUDA, which tables are read without

    return {
        "device": device,
        "arch": arch,
        "gpu": None,
        "gpus": [],
        "started": now(),
        "finished": now(),
        **host.versions(),
        "nvrtc": nvrtc_version(),
        "ncu": host.ncu_version(),
        "host": host.host(),
        "tree": host.tree(root),
        "reproduced_cubins": None,
    }


def reproduced(published: RunFolder, folder: RunFolder) -> dict[str, int]:
    """How many published variants compile here to the very same cubin, `same`, `of` those that compile in both places.

    Variants for another architecture are left out, and those whose compiler is missing here.
    """
    there = tables.read("resources", published.tables, required=False)
    here = tables.read("resources", folder.tables)
    both = there.merge(here, on=["sweep", "variant", "arch"], suffixes=("", "_here"))
    both = both.dropna(subset=["cubin_sha256", "cubin_sha256_here"])
    both = both.drop_duplicates(["variant", "cubin_sha256"])
    same = both["cubin_sha256"] == both["cubin_sha256_here"]
    return {"same": int(same.sum()), "of": len(both)}
