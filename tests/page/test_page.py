"""The page holds every number of the tables in a file, and lets people find them; tried in Chromium if there is one."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
from checkout import PUBLISHED, published_data
from conftest import ROOT
from factory import Fields, Lab, failed
from ladder.claims.ledger import overall
from ladder.cli.app import UNJUDGED, main
from ladder.model.schemas import SIZE_COLUMNS
from ladder.page.data import UNSEEN
from ladder.page.document import page, render
from ladder.report.choices import choices
from ladder.report.figures.registry import FIGURES
from ladder.report.statements import NOT_HERE
from ladder.results import tables

SWEEPS = ["fp32_ladder", "bank_stride"]

pytestmark = pytest.mark.skipif(
    not PUBLISHED.root.is_dir(), reason="nothing is published"
)


def embedded(text: str) -> Fields:
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    document: Fields = json.loads(found[1])
    return document


def codes_of(column: Fields) -> list[int]:
    codes: list[int] = column["codes"]
    return np.repeat(codes, column.get("lengths", 1)).tolist()


def decoded(columns: Fields) -> pd.DataFrame:
    """A table as the page's scripts read it."""
    return pd.DataFrame(
        {
            name: column
            if isinstance(column, list)
            else [
                None if code < 0 else column["words"][code] for code in codes_of(column)
            ]
            for name, column in columns.items()
        }
    )


@pytest.fixture(scope="module")
def text() -> str:
    return render(PUBLISHED, published_data(), ROOT)


@pytest.fixture(scope="module")
def own(text: str) -> Fields:
    """The published run as the page holds it."""
    run: Fields = embedded(text)["runs"][0]
    return run


@pytest.fixture(scope="module")
def rows(own: Fields) -> pd.DataFrame:
    """Its timings."""
    return decoded(own["timings"])


@pytest.fixture(scope="module")
def timings() -> pd.DataFrame:
    return _shown("timings")


def _shown(table: str) -> pd.DataFrame:
    """A published table; earlier ones have cells of another beta than 0, which are not shown."""
    rows = tables.read(table, PUBLISHED.tables)
    return rows[rows["beta"].isna()].reset_index(drop=True) if "beta" in rows else rows


@pytest.mark.slow
@pytest.mark.parametrize("table", ["timings", "resources", "sessions", "metrics"])
def test_every_number_is_the_tables(own: Fields, table: str) -> None:
    ours, theirs = decoded(own[table]), _shown(table)
    assert len(ours) == len(theirs)
    left_out = {*UNSEEN, *(["params"] if table == "resources" else [])}
    known = [
        name for name in theirs if theirs[name].notna().any() and name not in left_out
    ]
    assert {*known} == {*ours} - {"label", "called", "kind", "size"}
    for name in known:
        pd.testing.assert_series_equal(
            ours[name].astype(theirs[name].dtype), theirs[name]
        )


def test_the_page_is_one_file_of_a_bearable_size_that_names_nothing_elsewhere(
    text: str,
) -> None:
    assert len(text.encode()) < 5.7e6
    assert "://" not in re.sub(r'"text":"(?:[^"\\]|\\.)*"', "", text), (
        "but for what kernels' sources cite"
    )
    assert re.findall(r"\bsrc=", text.partition('id="data"')[0]) == []
    assert "default-src 'none'" in text, "the browser is to refuse the rest"


def test_every_link_leads_to_a_file_beside_the_page_or_to_a_part_of_it(
    text: str, own: Fields
) -> None:
    shown = text.partition('id="data"')[0]
    links = {*re.findall(r'href="([^"]*)"', shown)} - {"data:,"}
    for link in links:
        file, _, anchor = link.partition("#")
        if file:
            assert (PUBLISHED.root / file).is_file(), link
        elif anchor.startswith("chart="):
            assert anchor.removeprefix("chart=") in own["sweeps"], link
        else:
            assert f'id="{anchor}"' in shown, link
    assert '<a href="#claims">the list</a>' in shown


def test_a_configuration_has_one_name_and_three_tf32_products_are_no_fp32(
    own: Fields, rows: pd.DataFrame
) -> None:
    gemms = rows[rows["problem"] == "gemm"]
    names = gemms.groupby("variant")["called"].nunique()
    rungs = {
        variant
        for sweep in own["sweeps"].values()
        for variant, rung in (sweep["rungs"] or {}).items()
        if rung
    }
    assert names[names.index.isin(rungs)].max() == 1
    named = dict(zip(gemms["variant"], gemms["called"], strict=True))
    assert named["gemm_tma-fp32"] == "gemm_tma warp-specialised"
    assert named["5_cluster_k-bf16-batch=4"] == "5_cluster_k batch=4", (
        "the only one of its kernel in its sweep"
    )
    assert {*rows[rows["kind"] == "fp32 by 3xTF32"]["kernel"]} == {"hopper_3xtf32"}
    assert "hopper_3xtf32" not in {*rows[rows["kind"] == "fp32"]["kernel"]}


