"""The settings of a run and the device it is for: all that is known before kernels and sweeps are read."""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.catalogue.config import Config
from ladder.catalogue.documents import parse, parse_yaml, read_yaml
from ladder.gpu.discovery import find_gpus
from ladder.model.architecture import TUNED_FOR
from ladder.model.errors import LadderError, refuse
from ladder.model.files import (
    digest_json,
    file_sha256,
    read_json,
    read_text,
    tree_digest,
    write_json,
)
from ladder.model.folders import NO_GPU, PACKAGE, Project, PublishedFolder, RunFolder
from ladder.model.sweep import Sweep

if TYPE_CHECKING:
    from ladder.build.variants import CompileRequests


@dataclass(frozen=True)
class Setup:
    """A checkout, the configuration of a run, and the device and architecture that it is for."""

    project: Project
    config: Config
    device: str
    arch: str

    @property
    def folder(self) -> RunFolder:
        return self.project.run(self.config.run, self.device)

    @property
    def measures(self) -> bool:
        """Whether kernels are launched; otherwise timings are the published ones."""
        return self.device != NO_GPU

    @property
    def published(self) -> PublishedFolder | None:
        """Published measurements that stand in where nothing is measured, if there are any.

        Raises LadderError where there is half a publication.
        """
        folder = self.project.published(self.config.published)
        if self.measures or folder.is_empty:
            return None
        folder.refuse_half()
        return folder

    def requests(self, sweep: Sweep) -> "CompileRequests":
        """What to compile for a sweep, which may be none of the project's."""
        # With the bindings of CUDA, which tables are made without.
        from ladder.build.variants import CompileRequests

        options = self.config.compile.options
        return CompileRequests(sweep, self.project.include, self.arch, options)

    @functools.cached_property
    def _read(self) -> str:
        """Digest of documents, kernels, settings and this code."""
        folders = (self.project.root, PACKAGE.parents[1])
        installed = {
            path.name for place in sys.path for path in Path(place).glob("*.dist-info")
        }
        code = [*map(tree_digest, folders), sys.version, sorted(installed)]
        config = self.config.model_dump(mode="json")
        return digest_json([str(self.project.root), code, config, self.arch])

    def cached_on_disk(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of `make`, as JSON: from a file of this checkout while nothing that was read has changed.

        Its field `external` has files of other folders that it depends on, with their digests.
        """
        path, key = self.project.root / ".snakemake" / "ladder.json", self._read
        with suppress(LadderError):  # of a file cut short, or one that is gone
            kept = read_json(path) or {}
            if kept.get("key") == key:
                external = kept["external"]
                if external == {file: file_sha256(Path(file)) for file in external}:
                    return kept
        made = {**make(), "key": key}
        with suppress(OSError):
            write_json(path, made)
        return made


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the fields of `over`; mappings are merged field by field, everything else is replaced."""
    result = {**base, **over}
    for key in base.keys() & over.keys():
        if isinstance(base[key], Mapping) and isinstance(over[key], Mapping):
            result[key] = merged(base[key], over[key])
    return result


def _read_settings(path: Path) -> dict[str, Any]:
    """The fields of a file. The name of a run is text as it is written: it may be a date or a number."""
    fields = read_yaml(path)
    if "run" in fields:
        fields["run"] = parse_yaml(read_text(path), path, as_written=True).get(
            "run", fields["run"]
        )
    return fields


def read_settings(
    project: Project, files: Iterable[Path], over: Mapping[str, Any]
) -> Config:
    """config/config.yaml, then `files`, then `over`, merged and checked. Raises LadderError for the first mistake."""
    paths, settings = [project.config / "config.yaml", *files], dict[str, Any]()
    if not paths[0].is_file():
        accepted = "a checkout: go there, or say `ladder --root CHECKOUT` and the rest"
        raise refuse("command line", "folder", str(project.root.resolve()), accepted)
    for path in paths:
        settings = merged(settings, _read_settings(path))
    config = parse(Config, settings, " + ".join(map(str, paths)))
    if over:
        return parse(Config, merged(settings, over), "command line")
    return config


def choose_device(config: Config) -> tuple[str, str]:
    """Device slug and architecture of the run. Raises LadderError for another host's device without architecture."""
    device, arch = config.device, config.arch
    is_named = device not in ("auto", "none")
    if is_named and arch != "auto":  # a login node of a cluster has no driver
        return device, arch
    for gpu in find_gpus() if device != "none" else ():
        if device in ("auto", gpu.slug):
            return gpu.slug, gpu.arch if arch == "auto" else arch
    if is_named:
        why = f"this host has no {device}, whose architecture is needed"
        accepted = "an architecture such as sm_90a"
        raise refuse("configuration", "arch", arch, accepted, why)
    return NO_GPU, TUNED_FOR if arch == "auto" else arch


def set_up(
    root: Path, files: Iterable[Path] = (), over: Mapping[str, Any] | None = None
) -> Setup:
    """The settings of a run, checked for themselves, and its device. Raises LadderError for the first mistake."""
    project = Project(root)
    config = read_settings(project, files, over or {})
    least, most = config.measure.min_pairs, config.measure.max_pairs
    if least > most:
        accepted = f"at most max_pairs, which is {most}"
        raise refuse("configuration", "measure.min_pairs", least, accepted)
    return Setup(project, config, *choose_device(config))


def parse_over(settings: Iterable[str]) -> dict[str, Any]:
    """Settings given as KEY=VALUE, the value in YAML, for snakemake and the steps alike.

    Raises LadderError without a key, or for what is no YAML.
    """
    over: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            accepted = "KEY=VALUE, such as run=quick"
            raise refuse("command line", "--config", text, accepted)
        where = f"command line: --config: {text!r}"
        over = merged(over, {key: parse_yaml(value, where, as_written=key == "run")})
    return over
