"""Which GPUs this host has, asked of the driver's management library: no CUDA context is made."""

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.model.errors import LadderError

_LIBRARY, _PCI, _NVIDIA = "libnvidia-ml.so.1", Path("/sys/bus/pci/devices"), "0x10de"


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


def _on_the_bus() -> bool:
    """Whether a PCI device of NVIDIA's is in this host."""
    return any(path.read_text().strip() == _NVIDIA for path in _PCI.glob("*/vendor"))


def find_gpus(environment: Mapping[str, str] | None = None) -> list[FoundGpu]:
    """The GPUs this process may use; an empty list on a host without a driver or a GPU.

    Raises LadderError with the driver's words where there is a GPU and the driver does not answer.
    """
    try:
        # Saves importing cuda.core (0.3 s) on a host without a driver.
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return []
    from cuda.core import system

    try:
        gpus = [
            FoundGpu(index, device.name, device.uuid, device.cuda_compute_capability)
            for index, device in enumerate(system.Device.get_all_devices())
        ]
    except Exception as error:
        if not _on_the_bus():
            return []
        why = "nvidia-smi should work first; `--config device=none` runs without a GPU"
        raise LadderError(f"the NVIDIA driver does not answer: {error} ({why})") from error
    return visible(gpus, os.environ if environment is None else environment)
