"""Run with `python docs/take_pictures.py RUN`: the README's picture, from a real run's report."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def main() -> None:
    """Take the top of the report, as a browser of ordinary width shows it."""
    report = Path(sys.argv[1]).resolve() / "report.html"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1120, "height": 1180}, color_scheme="light")
        page.goto(report.as_uri())
        page.screenshot(path=HERE / "images" / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
