"""environment.json: on which GPUs, when, with what and from which checkout the numbers were measured, from the
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ladder.measure.store import Records
from ladder.model.record import Session


def _gpu(sessions: list[Session], finished: Mapping[str, str], cells: Mapping[str, int]) -> dict[str, Any]:
    """One physical GPU: what is known of the card, and of its sessions together."""
    last = sessions[-1]
    return {
        **last.gpu,
        "host": dict(last.host),
        "driver": last.versions.get("driver"),
        "cublas": last.versions.get("cublas"),
        "clock_floor_us": last.clock_floor_us,
        "sessions": len(sessions),
        "cells": sum(cells.get(session.id, 0) for session in sessions),
        "started": min(session.started for session in sessions),
        "finished": max(finished.get(session.id, session.started) for session in sessions),
    }


def measured_on(records: Records, used: Iterable[str]) -> dict[str, Any]:
    """What the sessions in `used` say together: `gpus`, the first of them as `gpu`, software, trees, start and end.

    Empty where none of them is known.
    """
    sessions = [records.sessions[name] for name in dict.fromkeys(used) if name in records.sessions]
    if not sessions:
        return {}
    sessions.sort(key=lambda session: session.started)
    finished: dict[str, str] = {}
    cells: dict[str, int] = {}
    for record in records:
        finished[record.session] = max(finished.get(record.session, ""), record.time)
        cells[record.session] = cells.get(record.session, 0) + 1
    by_card: dict[str, list[Session]] = {}
    for session in sessions:
        by_card.setdefault(str(session.gpu.get("uuid") or session.id), []).append(session)
    gpus = [_gpu(own, finished, cells) for own in by_card.values()]
    last = sessions[-1]
    trees = {str(session.tree.get("digest")): dict(session.tree) for session in sessions}
    return {
        "gpu": gpus[0],
        "gpus": gpus,
        **last.versions,
        "host": dict(last.host),
        "tree": dict(last.tree),
        "trees": list(trees.values()),
        "started": min(gpu["started"] for gpu in gpus),
        "finished": max(gpu["finished"] for gpu in gpus),
        "notes": sorted({session.note for session in sessions if session.note}),
    }
