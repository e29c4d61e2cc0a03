"""Record GPU, driver, packages and the digest of the tree."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--device", required=True, help="device folder of the run")
    parser.add_argument("--arch", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--harness", type=Path, help="compiled harness; given where there is a GPU")
    parser.add_argument("--job", type=Path, action="append", default=[], help="job.json; may be repeated")
    parser.add_argument("--published", type=Path, help="published run whose timings this run reports")
    parser.add_argument(
        "--cubins", type=Path, help="folder of compiled variants, to compare with the published"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write environment.json."""
    import json
    import os
    from typing import Any

    from ladder import environment as env
    from ladder.gpu_lock import one_gpu
    from ladder.supervisor import now
    from ladder.tables import replace_file

    found: dict[str, Any] = {
        "device": arguments.device,
        "arch": arguments.arch,
        "gpu": None,
        "driver": env.driver_version(),
        **env.software(),
        "host": env.host(),
        "tree": env.tree(arguments.root),
        "timings_from": "none",
        "published": None,
        "reproduced_cubins": None,
    }
    jobs = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.job]
    found["started"] = min((job["started"] for job in jobs if job["started"]), default=now())
    found["finished"] = max((job["finished"] for job in jobs if job["finished"]), default=now())
    if arguments.harness is not None:
        from ladder.discovery import find_gpus

        with one_gpu(find_gpus()) as (gpu, _):
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
            found["gpu"] = env.gpu_facts(arguments.harness)
        found["timings_from"] = "measured"
    elif arguments.published is not None and (arguments.published / "environment.json").is_file():
        text = (arguments.published / "environment.json").read_text(encoding="utf-8")
        found["published"] = json.loads(text)
        found["timings_from"] = "published"
        if arguments.cubins is not None:
            found["reproduced_cubins"] = _reproduced(arguments.published, arguments.cubins)
    replace_file(arguments.out, (json.dumps(found, indent=1) + "\n").encode())
    return 0


def _reproduced(published: Path, cubins: Path) -> dict[str, int]:
    """How many of the published variants compile here to the very same cubin."""
    from ladder import tables
    from ladder.digest import sha256

    resources = tables.read("resources", published)
    same = of = 0
    for variant, digest in zip(resources["variant"], resources["cubin_sha256"], strict=True):
        path = cubins / f"{variant}.cubin"
        if path.is_file() and isinstance(digest, str):
            of += 1
            same += sha256(path.read_bytes()) == digest
    return {"same": same, "of": of}