def test_findings_are_the_answers_and_every_claim_has_its_verdict(text: str) -> None:
    claims = tables.read("claims", PUBLISHED.tables)
    assert text.count('<tr class="claim"') == claims["id"].nunique()
    readme = (ROOT / "README.md").read_text()
    questions = re.findall(r"^\|\[?([^|\]]+\?)(?:\]\([^|]*\))?\|", readme, re.MULTILINE)
    assert len(questions) > 5
    for question in questions:
        assert f"<h3>{question}</h3>" in text
    assert not re.search(r"not measured: *not measured", text, re.IGNORECASE)


def test_what_to_use_is_what_the_report_recommends(
    own: Fields, rows: pd.DataFrame
) -> None:
    known = ["sweep", "variant", "speedup"]
    recommended = {
        (use["kind"], use["layout"], use["m"]): [*rows.loc[use["places"][0], known]]
        for use in own["uses"]
        if use["regime"] == "cold" and use["m"] == use["n"] == use["k"]
    }
    assert recommended == {
        (one.kind, one.layout, one.size): [one.row[name] for name in known]
        for one in choices(published_data())
    }


def run_step(lab: Lab, step: str, *more: str) -> None:
    assert main(["--root", str(lab.root), step, *lab.collected(), *more]) == 0


@pytest.mark.slow
def test_a_run_of_some_sweeps_has_a_page_and_failures_their_reasons(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path)
    lab.record(SWEEPS[:1])
    lab.record(
        SWEEPS[1:],
        change=lambda _, record: failed("incorrect", "</script> is wrong")(record),
    )
    lab.collect(SWEEPS)
    run_step(lab, "claims")
    run_step(lab, "report", "--beside", str(PUBLISHED.root))
    made = lab.folder.page.read_text()
    own, other = embedded(made)["runs"]
    rows = decoded(own["timings"])
    assert set(rows["sweep"]) == {*SWEEPS} == {*own["sweeps"]}
    assert set(rows[rows["sweep"] == SWEEPS[1]]["reason"]) == {"</script> is wrong"}
    assert other["name"] == "published/nvidia-h200"
    run_step(lab, "report", "--beside", str(lab.folder.root))
    assert made.count("</script>") == made.count("<script"), (
        "no reason ends the script that holds it"
    )


