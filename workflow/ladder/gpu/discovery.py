"""Which GPUs this host has, asked of the driver's management library: no CUDA context is made."""

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FoundGpu:
    """A GPU as the driver describes it."""

    index: int
    name: str
    uuid: str
    capability: tuple[int, int]

    @property
    def slug(self) -> str:
        """Folder name of the model: nvidia-h200 for "NVIDIA H200"."""
        return slug(self.name)

    @property
    def arch(self) -> str:
        """Architecture to compile for."""
        return arch(self.capability)


def slug(name: str) -> str:
    """A GPU model's name in lower case with dashes, the vendor always in front: nvidia-h200, also for "H200"."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return words if words.startswith("nvidia") else f"nvidia-{words}"


def arch(capability: tuple[int, int]) -> str:
    """sm_90a for (9, 0). From 9.0 up the `a` unlocks what only that architecture has (wgmma, setmaxnreg)."""
    major, minor = capability
    return f"sm_{major}{minor}{'a' if capability >= (9, 0) else ''}"


def visible(gpus: Sequence[FoundGpu], environment: Mapping[str, str]) -> list[FoundGpu]:
    """Those `gpus` that CUDA_VISIBLE_DEVICES leaves, in its order; as in CUDA, up to the first unknown name."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(gpus)
    found = []
    for name in (word.strip() for word in chosen.split(",")):
        match = [
            one for one in gpus if name == str(one.index) or (len(name) > 4 and one.uuid.startswith(name))
        ]
        if len(match) != 1:
            break
        found += match
    return found


def find_gpus(environment: Mapping[str, str] | None = None) -> list[FoundGpu]:
    """The GPUs this process may use; an empty list where there is no GPU, driver or permission."""
    try:
        # Saves importing cuda.core (0.3 s) on a host without a driver.
        ctypes.CDLL("libnvidia-ml.so.1")
        from cuda.core import system

        gpus = [
            FoundGpu(index, device.name, device.uuid, device.cuda_compute_capability)
            for index, device in enumerate(system.Device.get_all_devices())
        ]
    except (OSError, ImportError, RuntimeError):
        return []
    return visible(gpus, os.environ if environment is None else environment)
