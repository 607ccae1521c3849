"""SSJF (Qiu et al., arXiv 2404.08509): shortest predicted job first in the authors' setting."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.calibration.intervals import mean_interval
from orsched.instances.predictions import load_confusion
from orsched.papers.reruns import Rerun, pick
from orsched.papers.ssjf_setting import FCFS, ORACLE, VALUES, run, trained
from orsched.prediction.distribution import class_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from orsched.papers.reruns import Row, Values

LABELS = {
    FCFS: "FCFS", ORACLE: "oracle", "classes": "5 classes", "classes:classes=3": "3 classes",
    "noise:sigma=0.5": "log-normal",
}  # fmt: skip
NAMES = {"5 classes": "classes", "3 classes": "three_classes", "log-normal": "lognormal"}
"""What the values of a scheduler are called, where not by its label."""

CONSTANTS = ("kind", "wait_s", "sorted_gaps", "rescue", "plain")
PERCENTILES = (25, 50, 75, 99)
"""Where the five classes of a source end."""


def _jobs(settings: Mapping[str, Any]) -> list[Row]:
    """Return runs; a scheduler is a predictor of lengths, or a source and a head trained on it."""
    by_source: dict[str, list[str]] = {}
    for name in settings["schedulers"]:
        source, _, head = name.rpartition(": ")
        by_source.setdefault(source or "published", [FCFS]).append(head)
    chosen = [(source, name) for source, names in by_source.items() for name in names]
    return [
        {"source": source, "round": number, "scheduler": name, "mode": mode, "size": size,
         "seed": seed} | {each: settings[each] for each in CONSTANTS}
        for seed in range(settings["seeds"])
        for source, name in chosen
        for number in settings["rounds"]
        for mode in settings["modes"]
        for size in settings["sizes"]
    ]  # fmt: skip


def _rows(
    done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any], over: bool = False
) -> list[Row]:
    """Return a row for each scheduler at each rate or CV, or ``over`` all of them together."""
    keys, points = ("source", "round", "mode", "size"), VALUES[settings["kind"]]
    column = "arrivals_per_s" if settings["kind"] == "rates" else "cv"
    found: dict[tuple[Any, ...], dict[str, list[list[list[float]]]]] = {}
    for job, figures in done:
        names = ("jct_s", "throughput_per_s", "whole_per_s")
        values = np.array([figures[name] for name in names]).T
        parts = zip(points, values, strict=True) if not over else [(None, values.mean(axis=0))]
        for point, each in parts:
            place = (*(job[key] for key in keys), point)
            found.setdefault(place, {}).setdefault(job["scheduler"], []).append(each.tolist())
    rows = []
    for place, schedulers in found.items():
        means = {name: np.array(runs) for name, runs in schedulers.items()}
        at = dict(zip((*keys, column), place, strict=True))
        if over:
            del at[column]
        for name, ours in means.items():
            head = "" if at["source"] == "published" else f"{at['source']}: "
            label = name.replace("_", " ").replace(FCFS, "FCFS")
            label = f"{head}{label}" if head else LABELS.get(name, label)
            rows.append(at | {"scheduler": label} | _gain(ours, means[FCFS]))
    return rows


def _gain(ours: NDArray[np.float64], fcfs: NDArray[np.float64]) -> Row:
    """Return means, and ratios of means over first come, first served.

    The half widths of their 95 % intervals are Student's for the residuals run by run.
    """
    jct, times, whole = (ours.mean(axis=0) / fcfs.mean(axis=0)).tolist()
    halves = []
    for place, ratio in enumerate((jct, times)):
        rest = (ours[:, place] - ratio * fcfs[:, place]) / fcfs[:, place].mean()
        interval = mean_interval(rest.tolist())
        halves.append(0.0 if interval.high is None else interval.high - interval.mean)
    return {
        "jct_s": float(ours[:, 0].mean()), "jct_change_%": 100 * (jct - 1),
        "half_%": 100 * halves[0], "done_per_s": float(ours[:, 1].mean()),
        "throughput_x": times, "half_x": halves[1], "all_requests_x": whole,
    }  # fmt: skip


def _name(label: str) -> str:
    return NAMES.get(label, label.replace(": ", " ").replace(" ", "_"))


def _by_mode(rows: list[Row]) -> Values:
    """Return ratios of means over all rates or CVs, by scheduler and mode; and what is worse."""
    found: Values = {}
    for mode in dict.fromkeys(row["mode"] for row in rows):
        base = pick(rows, mode=mode, scheduler="FCFS")
        for label in dict.fromkeys(row["scheduler"] for row in rows):
            ours, name = pick(rows, mode=mode, scheduler=label), f"{_name(label)}_{mode}"
            for column, word, sign in (("jct_s", "reduction_%", -1), ("done_per_s", "x", 1)):
                ratio = sum(r[column] for r in ours) / sum(r[column] for r in base)
                found[f"{name}_{word}"] = ratio if sign > 0 else 100 * (1 - ratio)
            found[f"{name}_all_requests_x"] = float(np.mean([r["all_requests_x"] for r in ours]))
            found[f"{name}_points_behind_fcfs"] = sum(
                a["jct_s"] >= b["jct_s"] for a, b in zip(ours, base, strict=True)
            )
    return found


def _by_size(rows: list[Row]) -> Values:
    found: Values = {}
    for mode in dict.fromkeys(row["mode"] for row in rows):
        ours = sorted(pick(rows, mode=mode, scheduler="5 classes"), key=lambda row: row["size"])
        steps = list(pairwise(ours))
        found[f"{mode}_least_reduction_%"] = -max(row["jct_change_%"] for row in ours)
        found[f"{mode}_least_x"] = min(row["throughput_x"] for row in ours)
        found[f"{mode}_steps_jct_gain_grows"] = sum(
            b["jct_change_%"] < a["jct_change_%"] for a, b in steps
        )
        found[f"{mode}_steps_throughput_gain_grows"] = sum(
            b["throughput_x"] > a["throughput_x"] for a, b in steps
        )
    pairs = [
        (row, other)
        for row in pick(rows, mode="continuous")
        for other in pick(rows, mode="dynamic", size=row["size"], scheduler=row["scheduler"])
    ]
    found["sizes_continuous_behind"] = sum(
        a["jct_s"] >= b["jct_s"] or a["done_per_s"] <= b["done_per_s"]
        for a, b in pairs if a["scheduler"] in ("FCFS", "5 classes")
    )  # fmt: skip
    return found


def _scored_rows(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return rows over all rates, with accuracy and F1 of the predictor, weighted by class."""
    rows = []
    for row in _rows(done, settings, over=True):
        accuracy, f1 = _scores(row["source"], row["round"], row["scheduler"])
        rows.append(row | {"accuracy": accuracy, "f1": f1})
    return rows


