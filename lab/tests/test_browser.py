"""Pages as a user sees them: opened in headless Chromium, without a network.

The browser is Debian's chromium with chromium-driver; if it is missing, or does not start, the tests are skipped."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hakmem_lab.decide import allocator_comparison, sweep, verdict
from hakmem_lab.experiment.worth import Memory, Round, Worth
from hakmem_lab.inspect import cold, waste
from hakmem_lab.inspect.cold import Cold
from hakmem_lab.inspect.waste import KINDS, Group, Waste
from hakmem_lab.measure import results
from hakmem_lab.measure.results import NOISE, Experiment, Trial
from hakmem_lab.pages import ab, compare, index, inputs, report, tune
from hakmem_lab.pages import cold as cold_page
from hakmem_lab.pages import page as page_module
from hakmem_lab.pages import sweep as sweep_page
from hakmem_lab.pages import waste as waste_page
from hakmem_lab.pages import worth as worth_page
from hakmem_lab.profile.heap_dumps import Estimate
from hakmem_lab.profile.symbols import Frame
from tests.conftest import make_experiment
from tests.pages import recording, snapshot, write_bench
from tests.test_commands import near

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-prefers-reduced-motion",
    "--window-size=1280,800",
    # No network at all: every name is unknown, and every address but this page's file is refused.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
)
LONG_S = 60


def find(*names: str) -> str:
    """The first of these programs that is installed; otherwise the test is skipped."""
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip(f"no {names[0]}: './dev setup' installs it where Debian's packages can be had")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium with a new, empty profile."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: './dev setup' installs it")
    from selenium.common.exceptions import WebDriverException

    options = webdriver.ChromeOptions()
    options.binary_location = find("chromium", "chromium-browser", "google-chrome")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    service = webdriver.ChromeService(find("chromedriver"))
    try:
        driver = webdriver.Chrome(options=options, service=service)
    except WebDriverException as error:
        pytest.skip(f"Chromium does not start here: {error.msg}")
    driver.set_page_load_timeout(LONG_S)
    driver.set_script_timeout(LONG_S)
    driver.get("about:blank")  # in place of the browser's own first page
    yield driver
    driver.quit()


def sent(driver: Any) -> list[dict[str, Any]]:
    """The requests that the browser has logged since the last call."""
    messages = [json.loads(each["message"])["message"] for each in driver.get_log("performance")]
    return [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]


class Seen:
    """One page in the browser, after its charts are drawn."""

    def __init__(self, driver: Any, path: Path) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        self.driver = driver
        driver.get_log("browser")
        self.earlier = {each["loaderId"] for each in sent(driver)}
        driver.get(path.as_uri())
        WebDriverWait(driver, LONG_S).until(lambda _: self.script("return document.body.dataset.charts"))

    def script(self, code: str, *arguments: object) -> Any:
        return self.driver.execute_script(code, *arguments)

    def requests(self) -> list[str]:
        """Every address that the page has requested, itself or in a frame. The browser's own first page may still be
        asking for its parts: it was being loaded before, or has an address of the browser's own kind."""
        return [
            str(each["request"]["url"])
            for each in sent(self.driver)
            if each["loaderId"] not in self.earlier and not str(each["documentURL"]).startswith("chrome")
        ]

    def check(self, path: Path) -> None:
        """The properties of every page."""
        charts = self.script("return document.querySelectorAll('.chart').length")
        assert charts > 0 and self.script("return document.body.dataset.charts") == str(charts)
        # Drawn means: plotly has made marks in every chart, with a size, and none of them fell back to a message.
        drawn = self.script(
            "return [...document.querySelectorAll('.plot')].map((plot) => "
            "[plot.querySelectorAll('.trace, .hm, .point, image').length, "
            "plot.querySelector('svg.main-svg')?.clientHeight])"
        )
        assert all(marks > 0 and height > 100 for marks, height in drawn), drawn
        assert self.script("return document.querySelectorAll('.plot.problem').length") == 0
        assert [each for each in self.driver.get_log("browser") if each["level"] in ("SEVERE", "WARNING")] == []
        asked = [each for each in self.requests() if not each.startswith(("data:", "blob:"))]
        library = path.with_name(page_module.chart_file()).as_uri()
        assert set(asked) <= {path.as_uri(), library}, "a page needs no network"
        self.verdict_in_the_first_screen()
        assert self.script("return document.documentElement.scrollWidth <= window.innerWidth"), "nothing sticks out"

    def verdict_in_the_first_screen(self) -> None:
        box = self.script(
            "const box = document.querySelector('.verdict .word').getBoundingClientRect();"
            "return [box.top, box.left, box.bottom, box.right, window.innerHeight, window.innerWidth, box.height]"
        )
        top, left, bottom, right, height, width, tall = box
        assert top >= 0 and bottom <= height and left >= 0 and right <= width and tall > 15, box

    def column(self, table: int, place: int) -> list[str]:
        return list(
            self.script(
                "return [...document.querySelectorAll('table.sortable')[arguments[0]].tBodies[0].rows]"
                ".map((row) => row.cells[arguments[1]].dataset.value ?? row.cells[arguments[1]].textContent)",
                table,
                place,
            )
        )

    def click(self, table: int, place: int) -> None:
        self.script("document.querySelectorAll('table.sortable')[arguments[0]].scrollIntoView()", table)
        buttons = self.driver.find_elements("css selector", "table.sortable")[table].find_elements(
            "css selector", "th button"
        )
        buttons[place].click()


