"""``orsched study``: a grid of runs that survives a kill at any time."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.columns import Viewed, fitted, given_view, proven_lines, require_columns, viewed
from orsched.cli.declaring import FOLDER, argument, command, option
from orsched.cli.ending import EXIT_FAILED_CELLS
from orsched.cli.options import ALLOW_CODE, JOBS, RAY_ADDRESS, seconds
from orsched.cli.output import (
    ProgressPrinter,
    cell_text,
    counted,
    print_rows,
    printable,
    remark,
    say,
)
from orsched.cli.policies import working_folder_last
from orsched.common.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orsched.planning.study import State, StudyResult
    from orsched.planning.study.plan import Cell

_LONGEST = 500
"""Characters of an error that are printed."""

_TIMES = ("ttft", "tpot", "jct")
_OBJECTIVE = ("objective_value", "objective_bound")
FIGURES = {
    **{name: name for name in _OBJECTIVE},
    "slo_kept": "slo_kept",
    "slo_attainment": "slo_attainment",
    "goodput_per_s": "goodput_per_s",
    **{
        f"{name}_{each}_s": f"{name}_ns_{each}"
        for name in _TIMES
        for each in ("mean", "p50", "p99")
    },
    **{f"itl_{each}_s": f"itl_ns_{each}" for each in ("p50", "p95", "p99", "max")},
    **{f"stall_{each}_s": f"stall_ns_{each}" for each in ("p50", "p99")},
    "makespan_s": "makespan_ns",
    "bound_s": "bound_ns",
    "gap": "gap",
    "tokens_per_s": "tokens_per_s",
    "slot_utilization": "slot_utilization",
    "jct_mean_bound_s": "jct_bound_ns",
    "ttft_mean_bound_s": "ttft_bound_ns",
}
"""Printed figures, and the columns of the table whose means they are."""

VERDICTS = ("verdict", "best_of", "certified", "termination")
"""Columns of the table whose words are counted: status, class of schedules, proof and ending."""

_AT_ONCE = (
    "makespan_s", "bound_s", "gap", "verdict", "slot_utilization", "jct_mean_s", "jct_ci_s",
    "jct_mean_bound_s", "jct_p99_s", "ttft_mean_s", "ttft_mean_bound_s", "ttft_p99_s",
)  # fmt: skip
_OVER_TIME = (
    "slo_kept", "slo_attainment", "goodput_per_s", "ttft_mean_s", "ttft_mean_bound_s", "ttft_p99_s",
    "tpot_p99_s", "itl_p99_s", "itl_max_s", "jct_mean_s", "jct_ci_s", "jct_mean_bound_s",
    "jct_p99_s", "slot_utilization", "makespan_s", "bound_s", "gap", "verdict",
)  # fmt: skip
"""Columns of the printed table, the last of which are left out first where a line is too long."""


@command(
    "study",
    usual="output jobs plot plot_format cluster retry_failed cell_time_limit allow_code listed "
    "style",
)
class StudyCommand(Viewed):
    """Run the grid in FILE.toml: instances x arrivals x workers x seeds x policies.

    Each finished cell is a file in the output folder. The same command takes a study up again that
    was interrupted or killed; no finished cell runs again. At the end table.csv and table.parquet
    hold one row a cell; printed are the means over the seeds.

    Cells that fail are recorded with their error, named on stderr, and make the exit code 4.
    """

    file: Path = argument("FILE.toml")
    output: Path | None = option(
        "Folder of cells and tables (default: FILE-study beside the file).", "-o", type=FOLDER
    )
    jobs: int | None = JOBS
    plot: bool = option(
        "Draw means with 95 % confidence intervals, results against choices or each other "
        "([[plots]] in the file), into FOLDER/plots."
    )
    plot_format: str = option(
        "What the files of --plot are.", choices=["svg", "png", "pdf"], default="svg"
    )
    cluster: str = option(
        "Where cells run: processes here, or actors of a Ray cluster.",
        choices=["local", "ray"],
        default="local",
    )
    ray_address: str | None = RAY_ADDRESS
    retry_failed: bool = option("Run cells that failed before once more.")
    cell_time_limit: float | None = seconds("End a cell after this time: it fails.")
    allow_code: bool = ALLOW_CODE
    listed: bool = option("Print what is left to run, and exit.", "--list")

    def _run(self) -> int:
        from orsched.planning.study import read_study, run, save_plots
        from orsched.planning.study.cell import machines_of
        from orsched.planning.study.plots import require_plots
        from orsched.planning.study.table import CHOICES, FIRST

        working_folder_last(_policy_names(self.file))
        folder = self.output or self.file.with_name(f"{self.file.stem}-study")
        study = read_study(self.file)
        require_columns(("seeds", *FIRST, "jct_ci_s", *VERDICTS, *FIGURES), CHOICES)
        if self.plot:
            require_plots(study)
        if self.listed:
            _list(study.cells(), folder)
            return 0
        study.require_consent(self.allow_code)
        with ProgressPrinter("starting") as progress:

            def note(state: State) -> None:
                failed = f", {state.failed} failed" if state.failed else ""
                progress.say(f"{state.finished} of {state.cells} cells{failed}")

            with redirect_stdout(sys.stderr):  # Ray reports dead actors on stdout
                done = run(
                    study,
                    folder,
                    jobs=self.jobs,
                    cluster=self.cluster,
                    ray_address=self.ray_address,
                    retry_failed=self.retry_failed,
                    cell_time_limit=self.cell_time_limit,
                    callback=note,
                    allow_code=self.allow_code,
                )
        for words in machines_of(study.cells()):
            say(words, "machine")
        _print_means(done.rows, self.style)
        _say(done)
        if self.plot and len(done.failed) < len(done.rows):
            # Last: a plot that cannot be drawn takes nothing with it.
            for path in save_plots(done.rows, folder / "plots", study.plots, self.plot_format):
                remark(f"plot written to {path}")
        return EXIT_FAILED_CELLS if done.failed else 0


def _policy_names(file: Path) -> list[str]:
    """Return the names of the policies in a study's file, in which there may be mistakes."""
    from orsched.files.text import read_toml

    found = read_toml(file).get("policies")
    items = found if isinstance(found, list) else [found]
    return [str(item.get("name") if isinstance(item, dict) else item) for item in items]


