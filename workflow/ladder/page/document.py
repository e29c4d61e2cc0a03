"""index.html: the template, styles and scripts of workflow/page with the data in them, in one file."""

import json
from collections.abc import Sequence
from pathlib import Path

import jinja2

from ladder import __version__
from ladder.model.files import read_text
from ladder.model.folders import RunFolder
from ladder.model.schemas import SIZE_COLUMNS, Fields
from ladder.page.data import kernels, run
from ladder.report.devices import label_of
from ladder.report.links import Links
from ladder.report.markdown import number
from ladder.report.statements import NOT_HERE
from ladder.results.run_data import RunData

_ROOM = Path(__file__).resolve().parents[2] / "page"
# In the order that they run.
_SCRIPTS = (
    "data",
    "table",
    "charts",
    "ladder",
    "use",
    "detail",
    "explorer",
)
_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_ROOM),
    undefined=jinja2.StrictUndefined,
    autoescape=True,
    trim_blocks=True,
)
_PAGES.filters["number"] = number


def page(document: Fields) -> str:
    """The file that shows a document: `runs`, the first the page's own, `kernels`, and the way to the `docs`."""
    text = json.dumps(
        {**document, "extents": SIZE_COLUMNS},
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    return _PAGES.get_template("index.html").render(
        own=document["runs"][0],
        others=document["runs"][1:],
        docs=document["docs"],
        style=read_text(_ROOM / "page.css"),
        scripts=[read_text(_ROOM / f"{name}.js") for name in _SCRIPTS],
        data=text.replace(
            "<", "\\u003c"
        ),  # nothing in it ends the script that holds it
        not_here=NOT_HERE,
        version=__version__,
    )


def render(
    folder: RunFolder,
    data: RunData,
    root: Path,
    beside: Sequence[tuple[RunFolder, RunData]] = (),
    name: str = "",
) -> str:
    """The page of a run, with other runs `beside` it to compare; `name` is the run's if the folder's own is another."""
    runs = [run(folder, data, name or label_of(folder))]
    for other, there in beside:
        runs.append(run(other, there, label_of(other), folder))
    docs = Links(folder, folder.root, data).doc("")
    return page({"runs": runs, "kernels": kernels(root, data.sweeps), "docs": docs})
