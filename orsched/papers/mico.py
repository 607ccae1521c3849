"""MICO (Cong et al.): the experiments and their setting, with the source of each constant."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate, pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.calibration.intervals import mean_interval
from orsched.checker import check
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL
from orsched.data.workers import Worker
from orsched.heuristics.mico import ABLATION
from orsched.heuristics.mico.mico import MICO
from orsched.instances.datasets import data_directory
from orsched.instances.readers import read
from orsched.instances.streams import stream
from orsched.instances.synthetic import lognormal_tokens
from orsched.papers.reruns import Rerun, pick, setting
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from orsched.data.schedule import Schedule
    from orsched.papers.reruns import Row, Values

    Ints = NDArray[np.int64]


SETTING = setting("mico")


class InsertionCost(AffineCost):
    """An insertion as in section 3.4: every request of the batch is padded to the new prompt."""

    model = "insertion"

    def mixed_ns(
        self, prompts: Sequence[int], active: int, context_sum: int = 0, context_max: int = 0
    ) -> int:
        """Duration of an iteration with new prompts: one fixed part, and all padded tokens."""
        padded = max(prompts) * (len(prompts) + active)
        return self.prefill_fixed_ns + self.prefill_token_ns * padded


def cloud(model: Mapping[str, Any], batch_size: int) -> Worker:
    """Return a cloud; memory never binds (4.1.2: the A6000 suffices)."""
    fixed, token = model["iteration_ns"], model["token_ns"]
    cost = InsertionCost(
        prefill_fixed_ns=fixed, prefill_token_ns=token, round_fixed_ns=fixed, round_client_ns=0
    )
    return Worker(batch_size, cost, padding=True)


def lengths(source: str, count: int, seed: int) -> tuple[Ints, Ints]:
    """Return prompt and answer tokens before the cut; Alpaca's are not at hand.

    ``law``: two log-normals of the shape of ShareGPT's; ``sharegpt``: its pairs, drawn with
    replacement from the data that ``ORSCHED_DATA`` names.
    """
    if source == "sharegpt":
        pairs = read(data_directory() / "sharegpt_10k_llama2_tokens.csv").requests
        rows = stream("mico/rows", seed).integers(0, len(pairs), count)
        return pairs.prompt_tokens[rows], pairs.output_tokens[rows]
    prompts = lognormal_tokens("mico/prompts", seed, count, *SETTING["prompts"])
    return prompts, lognormal_tokens("mico/outputs", seed, count, *SETTING["answers"])


def predictions(outputs: Ints, limit: int, accuracy: float, seed: int) -> Ints:
    """Return the middle of the right class with the given probability, else of a neighbour."""
    buckets = SETTING["buckets"]
    true = np.minimum(outputs * buckets // limit, buckets - 1)
    wrong = stream("mico/wrong", seed).random(len(outputs)) >= accuracy
    up = stream("mico/up", seed).random(len(outputs)) < 0.5
    side = np.where(true == 0, 1, np.where(true == buckets - 1, -1, np.where(up, 1, -1)))
    found: Ints = (2 * (true + side * wrong) + 1) * limit // (2 * buckets)
    return found


def instance(job: Mapping[str, Any]) -> Instance:
    """Return queries that are all available at time 0, in random order (paper)."""
    model, seed = SETTING["models"][job["model"]], job["seed"]
    prompts, outputs = lengths(job["lengths"], job["queries"], seed)
    limit = model["limit"]
    prompts = np.minimum(prompts, round(limit * SETTING["most_prompt"]))
    outputs = np.minimum(outputs, limit - prompts)
    told = predictions(outputs, limit, job["accuracy"], seed)
    return Instance(
        Requests(prompts, outputs, predicted_tokens=told),
        (cloud(model, job["batch"]),) * job["clouds"],
        first_token="prefill",
        output_limit_tokens=limit,
        name="mico",
    )


def scheduled(job: Mapping[str, Any]) -> tuple[Instance, Schedule]:
    """Return the instance of a run and its schedule, which the checker has passed."""
    problem, variant = instance(job), ABLATION[job["variant"]]
    values = {**variant, "backoff": bool(job["backoff"]), "order": job["order"]}
    blind = variant["distribution"] == "quantity"
    information = Information.NONE if blind else Information.PREDICTED
    policy, _ = MICO.build(problem, information, values, job["seed"])
    schedule = simulate_policy(problem, policy).schedule
    wrong = check(problem, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    return problem, schedule


def ends_by_cloud(schedule: Schedule, clouds: int) -> list[Ints]:
    """Return by cloud the sorted times of the last valid token of its queries."""
    steps, work = schedule.steps, schedule.work
    valid = work.phase != INVALID
    request, last = work.request[valid], work.last_step[valid]
    ends, owner = np.zeros((2, int(request.max()) + 1), np.int64)
    np.maximum.at(ends, request, steps.end_ns[last])
    owner[request] = steps.worker[last]
    return [np.sort(ends[owner == k]) for k in range(clouds)]


def cache_lengths(
    problem: Instance, schedule: Schedule
) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Return KV lengths summed over iterations, by cloud, in two layouts; and the peaks:
    ``literal`` as section 3.4 has it, ``engine`` as long as the longest cache present."""
    clouds = range(len(problem.workers))
    runs = {
        rule: [list(kv_lengths(schedule, k, literal=rule == "literal")) for k in clouds]
        for rule in ("literal", "engine")
    }
    sums = {rule: [summed(each) for each in found] for rule, found in runs.items()}
    peaks = {rule: max(first + rounds - 1 for each in found for first, rounds in each)
             for rule, found in runs.items()}  # fmt: skip
    return sums, peaks