def test_a_run_without_measurements_has_a_page(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record_and_collect(SWEEPS[:1], change=lambda *_: None)
    for step in ("claims", "report"):
        run_step(lab, step)
    own = embedded(lab.folder.page.read_text())["runs"][0]
    assert own["timings"] == {}
    assert own["cards"] == own["uses"] == []


class Browser:
    """Chromium with the page of `file`: `open` waits until the page is ready."""

    def __init__(self, driver: Any) -> None:
        self.driver, self.script = driver, driver.execute_script
        self.file = Path()

    def open(self, fragment: str = "") -> None:
        self.driver.get("about:blank")  # else only the fragment changes
        self.driver.get(f"{self.file.as_uri()}#{fragment}")
        assert self.script("return document.documentElement.dataset.ready") == "yes"

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        """Of the one element."""
        return str(self.find(selector).text)

    def answer(self, use: str) -> str:
        """What to use for a kind, a layout, a size and a regime."""
        self.open(f"use={use}")
        return self.text("#use-answer")

    def width(self) -> int:
        """Of all that can be scrolled to."""
        return int(self.script("return document.documentElement.scrollWidth"))

    def count(self) -> int:
        """Cells that the filters leave."""
        return int(self.text("#count").split()[0])

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
        place = [head.strip(" ▼▲") for head in self.texts("#table thead th")].index(
            title
        )
        return self.texts(f"#table tbody tr[data-index] > :nth-child({place + 1})")

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call."""
        events = [
            json.loads(entry["message"])["message"]
            for entry in self.driver.get_log("performance")
        ]
        sent = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith(("data:", "about:"))]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed"
    )
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
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(server))
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def browser(chromium: Browser, file: Path) -> Iterator[Browser]:
    """The browser, which must not have said anything on its console by the end, nor asked for anything but the page."""
    chromium.requests()
    chromium.file = file
    yield chromium
    assert [entry["message"] for entry in chromium.driver.get_log("browser")] == []
    assert {Path(url.partition("#")[0]).suffix for url in chromium.requests()} <= {
        ".html"
    }
    assert (
        chromium.script("return performance.getEntriesByType('resource').length") == 0
    )


@pytest.fixture(scope="module")
def file(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(text)
    return path


def cell(row: pd.Series[Any]) -> str:
    return f"{row['sweep']}/{row['variant']}@{row['m']}:{row['regime']}"


@pytest.mark.slow
def test_filters_leave_the_rows_that_agree(
    browser: Browser, timings: pd.DataFrame
) -> None:
    browser.open("against=all")
    assert browser.text("#count") == f"{len(timings)} of {len(timings)} cells"
    browser.choose("by-status", "unsupported")
    left = timings[timings["status"] == "unsupported"]
    assert browser.count() == len(left)
    shown = browser.column("status, reason")
    assert shown
    assert {said.partition(": ")[2] for said in shown} <= {*left["reason"]}
    browser.choose("by-status", "")
    browser.choose("by-problem", "gemm")
    browser.choose("by-param", "bk=8")
    browser.find("#words").send_keys("stages=3 4096")
    known = timings["params"].map(json.loads)
    agreeing = pd.Series(
        [one.get("bk") == 8 and one.get("stages") == 3 for one in known]
    )
    cubes = (timings["m"] == 4096) & (timings["n"] == 4096) & (timings["k"] == 4096)
    left = timings[agreeing & cubes & (timings["problem"] == "gemm")]
    assert {*browser.column("size")} == {"4096"}
    assert browser.count() == len(left)
    assert "param=bk%3D8" in browser.driver.current_url


@pytest.mark.slow
def test_a_heading_sorts_all_rows(browser: Browser, timings: pd.DataFrame) -> None:
    browser.open("problem=gemm&against=all")
    rates = timings[timings["problem"] == "gemm"]["tflops"].dropna()
    for ascending, way in ((False, "descending"), (True, "ascending")):
        browser.find("[data-column=tflops]").click()
        assert (
            browser.find("[data-column=tflops]")
            .find_element("xpath", "..")
            .get_attribute("aria-sort")
            == way
        )
        shown = [float(value) for value in browser.column("TFLOP/s")]
        wanted = rates.sort_values(ascending=ascending).head(len(shown))
        assert shown == pytest.approx(wanted.tolist(), rel=0.01)
    browser.press("\ue007")  # Enter on the heading: the usual order, the fastest first
    assert "sort=" not in browser.driver.current_url
    assert browser.texts("#table th[aria-sort=descending] button") == [
        "speed-up [95 %] ▼"
    ]
    speeds = [float(text.split()[0]) for text in browser.column("speed-up [95 %]")]
    assert speeds == sorted(speeds, reverse=True)


@pytest.mark.slow
def test_a_page_begins_at_its_top_and_a_row_has_its_shares_of_the_peaks(
    browser: Browser, timings: pd.DataFrame
) -> None:
    # An address that ends with # leads to the top by itself.
    browser.driver.get(browser.file.as_uri())
    assert browser.script("return window.scrollY") == 0
    first = timings[(timings["status"] == "ok") & (timings["peak_fraction"] > 0.1)]
    place = int(first.index[0])
    for title, name in (
        ("of peak, %", "peak_fraction"),
        ("of peak bandwidth, %", "memory_fraction"),
    ):
        shown = browser.script(
            "const [title, place] = arguments;"
            "return tableColumns().find((column) => column.title === title).cell(place)",
            title,
            place,
        )
        assert float(shown) == pytest.approx(100 * first[name].iloc[0], rel=0.01)


@pytest.mark.slow
def test_links_of_what_to_use_lead_to_documents(browser: Browser) -> None:
    for size in ("4096x4096x4096", "16x4096x4096"):
        browser.open(f"use=bf16/TN/{size}/cold")
        links = browser.script(
            "return [...document.querySelectorAll('#use-answer a[href]')]"
            ".map((link) => link.getAttribute('href'))"
        )
        assert links
        for link in links:
            assert (PUBLISHED.root / link).is_file(), link


@pytest.mark.slow
def test_the_three_best_that_take_a_size_can_be_timed_at_it(
    browser: Browser, timings: pd.DataFrame
) -> None:
    """At a size that was measured, near one, far from all, and where the best does not take it."""
    for size, is_open in (
        ((4096, 4096, 4096), False),
        ((4096, 11008, 4096), True),
        ((16, 4096, 4096), True),
    ):
        browser.open(f"use=bf16/TN/{'x'.join(map(str, size))}/cold")
        assert bool(browser.texts("#use-answer details[open]")) == is_open
        setup, *lines = browser.texts("#use-answer details pre")[0].splitlines()
        assert setup == ". .venv/bin/activate"
        assert len({*lines}) == 3
        m, n, k = size
        for line in lines:
            words = shlex.split(line)
            assert words[:4] == ["python", "-m", "ladder", "judge"]
            assert words[words.index("--size") + 1] == f"{{m: {m}, n: {n}, k: {k}}}"
    browser.open("use=fp32/NN/4096x4097x4096/cold")
    shown = browser.texts("#use-answer details pre")[0]
    assert "gemm_tma" not in shown, "which takes multiples of 4"
    assert "gemm_" in shown
    said = browser.answer("bf16/TN/4096x4096x4095/cold")
    assert "None of the fastest takes this size." in said


@pytest.mark.slow
def test_a_product_that_memory_binds_has_gb_a_second(
    browser: Browser, timings: pd.DataFrame
) -> None:
    for size, rate, share, unit in (
        ("1x8192x28672", "gbytes_per_s", "memory_fraction", "% of peak bandwidth"),
        ("4096x4096x4096", "tflops", "peak_fraction", "% of peak"),
    ):
        browser.open(f"use=bf16/TN/{size}/cold")
        place = browser.script(
            "return nearestUse(RUNS[0], askedUse(RUNS[0], state.use).asked).places[0]"
        )
        row = timings.loc[place]
        shown = browser.texts("#use-answer .rate")[0].split()
        assert float(shown[0]) == pytest.approx(row[rate], rel=0.005)
        assert shown[1] == {"tflops": "TFLOP/s"}.get(rate, "GB/s")
        assert f"{100 * row[share]:.0f} {unit}, " in browser.text("#use-answer")


@pytest.mark.slow
def test_a_ladder_over_a_rung_of_its_own_says_over_which(
    browser: Browser, timings: pd.DataFrame
) -> None:
    for sweep, said in (
        ("attention", "x rung 6"),
        ("fp32_ladder", "x cuBLAS"),
        ("reduction", "x a copy"),
    ):
        browser.open(f"ladder={sweep}")
        assert said in browser.texts("#rungs text"), sweep
    browser.open("ladder=attention")
    causal = browser.texts("#rungs g[aria-label^='7 causal'] text")
    rungs = timings[timings["sweep"] == "attention"].set_index(["rung", "sequence"])
    assert f"{rungs.loc[('7 causal', 8192), 'tflops']:.0f}" in causal
    assert "1.95" not in causal, "which is over a causal rung"
    browser.open("chart=attention")
    said = browser.text("#chart-findings")
    assert re.match(
        r"The fastest at 8192x32x128 is \d+ \D+ with \d+ TFLOP/s\.", said
    ), "not causal over masked tiles"


@pytest.mark.slow
def test_a_cell_has_the_sessions_of_its_own_size(browser: Browser) -> None:
    """Whatever a size of its problem is made of."""
    sessions = _shown("sessions")
    of = [
        "sweep",
        "variant",
        "regime",
        "baseline",
        *(name for name in SIZE_COLUMNS if name in sessions),
    ]
    counts = sessions.groupby(of, dropna=False).size()
    browser.open()
    for problem in ("attention", "gemm", "stencil"):
        found = browser.script(
            "const {rows} = RUNS[0];"
            "const place = rows.problem.findIndex((one, at) => one === arguments[0] && rows.status[at] === 'ok');"
            "return [RUNS[0].sessionsOf(place).length, arguments[1].map((name) => rows[name]?.[place] ?? null)]",
            problem,
            of,
        )
        (same,) = counts[
            [
                all(
                    a == b or (b is None and pd.isna(a))
                    for a, b in zip(key, found[1], strict=True)
                )
                for key in counts.index
            ]
        ]
        assert found[0] == same > 0, problem


@pytest.mark.slow
def test_a_link_opens_a_cell_with_its_numbers(
    browser: Browser, timings: pd.DataFrame
) -> None:
    ladder = timings[(timings["sweep"] == "fp32_ladder") & timings["baseline"].isna()]
    row = ladder[ladder["m"] == 4096].iloc[-1]
    browser.open(f"words=small&cell={quote(cell(row))}")
    panel = browser.find("#detail")
    assert panel.is_displayed()
    assert row["rung"] in panel.text
    wanted = [row[f"speedup{end}"] for end in ("", "_low", "_high")]
    shown = re.sub(
        r"[\[\],]", "", browser.text("#detail [data-name=speedup] td")
    ).split()
    assert [float(value) for value in shown] == pytest.approx(wanted, rel=1e-3)
    assert all(len(value.replace(".", "").lstrip("0")) <= 4 for value in shown)
    commands = browser.texts("pre.command")
    assert all(one.startswith(". .venv/bin/activate\n") for one in commands)
    assert f"snakemake --cores all sweep_{row['sweep']}" in [
        one.splitlines()[1] for one in commands
    ]
    assert f"kernels/gemm/simt/{row['kernel']}.cu" in panel.text
    browser.press("\ue00c")  # Escape
    assert not panel.is_displayed()
    assert browser.driver.current_url.endswith("#words=small")


@pytest.mark.slow
def test_the_keyboard_moves_through_the_rows_and_opens_one(browser: Browser) -> None:
    browser.open("sort=-tflops&against=all")
    first, second = browser.column("variant")[:2]
    browser.script("document.querySelector('tr[tabindex=\"0\"]').focus()")
    browser.press("\ue015")  # down
    browser.press("\ue007")
    assert second in browser.script("return run.rows.label[run.places.get(state.cell)]")
    browser.press("\ue00c")
    browser.press("\ue010")  # End
    assert browser.script("return Number(document.activeElement.dataset.index)") > 3000
    browser.press("\ue011", "\ue007")  # Home, Enter
    assert first in browser.script("return run.rows.label[run.places.get(state.cell)]")


@pytest.mark.slow
def test_every_kind_of_command_is_one_that_judge_takes(
    browser: Browser,
    timings: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Against libraries, a copy and a kernel: up to where a GPU is needed."""
    monkeypatch.setattr("ladder.cli.judge.find_gpus", list)
    rows = timings[timings["status"] == "ok"].drop_duplicates(
        ["problem", "layout", "reference"]
    )
    rows = rows.groupby(
        ["problem", rows["reference"] == rows["variant"]], dropna=False
    ).head(2)
    browser.open()
    ids = browser.script("return [...RUNS[0].ids]")
    for place in rows.index:
        commands = [
            one
            for _, one in browser.script(
                "return commands(RUNS[0], arguments[0])", int(place)
            )
        ]
        (command,) = (one for one in commands if " judge " in one)
        caplog.clear()
        assert (
            main(["--root", str(ROOT), *shlex.split(command.splitlines()[1])[3:]])
            == UNJUDGED
        )
        assert "no GPU is visible" in caplog.text, (ids[place], caplog.text)


@pytest.mark.slow
def test_two_runs_stand_side_by_side(browser: Browser, tmp_path: Path) -> None:
    document = embedded(browser.file.read_text())
    other = json.loads(json.dumps(document["runs"][0])) | {
        "gpu": "NVIDIA B200",
        "name": "published/b200",
    }
    for end in ("", "_low", "_high"):
        column = other["timings"][f"speedup{end}"]
        other["timings"][f"speedup{end}"] = [value and 2 * value for value in column]
    both = tmp_path / "index.html"
    empty: Fields = {
        name: {} for name in ("timings", "sessions", "metrics", "sweeps")
    } | {"uses": []}
    none = document["runs"][0] | empty | {"gpu": "NVIDIA B100", "measured": False}
    both.write_text(page(document | {"runs": [*document["runs"], other, none]}))
    browser.file = both
    browser.open("beside=2")
    assert browser.texts("#beside option")[1:] == [
        "NVIDIA B200",
        "NVIDIA B100: nothing is measured",
    ]
    assert {*browser.column("beside it / this")} == {""}
    browser.open("beside=1&sweep=fp32_ladder&chart=fp32_ladder&status=ok")
    assert {text.split(" ")[0] for text in browser.column("beside it / this")} == {
        "2.000"
    }
    rows = decoded(document["runs"][0]["timings"]).query(
        "sweep == 'fp32_ladder' and status == 'ok' and m == 4096"
    )
    assert len(browser.texts("#bars .beside")) == rows["variant"].nunique() > 20
    browser.find("tr[data-index='0']").click()
    assert len(browser.texts("#detail [data-name=speedup] td")) == 2


SCREENS = [(width, dark) for width in (1440, 390) for dark in (False, True)]


@pytest.fixture
def screen(
    browser: Browser, request: pytest.FixtureRequest
) -> Iterator[tuple[int, int]]:
    """The browser with a screen of this width, light or dark."""
    width, dark = request.param
    height = 900 if width > 1000 else 844
    size = {
        "width": width,
        "height": height,
        "deviceScaleFactor": 1,
        "mobile": width < 1000,
    }
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    yield width, height
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS, indirect=True)
def test_the_first_screen_says_what_to_use_and_nothing_is_wider(
    browser: Browser, screen: tuple[int, int]
) -> None:
    width, height = screen
    browser.open()
    assert browser.width() <= width
    shown = browser.find("#use-answer")
    assert re.search(
        r"\d{3} TFLOP/s .*faster than cuBLAS \(another GPU: ",
        shown.text.replace("\n", " "),
    )
    rate = browser.script(
        "return document.querySelector('#use-answer .rate').getBoundingClientRect().bottom"
    )
    command = browser.script(
        "return document.querySelector('#use-answer .command').getBoundingClientRect().top"
    )
    assert 0 < rate < command < height
    browser.script("document.querySelector('tr[data-index]').click()")
    left, right = browser.script(
        "const box = $('detail').getBoundingClientRect(); return [box.left, box.right];"
    )
    assert (
        0
        <= left
        < right
        <= browser.script("return document.documentElement.clientWidth")
    )
    assert browser.width() <= width
    browser.open("use=bf16/TN/16x4096x4096/cold")
    assert browser.texts("#use-answer .command")
    assert browser.width() <= width


