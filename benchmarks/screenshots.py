"""Screenshots of a report, a study plot and five pages of the documentation.

python -m benchmarks.screenshots [--out FOLDER] [--docs] [--html FOLDER] takes them with Chromium:
light, dark, and 800 pixels wide, pages of the documentation in full length. It names what is cut
off on a page: text wider than its box that does not scroll. ``--docs`` also puts three of them,
with fewer colours, into ``docs/_static``. The report is that of the example ``own_trace.py``, the
study that of ``study_with_plots.py``; pages are read from ``docs/_build/html`` (``make docs``).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orsched
from orsched.planning.study import run, save_plots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "docs" / "_build" / "html"
PAGES = ("index", "pieces", "own-data", "concepts", "results-exact-and-packing")
"""The start page, the pieces, a how-to, an explanation and a page of results."""
TRACE = ROOT / "examples" / "data" / "requests.csv"
CHARTS = "Latency of requests"
IN_DOCS = ("report-light", "report-charts-dark-800", "study-light-800")
SETTLE_MS = 1500


class Shot(NamedTuple):
    """A screenshot: which page, how wide, how high, in which colours, from which heading down."""

    page: str
    width: int
    height: int
    colours: str = "light"
    heading: str = ""

    @property
    def name(self) -> str:
        """Name of the file, without suffix."""
        width = "-800" if self.width == 800 else ""
        part = "-charts" if self.heading else ""
        return f"{self.page}{part}-{self.colours}{width}"


SHOTS = (
    Shot("report", 1200, 1000),
    Shot("report", 1200, 1000, "dark"),
    Shot("report", 800, 1000),
    Shot("report", 800, 1000, "dark"),
    Shot("report", 1200, 1000, "light", CHARTS),
    Shot("report", 800, 1000, "dark", CHARTS),
    Shot("study", 800, 560),
    *(
        Shot(page, *size)
        for page in PAGES
        for size in ((1200, 900), (1200, 900, "dark"), (800, 900), (800, 900, "dark"))
    ),
)
CUT = """() => [...document.querySelectorAll('article *')].filter(each => {
  const scrolls = element => {
    for (let at = element; at && at.tagName != 'ARTICLE'; at = at.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(at).overflowX)) return true
    return false
  }
  const article = document.querySelector('article').getBoundingClientRect()
  const edge = Math.min(article.right, document.documentElement.clientWidth)
  return each.getBoundingClientRect().right > edge + 24 && !scrolls(each)
}).map(each => `${each.tagName} ${each.textContent.trim().slice(0, 60)}`)"""
"""What is wider than the text of its page and cannot be scrolled."""


def instance() -> orsched.Instance:
    """Return the requests of the examples on the worker of the examples."""
    memory = {"memory_blocks": 1200, "block_tokens": 128, "allocation": "whole"}
    return orsched.load(TRACE, clients=64, cost="a100-llama3-8b-sheet", **memory)


def write_report(path: Path) -> None:
    """Write the report of three methods under limits."""
    problem, limits = instance(), orsched.SLO(ttft_s=2, tpot_s=0.05)
    found = orsched.compare(problem, ["fcfs", "vllm", "gittins"], slo=limits)
    orsched.write_report(problem, [each.schedule for each in found], path)


def write_study(folder: Path) -> Path:
    """Run a small study in a folder, and write a page with its plots."""
    done = run(
        {
            "instances": [instance()],
            "arrivals": {"law": "gamma", "rate": [2, 4, 6, 8, 10], "cv": 2},
            "seeds": "0:4",
            "policies": ["fcfs", "vllm", "gittins"],
            "slo": {"ttft_s": 2, "tpot_s": 0.05},
        },
        folder / "study",
        jobs=2,
    )
    plots = [
        {"y": "ttft_ns_p99", "x": "arrivals_rate"},
        {"y": "slo_attainment", "x": "arrivals_rate"},
    ]
    paths = save_plots(done.rows, folder / "plots", plots)
    page = folder / "study.html"
    pictures = "".join(f'<img src="{path}" style="width:50%">' for path in paths)
    page.write_text(
        f'<!doctype html><body style="margin:0;display:flex;align-items:start">{pictures}</body>'
    )
    return page


@contextmanager
def browser() -> Iterator[Any]:
    """Yield the system's Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program)
        yield started
        started.close()


def take(started: Any, shot: Shot, page: Path, target: Path) -> list[str]:
    """Take one screenshot and return what is cut off; errors on the page end the command."""
    sheet = started.new_page(
        viewport={"width": shot.width, "height": shot.height}, color_scheme=shot.colours
    )
    faults: list[str] = []
    sheet.on("pageerror", lambda error: faults.append(str(error)))
    sheet.goto(page.as_uri())
    sheet.wait_for_timeout(SETTLE_MS)
    if shot.heading:
        heading = sheet.get_by_role("heading", name=shot.heading).first
        heading.evaluate("heading => heading.scrollIntoView()")
        sheet.wait_for_timeout(SETTLE_MS)
    if shot.page == "study":
        sheet.locator("body").screenshot(path=target)
    else:
        sheet.screenshot(path=target, full_page=shot.page in PAGES)
    cut = list(sheet.evaluate(CUT)) if shot.page in PAGES else []
    sheet.close()
    if faults:
        raise SystemExit(f"{page.name}: {faults[0]}")
    return cut


def shrink(source: Path, target: Path) -> None:
    """Write a picture with 192 colours: half of its bytes, and the same to the eye."""
    from PIL import Image

    with Image.open(source) as picture:
        picture.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(target, optimize=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Take all screenshots."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out" / "screenshots")
    parser.add_argument("--html", type=Path, default=HTML, help="the built documentation")
    parser.add_argument("--docs", action="store_true", help="three of them into docs/_static")
    options = parser.parse_args(argv)
    if not (options.html / "index.html").is_file():
        print(f"{options.html / 'index.html'} is missing: make docs", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    cut = 0
    with tempfile.TemporaryDirectory() as temporary, browser() as started:
        folder = Path(temporary)
        write_report(folder / "report.html")
        pages = {page: options.html / f"{page}.html" for page in PAGES}
        pages |= {"report": folder / "report.html", "study": write_study(folder)}
        for shot in SHOTS:
            target = options.out / f"{shot.name}.png"
            found = take(started, shot, pages[shot.page], target)
            print(target, *(f"  cut off: {each}" for each in found), sep="\n")
            cut += len(found)
            if options.docs and shot.name in IN_DOCS:
                shrink(target, ROOT / "docs" / "_static" / f"screenshot-{shot.name}.png")
    return 1 if cut else 0


if __name__ == "__main__":
    raise SystemExit(main())