def _list(cells: Sequence[Cell], folder: Path) -> None:
    there = {path.stem for path in (folder / "cells").glob("*.json")}
    done = sum(cell.key in there for cell in cells)
    click.echo(f"{len(cells)} cells, {done} finished, {len(cells) - done} to run, in {folder}")


def means_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line for each combination of choices: means over the seeds, verdicts counted."""
    from orsched.planning.study import over_seeds
    from orsched.planning.study.table import independent, varying

    names = independent(rows, varying(rows)) or ["policy"]
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault(tuple(row[name] for name in names), []).append(row)
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for choice, found in cells.items():
        done = [row for row in found if row["status"] == "ok"]
        lines[choice] = {**dict(zip(names, choice, strict=True)), "seeds": len(done)}
    for shown, value in FIGURES.items():
        if not rows or value not in rows[0]:
            continue
        unit = NS_PER_S if "_ns" in value else 1
        for line in lines.values():
            line[shown] = None
            if shown == "jct_mean_s":
                line["jct_ci_s"] = None
        for group in over_seeds(rows, value, names):
            interval, line = group.interval, lines[group.choice]
            line[shown] = interval.mean / unit
            if shown == "jct_mean_s" and interval.high is not None:
                line["jct_ci_s"] = (interval.high - interval.mean) / unit
    for choice, line in lines.items():
        done = [row for row in cells[choice] if row["status"] == "ok"]
        for name in (name for name in VERDICTS if rows and name in rows[0]):
            line[name] = counted([row[name] for row in done if row[name] is not None])
    return list(lines.values())


def _print_means(rows: Sequence[dict[str, Any]], style: str) -> None:
    """Print a line for each combination of choices; in a table the figures that fit."""
    from orsched.planning.study.table import arrive_over_time

    lines = viewed(means_of(rows))
    if style == "table" and given_view().columns is None and lines:
        over_time = arrive_over_time(rows)
        judged = any(line.get("slo_attainment", line.get("slo_kept")) is not None for line in lines)
        figures: tuple[str, ...] = _OVER_TIME if over_time or judged else _AT_ONCE
        if "objective_value" in lines[0]:  # the gap is the objective's, beside its bound
            asked = (*_OBJECTIVE, "gap", "verdict")
            figures = (*asked, *(name for name in figures if name not in ("bound_s", *asked)))
        choices = [name for name in lines[0] if name not in (*FIGURES, *VERDICTS, "jct_ci_s")]
        shown = fitted(lines, (*choices, *figures), least=len(choices) + 4)
        print_rows(shown, style)
        proven = [line for line in lines if line.get("best_of")]
        for text in proven_lines((_proven_name(each, choices), each["best_of"]) for each in proven):
            click.echo(printable(text))
    else:
        print_rows(lines, style)


def _proven_name(line: dict[str, Any], choices: Sequence[str]) -> str:
    """Return the choices of a line, with its verdicts where seeds differ in them."""
    name = " ".join(cell_text(each, line[each]) for each in choices if each != "seeds")
    return name if line["verdict"] == "optimal" else f"{name} ({line['verdict']})"


def _say(done: StudyResult) -> None:
    """Report on stderr what was run, what failed and where the table lies."""
    before = done.cells - done.ran
    say(f"{done.cells} cells ({done.ran} run now, {before} before), {done.folder / 'table.csv'}")
    errors: dict[str, int] = {}
    for row in done.failed:
        error = str(row["error"])
        said = error if len(error) <= _LONGEST else f"{error[:_LONGEST]} ..."
        errors[said] = errors.get(said, 0) + 1
    for error, count in list(errors.items())[:5]:
        say(f"{count} cell{'s' if count > 1 else ''} failed: {error}")
    if len(errors) > 5:
        say(f"and {len(errors) - 5} other errors in the table")