@pytest.mark.slow
def test_what_to_use_follows_dtype_layout_and_typed_sizes(
    browser: Browser, timings: pd.DataFrame
) -> None:
    browser.open()
    browser.script(
        "for (const [id, value] of [['use-m', 6000], ['use-n', 6000], ['use-k', 6000]]) $(id).value = value;"
        "$('use-m').dispatchEvent(new Event('input', {bubbles: true}))"
    )
    said = browser.text("#use-answer")
    assert (
        "6000 x 6000 x 6000 was not measured; nearest measured: 8192 x 8192 x 8192."
        in said
    )
    assert browser.texts(".inexact .rate"), "greyed"
    assert "6000x6000x6000" in browser.driver.current_url
    said = browser.answer("fp32/NN/4096x4096x4096/cold")
    cells = timings[timings["baseline"].isna()].set_index(
        ["sweep", "variant", "n", "regime"]
    )
    cell = cells.loc[("fp32_ladder", "gemm_tma-fp32", 4096, "cold")]
    share = f"{100 * cell['peak_fraction']:.0f} % of peak"
    read = f"{cell['tflops']:.1f} TFLOP/s {share}, {100 * (cell['speedup'] - 1):.0f} % faster than cuBLAS"
    assert re.search(rf"gemm_tma .*\n{re.escape(read)}", said)
    assert "fp32 near this size: measured in NN only." in said
    assert "kernels/gemm/simt/gemm_tma.cu" in said
    setup, command = browser.texts("#use-answer .command")[0].splitlines()
    assert setup == ". .venv/bin/activate"
    assert (
        command
        == "ladder reproduce fp32_ladder/gemm_tma-fp32@4096:cold --device nvidia-h200"
    )
    browser.find("#use-answer [data-part=source]").click()
    assert browser.find("#detail").is_displayed()
    assert "__global__" in browser.text("#detail details[open] pre.source")
    browser.press("\ue00c")  # Escape
    said = browser.answer("fp32/TN/4096x4096x4096/cold")
    assert "fp32 near this size: measured in NN only." in said, (
        "only products of a vector have both layouts"
    )
    assert "too far from anything measured" in said
    assert "TFLOP/s" in browser.answer("bf16/??/0x-1xNaN/never")


