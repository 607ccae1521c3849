"""Record what the result page of a paper shows: statements, printed values, rows of its figures.

python -m benchmarks.paper_pages PAPER [--state DIR] [--quick] reruns each drawn figure in the
paper's size (finished runs of DIR are not repeated) and writes those of
docs/results-data/PAGE/*.csv that the page has a place for. ``python -m benchmarks.write_results
PAGE`` then fills it. Figures whose times are those of the machine are rerun in quick size.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from benchmarks.speed.machine import describe
from benchmarks.write_results import DOCS, PLACE, Table, write
from orsched.papers import PAPERS, Rerunning, entries, paper
from orsched.papers.reruns import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.papers import Entry

PAGES = {"mico": "mico-and-echo", "echo": "mico-and-echo"}
MEASURED = {("scls", number) for number in (8, 9, 10)}
"""Figures whose times are those of the machine that reruns them."""
CHANGES: dict[str, tuple[int, dict[str, Any], tuple[tuple[str, Any], ...], tuple[str, ...]]] = {
    "scls": (
        13,
        {"rates": [25.0], "seeds": 1},
        (
            ("prompts", 1.0), ("prompts", 4.0), ("prompts", 8.0), ("answers", 0.5),
            ("answers", 0.33), ("memory_share", 0.5), ("parallel", 6), ("parallel", 10),
        ),
        ("HF_SLS_batch_%", "HF_SLS_throughput_%", "DS_SLS_throughput_%", "DS_ILS_throughput_%"),
    ),
    "pang": (
        9,
        {"methods": ["pang-offline", "pang-online", "pang-hybrid"], "seeds": 10},
        (("sigma", 0.0), ("sigma", 0.1), ("sigma", 0.2), ("sigma", 0.3), ("cap", 5000)),
        ("baseline_makespan_s", "offline_gain_%", "online_gain_%", "hybrid_gain_%"),
    ),
}  # fmt: skip
"""Settings that are changed one by one: the figure, its other settings, changes, values shown."""


def cell(value: Any) -> str:
    """Return a value as a table has it."""
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) and abs(value) < 1000 else (
        f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)
    )  # fmt: skip


def command(entry: Entry, full: bool) -> str:
    """Return the command that reruns a figure."""
    size = " --full" if full else ""
    return f"orsched paper {entry.paper} --{entry.kind} {entry.number}{size}"


def save(
    page: str, name: str, commands: list[str], rows: list[dict[str, Any]], **more: str
) -> None:
    """Write a table with its source and more of it, if the page has a place for it."""
    places = {found[1] for found in PLACE.findall((DOCS / f"results-{page}.md").read_text())}
    if name not in places:
        return
    here = describe()
    source = {
        "command": commands, "commit": [here["commit"]],
        "machine": [f"{here['cpu']}, {here['cores']} cores"], "date": [here["date"][:10]],
    }  # fmt: skip
    source |= {key: [value] for key, value in more.items() if value}
    heads = list(rows[0])
    table = [[each.replace("_", " ") for each in heads]]
    table += [[cell(row.get(each)) for each in heads] for row in rows]
    print(write(page, name, Table(source, table)).relative_to(DOCS.parent), flush=True)


def changed(name: str, state: str | None) -> list[dict[str, Any]]:
    """Return a row for each changed setting."""
    number, given, changes, shown = CHANGES[name]
    rows = []
    for setting, value in changes:
        settings = {**given, setting: value}
        found = paper(name, number, full=True, settings=settings, state=state).values
        at = {key: found[key] if key in found else found.get(f"{key}_high") for key in shown}
        rows.append({"setting": f"{setting}={value}", **at})
    return rows


def record(name: str, state: str | None, quick: bool) -> None:
    """Rerun the figures of a paper and write its tables."""
    page = PAGES.get(name, name)
    before = f"{name}-" if name in PAGES else ""
    said: list[dict[str, Any]] = []
    printed: list[dict[str, Any]] = []
    for entry in entries(name):
        if entry.skip:
            continue
        full = not quick and (name, entry.number) not in MEASURED
        number = {entry.kind: entry.number}
        found: Rerunning = paper(name, **number, full=full, state=state)
        place = f"{entry.kind.capitalize()} {entry.number}"
        said += [
            {"of": place, "statement": each.statement, "verdict": each.verdict,
             "reason": each.reason} for each in found.verdicts
        ]  # fmt: skip
        printed += [{"of": place, **row} for row in found.printed]
        own = (name, entry.number) in MEASURED
        note = "Times of this machine, with other work beside it." if own else ""
        which = f"{before}{entry.kind}-{entry.number}"
        count = found.settings.get("seeds", 1)
        seeds = f"0 to {count - 1}" if count > 1 else ""
        save(page, which, [command(entry, full)], found.rows, note=note, seeds=seeds)
    each = [f"orsched paper {name} --figure N --full"]
    save(page, f"{before}statements", each, said)
    save(page, f"{before}printed", each, printed)
    if name in CHANGES:
        number, given, *_ = CHANGES[name]
        settings = " ".join(f"--set {key}={short_list(value)}" for key, value in given.items())
        line = f"orsched paper {name} --figure {number} --full {settings} --set SETTING"
        save(page, f"{before}settings", [line], changed(name, state))


def short_list(value: Any) -> str:
    """Return a setting as the command line takes it."""
    return ",".join(map(str, value)) if isinstance(value, list) else short(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and record."""
    parser = argparse.ArgumentParser(prog="paper_pages", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paper", choices=PAPERS)
    parser.add_argument("--state", help="a folder of finished runs")
    parser.add_argument("--quick", action="store_true", help="in quick size")
    given = parser.parse_args(arguments)
    record(given.paper, given.state, given.quick)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