def show(driver: Any, path: Path) -> Seen:
    seen = Seen(driver, path)
    seen.check(path)
    return seen


def decided() -> Experiment:
    values = {"A": near(1.05, 1), "B": near(1.0, 2), NOISE: near(1.05, 3)}
    return make_experiment(values, prediction=(4.0, 6.0))


def tuned() -> Experiment:
    made = decided()
    made.head.kind = "tune"
    made.trials = [
        Trial(
            number=place,
            text=f"l2_ring_cap={cap}",
            values={"l2_ring_cap": str(cap), "preset": "adaptive"},
            state="pruned" if place == 2 else "complete",
            gains=[gain],
            gain=gain,
        )
        for place, (cap, gain) in enumerate([(96, 1.0), (12, -4.0), (192, 5.0)], start=1)
    ]
    return made


def test_ab(browser: Any, tmp_path: Path) -> None:
    made = decided()
    ab.write(made, verdict.compare(made, "A", "B"), tmp_path / "ab.html")
    seen = show(browser, tmp_path / "ab.html")
    assert seen.script("return document.querySelector('.verdict .word').textContent") == "GO"
    # A click sorts by number, a second one in reverse, and a column of words alphabetically.
    tables = seen.script("return document.querySelectorAll('table.sortable').length")
    heads = (
        "return [...document.querySelectorAll('table.sortable')[arguments[0]].tHead.rows[0].cells]"
        ".map((each) => each.textContent)"
    )
    runs = next(table for table in range(tables) if "configuration" in seen.script(heads, table)[2:3])
    before = [float(each) for each in seen.column(runs, 3)]
    assert before != sorted(before)
    seen.click(runs, 3)
    assert [float(each) for each in seen.column(runs, 3)] == sorted(before)
    seen.click(runs, 3)
    assert [float(each) for each in seen.column(runs, 3)] == sorted(before, reverse=True)
    seen.click(runs, 2)
    words = seen.column(runs, 2)
    assert words == sorted(words) and set(words) == {"A", "A again", "B"}


def test_sweep(browser: Any, tmp_path: Path) -> None:
    values = {f"cap={cap}": near(seconds, cap) for cap, seconds in {48: 1.0, 8: 1.5, 24: 1.0}.items()}
    made = make_experiment(values, points=[{"cap": label.partition("=")[2]} for label in values])
    sweep_page.write(made, sweep.analyse(made, "cap=48"), tmp_path / "curve.html")
    show(browser, tmp_path / "curve.html")
    values = {f"cap={cap} n={n}": near(cap + n, cap) for cap in (1, 2) for n in (1, 2)}
    points = [dict(part.split("=") for part in label.split()) for label in values]
    made = make_experiment(values, points=points)
    sweep_page.write(made, sweep.analyse(made, "cap=1 n=1"), tmp_path / "grid.html")
    show(browser, tmp_path / "grid.html")


def test_compare(browser: Any, tmp_path: Path) -> None:
    made = make_experiment({"system": near(1.2, 1), "hakmem": near(1.0, 2)})
    made.head.kind = "compare"
    compare.write(made, allocator_comparison.analyse(made), tmp_path / "compare.html")
    show(browser, tmp_path / "compare.html")


