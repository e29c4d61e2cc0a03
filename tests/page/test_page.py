"""The page holds every number of the tables in a file, and lets people find them; tried in Chromium if there is one."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pytest
from factory import Lab, failed
from ladder.catalogue.kernels import load_catalog
from ladder.catalogue.sweeps import load_sweeps
from ladder.cli.app import UNJUDGED, main
from ladder.model.folders import Project, PublishedFolder
from ladder.page.document import page, render
from ladder.report.evidence import Evidence
from ladder.results import tables

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = PublishedFolder(ROOT / "results" / "published" / "nvidia-h200")
SWEEPS = ["fp32_ladder", "bank_stride"]

pytestmark = pytest.mark.skipif(not PUBLISHED.root.is_dir(), reason="nothing is published")


def embedded(text: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    document: dict[str, Any] = json.loads(found[1])
    return document


def decoded(columns: dict[str, Any]) -> pd.DataFrame:
    """A table as the page's scripts read it."""
    return pd.DataFrame(
        {
            name: column
            if isinstance(column, list)
            else [None if code < 0 else column["words"][code] for code in column["codes"]]
            for name, column in columns.items()
        }
    )


@pytest.fixture(scope="module")
def text() -> str:
    own = Project(ROOT)
    sweeps = load_sweeps(own.sweeps, load_catalog(own.kernels), None)
    return render(PUBLISHED, Evidence.read(PUBLISHED, sweeps), ROOT)


@pytest.fixture(scope="module")
def timings() -> pd.DataFrame:
    own = Project(ROOT)
    sweeps = load_sweeps(own.sweeps, load_catalog(own.kernels), None)
    return tables.with_rungs(tables.read("timings", PUBLISHED.tables), sweeps.values())


@pytest.mark.parametrize("table", ["timings", "resources", "sessions", "metrics"])
def test_every_number_is_the_tables(text: str, table: str) -> None:
    ours, theirs = decoded(embedded(text)["runs"][0][table]), tables.read(table, PUBLISHED.tables)
    assert len(ours) == len(theirs)
    left_out = {"source_sha256", "cubin_sha256"} | ({"params"} if table == "resources" else set())
    known = [name for name in theirs if theirs[name].notna().any() and name not in left_out]
    assert {*known} == {*ours} - {"label", "size"}
    for name in known:
        pd.testing.assert_series_equal(ours[name].astype(theirs[name].dtype), theirs[name])


def test_the_page_is_one_file_of_a_bearable_size_that_names_nothing_elsewhere(text: str) -> None:
    assert len(text.encode()) < 5e6
    assert "://" not in re.sub(r'"text":"(?:[^"\\]|\\.)*"', "", text), "but for what kernels' sources cite"
    assert re.findall(r"\b(?:src|href)=[\"'](?!#|data:)[^\"']*", text) == []
    assert "default-src 'none'" in text, "the browser is to refuse the rest"


def test_the_head_has_readmes_lines_and_the_claims_their_verdicts(text: str) -> None:
    claims = tables.read("claims", PUBLISHED.tables)
    assert text.count('<details class="claim">') == claims["id"].nunique()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, question, answer, _ = next(line for line in readme.splitlines() if "steps matter most" in line).split(
        "|"
    )
    assert f"<td>{question.strip()}</td>" in text
    assert f"<td>{answer.strip()}</td>" in text


