"""A run, loaded and checked as a whole: configuration, catalogue, sweeps and the device it is for."""

import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import pydantic

from ladder.build.nvrtc import nvrtc_version, refuse_options
from ladder.build.sources import include_closure
from ladder.catalogue.config import Config
from ladder.catalogue.documents import parse, parse_yaml, read_yaml
from ladder.catalogue.kernels import load_catalog
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.sweeps import load_sweeps, named
from ladder.gpu.discovery import find_gpus
from ladder.model.code import PACKAGE
from ladder.model.errors import refuse, refuse_unknown
from ladder.model.files import digest_files, digest_json, replace_file
from ladder.model.folders import NO_GPU, Project, PublishedFolder, RunFolder
from ladder.model.kernel import DEFAULT_ARCH, Kernel
from ladder.model.plan import Plan
from ladder.model.sweep import Sweep

Made = TypeVar("Made")


@dataclass(frozen=True)
class Run:
    """Everything the workflow needs to know before its first job.

    `sweeps` are the chosen ones. Every sweep is checked and planned, because claims and targets may name any.
    """

    project: Project
    config: Config
    catalog: Mapping[str, Kernel]
    sweeps: Mapping[str, Sweep]
    every_sweep: Mapping[str, Sweep]
    plans: Mapping[str, Plan]
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
        """Published measurements that stand in where nothing is measured, if there are any."""
        folder = self.project.published(self.config.published)
        return folder if not self.measures and folder.records.is_dir() else None


def merged(base: Mapping[str, Any], over: Mapping[str, Any], typed: bool = False) -> dict[str, Any]:
    """`base` with the fields of `over`; mappings are merged field by field, everything else is replaced.

    If `typed`, words are read as YAML where `base` has no word: nested values of `--config` arrive as text.
    """
    result = dict(base)
    for key, value in over.items():
        old = base.get(key, "")
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = merged(old, value, typed)
        elif typed and isinstance(value, str) and not isinstance(old, str):
            value = parse_yaml(value, f"command line: --config: {key}")
        result[key] = value
    return result


def read_settings(project: Project, files: Iterable[Path], over: Mapping[str, Any]) -> Config:
    """config/config.yaml, then `files`, then `over`, merged and checked. Raises LadderError for the first mistake."""
    paths, settings = [project.config / "config.yaml", *files], dict[str, Any]()
    for path in paths:
        settings = merged(settings, read_yaml(path))
    config = parse(Config, settings, " + ".join(map(str, paths)))
    return parse(Config, merged(settings, over, typed=True), "command line: --config") if over else config


def choose_device(config: Config) -> tuple[str, str]:
    """Device slug and architecture of the run. Raises LadderError for another host's device without architecture."""
    named, arch = config.device not in ("auto", "none"), config.arch
    # A cluster's login node needs no driver that answers.
    gpus = [] if config.device == "none" or (named and arch != "auto") else find_gpus()
    gpus = [gpu for gpu in gpus if not named or gpu.slug == config.device]
    if named and not gpus and arch == "auto":
        why = f"this host has no {config.device}, whose architecture is needed"
        raise refuse("configuration", "arch", "auto", "an architecture such as sm_90a", why=why)
    found = (gpus[0].slug, gpus[0].arch) if gpus else (NO_GPU, DEFAULT_ARCH)
    return config.device if named else found[0], found[1] if arch == "auto" else arch


def _loaded(project: Project, config: Config, arch: str) -> tuple[Any, Any, Any]:
    """Catalogue, sweeps and plans. Raises LadderError for the first mistake found."""
    refuse_options(arch, config.compile.options)
    catalog = load_catalog(project.kernels)
    for kernel in catalog.values():
        include_closure(kernel.source, project.include)
    every = load_sweeps(project.sweeps, catalog, None)
    return catalog, every, {name: plan_sweep(sweep, config, arch) for name, sweep in every.items()}


def _kept(path: Path, key: str, make: Callable[[], Made]) -> Made:
    """What `make` made for `key`, from a file if it is there: a second is saved at each start of snakemake."""
    with suppress(Exception):  # no file, one of another version, or one cut short
        known, made = pickle.loads(path.read_bytes())
        if known == key:
            return cast(Made, made)
    made = make()
    with suppress(OSError):
        replace_file(path, pickle.dumps((key, made)))
    return made


def load_run(root: Path, files: Iterable[Path] = (), over: Mapping[str, Any] | None = None) -> Run:
    """Load and check everything a run reads. Raises LadderError for the first mistake found."""
    project = Project(root)
    config = read_settings(project, files, over or {})
    device, arch = choose_device(config)
    documents = (
        path for room in (project.kernels, project.sweeps) for path in room.rglob("*") if path.is_file()
    )
    read = [digest_files(documents, root), digest_files(PACKAGE.rglob("*.py"), PACKAGE), sys.version]
    read += [pydantic.VERSION, nvrtc_version()]  # of the models kept, and of the options tried
    key = digest_json([*read, config.model_dump(mode="json"), arch])
    kept = root / config.compile.cache / "run.pickle"
    catalog, every, plans = _kept(kept, key, lambda: _loaded(project, config, arch))
    chosen = every if config.sweeps == "all" else named(config.sweeps, every)
    if config.clock.enabled:
        refuse_unknown("configuration", "clock.sweep", config.clock.sweep, every)
    if (least := config.measure.min_pairs) > (most := config.measure.max_pairs):
        raise refuse("configuration", "measure.min_pairs", least, f"at most max_pairs, which is {most}")
    return Run(project, config, catalog, chosen, every, plans, device, arch)


def parse_over(given: Iterable[str]) -> dict[str, Any]:
    """Settings given as KEY=VALUE, the value in YAML. Raises LadderError without a key, or for what is no YAML."""
    over: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise refuse("command line", "--config", text, "KEY=VALUE, such as run=quick")
        over = merged(over, {key: parse_yaml(value, f"command line: --config: {text!r}")})
    return over
