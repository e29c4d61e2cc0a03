"""Which GPUs this host has, from the driver's management library: no CUDA context is made."""

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.model.errors import LadderError, refuse

_LIBRARY = "libnvidia-ml.so.1"
_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_CHOSEN = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_LEAST_CUDA = 13000
"""What a driver must say of the CUDA that it is for: 1000 times its major version, and 10 times its minor."""


def slug_of(name: str) -> str:
    """Folder name of a model: lower case, dashes, the vendor always in front: nvidia-h200, also for "H200"."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return words if words.startswith("nvidia") else f"nvidia-{words}"


@dataclass(frozen=True)
class FoundGpu:
    """A GPU as the driver describes it; its `index` is NVML's, in the order of the PCI bus."""

    index: int
    name: str
    uuid: str
    capability: tuple[int, int]
    mig: bool = False

    @property
    def slug(self) -> str:
        return slug_of(self.name)

    @property
    def arch(self) -> str:
        """Architecture to compile for. From 9.0 up the `a` unlocks what only that one has (wgmma, setmaxnreg)."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def visible(gpus: Sequence[FoundGpu], environment: Mapping[str, str]) -> list[FoundGpu]:
    """Those `gpus` that CUDA_VISIBLE_DEVICES leaves, in its order; as in CUDA, up to the first negative number.

    Raises LadderError for a name of none of them, for a number that may mean another one in CUDA, and for a GPU in MIG
    mode: a slice would be published as if it were the whole model.
    """
    chosen = environment.get(_CHOSEN)
    if chosen is None:
        whole = [gpu for gpu in gpus if not gpu.mig]
        if whole or not gpus:
            return whole
        what = "turn it off (nvidia-smi -mig 0), or run without a GPU: `--config device=none`"
        raise LadderError(f"{gpus[0].name}: {_MIG}; {what}")
    selected = list[FoundGpu]()
    for name in map(str.strip, chosen.split(",")):
        if not gpus or name in _NO_DEVICE or name.startswith("-"):
            break
        selected.append(_named(name, gpus, environment.get(_ORDER)))
    return selected


_MIG = "it is in MIG mode, and slices are not measured"
_NO_DEVICE = ("", "NoDevFiles")  # the second is what Slurm says to a job without a GPU


def _named(name: str, gpus: Sequence[FoundGpu], order: str | None) -> FoundGpu:
    """The GPU that a word of CUDA_VISIBLE_DEVICES names. Raises LadderError for none."""
    uuids = ", ".join(f"{gpu.uuid} ({gpu.name})" for gpu in gpus)
    accepted = (
        f"a number from 0 to {len(gpus) - 1}, or a UUID or its beginning: {uuids}"
    )
    why = ""
    models = {gpu.name for gpu in gpus}
    match = [
        gpu
        for gpu in gpus
        if name == str(gpu.index) or (len(name) > 4 and gpu.uuid.startswith(name))
    ]
    if name.startswith("MIG-"):
        why = "slices of a GPU in MIG mode are not measured"
    elif name.isdigit() and order != "PCI_BUS_ID" and len(models) > 1:
        accepted = f"a UUID, or {_ORDER}=PCI_BUS_ID with it: {uuids}"
        why = f"this host's GPUs differ, and CUDA numbers them by speed unless {_ORDER} is PCI_BUS_ID"
    elif len(match) == 1 and match[0].mig:
        accepted = f"another GPU of {uuids}"
        why = _MIG
    elif len(match) == 1:
        return match[0]
    raise refuse("environment", _CHOSEN, name, accepted, why)


def driver_version() -> str | None:
    """Version of the kernel-mode driver, or None without one."""
    try:
        # Saves importing the bindings (0.1 s) on a host without a driver.
        ctypes.CDLL(_LIBRARY)
        from cuda.bindings import nvml

        nvml.init_v2()
        return str(nvml.system_get_driver_version())
    except Exception:
        return None


def _refuse_old_driver() -> None:
    """Raises LadderError for a driver of a CUDA before 13: cubins of this compiler do not load there."""
    from cuda.bindings import nvml

    try:
        nvml.init_v2()
        version = int(nvml.system_get_cuda_driver_version())
    except Exception:
        return  # Of a driver that does not answer more is said elsewhere.
    if version < _LEAST_CUDA:
        cuda = f"CUDA {version // 1000}.{version % 1000 // 10}"
        raise LadderError(
            f"the NVIDIA driver {driver_version()} is for {cuda}; needed is CUDA 13, driver 580 or later "
            "(`--config device=none` shows the published numbers without a GPU)"
        )


def _is_mig(gpu: Any) -> bool:
    """Whether a GPU is cut into slices; False of GPUs that cannot be."""
    try:
        return bool(gpu.mig.mode)
    except Exception:
        return False


def find_gpus() -> list[FoundGpu]:
    """The GPUs this process may use; none without a driver.

    Raises LadderError for a GPU whose driver is silent or too old, and as `visible`.
    """
    try:
        # Saves importing cuda.core (0.3 s) on a host without a driver.
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return []
    from cuda.core import system

    _refuse_old_driver()
    gpus = []
    try:
        for index, device in enumerate(system.Device.get_all_devices()):
            capability = device.cuda_compute_capability
            mig = _is_mig(device)
            gpus.append(FoundGpu(index, device.name, device.uuid, capability, mig))
    except Exception as error:
        vendors = [path.read_text().strip() for path in _PCI.glob("*/vendor")]
        if _NVIDIA not in vendors:
            return []
        why = "nvidia-smi should work first; `--config device=none` runs without a GPU"
        raise LadderError(
            f"the NVIDIA driver does not answer: {error} ({why})"
        ) from error
    return visible(gpus, os.environ)


def of_one_model(gpus: Sequence[FoundGpu], slug: str) -> list[FoundGpu]:
    """Those of the model that a run's folder is named by; where none is, those like the first."""
    named = [gpu for gpu in gpus if gpu.slug == slug]
    return named or [gpu for gpu in gpus if gpu.name == gpus[0].name]
