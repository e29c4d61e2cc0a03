"""environment.json: on which GPUs, when, with what and from which checkout the numbers are, as records say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired

import pandas as pd
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from ladder.measure import host
from ladder.measure.store import Records, now
from ladder.model.document import reading
from ladder.model.errors import LadderError
from ladder.model.files import read_json
from ladder.model.folders import RunFolder
from ladder.model.record import Card, Session, Tree, Versions
from ladder.results import tables


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
    notes: NotRequired[list[str]]
    reproduced_cubins: dict[str, int] | None
    published: "_Environment | None"


def read_as(kind: TypeAdapter[Any], path: Path) -> dict[str, Any] | None:
    """A JSON object of a kind, or None where the file is missing. Raises LadderError where it is something else."""
    if (found := read_json(path)) is not None:
        with reading(path):
            kind.validate_python(found)
    return found


def read_environment(folder: RunFolder) -> dict[str, Any]:
    """What environment.json of a folder says. Raises LadderError where it or one of its fields is missing or wrong."""
    found = read_as(TypeAdapter(_Environment), folder.environment)
    if found is None:
        raise LadderError(f"{folder.environment}: the file is missing")
    return found


def boost_clock_mhz(gpu: Mapping[str, Any]) -> float | None:
    """The SM clock that CUDA gives for a GPU, of which its peaks are; None where it is not known.

    Earlier records have NVML's highest in its place. On an H200, which all of these are of, both are 1980 MHz.
    """
    return gpu.get("boost_clock_mhz") or gpu.get("sm_clock_max_mhz")


def measured_on(records: Records, table: pd.DataFrame) -> dict[str, Any]:
    """What the sessions in a table say together: GPUs, the first of them as `gpu`, software, trees, start and end.

    Empty where none of them is known.
    """
    sessions = [
        records.sessions[name] for name in table["session"].dropna().unique() if name in records.sessions
    ]
    if not sessions:
        return {}
    sessions.sort(key=lambda session: session.started)
    by_card: dict[str, list[Session]] = {}
    for session in sessions:
        by_card.setdefault(str(session.gpu.get("uuid") or session.id), []).append(session)
    gpus = []
    for own in by_card.values():
        last, names = own[-1], {session.id for session in own}
        times = [record.time for record in records if record.session in names]
        about = {**last.gpu, "host": dict(last.host), "clock_floor_us": last.clock_floor_us}
        about |= {name: last.versions.get(name) for name in ("driver", "cublas")}
        about |= {"sessions": len(own), "cells": len(times), "started": own[0].started}
        gpus.append({**about, "finished": max([*times, last.started])})
    last = sessions[-1]
    return {
        "gpu": gpus[0],
        "gpus": gpus,
        **{name: of for name, of in last.versions.items() if name in Versions.__annotations__},
        "host": dict(last.host),
        "tree": dict(last.tree),
        "trees": list({str(one.tree.get("digest")): dict(one.tree) for one in sessions}.values()),
        "started": sessions[0].started,
        "finished": max(gpu["finished"] for gpu in gpus),
        "notes": sorted({session.note for session in sessions if session.note}),
    }


def analysed_here(root: Path, device: str, arch: str) -> dict[str, Any]:
    """The analysis that made the tables: its host, software and checkout."""
    from ladder.build.nvrtc import nvrtc_version  # CUDA, which tables are read without

    about: dict[str, Any] = {"device": device, "arch": arch, "gpu": None, "gpus": []}
    about |= {"started": now(), "finished": now(), **host.versions()}
    about |= {"nvrtc": nvrtc_version(), "ncu": host.ncu_version()}
    return about | {"host": host.host(), "tree": host.tree(root), "reproduced_cubins": None}


def reproduced(published: RunFolder, folder: RunFolder) -> dict[str, int]:
    """How many of the variants that were published and have a cubin here have the very same one.

    A variant whose compiler is missing here says nothing, nor does one for another architecture.
    """
    theirs = tables.read("resources", published.tables, required=False)
    ours = tables.read("resources", folder.tables)
    both = theirs.merge(ours, on=["sweep", "variant", "arch"], suffixes=("", "_here"))
    both = both.dropna(subset=["cubin_sha256", "cubin_sha256_here"])
    both = both.drop_duplicates(["variant", "cubin_sha256"])
    return {"same": int((both["cubin_sha256"] == both["cubin_sha256_here"]).sum()), "of": len(both)}
