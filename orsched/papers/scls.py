"""SCLS (Cheng et al., arXiv 2406.13511): slices against whole batches and continuous batching."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.batch import batch
from orsched.models.batch.batcher import serving_ns
from orsched.papers import scls_runs as profiles
from orsched.papers import scls_setting as setting
from orsched.papers.reruns import Rerun, change, means, pick
from orsched.papers.scls_runs import MOST, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.papers.reruns import Row, Values

STRATEGIES = ("SLS", "SO", "PM", "AB", "LB", "SCLS")
PAIRS = (("HF", "SLS"), ("DS", "SLS"), ("DS", "ILS"))
"""Engines and baselines that SCLS is compared with (5.2)."""
SHARED = ("answers", "prompts", "memory_share", "seconds")


def _job(settings: Mapping[str, Any], seed: int, engine: str, strategy: str, **own: Any) -> Row:
    given = {"rate": settings["rate"], "slice": setting.SLICE, "workers": setting.WORKERS} | own
    ils = {"parallel": settings["parallel"]} if strategy == "ILS" else {}
    shared = {name: settings[name] for name in SHARED}
    return {"engine": engine, "strategy": strategy, **given, **ils, **shared, "seed": seed}


def _each(settings: Mapping[str, Any], name: str, runs: Sequence[tuple[str, str]]) -> list[Row]:
    """Return a job for each value of a list of settings, engine with strategy, and seed."""
    key = "workers" if name == "workers" else name.removesuffix("s")
    return [
        _job({"rate": None, **settings}, seed, *which, **{key: value})
        for seed in range(settings["seeds"])
        for value in settings[name]
        for which in runs
    ]


def _by_rate(settings: Mapping[str, Any]) -> list[Row]:
    runs = [(engine, each) for engine in setting.ENGINES for each in ("SLS", "SCLS")]
    return _each(settings, "rates", [*runs, ("DS", "ILS")])


def _motivation(settings: Mapping[str, Any]) -> list[Row]:
    return [
        _job(settings, seed, "DS", strategy)
        for seed in range(settings["seeds"]) for strategy in ("SLS", "ILS", "SCLS")
    ]  # fmt: skip


def _ablation(settings: Mapping[str, Any]) -> list[Row]:
    return [
        _job(settings, seed, engine, strategy)
        for seed in range(settings["seeds"])
        for engine in setting.ENGINES
        for strategy in STRATEGIES
    ]


def _on_both(name: str) -> Any:
    runs = [(engine, "SCLS") for engine in setting.ENGINES]
    return lambda settings: _each(settings, name, runs)


GAINS = {
    "throughput": "requests_per_s", "mean": "mean_s", "tail": "p95_s", "batch": "batch",
    "invalid": "invalid", "pads": "pads", "std": "end_std_s",
}  # fmt: skip


def _overall(rows: list[Row]) -> Values:
    """Changes by SCLS in per cent at the rates that overload the baseline: lowest and highest.

    Figures of 5.2 show that the paper's baselines always fell behind.
    """
    found: Values = {}
    for engine, other in PAIRS:
        both = list(zip(pick(rows, engine=engine, strategy="SCLS"),
                        pick(rows, engine=engine, strategy=other), strict=True))  # fmt: skip
        behind = [pair for pair in both if pair[1]["requests_per_s"] < 0.9 * pair[1]["rate"]]
        for word, column in GAINS.items():
            pairs = both if word in ("batch", "invalid", "pads") else behind or both
            changes = [change(a[column], b[column]) for a, b in pairs if b[column]]
            if changes:
                found |= _range(f"{engine}_{other}_{word}_%", changes)
    for engine in setting.ENGINES:
        ours = pick(rows, engine=engine, strategy="SCLS")
        found[f"{engine}_batch_growth"] = ours[-1]["batch"] - ours[0]["batch"]
        found[f"{engine}_pads_growth"] = ours[-1]["pads"] - ours[0]["pads"]
    slices = pick(rows, strategy="SCLS")
    found["early_most_%"] = max(row["early_%"] for row in slices)
    found["below_3_least_%"] = min(row["below_3_%"] for row in slices)
    return found


def _range(name: str, values: Sequence[float]) -> Values:
    return {f"{name}_low": min(values), f"{name}_high": max(values)}


def _against_both(rows: list[Row]) -> Values:
    (ours,) = pick(rows, strategy="SCLS")
    found: Values = {}
    for other in ("SLS", "ILS"):
        (base,) = pick(rows, strategy=other)
        for word, column in GAINS.items():
            if base[column]:
                found[f"{other}_{word}_%"] = change(ours[column], base[column])
    return found


def _steps(rows: list[Row]) -> Values:
    """Changes that each added feature makes, in per cent of the strategy before."""
    found: Values = {}
    for engine in setting.ENGINES:
        own = {row["strategy"]: row for row in pick(rows, engine=engine)}
        for before, after in pairwise(STRATEGIES):
            for word in ("throughput", "mean", "pads", "batch", "invalid"):
                column = GAINS[word]
                old, new = own[before][column], own[after][column]
                found[f"{engine}_{after}_{word}_%"] = change(new, old)
        for word in ("throughput", "mean"):
            steps = [found[f"{engine}_{after}_{word}_%"] for after in STRATEGIES[1:]]
            found |= _range(f"{engine}_{word}_step", steps)
    return found


def _slices(rows: list[Row]) -> Values:
    """Where throughput is best, and the least and largest step of each figure by the slice."""
    found: Values = {}
    for engine in setting.ENGINES:
        own = pick(rows, engine=engine)
        best = max(own, key=lambda row: row["requests_per_s"])
        found[f"{engine}_best_slice"] = best["slice"]
        found[f"{engine}_shortest"], found[f"{engine}_longest"] = own[0]["slice"], own[-1]["slice"]
        for name in ("batch", "invalid", "pads", "reschedules", "early_%", "end_std_s"):
            steps = [b[name] - a[name] for a, b in pairwise(own)]
            found |= _range(f"{engine}_{name.rstrip('_%')}_step", steps)
        found[f"{engine}_std_after_best"] = own[-1]["end_std_s"] - best["end_std_s"]
    return found


def _shares(by: str) -> Any:
    """Return rows for the distribution of slices (of one engine: the answers decide) and rows for
    the share of batches that return early."""

    def rows(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
        found = [row for row in means(done, settings) if row["strategy"] == "SCLS"]
        counted = [
            {"part": "a", by: row[by], "slices": str(k), "share_%": row[f"{k} %"]}
            for row in found if row["engine"] == "HF" for k in (*range(1, MOST + 1), "more")
        ]  # fmt: skip
        early = [
            {"part": "b", by: row[by], "engine": row["engine"], "early_%": row["early_%"],
             "below_3_%": row["below_3_%"], "reschedules": row["reschedules"]}
            for row in found
        ]  # fmt: skip
        names = ("part", by, "slices", "share_%", "engine", "early_%", "below_3_%", "reschedules")
        return [{name: row.get(name) for name in names} for row in (*counted, *early)]

    return rows


def _overhead(rows: list[Row]) -> Values:
    own = pick(rows, part="b")
    return {
        "early_most_%": max(row["early_%"] for row in own),
        "below_3_least_%": min(row["below_3_%"] for row in own),
    }


def _overhead_by_slice(rows: list[Row]) -> Values:
    found: Values = {}
    for engine in setting.ENGINES:
        own = pick(rows, part="b", engine=engine)
        for word in ("reschedules", "early_%"):
            steps = [b[word] - a[word] for a, b in pairwise(own)]
            found |= _range(f"{engine}_{word.rstrip('_%')}_step", steps)
    return found


def _scaling(rows: list[Row]) -> Values:
    found: Values = {}
    for engine in setting.ENGINES:
        each = [row["requests_per_s"] / row["workers"] for row in pick(rows, engine=engine)]
        found |= _range(f"{engine}_per_worker", each)
        found[f"{engine}_least_share"] = min(each) / max(each)
    return found


def _lengths(job: Row) -> Row:
    """Return the share of answers up to a length, and of those in the last step."""
    _, outputs, source = setting.lengths(job["requests"], job["seed"])
    inside = (outputs > job["tokens"] - job["step"]) & (outputs <= job["tokens"])
    return {
        "in_step_%": 100 * float(inside.mean()),
        "up_to_%": 100 * float((outputs <= job["tokens"]).mean()),
        "source": source,
    }


def _length_jobs(settings: Mapping[str, Any]) -> list[Row]:
    step = settings["step"]
    given = {"step": step, "requests": settings["requests"], "seed": 0}
    return [{"tokens": tokens, **given} for tokens in range(step, setting.LIMIT + 1, step)]


def _example(job: Row) -> Row:
    """Return the time of one of Fig. 11's two ways, or of the batcher's, on our constants."""
    cost = setting.ENGINES[job["engine"]].bilinear()
    if job["way"] == "batcher":
        made = batch(np.array([10] * 15 + [1024]), cost, slice_tokens=setting.SLICE)
        return {"time_s": made.total_ns / 1e9, "batches": len(made.sizes)}
    parts = [(16, 1024)] if job["way"] == "together" else [(15, 10), (1, 1024)]
    times = [serving_ns(cost, size, longest, setting.SLICE) for size, longest in parts]
    return {"time_s": sum(times) / 1e9, "batches": len(parts)}


def _example_values(rows: list[Row]) -> Values:
    found = {f"{row['engine']}_{row['way']}_s": row["time_s"] for row in rows}
    made = pick(rows, way="batcher")
    return found | {f"{row['engine']}_batches": row["batches"] for row in made}


_RATES = Rerun(_by_rate, run, _overall)
_LENGTHS = Rerun(_on_both("slices"), run, _slices)
RERUNS = {
    "motivation": Rerun(_motivation, run, _against_both),
    "lengths": Rerun(
        _length_jobs, _lengths,
        lambda rows: {"up_to_512_%": pick(rows, tokens=512)[0]["up_to_%"]},
    ),
    "prefills": Rerun(profiles.stage_jobs, profiles.measured, profiles.straightness),
    "rounds": Rerun(profiles.round_jobs, profiles.measured, profiles.straightness),
    "fit": Rerun(profiles.jobs, profiles.measured, profiles.values, profiles.rows),
    "example": Rerun(
        lambda settings: [
            {"engine": name, "way": way}
            for name in settings["engines"] for way in ("together", "separate", "batcher")
        ],
        _example, _example_values,
    ),
    "by-rate": _RATES,
    "overhead": Rerun(_by_rate, run, _overhead, _shares("rate"), share="by-rate"),
    "ablation": Rerun(_ablation, run, _steps),
    "by-slice": _LENGTHS,
    "overhead-by-slice": Rerun(
        _LENGTHS.jobs, run, _overhead_by_slice, _shares("slice"), share="by-slice"
    ),
    "workers": Rerun(_on_both("workers"), run, _scaling),
}  # fmt: skip