@pytest.mark.slow
def test_numbers_stand_beside_cublas_and_what_is_next_ranks_by_ratios(
    browser: Browser, own: Fields, rows: pd.DataFrame
) -> None:
    (use,) = [
        one
        for one in own["uses"]
        if (one["kind"], one["layout"], one["size"], one["regime"])
        == ("bf16", "TN", "4096", "cold")
    ]
    first, *others = (rows.loc[place] for place in use["places"])
    said = browser.answer("bf16/TN/4096x4096x4096/cold")
    assert f"cuBLAS beside it: {first['reference_median_us']:#.4g} µs" in said
    assert f"{first['sessions']:.0f} sessions on" in said
    assert "\nRunning for seconds" in said
    shown = browser.texts(".next li")
    assert len(shown) == len(others)
    for line, row in zip(shown, others, strict=True):
        assert "% over cuBLAS" in line
        assert "TFLOP/s" not in line
        assert row["called"] in line
    assert "only ratios rank" in said


@pytest.mark.slow
def test_sizes_that_are_none_far_or_not_taken_have_no_answer(browser: Browser) -> None:
    type_in = "$(arguments[0]).value = arguments[1]; $(arguments[0]).dispatchEvent(new Event('input', {bubbles: true}))"
    for value, said in (
        ("0", "M is 0"),
        ("", "M is empty"),
        ("1.5", "M is 1.5"),
    ):
        browser.open()
        browser.script(type_in, "use-m", value)
        assert f"{said}: type whole numbers from 1 on" in browser.text("#use-error")
        assert browser.text("#use-answer") == ""
        browser.script(type_in, "use-m", "4096")
        assert not browser.find("#use-error").is_displayed()
        assert "TFLOP/s" in browser.text("#use-answer")
    said = browser.answer("bf16/TN/16x4096x4096/cold")
    assert "too far from anything measured" in said
    assert "nearest measured: 16 x 8192 x 28672" in said, "thin as the one asked for"
    assert "TFLOP/s" not in said
    words = shlex.split(browser.texts("#use-answer .command")[0].splitlines()[1])
    assert words[:4] == ["python", "-m", "ladder", "judge"]
    assert words[4] == "kernels/memory_bound/gemv/8_wgmma_ring.yaml"
    assert words[words.index("--size") + 1] == "{m: 16, n: 4096, k: 4096}"
    said = browser.answer("bf16/NN/16x4096x4096/cold")
    assert "Nothing was measured with so few rows in this layout." in said
    assert not browser.texts("#use-answer .command"), "which would be those of cubes"
    assert "takes K in multiples of 8 only: not this size." in browser.answer(
        "bf16/TN/4096x4096x4095/cold"
    )
    said = browser.answer("fp32/NN/4096x4097x4096/cold")
    assert re.search(
        r"gemm_tma \S+ takes N in multiples of 4 only: not this size\. gemm_\w+ .* takes it",
        said,
    )