def test_a_comparison_of_many_fits_its_card(browser: Any, tmp_path: Path) -> None:
    """All columns are in sight on a wide screen, no name is written over another, and each mark has room."""
    names = ["system", "hakmem", "jemalloc", "mimalloc", "tcmalloc", "snmalloc", "rpmalloc", "hardened"]
    made = make_experiment(
        {name: near(2.4 if place > 5 else 1.2 - place / 250, place) for place, name in enumerate(names)}
    )
    made.head.kind = "compare"
    for each in made.runs:
        each.peak_rss_bytes = (520 + names.index(each.label) % 5 * 3) << 17
    compare.write(made, allocator_comparison.analyse(made), tmp_path / "compare.html")
    with screen(browser, 1400, 900, "light", ""):
        seen = show(browser, tmp_path / "compare.html")
        wide, room = seen.script("const t = document.querySelector('.table'); return [t.scrollWidth, t.clientWidth]")
        assert wide <= room
        boxes = seen.script(
            "return [...document.querySelectorAll('.plot')[0].querySelectorAll('.textpoint')].map((each) => "
            "each.getBoundingClientRect()).map((box) => [box.left, box.top, box.right, box.bottom])"
            ".filter((box) => box[2] > box[0])"
        )
        assert 3 <= len(boxes) < 8
        pairs = [(a, b) for place, a in enumerate(boxes) for b in boxes[:place]]
        assert not [1 for a, b in pairs if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]
        assert seen.script("return document.querySelectorAll('.plot')[0].layout.yaxis.range[0]") > 50


def test_tune(browser: Any, tmp_path: Path) -> None:
    made = tuned()
    tune.write(made, verdict.compare(made, "A", "B"), tmp_path / "tune.html")
    show(browser, tmp_path / "tune.html")


def test_report_of_everything(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "ab.json").write_text(results.document(decided()))
    (tmp_path / "tune.json").write_text(results.document(tuned()))
    (tmp_path / "now.json").write_text(snapshot())
    (tmp_path / "minute.jsonl").write_text(recording())
    write_bench(tmp_path / "bench.jsonl")
    names = ("ab.json", "tune.json", "now.json", "minute.jsonl", "bench.jsonl")
    items = [report.item(inputs.read(tmp_path / name)) for name in names]
    report.write(items, "Everything", tmp_path / "report.html")
    seen = show(browser, tmp_path / "report.html")
    words = seen.script("return [...document.querySelectorAll('.verdict .word')].map((each) => each.textContent)")
    assert words == ["GO", "GO", "MEMORY", "OVER TIME", "BENCHMARKS"]
    titles = seen.script("return [...document.querySelectorAll('.plot')].map((plot) => plot.layout.title.text)")
    for wanted in (
        "All gains",
        "Distribution",
        "Resident memory",
        "By size class",
        "Hit rate of the cache by size class",
        "Map of SuperSlabs",
        "Resident memory over time",
        "Hit rate over time",
        "Ratios of paired rounds, with 95 % intervals",
        "Time against memory",
    ):
        assert wanted in titles
    # The link from a verdict to its section.
    for place in range(len(words)):
        assert seen.script(f"return document.getElementById('result-{place + 1}') !== null")


def test_requests_of_the_browsers_own_page_are_not_ours(tmp_path: Path) -> None:
    """They come late on a slow machine: from the new tab's page, and from a frame in it of another kind of address."""

    class Driver:
        def __init__(self) -> None:
            self.current = [("1", "http://127.0.0.1:1/newtab", "http://127.0.0.1:1/")]

        then: ClassVar = [
            ("1", "http://127.0.0.1:1/newtab", "http://127.0.0.1:1/logo.png"),
            ("2", "chrome-untrusted://new-tab-page/one", "http://127.0.0.1:1/bar.js"),
            ("3", "file:///x.html", "file:///x.html"),
            ("4", "http://127.0.0.1:2/", "http://127.0.0.1:2/"),  # a frame in our page
        ]

        def get_log(self, kind: str) -> list[dict[str, str]]:
            if kind == "browser":
                return []
            found, self.current = self.current, []
            parts = [{"loaderId": a, "documentURL": b, "request": {"url": c}} for a, b, c in found]
            return [
                {"message": json.dumps({"message": {"method": "Network.requestWillBeSent", "params": each}})}
                for each in parts
            ]

        def get(self, _: str) -> None:
            self.current = self.then

        def execute_script(self, _: str) -> bool:
            return True

    pytest.importorskip("selenium.webdriver")
    seen = Seen(Driver(), tmp_path / "x.html")
    assert seen.requests() == ["file:///x.html", "http://127.0.0.1:2/"]


