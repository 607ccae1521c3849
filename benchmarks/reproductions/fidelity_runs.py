"""Measured steps of an H100: each run predicted by what was measured without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.calibration.fit import fit
from orsched.calibration.measurements import DECODE, PREFILL, Measurements
from orsched.calibration.step_files import RunStep, judge, read_measurements, read_steps
from orsched.instances.datasets import data_directory

if TYPE_CHECKING:
    from pathlib import Path

SETS = {
    "a": "GSM8K, 200 slots",
    "b": "GSM8K, 200 slots, again",
    "c": "ShareGPT, 64 slots",
    "d": "GSM8K, 200 slots, later",
}
"""The worker changed between the sets: only runs of one set are of one machine."""

MODEL = "linear"
"""Its stages, rounds and mixed steps have numbers of their own, as this worker's have."""

COLUMNS = ("phase", "count", "duration_ns", "tokens", "longest", "context_sum", "context_max")


def left_out(weighting: str) -> list[dict[str, Any]]:
    """Predict each run from its set's grid of single steps and the other runs' steps.

    Without the grid no run says what a mixed step takes where no other run has any.
    """
    folder = data_directory() / "h100"
    found = []
    for letter, title in SETS.items():
        (grid,) = folder.glob(f"{letter}_*_calibration.csv")
        files = sorted(folder.glob(f"{letter}_*_steps.csv"))
        for file in files:
            others = [read_steps(other) for other in files if other != file]
            cost = fit(MODEL, _rows(grid, others), weighting=weighting, holdout=0).cost
            verdict = judge(cost, file.name, read_steps(file)).to_dict()
            phases = verdict["phases"]
            row: dict[str, Any] = {"set": title, "run": file.name.split("_")[-2]}
            row |= {"steps s": f"{verdict['measured_s']:.2f}"}
            row["error %"] = f"{100 * verdict['error']:+.1f}"
            for phase in ("prefill", "decode", "mixed"):
                known = phase in phases
                row[f"{phase} %"] = f"{100 * phases[phase]['error']:+.1f}" if known else ""
            found.append(row)
    return found


def _rows(grid: Path, runs: list[list[RunStep]]) -> Measurements:
    """Return the grid's rows and the runs' steps, each of which knows its run."""
    return rows_of_runs(runs, read_measurements(grid).to_dict())


def rows_of_runs(runs: list[list[RunStep]], grid: dict[str, list[Any]]) -> Measurements:
    """Return columns of a grid (or none), and behind them the steps of runs."""
    found: dict[str, list[Any]] = {name: list(grid.get(name, ())) for name in COLUMNS}
    number = [0] * len(found["phase"])
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