@pytest.mark.slow
def test_the_ladder_has_a_bar_for_each_gain_and_a_rung_leads_to_its_changes(
    browser: Browser, own: Fields
) -> None:
    steps = own["sweeps"]["fp32_ladder"]["steps"]
    known = [step for step in steps if step["gain"][0] is not None]
    browser.open("ladder=fp32_ladder")
    widths = [
        float(width)
        for width in browser.script(
            "return [...document.querySelectorAll('#rungs rect:not(.hit)')].map(one => one.getAttribute('width'))"
        )
    ]
    assert len(widths) == len(known) > 30
    logs = [abs(math.log(step["gain"][0])) for step in known]
    scale = max(widths) / max(logs)
    assert widths == pytest.approx([max(1.0, scale * log) for log in logs], abs=0.01), (
        "logarithmic"
    )
    browser.script("document.querySelectorAll('#rungs [data-cell]')[4].focus()")
    browser.press("\ue007")  # Enter
    panel = browser.text("#detail")
    assert re.search(r"What it changes on “3 [^”]+”\n2\.7 times", panel)
    assert re.search(
        r"\d+ lines differ between kernels/gemm/simt/gemm_shared_tile\.cu and kernels/gemm/simt/gemm_thread_tile\.cu",
        panel,
    )
    changed = browser.script(
        "return document.querySelector('.changes pre').textContent"
    ).splitlines()
    ours = (ROOT / "kernels/gemm/simt/gemm_thread_tile.cu").read_text().splitlines()
    assert all(line[2:] in ours for line in changed if line.startswith("+ "))
    browser.find("#detail .all").click()
    assert {*browser.column("kernel")} == {"gemm_thread_tile"}