def test_the_checks_notice_what_they_are_for(browser: Any, tmp_path: Path) -> None:
    """A page with a defect of each kind fails: otherwise the tests above would prove nothing."""
    made = decided()
    ab.write(made, verdict.compare(made, "A", "B"), tmp_path / "good.html")
    good = (tmp_path / "good.html").read_text()
    image = "data:image/png;base64," + base64.b64encode(b"no image").decode()
    defects = {
        "a chart is missing": good.replace('"type":"box"', '"type":"bocks"', 1).replace(
            '<div class="plot" ', "<div ", 1
        ),
        "the verdict is far down": good.replace(
            '<div class="verdict', '<p style="height:900px"></p><div class="verdict'
        ),
        "something from elsewhere": good.replace("</main>", '<img src="http://127.0.0.1:9/x.png"></main>'),
        "an error on the console": good.replace("</main>", f'<img src="{image}"></main><script>nonsense();</script>'),
        "something sticks out": good.replace("</main>", '<div style="width:3000px">x</div></main>'),
    }
    for name, page in defects.items():
        assert page != good, name
        path = tmp_path / "bad.html"
        path.write_text(page)
        seen = Seen(browser, path)
        with pytest.raises(AssertionError):
            seen.check(path)
            pytest.fail(f"not noticed: {name}", pytrace=False)


# Other screens: (width, height, colour scheme, medium).
SCREENS = [(width, 900, scheme, "") for width in (400, 1400) for scheme in ("light", "dark")]
SCREENS += [(1000, 1400, "dark", "print")]