def test_a_run_of_some_sweeps_has_a_page_and_failures_their_reasons(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(SWEEPS[:1])
    lab.record(SWEEPS[1:], change=lambda _, record: failed("incorrect", "</script> is wrong")(record))
    lab.collect(SWEEPS)
    for step, *more in (["claims"], ["page", "--beside", str(PUBLISHED.root)]):
        assert main(["--root", str(lab.root), step, *lab.collected(), *more]) == 0
    made = lab.folder.page.read_text(encoding="utf-8")
    own, other = embedded(made)["runs"]
    rows = decoded(own["timings"])
    assert set(rows["sweep"]) == {*SWEEPS} == {*own["sweeps"]}
    assert set(rows[rows["sweep"] == SWEEPS[1]]["reason"]) == {"</script> is wrong"}
    assert other["name"] == "published/nvidia-h200"
    assert main(["--root", str(lab.root), "page", *lab.collected(), "--beside", str(lab.folder.root)]) == 0
    assert made.count("</script>") == made.count("<script"), "no reason ends the script that holds it"


def test_a_run_without_measurements_has_a_page(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(SWEEPS[:1], change=lambda *_: None)
    lab.collect(SWEEPS[:1])
    for step in ("claims", "page"):
        assert main(["--root", str(lab.root), step, *lab.collected()]) == 0
    own = embedded(lab.folder.page.read_text(encoding="utf-8"))["runs"][0]
    assert own["timings"] == {}
    assert own["lines"] == ""


class Browser:
    """Chromium with a page from a file: `open` waits until the page is ready."""

    def __init__(self, driver: Any) -> None:
        self.driver, self.script = driver, driver.execute_script

    def open(self, path: Path, fragment: str = "") -> None:
        self.driver.get("about:blank")  # else only the fragment changes
        self.driver.get(f"{path.as_uri()}#{fragment}")
        assert self.script("return document.documentElement.dataset.ready") == "yes"

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        found = self.script(
            f"return [...document.querySelectorAll({json.dumps(selector)})].map(one => one.textContent)"
        )
        return list(found)

    def choose(self, field: str, value: str) -> None:
        change = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change', {bubbles: true}))"
        self.script(change, self.find(f"#{field}"), value)

    def column(self, title: str) -> list[str]:
        """Texts of a column of the rows in view."""
        place = [head.strip(" ▼▲") for head in self.texts("#table thead th")].index(title)
        return self.texts(f"#table tbody tr[data-index] > :nth-child({place + 1})")

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith(("data:", "about:"))]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary, server = shutil.which("chromium"), shutil.which("chromedriver")
    if not (binary and server):
        pytest.skip("Debian's chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "window-size=1300,900",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(server))
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser, which must not have said anything on its console by the end, nor asked for anything but the page."""
    chromium.requests()
    yield chromium
    assert [entry["message"] for entry in chromium.driver.get_log("browser")] == []
    assert {Path(url.partition("#")[0]).suffix for url in chromium.requests()} <= {".html"}
    assert chromium.script("return performance.getEntriesByType('resource').length") == 0


@pytest.fixture(scope="module")
def file(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(text, encoding="utf-8")
    return path


def cell(row: pd.Series[Any]) -> str:
    return f"{row['sweep']}/{row['variant']}@{row['m']}:{row['regime']}"


@pytest.mark.slow
def test_filters_leave_the_rows_that_agree(browser: Browser, file: Path, timings: pd.DataFrame) -> None:
    browser.open(file)
    assert browser.find("#count").text == f"{len(timings)} of {len(timings)} cells"
    browser.choose("by-status", "unsupported")
    left = timings[timings["status"] == "unsupported"]
    assert browser.find("#count").text.startswith(f"{len(left)} of ")
    shown = browser.column("status, reason")
    assert shown
    assert {said.partition(": ")[2] for said in shown} <= {*left["reason"]}
    browser.find("#reset").click()
    browser.choose("by-problem", "gemm")
    browser.choose("by-param", "bk=8")
    browser.find("#words").send_keys("stages=3 4096")
    known = timings["params"].map(json.loads)
    agreeing = [one.get("bk") == 8 and one.get("stages") == 3 for one in known]
    agreeing = timings[pd.Series(agreeing) & (timings["problem"] == "gemm")]
    assert all("4096" in size for size in browser.column("size"))
    sizes = agreeing[["m", "n", "k"]].astype(int).astype(str).agg("x".join, axis=1)
    assert browser.find("#count").text.startswith(f"{sizes.str.contains('4096').sum()} of ")
    assert "param=bk%3D8" in browser.driver.current_url


@pytest.mark.slow
def test_a_heading_sorts_all_rows(browser: Browser, file: Path, timings: pd.DataFrame) -> None:
    browser.open(file, "problem=gemm")
    rates = timings[timings["problem"] == "gemm"]["tflops"].dropna()
    for ascending, way in ((False, "descending"), (True, "ascending")):
        browser.find("[data-column=tflops]").click()
        assert (
            browser.find("[data-column=tflops]").find_element("xpath", "..").get_attribute("aria-sort") == way
        )
        shown = [float(value) for value in browser.column("TFLOP/s")]
        wanted = rates.sort_values(ascending=ascending).head(len(shown))
        assert shown == pytest.approx(wanted.tolist(), rel=0.01)
    browser.press("\ue007")  # Enter on the heading: the tables' own order
    assert "sort=" not in browser.driver.current_url


@pytest.mark.slow
def test_a_link_opens_a_cell_with_its_numbers(browser: Browser, file: Path, timings: pd.DataFrame) -> None:
    ladder = timings[(timings["sweep"] == "fp32_ladder") & timings["baseline"].isna()]
    row = ladder[ladder["m"] == 4096].iloc[-1]
    browser.open(file, f"words=small&cell={quote(cell(row))}")
    panel = browser.find("#detail")
    assert panel.is_displayed()
    assert row["rung"] in browser.find("#detail-title").text
    wanted = " ".join(f"{row[f'speedup{end}']:.7g}" for end in ("", "_low", "_high"))
    assert re.sub(r"[\[\],]", "", browser.find("#detail [data-name=speedup] td").text) == wanted
    assert f"snakemake --cores all sweep_{row['sweep']}" in browser.texts("pre.command")
    assert f"kernels/gemm/simt/{row['kernel']}.cu" in panel.text
    browser.press("\ue00c")  # Escape
    assert not panel.is_displayed()
    assert browser.driver.current_url.endswith("#words=small")


@pytest.mark.slow
def test_the_keyboard_moves_through_the_rows_and_opens_one(browser: Browser, file: Path) -> None:
    browser.open(file, "sort=-speedup")
    first, second = browser.column("variant")[:2]
    browser.script("document.querySelector('tr[tabindex=\"0\"]').focus()")
    browser.press("\ue015")  # down
    browser.press("\ue007")
    assert second in browser.find("#detail-title").text
    browser.press("\ue00c")
    browser.press("\ue010")  # End
    assert browser.script("return Number(document.activeElement.dataset.index)") > 3000
    browser.press("\ue011", "\ue007")  # Home, Enter
    assert first in browser.find("#detail-title").text


def test_every_kind_of_command_is_one_that_judge_takes(
    browser: Browser,
    file: Path,
    timings: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Against libraries, a copy and a kernel: up to where a GPU is needed."""
    monkeypatch.setattr("ladder.cli.alone.find_gpus", list)
    rows = timings[timings["status"] == "ok"].drop_duplicates(["problem", "layout", "reference"])
    rows = rows.groupby(["problem", rows["reference"] == rows["variant"]], dropna=False).head(2)
    browser.open(file)
    ids = browser.script("return [...RUNS[0].ids]")
    for place in rows.index:
        command = browser.script("return commands(RUNS[0], arguments[0])[0][1]", int(place))
        caplog.clear()
        assert main(["--root", str(ROOT), *shlex.split(command)[3:]]) == UNJUDGED
        assert "no GPU is visible" in caplog.text, (ids[place], caplog.text)


@pytest.mark.slow
def test_without_rows_the_page_says_so(browser: Browser, text: str, tmp_path: Path) -> None:
    document = embedded(text)
    tables_of: dict[str, Any] = {
        name: {} for name in ("timings", "resources", "sessions", "metrics", "sweeps")
    }
    (tmp_path / "index.html").write_text(
        page({"runs": [document["runs"][0] | tables_of], "kernels": {}}), encoding="utf-8"
    )
    browser.open(tmp_path / "index.html")
    assert browser.find("#count").text == "0 of 0 cells"


@pytest.mark.slow
def test_two_runs_stand_side_by_side(browser: Browser, file: Path, tmp_path: Path) -> None:
    document = embedded(file.read_text(encoding="utf-8"))
    other = json.loads(json.dumps(document["runs"][0])) | {"gpu": "NVIDIA B200", "name": "published/b200"}
    for end in ("", "_low", "_high"):
        column = other["timings"][f"speedup{end}"]
        other["timings"][f"speedup{end}"] = [value and 2 * value for value in column]
    both = tmp_path / "index.html"
    empty = {name: {} for name in ("timings", "sessions", "metrics", "sweeps")}
    none = document["runs"][0] | empty | {"gpu": "NVIDIA B100", "measured": False}
    both.write_text(page(document | {"runs": [*document["runs"], other, none]}), encoding="utf-8")
    browser.open(both, "beside=2")
    assert browser.texts("#beside option")[1:] == ["NVIDIA B200", "NVIDIA B100: nothing is measured"]
    assert {*browser.column("beside it / this")} == {""}
    browser.open(both, "beside=1&sweep=fp32_ladder&status=ok")
    assert {text.split(" ")[0] for text in browser.column("beside it / this")} == {"2.000"}
    rows = decoded(document["runs"][0]["timings"]).query(
        "sweep == 'fp32_ladder' and status == 'ok' and m == 4096"
    )
    assert len(browser.texts("#bars .beside")) == rows["variant"].nunique() > 20
    browser.find("tr[data-index='0']").click()
    assert len(browser.texts("#detail [data-name=speedup] td")) == 2


@pytest.mark.slow
def test_nothing_is_wider_than_a_phone(browser: Browser, file: Path) -> None:
    size = {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.open(file)
        assert browser.script("return document.documentElement.scrollWidth") == 380
        browser.script("document.querySelector('tr[data-index]').click()")
        assert browser.find("#detail").size["width"] == 380
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def enlarged(columns: dict[str, Any], times: int) -> dict[str, Any]:
    """A table with its rows several times, of variants with other names."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, list):
            found[name] = column * times
            continue
        words, codes = column["words"], column["codes"]
        if name in ("variant", "reference"):
            codes = [
                code + copy * len(words) if code >= 0 else code for copy in range(times) for code in codes
            ]
            found[name] = {
                "words": [f"{word}-{copy}" for copy in range(times) for word in words],
                "codes": codes,
            }
        else:
            found[name] = {"words": words, "codes": codes * times}
    return found


@pytest.mark.slow
def test_twenty_thousand_rows_open_in_three_seconds(browser: Browser, text: str, tmp_path: Path) -> None:
    document = embedded(text)
    own = document["runs"][0]
    times = -(-20_000 // len(own["timings"]["speedup"]))
    for table in ("timings", "resources", "sessions", "metrics"):
        own[table] = enlarged(own[table], times)
    file = tmp_path / "index.html"
    file.write_text(page(document), encoding="utf-8")
    took = []
    for _ in range(3):  # other tests may be running beside
        browser.open(file)
        took.append(browser.script("return performance.getEntriesByType('navigation')[0].loadEventStart"))
        if took[-1] < 3000:
            break
    assert min(took) < 3000
    assert int(browser.find("#count").text.split(" ")[0]) >= 20_000
    began = browser.script("return performance.now()")
    browser.find("#words").send_keys("stages=3")
    assert browser.script("return performance.now()") - began < 3000