@pytest.mark.slow
def test_speed_ups_over_different_things_are_never_ranked_together(
    browser: Browser, timings: pd.DataFrame
) -> None:
    browser.open("dtype=bf16&size=4096&regime=cold&sort=-speedup")
    assert browser.script("return $('by-against').value") == "library"
    rows = timings[
        (timings["dtype"] == "bf16") & (timings["m"] == 4096) & (timings["n"] == 4096)
    ]
    rows = rows[
        (rows["k"] == 4096) & (rows["regime"] == "cold") & rows["baseline"].isna()
    ]
    best = rows["speedup"].max()
    assert float(browser.column("speed-up [95 %]")[0].split()[0]) == pytest.approx(
        best, rel=1e-3
    )
    assert {*browser.column("over")} == {"cuBLAS"}
    browser.choose("by-against", "all")
    assert float(browser.column("speed-up [95 %]")[0].split()[0]) == pytest.approx(
        best, rel=1e-3
    )
    browser.open("sweep=stencil_reach")
    assert "none of them against a library" in browser.text("#count")


@pytest.mark.slow
def test_a_link_with_filters_opens_at_the_rows_and_shows_the_filters(
    browser: Browser,
) -> None:
    for fragment, part in (
        ("dtype=bf16&words=4096", "cells"),
        ("chart=fp32_padding", "charts"),
        ("verdict=refuted", "claims"),
    ):
        browser.open(fragment)
        assert (
            abs(
                browser.script(
                    f"return document.getElementById('{part}').getBoundingClientRect().top"
                )
            )
            < 60
        )
    browser.open("dtype=bf16&words=4096")
    assert [one.rstrip(" ✕") for one in browser.texts("#chips button")] == [
        "Dtype: bf16",
        "Words: 4096",
    ]
    browser.find("#chips button[data-filter=words]").click()
    assert "words" not in browser.driver.current_url


@pytest.mark.slow
def test_search_understands_words(browser: Browser, timings: pd.DataFrame) -> None:
    browser.open("against=all&words=bf16+4096")
    extents = timings[[name for name in SIZE_COLUMNS if name in timings]]
    alike = ((extents == 4096) | extents.isna()).all(axis=1)
    assert {*timings[alike]["problem"]} > {"gemm"}, (
        "of any problem: M = N = K, M = N, or all elements"
    )
    assert browser.count() == (alike & (timings["dtype"] == "bf16")).sum()
    for words in ("double+buffer", "H200", "coalesce"):
        browser.open(f"against=all&words={words}")
        assert browser.count() > 0, words
    browser.open("words=power+limit")
    assert "What does the power limit take?" in browser.text("#hints")


@pytest.mark.slow
def test_a_chart_has_at_most_six_lines_and_two_can_be_compared(
    browser: Browser,
) -> None:
    browser.open("chart=fp32_ladder")
    looks = browser.script(
        "return [...document.querySelectorAll('#curves .series')].map(one => one.style.stroke)"
    )
    assert len(looks) == len({*looks}) == 6
    browser.find("#curves-legend [data-only=first]").click()
    assert len(browser.texts("#curves .series")) == 2
    for _ in range(6):
        browser.script(
            "document.querySelector('#curves-legend [aria-pressed=false]').click()"
        )
    assert len(browser.texts("#curves .series")) == 6
    browser.open("chart=fp32_transpose&at=4096")
    assert "baselines differ" in browser.text("#bars-title")
    rates = [
        float(one.split()[0])
        for one in browser.texts("#bars g[data-cell] > text:last-of-type")
    ]
    assert len(rates) == 10
    assert rates == sorted(rates, reverse=True), "by speed, not by gain"


