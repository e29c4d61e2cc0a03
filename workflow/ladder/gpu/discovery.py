"""Which GPUs this host has, from the driver's management library: no CUDA context is made."""

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.model.errors import LadderError

_LIBRARY, _PCI, _NVIDIA = "libnvidia-ml.so.1", Path("/sys/bus/pci/devices"), "0x10de"


def slug_of(name: str) -> str:
    """Folder name of a model: lower case, dashes, the vendor always in front: nvidia-h200, also for "H200"."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return words if words.startswith("nvidia") else f"nvidia-{words}"


@dataclass(frozen=True)
class FoundGpu:
    """A GPU as the driver describes it."""

    index: int
    name: str
    uuid: str
    capability: tuple[int, int]

    @property
    def slug(self) -> str:
        return slug_of(self.name)

    @property
    def arch(self) -> str:
        """Architecture to compile for. From 9.0 up the `a` unlocks what only that one has (wgmma, setmaxnreg)."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def visible(gpus: Sequence[FoundGpu], environment: Mapping[str, str]) -> list[FoundGpu]:
    """Those `gpus` that CUDA_VISIBLE_DEVICES leaves, in its order; as in CUDA, up to the first unknown name."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(gpus)
    found = []
    for name in map(str.strip, chosen.split(",")):
        match = [
            one for one in gpus if name == str(one.index) or (len(name) > 4 and one.uuid.startswith(name))
        ]
        if len(match) != 1:
            break
        found += match
    return found


def driver_version() -> str | None:
    """Version of the kernel-mode driver, or None without one."""
    try:
        ctypes.CDLL(_LIBRARY)  # saves importing the bindings (0.1 s) on a host without a driver
        from cuda.bindings import nvml

        nvml.init_v2()
        return str(nvml.system_get_driver_version())
    except Exception:
        return None


def find_gpus() -> list[FoundGpu]:
    """The GPUs this process may use; none without a driver. Raises LadderError for a GPU whose driver is silent."""
    try:
        # Saves importing cuda.core (0.3 s) on a host without a driver.
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return []
    from cuda.core import system

    try:
        found = enumerate(system.Device.get_all_devices())
        gpus = [FoundGpu(index, one.name, one.uuid, one.cuda_compute_capability) for index, one in found]
    except Exception as error:
        if not any(path.read_text().strip() == _NVIDIA for path in _PCI.glob("*/vendor")):
            return []
        why = "nvidia-smi should work first; `--config device=none` runs without a GPU"
        raise LadderError(f"the NVIDIA driver does not answer: {error} ({why})") from error
    return visible(gpus, os.environ)


def of_one_model(gpus: Sequence[FoundGpu], slug: str) -> list[FoundGpu]:
    """Those of the model that a run's folder is named by; where none is, those like the first."""
    return [one for one in gpus if one.slug == slug] or [one for one in gpus if one.name == gpus[0].name]