@contextmanager
def screen(driver: Any, width: int, height: int, scheme: str, medium: str) -> Iterator[None]:
    """Emulates such a screen, or paper, for the pages opened meanwhile."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


BROKEN = """
// Words of more than one line: a word is broken when the rectangles of its letters lie on several lines.
const broken = [];
const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const node = walk.currentNode;
  if (node.parentElement.closest('svg, script, .alternative, .plot')) continue;
  for (const found of node.textContent.matchAll(/[\\w.]+/g)) {
    const range = document.createRange();
    range.setStart(node, found.index);
    range.setEnd(node, found.index + found[0].length);
    const lines = new Set([...range.getClientRects()].map((each) => Math.round(each.top)));
    if (lines.size > 1) broken.push(found[0]);
  }
}
return broken;
"""


@pytest.mark.parametrize(("width", "height", "scheme", "medium"), SCREENS)
def test_other_screens(browser: Any, tmp_path: Path, width: int, height: int, scheme: str, medium: str) -> None:
    made = decided()
    made.head.plan.command = ["out/release/bench_random_mixed_with_a_very_long_name_indeed", "20000000"]
    with screen(browser, width, height, scheme, medium):
        ab.write(made, verdict.compare(made, "A", "B"), tmp_path / "ab.html")
        seen = show(browser, tmp_path / "ab.html")
        assert seen.script("return window.innerWidth") == width
        assert seen.script(BROKEN) == []
        assert seen.script("return document.querySelectorAll('.verdict .figure .whole').length") == 2
        ground = seen.script("return getComputedStyle(document.body).backgroundColor")
        ink = seen.script("return getComputedStyle(document.querySelector('.plot text')).fill")
        light = scheme == "light" or medium == "print"
        brightness = [sum(int(each) for each in re.findall(r"\d+", colour)[:3]) for colour in (ground, ink)]
        assert brightness[1] < 300 if light else (brightness[0] < 150 and brightness[1] > 450), (ground, ink)
        sizes = seen.script("return [...document.querySelectorAll('svg.main-svg')].map((each) => each.clientWidth)")
        assert all(0 < size <= width for size in sizes)
        told = seen.script(
            "return [...document.querySelectorAll('.plot')].map((plot) => "
            "document.getElementById(plot.getAttribute('aria-labelledby')).textContent.length)"
        )
        assert len(told) == 3 and min(told) > 40
        seen.script("document.querySelector('main').style.width = '6em'")
        lines = seen.script(
            "return [...document.querySelectorAll('.whole')].map((each) => each.getClientRects().length)"
        )
        assert set(lines) == {1}


def write_pages_of_memory(folder: Path) -> list[Path]:
    """Those of waste, cold and worth, with names of every length and stacks."""
    stack = (Frame("a_function", "a_file.c", 7), Frame("main"))
    estimate = Estimate(100, 5e6, 1e10)
    groups = [
        Group(size, name, 1000, 1000 * (size or 1 << 20), {"equal": 300_000, "tail": 5 << 20}, "'text', 20 times")
        for size, name in ((64, "text"), (96, "std::map<std::string, Order, std::less<std::string>>"), (0, "zeros"))
    ]
    found = Waste(groups, dict.fromkeys(KINDS, 9 << 20), 90 << 20, 3000, 80 << 20, 0, 0, 0)
    said = waste.says(found, "process 7")
    waste_page.write(found, {stack: {"equal": estimate}}, "process 7", said, folder / "waste.html")
    idle = Cold(60, 90 << 20, 70 << 20, 75 << 20, used=[(1.0, 1 << 20), (60.0, 9 << 20)])
    idle.classes = [(64, 80 << 20, 70 << 20), (0, 10 << 20, 0)]
    kinds = {"cold": estimate, "age": estimate}
    cold_page.write(idle, {stack: kinds}, "process 7", cold.says(idle, "process 7"), folder / "cold.html")
    rounds = [Round(1.0, (1.0, 1.005, 1.01, 1.02 + i / 1000), 1_000_000, 0.05, 0.01) for i in range(5)]
    worth_page.write(Worth(rounds, Memory(9 << 20, 6 << 20, 1 << 20, 1 << 20)), "./program", folder / "worth.html")
    return [folder / f"{name}.html" for name in ("waste", "cold", "worth")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_pages_of_memory(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    with screen(browser, width, 900, scheme, ""):
        for path in write_pages_of_memory(tmp_path):
            seen = show(browser, path)
            assert seen.script("return window.innerWidth") == width and seen.script(BROKEN) == []
            ground, ink = (
                sum(int(each) for each in re.findall(r"\d+", seen.script(f"return {code}"))[:3])
                for code in (
                    "getComputedStyle(document.body).backgroundColor",
                    "getComputedStyle(document.querySelector('.plot text')).fill",
                )
            )
            light = scheme == "light"
            assert (ground > 600 and ink < 300) if light else (ground < 150 and ink > 450), (path, ground, ink)


def test_index_of_a_folder(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(results.document(decided()))
    (tmp_path / "now.json").write_text(snapshot())
    items = [report.item(inputs.read(tmp_path / name)) for name in ("one.json", "now.json")]
    path = index.write(tmp_path, items, ["Not shown: x."], single=False)
    assert len(list(tmp_path.glob("*.js"))) == 1
    seen = Seen(browser, path)
    links = browser.find_elements("css selector", "td a")
    assert [each.get_attribute("href").rpartition("/")[2] for each in links] == [
        "now.html",
        "now.json",
        "one.html",
        "one.json",
    ]  # the newest first
    first = seen.script(
        "return [...document.querySelectorAll('tbody tr')].map((row) => row.cells[0].querySelector('a') !== null)"
    )
    assert first == [True, True]
    colours = "return [...document.querySelectorAll('td .verdict-word')].map((each) => getComputedStyle(each).color)"
    memory, go = seen.script(colours)
    assert go == "rgb(21, 128, 61)" != memory
    links[2].click()
    assert seen.script("return document.querySelector('.verdict .word').textContent") == "GO"


def test_without_its_library_a_page_says_so(browser: Any, tmp_path: Path) -> None:
    made = decided()
    ab.write(made, verdict.compare(made, "A", "B"), tmp_path / "ab.html")
    (tmp_path / page_module.chart_file()).unlink()
    seen = Seen(browser, tmp_path / "ab.html")
    said = seen.script("return document.querySelector('.plot').textContent")
    assert "hakmem-charts-" in said and "hakmem report --single" in said