def summed(runs: Sequence[tuple[int, int]]) -> int:
    """Return the sum of the KV lengths over all iterations."""
    return sum(rounds * first + rounds * (rounds - 1) // 2 for first, rounds in runs)


def kv_lengths(schedule: Schedule, worker: int, literal: bool) -> Iterator[tuple[int, int]]:
    """Yield (KV length after the first round, rounds) of each step of a padding worker. Each
    position has the part of the cache that begins where its request does; what lies before all of
    them is released. ``literal``: an insertion lengthens the cache by the whole new prompt."""
    steps, work = schedule.steps, schedule.work
    joins, leaves = defaultdict(list), defaultdict(list)
    last: dict[int, int] = {}
    for i in range(len(work.request)):
        request = int(work.request[i])
        if work.phase[i] == PREFILL:
            joins[int(work.first_step[i])].append((request, int(work.tokens[i])))
        assert work.phase[i] in (PREFILL, DECODE, INVALID)
        last[request] = max(last.get(request, 0), int(work.last_step[i]))
    for request, step in last.items():
        leaves[step].append(request)
    length = 0
    begins: dict[int, int] = {}
    for step in np.flatnonzero(steps.worker == worker).tolist():
        phase, rounds, new = int(steps.phase[step]), int(steps.rounds[step]), joins[step]
        grown = max((tokens for _, tokens in new), default=1) if literal or phase == PREFILL else 1
        if phase == MIXED or not new:
            length += grown
        begins |= {request: length - tokens for request, tokens in new}
        yield length - min(begins.values()), rounds
        length += rounds - 1
        for request in leaves[step]:
            del begins[request]


CONSTANTS = ("model", "lengths", "accuracy", "order")
BATCH, CLOUDS = 3, 3
"""One panel varies clouds at this batch size, the others batch sizes with so many clouds."""


def _cells(settings: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return clouds and batch sizes: all pairs, or those of the panels of Figs. 12 and 13."""
    pairs = [(k, b) for k in settings["clouds"] for b in settings["batches"]]
    crossed = settings["cells"] == "crossed"
    return [(k, b) for k, b in pairs if not crossed or k == CLOUDS or b == BATCH]


def _gain_jobs(settings: Mapping[str, Any]) -> list[Row]:
    """Return runs of both variants of each pair; back-off is of MICO against the baseline alone."""
    found = {}
    for seed in range(settings["seeds"]):
        for queries in settings["queries"]:
            for clouds, batch in _cells(settings):
                for pair in settings["pairs"]:
                    for place, variant in enumerate(pair.split("/")):
                        job = {
                            "variant": variant, "queries": queries, "clouds": clouds,
                            "batch": batch, "backoff": settings["backoff"] if place == 0 else 0,
                            "seed": seed,
                        } | {name: settings[name] for name in CONSTANTS}  # fmt: skip
                        found[tuple(job.items())] = job
    return list(found.values())


def _gain_run(job: Row) -> Row:
    return {"makespan_s": scheduled(job)[1].makespan_ns / 1e9}


def _gain_rows(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return the throughput of the first variant of each pair over the second, by cell."""
    times: dict[tuple[Any, ...], list[float]] = {}
    for job, figures in done:
        key = (job["variant"], job["backoff"], job["queries"], job["clouds"], job["batch"])
        times.setdefault(key, []).append(figures["makespan_s"])
    rows = []
    for pair in settings["pairs"]:
        new, old = pair.split("/")
        for queries in settings["queries"]:
            for clouds, batch in _cells(settings):
                ours = times[new, settings["backoff"], queries, clouds, batch]
                base = times[old, 0, queries, clouds, batch]
                gain = mean_interval([b / a for a, b in zip(ours, base, strict=True)])
                half = None if gain.high is None else gain.high - gain.mean
                rows.append({
                    "pair": pair, "queries": queries, "clouds": clouds, "batch": batch,
                    "throughput_x": gain.mean, "half_x": half, "saved_s": fmean(base) - fmean(ours),
                })  # fmt: skip
    return rows


def _panels(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return rows by panel: batch sizes for each pair, then clouds for the first pair."""
    rows, first = _gain_rows(done, settings), settings["pairs"][0]
    parts = [(f"{pair}, batch size", "batch", pick(rows, pair=pair, clouds=CLOUDS))
             for pair in settings["pairs"]]  # fmt: skip
    parts.append((f"{first}, clouds", "clouds", pick(rows, pair=first, batch=BATCH)))
    return [
        {"panel": "abcdef"[k], "group": name, "at": row[at]} | row
        for k, (name, at, part) in enumerate(parts) for row in part
    ]  # fmt: skip


def _gain_values(rows: list[Row]) -> Values:
    gains = [row["throughput_x"] for row in rows]
    found: Values = {"least_x": min(gains), "most_x": max(gains)}
    for row in rows:
        found[f"{row['clouds']}_clouds_batch_{row['batch']}_x"] = row["throughput_x"]
    by_batch, by_clouds = (_means_by(rows, name) for name in ("batch", "clouds"))
    steps = pairwise(by_batch.values())
    found["batch_steps_without_growth"] = sum(b <= a for a, b in steps)
    found["spread_over_batches_x"] = max(by_batch.values()) / min(by_batch.values())
    found["spread_over_clouds_x"] = max(by_clouds.values()) / min(by_clouds.values())
    return found


def _means_by(rows: list[Row], name: str) -> dict[Any, float]:
    values = sorted({row[name] for row in rows})
    return {v: fmean(row["throughput_x"] for row in pick(rows, **{name: v})) for v in values}


def _panel_values(rows: list[Row]) -> Values:
    """Return least and mean gains in per cent by panel, and how they change."""
    found: Values = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        own = pick(rows, group=group)
        gains = [100 * (row["throughput_x"] - 1) for row in own]
        name = group.replace(", ", "_").replace(" ", "_").replace("/", "_over_")
        found[f"{name}_least_%"], found[f"{name}_mean_%"] = min(gains), fmean(gains)
        found[f"{name}_cells_without_gain"] = sum(gain <= 0 for gain in gains)
        means = [100 * (x - 1) for x in _means_by(own, "at").values()]
        found[f"{name}_small_%"], found[f"{name}_large_%"] = fmean(means[:3]), fmean(means[-3:])
        by_queries = _means_by(own, "queries")
        found[f"{name}_few_queries_%"] = 100 * (by_queries[min(by_queries)] - 1)
        found[f"{name}_many_queries_%"] = 100 * (by_queries[max(by_queries)] - 1)
        for word, count in (("few", min(by_queries)), ("many", max(by_queries))):
            found[f"{name}_{word}_saved_s"] = fmean(r["saved_s"] for r in pick(own, queries=count))
    return found


def _cache_jobs(settings: Mapping[str, Any]) -> list[Row]:
    given = {name: settings[name] for name in (*CONSTANTS, "queries", "batch", "points")}
    return [
        {"variant": variant, "clouds": CLOUDS, "seed": seed, **given,
         "backoff": settings["backoff"] * (variant == "QI")}
        for seed in range(settings["seeds"]) for variant in ("QI", "neither")
    ]  # fmt: skip


def _cache_run(job: Row) -> Row:
    """Return sums and ends by cloud, and for the chart the curves of each cloud."""
    problem, schedule = scheduled(job)
    sums, peaks = cache_lengths(problem, schedule)
    ends = ends_by_cloud(schedule, CLOUDS)
    last = {"ends_s": [float(each[-1]) / 1e9 for each in ends], "served": [len(e) for e in ends]}
    grid = np.linspace(0, job["queries"] * 650 // (CLOUDS * job["batch"]), job["points"]).round()
    every = np.concatenate(ends)
    tenths = np.quantile(every, np.arange(1, 11) / 10, method="inverted_cdf") / 1e9
    curves = [_curve(schedule, k, ends[k], grid) for k in range(CLOUDS)] if not job["seed"] else []
    return {**sums, **last, "peaks": peaks, "tenths_s": tenths.tolist(), "curves": curves,
            "grid": grid.tolist()}  # fmt: skip


def _curve(schedule: Schedule, cloud: int, ends: Any, grid: Any) -> list[list[float]]:
    """Return KV length, its sum so far and finished queries of a cloud at iterations."""
    steps = schedule.steps
    runs = list(kv_lengths(schedule, cloud, literal=False))
    lengths = [x for first, rounds in runs for x in range(first, first + rounds)]
    sums = [0, *accumulate(lengths)]
    of_cloud = steps.worker == cloud
    rounds_done = np.cumsum([rounds for _, rounds in runs])
    done = np.searchsorted(ends, steps.end_ns[of_cloud], side="right")
    found = []
    for name in grid.astype(int).tolist():
        at = min(name, len(lengths))
        step = int(np.searchsorted(rounds_done, at, side="right")) - 1
        finished = int(done[step]) if step >= 0 else 0
        length = lengths[at - 1] if 0 < name <= len(lengths) else 0
        found.append([float(length), float(sums[at]), float(finished)])
    return found


def _cache_rows(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return curves of seed 0 by cloud or of the service, and means over seeds beside them."""
    by_variant = {name: [f for job, f in done if job["variant"] == name]
                  for name in ("QI", "neither")}  # fmt: skip
    told = _cache_means(by_variant["QI"], by_variant["neither"])
    rows = []
    for name, label in (("QI", "MICO"), ("neither", "baseline")):
        first = by_variant[name][0]
        curves = np.array(first["curves"])
        parts = {f"cloud {k + 1}": curve for k, curve in enumerate(curves)}
        if settings["show"] == "service":
            whole = np.sum(curves, axis=0)
            parts = {"least": curves.min(axis=0), "mean": whole / CLOUDS}
            parts["most"] = curves.max(axis=0)
            for each in parts.values():
                each[:, 1:] = whole[:, 1:]
        for part, curve in parts.items():
            for at, (length, total, finished) in zip(first["grid"], curve, strict=True):
                rows.append({"variant": label, "part": part, "iteration": int(at),
                             "kv_length": length, "kv_sum": total,
                             "completed": int(finished), **told})  # fmt: skip
    return rows


def _cache_means(ours: list[Row], base: list[Row]) -> Row:
    """Return what MICO gains over the baseline, means over seeds."""
    pairs = list(zip(ours, base, strict=True))
    found = {"throughput_x": fmean(max(b["ends_s"]) / max(a["ends_s"]) for a, b in pairs)}
    for k in range(CLOUDS):
        found[f"cloud_{k + 1}_x"] = fmean(
            a["served"][k] / a["ends_s"][k] / (b["served"][k] / b["ends_s"][k]) for a, b in pairs
        )
    for rule in ("engine", "literal"):
        shares = [[a[rule][k] / b[rule][k] for a, b in pairs] for k in range(CLOUDS)]
        for k, share in enumerate(shares):
            found[f"cloud_{k + 1}_{rule}_saved_%"] = 100 * (1 - fmean(share))
        whole = fmean(sum(a[rule]) / sum(b[rule]) for a, b in pairs)
        found[f"{rule}_saved_%"] = 100 * (1 - whole)
        peaks = [a["peaks"][rule] / b["peaks"][rule] for a, b in pairs]
        found[f"{rule}_peak_over_baseline"] = fmean(peaks)
    tenths = [fmean(b["tenths_s"][k] / a["tenths_s"][k] for a, b in pairs) for k in range(9)]
    return found | {"least_tenth_x": min(tenths)}


def _cache_values(rows: list[Row]) -> Values:
    own = ("variant", "part", "iteration", "kv_length", "kv_sum", "completed")
    return {name: value for name, value in rows[0].items() if name not in own}


RERUNS = {
    "gains": Rerun(_gain_jobs, _gain_run, _gain_values, _gain_rows),
    "panels": Rerun(_gain_jobs, _gain_run, _panel_values, _panels),
    "caches": Rerun(_cache_jobs, _cache_run, _cache_values, _cache_rows),
}