@pytest.mark.slow
def test_claims_of_one_verdict_can_be_read_alone_and_their_number_is_the_headlines(
    browser: Browser,
) -> None:
    decided = tables.read("claims", PUBLISHED.tables)
    whole = overall(decided)
    browser.open()
    seen = {}
    for verdict in ("refuted", NOT_HERE, "holds"):
        browser.choose("claims-verdict", verdict)
        seen[verdict] = browser.script(
            "return [...document.querySelectorAll('tr.claim')].filter(one => one.offsetParent).length"
        )
        assert {*browser.texts("tr.claim:not([hidden]) td.verdict")} == {verdict}
    assert seen["refuted"] + seen[NOT_HERE] == int((whole == "refuted").sum())
    assert seen["holds"] == int((whole == "holds").sum())
    headline = browser.text(".card[data-name=claims]")
    assert re.search(rf"\b{seen['refuted']} of \d+ statements", headline)


@pytest.mark.slow
def test_several_sizes_can_be_asked_for_and_an_unknown_one_is_named(
    browser: Browser, timings: pd.DataFrame
) -> None:
    gemm = timings[timings["problem"] == "gemm"]
    cubes = (gemm["m"] == gemm["n"]) & (gemm["n"] == gemm["k"])
    own = gemm[cubes & gemm["m"].isin([4096, 8192])]
    browser.open("against=all&problem=gemm")
    browser.choose("by-size", "4096, 8192")
    assert browser.count() == len(own)
    browser.choose("by-size", "64 x 4096 x 4096")
    assert {*browser.column("size")} == {"64x4096x4096"}
    browser.choose("by-size", "77")
    assert browser.count() == 0
    assert "No cell has the size 77. Sizes are" in browser.text("#hints")
    browser.open("words=hopper_3xtf32")
    assert {*browser.column("dtype")} == {"fp32 by 3xTF32"}


@pytest.mark.slow
def test_lines_of_one_chart_have_the_colours_of_the_figure(browser: Browser) -> None:
    browser.open("chart=fp32_buffering")
    pairs = browser.script(
        "return [...document.querySelectorAll('#curves-legend [aria-pressed=true]')]"
        ".map(one => [one.textContent, getComputedStyle(one.querySelector('svg')).fill])"
    )
    found = {
        name: "#" + "".join(f"{int(one):02x}" for one in re.findall(r"\d+", color))
        for name, color in pairs
    }
    part = published_data().parts["fp32_buffering"]
    (axis,) = FIGURES["curves"](part.drawn(part.sweep.figures[0])).axes
    drawn = {line.get_label(): line.get_color() for line in axis.lines}
    assert found == {name: drawn[name] for name in found}
    assert len(found) == 6
    assert (
        "without “double-buffered tiles and fragments, stores between”"
        in browser.text("#curves-title")
    )


@pytest.mark.slow
def test_a_folder_of_someone_else_runs_nothing_here(
    browser: Browser, text: str, tmp_path: Path
) -> None:
    """Whatever stands in its tables is text, and a word of a command."""
    bad = "<img src=x onerror=\"document.title='run'\">'; touch X #"
    document = embedded(text)
    own = json.loads(json.dumps(document["runs"][0]))
    for name in (
        "dtype",
        "regime",
        "size",
        "label",
        "status",
        "layout",
        "kernel",
        "variant",
        "sweep",
        "reference",
        "rung",
        "called",
        "kind",
    ):
        own["timings"][name]["words"] = [
            f"{word}{bad}" for word in own["timings"][name]["words"]
        ]
    other = own | {"name": f"published/{bad}", "device": bad, "gpu": bad, "uses": []}
    browser.file = tmp_path / "index.html"
    browser.file.write_text(page(document | {"runs": [document["runs"][0], other]}))
    browser.open("run=1&against=all&beside=0")
    browser.script("change({cell: RUNS[1].ids[0]})")
    browser.script(
        "const moved = new PointerEvent('pointermove', {bubbles: true});"
        "document.querySelectorAll('#bars [data-cell], #rungs [data-cell]').forEach((one) => one.dispatchEvent(moved))"
    )
    assert bad in browser.text("#detail-title")
    assert browser.script("return document.querySelectorAll('img').length") == 0
    assert browser.driver.title.startswith("Kernel Ladder")
    for _, command in browser.script("return commands(RUNS[1], 0)"):
        words = shlex.split(command.partition("\n")[2])
        assert "touch" not in words
        if "--device" in words:
            assert words[words.index("--device") + 1] == bad
    assert browser.texts("pre.command")
