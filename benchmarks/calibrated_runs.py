"""Runs of a GPU, phase by phase, predicted by the calibration that was measured before them.

python -m benchmarks.calibrated_runs [FOLDER]    # default: h100, below ORSCHED_DATA

Each ``SET_calibration.csv`` in the folder is fitted as ``orsched calibrate --from`` does, and
predicts every ``SET_POLICY_steps.csv`` beside it. ``all runs`` is the error of one roofline that is
fitted to the steps of all runs of the set at once: what the runs disagree about.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.speed.section import table
from orsched.calibration.candidates import calibrate
from orsched.calibration.fit import fit
from orsched.calibration.measurements import DECODE, PREFILL, Measurements
from orsched.calibration.step_files import RunStep, judge, read_measurements, read_steps
from orsched.instances.datasets import data_directory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orsched.costs import CostModel

PHASE, TOTAL = 5.0, 3.0
"""The goals: per cent by which each phase, and each run, may be missed."""
COLUMNS = ("phase", "count", "duration_ns", "tokens", "longest", "context_sum", "context_max")


def model_of_runs(runs: Sequence[list[RunStep]]) -> CostModel:
    """Return a roofline fitted to the steps of runs, in seconds, as frequent as they were."""
    return fit("roofline", rows_of_runs(list(runs)), weighting="seconds", holdout=0).cost


def rows_of_runs(runs: list[list[RunStep]]) -> Measurements:
    """Return the steps of runs as measurements."""
    found: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    number: list[int] = []
    for run, steps in enumerate(runs, start=1):
        for step in steps:
            for name, value in zip(COLUMNS, _row(step), strict=True):
                found[name].append(value)
            number.append(run)
    return Measurements(**found, run=number)


def _row(step: RunStep) -> tuple[Any, ...]:
    """Return a step, or the mean of a run of rounds, as a row of measurements."""
    middle = (step.rounds - 1) // 2
    duration = max(1, (step.end_ns - step.start_ns) // step.rounds)
    prompts = (step.tokens, step.longest) if step.phase != DECODE else (0, 0)
    if step.phase == PREFILL:
        return (step.phase, step.prompts, duration, *prompts, 0, 0)
    contexts = (step.context_sum + step.active * middle, step.context_max + middle)
    return (step.phase, step.active, duration, *prompts, *contexts)


def rows_of(calibration: Path) -> list[dict[str, Any]]:
    """Return a row for each phase of each run of a set, and for its total."""
    best = calibrate(read_measurements(calibration)).whole()
    assert best.cost is not None
    name = calibration.name.removesuffix("_calibration.csv")
    runs = {path.name: read_steps(path) for path in sorted(calibration.parent.glob(f"{name}_*.csv"))
            if path.name.endswith("_steps.csv")}  # fmt: skip
    every, found = model_of_runs(list(runs.values())), []
    for file, steps in runs.items():
        said = [judge(cost, file, steps).to_dict() for cost in (best.cost, every)]
        phases = [*said[0]["phases"], "total"]
        for phase in phases:
            mine = [each if phase == "total" else each["phases"][phase] for each in said]
            error, all_runs = (round(100 * each["error"], 1) for each in mine)
            goal = TOTAL if phase == "total" else PHASE
            found.append({
                "set": name, "model": best.model,
                "policy": file.removeprefix(f"{name}_").removesuffix("_steps.csv"), "phase": phase,
                "steps": sum(step.phase == phase or phase == "total" for step in steps),
                "measured s": round(mine[0]["measured_s"], 2),
                "predicted s": round(mine[0]["predicted_s"], 2),
                "error %": error, "all runs %": all_runs,
                "met": abs(error) <= goal,
            })  # fmt: skip
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and how many rows meet the goals."""
    parser = argparse.ArgumentParser(prog="calibrated_runs", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="h100", help="below ORSCHED_DATA")
    given = parser.parse_args(arguments)
    folder = data_directory() / given.folder
    rows = [row for path in sorted(folder.glob("*_calibration.csv")) for row in rows_of(path)]
    print("\n".join(table(rows)))
    met = sum(row["met"] for row in rows)
    print(f"\n{met} of {len(rows)} within {PHASE:.0f} % (phases) and {TOTAL:.0f} % (totals)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
