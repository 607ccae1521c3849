"""A real browser, and reports opened in it."""

import os
import shutil

import pytest

from orsched.views.html import write_report
from tests.views.samples import random_instance, served

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def unavailable(reason):
    if os.environ.get("ORSCHED_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser():
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        unavailable("there is no Chromium on this system")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("playwright is not installed")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=program, headless=True, args=list(ARGUMENTS)
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def sample():
    ids = [f"<b>{k}</b>" for k in range(200)]
    instance = random_instance(n=200, clients=20, ids=ids, name="<i>sample</i>")
    schedule = served(instance)
    return instance, [schedule, schedule.replace(method="<script>second", run={})]


@pytest.fixture
def opened(browser, tmp_path):
    """Open a report, its first chart drawn; errors and requests to the network fail the test."""
    pages, problems = [], []

    def open_report(instance, schedules, width=1300, dark=False, **options):
        path = tmp_path / "report.html"
        write_report(instance, schedules, path, **options)
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None
        )
        page.on("request", lambda r: problems.append(r.url) if r.url.startswith("http") else None)
        page.goto(path.as_uri())
        page.wait_for_selector("#panel-0[data-drawn=done]")
        return page

    yield open_report
    for page in pages:
        page.close()
    assert problems == []


@pytest.fixture
def page(opened, sample):
    """The open report of the sample."""
    return opened(*sample)
