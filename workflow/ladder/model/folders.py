"""Where a run keeps its files."""

import re
from pathlib import Path

from ladder.model.errors import LadderError, refuse
from ladder.model.schemas import SWEEP_TABLES

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = PACKAGE / "checkout"
"""In a wheel: the rooms of the checkout that it was built from."""
NO_GPU = "no-gpu"  # device folder of a run on a host without a GPU: its timings are published ones


class RunFolder:
    """results/RUN/DEVICE. `records` is the store: a file a measuring job, appended to and never rewritten."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records = root / "records"
        self.tables = root / "tables"
        self.figures = root / "figures"
        self.environment = root / "environment.json"
        self.sanitizer = root / "sanitizer.json"
        self.report = root / "report.md"
        self.page = root / "index.html"
        self.methodology = root / "methodology.md"
        self.evidence = root / "evidence.md"

    def plan(self, sweep: str) -> Path:
        return self.root / "plans" / f"{sweep}.json"

    def sweep(self, sweep: str) -> Path:
        return self.root / "sweeps" / sweep

    def sweep_page(self, sweep: str) -> Path:
        """What the report says of one sweep."""
        return self.root / "sweeps" / f"{sweep}.md"

    def unseen(self, device: str) -> Path:
        """Folder of the table that holds readings on new GPUs against what was published of a device before them."""
        return self.root.resolve().parents[1] / "unseen" / device

    def account(self, job: str, sweep: str) -> Path:
        """What a job (`measured` or `profiled`) did for a sweep."""
        return self.sweep(sweep) / f"{job}.json"


class PublishedFolder(RunFolder):
    """results/published/DEVICE: its tables lie beside the report.

    `records` holds a parquet file a run that was added. `facts`: what the compiler said of each kernel, by the key of
    its request. `aside`: where the folder is while another one takes its place.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.tables = root
        self.facts = root / "facts.json"
        self.aside = root.parent / f".{root.name}.old"

    @property
    def is_empty(self) -> bool:
        return not self.aside.exists() and not (
            self.root.is_dir() and any(self.root.iterdir())
        )

    def refuse_half(self) -> None:
        """Raises LadderError for a folder that lacks records, tables or environment, or was left moved aside.

        Who publishes would lose them for good, and who reads would report that nothing was published.
        """
        if self.is_empty:
            return
        needed = (
            self.environment.name,
            *(f"{table}.csv" for table in SWEEP_TABLES),
            "records/*.parquet",
        )
        missing = [name for name in needed if not any(self.root.glob(name))]
        if missing:
            raise LadderError(
                f"{self.root}: half a publication: {', '.join(missing)} missing. Restore it, such as by `git restore`, "
                "or move the whole folder away to begin with none"
            )


class Project:
    """A checkout (or a user's copy of its rooms). A folder without settings has the rooms of the package."""

    def __init__(self, root: Path) -> None:
        rooms = root
        if INSTALLED.is_dir() and not (root / "config/config.yaml").is_file():
            rooms = INSTALLED
        self.root = root
        self.results = root / "results"
        self.config = rooms / "config"
        self.sweeps = self.config / "sweeps"
        self.kernels = rooms / "kernels"
        self.include = self.kernels / "include"
        self._published = rooms / "results" / "published"

    def published(self, device: str) -> PublishedFolder:
        """Raises LadderError for a device that is no plain name: nothing beside its folder may be replaced."""
        return PublishedFolder(self._published / _plain("device", device))

    def publications(self) -> list[PublishedFolder]:
        """Every device's, as far as they have tables."""
        return [
            PublishedFolder(path.parent)
            for path in sorted(self.results.glob("published/[!.]*/timings.csv"))
        ]

    def run(self, run: str, device: str) -> RunFolder:
        """Raises LadderError where run or device is no plain name, and where results/ is no folder."""
        if self.results.exists() and not self.results.is_dir():
            accepted = "a folder is expected, for runs and publications"
            raise LadderError(f"{self.results}: {accepted}")
        return RunFolder(self.results / _plain("run", run) / _plain("device", device))


def _plain(field: str, name: str) -> str:
    """A name that is one folder's and no other's."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise refuse(
            "configuration", field, name, "a name of letters, digits, '.', '_' and '-'"
        )
    return name