def _scores(source: str, number: int, label: str) -> tuple[float | None, float | None]:
    if label.endswith(("FCFS", "oracle", "log-normal")):
        return None, None
    if source == "published":
        return scored(load_confusion(5 if label == "5 classes" else 3).matrix())
    found = trained(source)
    head = label.partition(": ")[2].replace(" ", "_")
    edges = np.percentile(found.truth, (50,) if head == "binary" else PERCENTILES)
    kept = found.of_round(number)
    wanted, told = (class_of(each[kept], edges) for each in (found.truth, found.told[head]))
    matrix = np.zeros((len(edges) + 1,) * 2)
    np.add.at(matrix, (wanted, told), 1)
    return scored(matrix)


def scored(matrix: NDArray[Any]) -> tuple[float, float]:
    """Return accuracy and F1, weighted by class, of counts by true and predicted class."""
    right, true = np.diag(matrix), matrix.sum(axis=1)
    f1 = 2 * right / np.maximum(matrix.sum(axis=0) + true, 1e-300)
    return float(right.sum() / matrix.sum()), float((f1 * true).sum() / matrix.sum())


def _by_predictor(rows: list[Row]) -> Values:
    found: Values = {}
    for row in rows:
        name = _name(row["scheduler"]) + (f"_round_{row['round']}" if row["round"] else "")
        found[f"{name}_reduction_%"] = -row["jct_change_%"]
        found[f"{name}_x"] = row["throughput_x"]
        if row["accuracy"] is not None:
            found[f"{name}_accuracy"], found[f"{name}_f1"] = row["accuracy"], row["f1"]
    others = ("ordinal_mse", "ordinal_l1", "classes", "regression_mse")
    for word in ("accuracy", "f1", "reduction_%", "x"):
        told = [found[f"chat_{each}_{word}"] for each in others if f"chat_{each}_{word}" in found]
        found[f"best_other_head_{word}"] = max(told, default=float("nan"))
    return found


RERUNS = {
    "by_value": Rerun(_jobs, run, _by_mode, _rows),
    "by_size": Rerun(_jobs, run, _by_size, partial(_rows, over=True)),
    "by_predictor": Rerun(_jobs, run, _by_predictor, _scored_rows),
}
