"""How large a report is, and how long a browser takes until its first chart answers.

Run ``python -m benchmarks.report_page``: a closed batch at the paper's scale, arrivals on four
workers, and 100,000 requests. Chromium and playwright are needed for the times.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from benchmarks.speed.machine import describe
from orsched.views.html import write_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    Case = tuple[str, orsched.Instance, list[orsched.Schedule]]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def cases(seed: int, *, is_quick: bool) -> Iterator[Case]:
    """Yield a name, an instance and its schedules."""
    closed = orsched.load("gsm8k-llama65b")
    names = ("fcfs", "online", "hybrid")
    yield "gsm8k, 3 schedules", closed, [orsched.solve(closed, name).schedule for name in names]
    sizes = ((1_000, 3), (5_000, 8)) if is_quick else ((1_000, 3), (20_000, 8), (100_000, 1))
    for n, schedules in sizes:
        instance = arriving(n, seed)
        slo = orsched.SLO(ttft_s=2, tpot_s=0.06)
        made = orsched.simulate(instance, "vllm", slo=slo).schedule
        several = [made.replace(method=f"vllm {k}") for k in range(schedules)]
        yield f"{n:,} arrivals, {schedules} schedule{'s' * (schedules > 1)}", instance, several


def arriving(n: int, seed: int) -> orsched.Instance:
    """Return requests that arrive at 16 a second, for four workers of 256 clients."""
    draw = np.random.default_rng(seed)
    memory = orsched.BlockMemory(8000, 16, "paged")
    requests = orsched.Requests(
        draw.integers(20, 400, n),
        draw.integers(1, 400, n),
        arrival_ns=np.sort(draw.integers(0, n * 10**9 // 16, n)),
    )
    workers = tuple(orsched.Worker(256, memory=memory, name=f"worker-{k}") for k in range(4))
    return orsched.Instance(requests, workers, first_token="prefill", name="arriving")


def measured(case: Case, folder: Path, browser: Any, repeats: int) -> dict[str, Any]:
    """Return size of the page, seconds to write it, and medians of ``opened_in``."""
    name, instance, schedules = case
    path = folder / "report.html"
    begin = perf_counter()
    write_report(instance, schedules, path)
    row = {"case": name, "MB": path.stat().st_size / 1e6, "write_s": perf_counter() - begin}
    if browser is not None:
        taken = [opened_in(browser, path) for _ in range(repeats)]
        row["open_s"], row["cpu_s"] = (median(column) for column in zip(*taken, strict=True))
    return row


def opened_in(browser: Any, path: Path) -> tuple[float, float]:
    """Return seconds until the first chart is drawn, and the processor time of the page's thread.

    The latter does not depend on what else the machine does.
    """
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    begin = perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector("#panel-0[data-drawn=done]")
    took = perf_counter() - begin
    metrics = session.send("Performance.getMetrics")["metrics"]
    page.close()
    return took, next(m["value"] for m in metrics if m["name"] == "TaskDuration")


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each case, and the machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report_page", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="smaller instances")
    parser.add_argument("--no-browser", action="store_true", help="sizes only")
    options = parser.parse_args(arguments)
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    print(f"seed {options.seed}, {describe()}", file=sys.stderr)
    print("| Schedules | MB | written in (s) | first chart after (s) | of it processor (s) |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        found = cases(options.seed, is_quick=options.quick)
        if options.no_browser or program is None:
            _print(found, Path(folder), None, options.repeats)
            return 0
        from playwright.sync_api import sync_playwright

        with sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=program, headless=True, args=["--no-sandbox", "--disable-gpu"]
            )
            _print(found, Path(folder), browser, options.repeats)
            browser.close()
    return 0


def _print(found: Iterator[Case], folder: Path, browser: Any, repeats: int) -> None:
    for case in found:
        row = measured(case, folder, browser, repeats)
        times = [f"{row[name]:.1f}" if name in row else "–" for name in ("open_s", "cpu_s")]
        size, wrote = f"{row['MB']:.1f}", f"{row['write_s']:.1f}"
        print(f"| {row['case']} | {' | '.join([size, wrote, *times])} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
