"""The report in a real browser: hostile text stays text, nothing is fetched, it fits a phone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from beacon.pipeline import classify_run, collect_run, compare_run
from beacon.renderers import html
from beacon.report import write_report
from beacon.run_folder import Run
from beacon.store import Store
from tests.conftest import small_study

HOSTILE = [
    "<script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "</blockquote></details></main><h1>owned</h1>",
    "![x](http://127.0.0.1:9/pixel.png) [a](javascript:alert(1))",
    "{{ 7 * 7 }} {% raw %}",
    "\u202eright to left\u202c and \u2066isolates\u2069",
    "&lt;b&gt; &amp; \"quotes\" 'single' `ticks`",
    "中文回答 العربية हिन्दी 日本語 🙂",
    "a" * 5000,
]
SCRIPT = """
replies:
  - when: {{question: Who}}
    text: I am here.
  - when: {{question: island, system: China}}
    fail: {{reason: http, http_status: 500, message: "<script>document.title='owned'</script>"}}
  - text: {text}
"""


def make_report(folder: Path, text: str) -> Path:
    folder.mkdir()
    script = folder / "script.yaml"
    script.write_text(SCRIPT.format(text=json.dumps(text)), encoding="utf-8")
    store = Store.create(
        folder / "run", small_study(f"scripted/{script}"), now=datetime.now(UTC), version="t"
    )
    collect_run(store)
    classify_run(store)
    return write_report(store, compare_run(store), now=datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = "\n".join(HOSTILE)
    return make_report(tmp_path_factory.mktemp("report") / "r", text)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no browser: apt-get install chromium")
    flags = [
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
    ]  # fmt: skip
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield launched
        launched.close()


@pytest.fixture
def page(browser, report: Path):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.said, page.fetched = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.fetched.append(request.url))
    page.goto(report.as_uri())
    yield page
    page.close()


@pytest.mark.browser
def test_hostile_text_is_shown_and_does_nothing(page) -> None:
    assert page.title() == "small · Beacon report"
    assert page.locator("h1").count() == 1
    assert page.locator("img, script, iframe").count() == 0
    shown = page.locator("blockquote").first.inner_text()
    for text in HOSTILE[:5]:
        assert text in shown


@pytest.mark.browser
def test_nothing_is_fetched_and_nothing_complains(page, report: Path) -> None:
    assert page.fetched == [report.as_uri()]
    assert page.said == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_in_light_and_dark(page, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.browser
def test_a_cell_of_the_map_leads_to_its_responses(page) -> None:
    cell = page.locator(".map a").first
    target = cell.get_attribute("href")
    cell.click()
    assert page.locator(target).is_visible()
    assert page.locator(f"{target} blockquote").first.is_visible()


@pytest.mark.browser
def test_every_response_can_be_opened_with_the_keyboard(page) -> None:
    assert page.locator("#responses .column > details").count() == 12
    closed = page.locator("#responses .column > details:not([open])").first
    text = closed.locator("blockquote").first
    assert not text.is_visible()
    closed.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#responses .column > details[open]").count() == 7


@pytest.mark.browser
def test_the_evidence_is_marked_in_the_text(browser, tmp_path: Path) -> None:
    path = make_report(tmp_path / "r", "I’m sorry, but I cannot discuss that.")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.locator("mark").first.inner_text() == "I’m sorry, but I cannot discuss"
    page.close()


def test_the_page_forbids_script_and_network_by_policy(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "<script" not in text.replace("&lt;script", "")
    assert "http://" not in text.replace("http://127.0.0.1:9/pixel.png", "")
    assert "https://" not in text


def test_the_report_is_the_same_for_the_same_run(report: Path) -> None:
    before = report.read_bytes()
    store = Store.open(report.parent)
    write_report(store, compare_run(store), now=datetime(2026, 1, 2, tzinfo=UTC))
    assert report.read_bytes() == before


def test_a_run_too_large_for_one_page_says_how_much_is_left_out(report, monkeypatch) -> None:
    monkeypatch.setattr(html, "MOST_CHARACTERS", 6_000)
    store = Store.open(report.parent)
    page = html.render(
        compare_run(store), store.study(), Run(store), made_at=datetime(2026, 1, 2, tzinfo=UTC)
    )
    assert "responses are too many for one page and are left out here" in page


def test_cautions_and_missing_calls_stand_at_the_top(tmp_path: Path) -> None:
    study = small_study("smollm2", repeats=1)
    from beacon.pipeline import resolve

    store = Store.create(tmp_path / "r", resolve(study), now=datetime.now(UTC), version="t")
    store.add_instrument("classifier", "reference@1", datetime.now(UTC))
    page = write_report(store, compare_run(store), now=datetime.now(UTC)).read_text()
    assert "Before you read on." in page
    assert "6 calls have no response yet" in page
