"""The templates of workflow/report, where words and sentences stand."""

import jinja2

from ladder.model.cell import size_label
from ladder.model.folders import INSTALLED, PACKAGE
from ladder.results import statistics as stats
from ladder.results.environment import boost_clock_mhz
from ladder.results.verdicts import gain

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(
        [INSTALLED / "workflow" / "report", PACKAGE.parent / "report"]
    ),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters["gain"] = gain
TEMPLATES.globals |= {
    "stats": stats,
    "size_label": size_label,
    "boost_clock_mhz": boost_clock_mhz,
}
