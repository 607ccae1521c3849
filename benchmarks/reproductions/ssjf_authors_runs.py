"""The setting of SSJF's published simulator, and one run in it with the figures it reports.

Every constant is from the authors' code (github.com/James-QiuHaoran/LLM-serving-with-proxy-models,
folder ``model-serving``, Apache-2.0), whose files are named; none was fitted.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.reproductions import ssjf_heads, ssjf_setting
from benchmarks.reproductions.ssjf_authors_policies import AuthorsFcfs, AuthorsShortestFirst
from orsched.calibration.intervals import mean_interval
from orsched.checker import check
from orsched.common import registry
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances import predict
from orsched.instances.predictions import load_confusion
from orsched.instances.streams import stream
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.simulator.policy import Policy

JOBS = 50
"""Requests of a run (util.py)."""

RUNS = 20
"""Runs of each point (util.py)."""

TOKEN_NS = 20_000_000
"""K: ``per_token_latency`` of 0.02 s, whatever the size of the batch (eval.py)."""

OFFSET_TOKENS = 5
"""C: ``const_latency`` of 0.1 s (eval.py) is the time of 5 tokens. It passes beside the others of
a batch, so each request has 5 tokens more, and prefills take no time."""

RATES = (1, 3, 5, 7, 9)
"""Arrivals a second: every second of 1 to 10 (auto_eval.py), as in auto_eval_lineplot.py."""

CVS = (1, 2, 3, 4, 5)
"""Coefficients of variation of Gamma gaps: every second of 1 to 5.5 in halves."""

GAMMA_RATE = 0.03
"""Arrivals a second with Gamma gaps (auto_eval.py)."""

BATCH = 2
"""Largest batch: the default of util.py. The paper says 4, with which its figures do not come."""

PAPER_BATCH = 4

SIZES = (2, 4, 6, 8, 10)
"""Batch sizes (run.sh)."""

WAIT_S = 10.0
"""``BATCH_WAIT_TIMEOUT`` (util.py; 5 in the readme)."""

PART = 25
"""Throughput is that of the first so many per cent of the requests (simulator.py)."""

KINDS = {"rates": RATES, "burstiness": CVS}
MODES = ("none", "dynamic", "continuous")


class Case(NamedTuple):
    """A batching mode, a kind of arrivals, and what can be changed about the authors' setting.

    Attributes:
        wait_s: how long first come first served waits for a batch to fill.
        rescue: whether who waits too long goes first under shortest first.
        peek: whether that rule reads true lengths.
        forget: whether a last request that arrives when all others are done is never served
            under shortest first, as in the authors' loop, and so is not counted.
        sort_gaps: whether the Gamma gaps are sorted, the shortest first.
        plain: orsched's own ``fcfs_batched``, ``ssjf`` and ``sjf`` instead, which do not preempt
            and wait alike for a dynamic batch to fill.
        rows: whose lengths and predictions: None for the published ones, else a source of
            ``ssjf_heads`` and the rounds of it, the first and the last.
    """

    mode: str
    kind: str
    size: int = BATCH
    wait_s: float = WAIT_S
    rescue: bool = True
    peek: bool = True
    forget: bool = True
    sort_gaps: bool = True
    plain: bool = False
    rows: tuple[str, int, int] | None = None


class Figures(NamedTuple):
    """Mean JCT in seconds, throughput of the first quarter and of all, in requests a second."""

    jct_s: float
    throughput: float
    whole: float


FCFS, ORACLE = "fcfs", "oracle"


def workload(case: Case, value: float, run: int, predictor: str) -> Instance:
    """Return a run's requests, with lengths predicted by a predictor of ``orsched.instances``."""
    place = 100 * KINDS[case.kind].index(int(value)) + run + 10_000 * (case.kind == "burstiness")
    if case.rows is not None:
        return _of_heads(case, value, place, predictor)
    outputs, told, _ = ssjf_setting.lengths(JOBS, place)
    arrivals = arrivals_s(case, value, stream("ssjf/authors", place))
    instance = _instance(outputs, arrivals)
    if told is not None and predictor == "classes":
        predicted = np.array(load_confusion(5).medians(), np.int64)[told]
    else:
        predicted = predict(instance, predictor, place).requests.predicted_tokens
    return _with_offset(instance, predicted)


def _instance(outputs: NDArray[np.int64], arrivals: NDArray[np.float64]) -> Instance:
    requests = Requests(np.ones(JOBS, np.int64), outputs, arrival_s=arrivals)
    worker = Worker(
        JOBS,
        AffineCost(
            prefill_fixed_ns=0, prefill_token_ns=0, round_fixed_ns=TOKEN_NS, round_client_ns=0
        ),
    )
    return Instance(
        requests, worker, output_limit_tokens=512 + OFFSET_TOKENS, name="ssjf", first_token="decode"
    )


def _with_offset(instance: Instance, predicted: NDArray[np.int64]) -> Instance:
    requests = instance.requests
    outputs = requests.output_tokens + OFFSET_TOKENS
    columns = requests.replace(output_tokens=outputs, predicted_tokens=predicted + OFFSET_TOKENS)
    return instance.replace(requests=columns)


def _of_heads(case: Case, value: float, place: int, predictor: str) -> Instance:
    """Return a run's requests from held-out rows of a source, with what a head told of them.

    Lengths are the published ones of the same rank: the k-th shortest row of a source has the k-th
    of as many published lengths. Predictions go the same way, and the order of both stays.
    """
    assert case.rows is not None
    source, first, last = case.rows
    found = ssjf_heads.kept(source)
    draws = stream("ssjf/authors/heads", place)
    chosen = np.flatnonzero((found.rounds >= first) & (found.rounds <= last))
    rows = chosen[draws.integers(0, len(chosen), JOBS)]
    known = np.sort(found.truth)
    drawn = np.sort(ssjf_setting.lengths(len(known), 0)[0])
    outputs = np.empty_like(drawn)
    outputs[np.argsort(found.truth, kind="stable")] = drawn
    told = found.truth if predictor == "oracle" else found.told[predictor]
    ranks = np.minimum(np.searchsorted(known, told[rows]), len(known) - 1)
    instance = _instance(outputs[rows], arrivals_s(case, value, draws))
    return _with_offset(instance, drawn[ranks])


def arrivals_s(case: Case, value: float, draws: np.random.Generator) -> NDArray[np.float64]:
    """Return arrival times: Poisson counts at whole seconds, or sums of Gamma gaps (job.py).

    Gaps are at least 1 ns: many are far less at a high CV, and none is 0. With their floats the
    first request is alone when it arrives, and is served at once whatever its length.
    """
    if case.kind == "burstiness":
        gaps = np.maximum(draws.gamma(1 / value**2, value**2 / GAMMA_RATE, JOBS), 1e-9)
        return np.cumsum(np.sort(gaps) if case.sort_gaps else gaps)
    counts = draws.poisson(value, int(JOBS / value))
    while counts.sum() < JOBS:
        counts = np.append(counts, draws.poisson(value, int(JOBS / value)))
    return np.repeat(np.arange(len(counts), dtype=float), counts)[:JOBS]


@cache
def run(case: Case, scheduler: str, value: float, number: int) -> Figures:
    """Run ``fcfs``, ``oracle`` or shortest first by a predictor; the checker accepts it."""
    predictor = "oracle" if scheduler in (FCFS, ORACLE) else scheduler
    instance = workload(case, value, number, predictor)
    policy = _plain(case, scheduler, instance) if case.plain else _policy(case, scheduler, instance)
    schedule = simulate_policy(instance, policy).schedule
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    finish = schedule.request_times(instance)["finish_ns"] / 1e9
    forgets = case.forget and scheduler != FCFS and not case.plain
    return figures(finish, instance.requests.arrival_ns / 1e9, forgets)


def figures(
    finish_s: NDArray[np.float64], arrival_s: NDArray[np.float64], forgets: bool
) -> Figures:
    """Return the figures of ``simulator.py`` from times by request in the order of arrival."""
    if forgets and arrival_s[-1] > finish_s[:-1].max():
        finish_s, arrival_s = finish_s[:-1], arrival_s[:-1]
    ends = np.sort(finish_s)
    place = (len(ends) - 1) * PART // 100
    jct = float((finish_s - arrival_s).mean())
    return Figures(jct, float(place / ends[place]), float(len(ends) / ends[-1]))


def _policy(case: Case, scheduler: str, instance: Instance) -> Policy:
    size, continuous = 1 if case.mode == "none" else case.size, case.mode == "continuous"
    if scheduler == FCFS:
        return AuthorsFcfs(size, continuous, round(case.wait_s * 1e9))
    predicted = None if scheduler == ORACLE else instance.requests.predicted_tokens
    told = None if predicted is None else predicted.tolist()
    return AuthorsShortestFirst(size, continuous, told, case.rescue, case.peek)


def _plain(case: Case, scheduler: str, instance: Instance) -> Policy:
    name, known = {FCFS: ("fcfs_batched", "none"), ORACLE: ("sjf", "clairvoyant")}.get(
        scheduler, ("ssjf", "predicted")
    )
    options = {
        "batching": case.mode,
        "max_batch_size": case.size,
        "batch_wait_timeout_s": case.wait_s,
    }
    policy, _ = registry.resolve("methods", name).build(instance, Information(known), options, 0)
    return policy


class Gain(NamedTuple):
    """Change of JCT in per cent, and throughputs as multiples, over first come first served.

    Attributes:
        jct, throughput, whole: of ratios of means; ``whole`` is the throughput of all requests.
        jct_half, throughput_half: half the widths of their 95 % confidence intervals.
    """

    jct: float
    throughput: float
    whole: float
    jct_half: float
    throughput_half: float


def gain(case: Case, scheduler: str, runs: int, values: Sequence[float] | None = None) -> Gain:
    """Return what a scheduler gains: a ratio of means over runs and over all rates or CVs.

    So it is in auto_eval_lineplot.py. The intervals are Student's for the residuals run by run.
    """
    ours, fcfs = (_by_run(case, name, runs, values) for name in (scheduler, FCFS))
    jct, throughput, whole = ours.mean(axis=0) / fcfs.mean(axis=0)
    halves = []
    for place, found in enumerate((jct, throughput)):
        rest = (ours[:, place] - found * fcfs[:, place]) / fcfs[:, place].mean()
        interval = mean_interval(rest.tolist())
        halves.append(0.0 if interval.high is None else interval.high - interval.mean)
    jct_change = 100 * (float(jct) - 1)
    return Gain(jct_change, float(throughput), float(whole), 100 * halves[0], halves[1])


def mean(case: Case, scheduler: str, runs: int, values: Sequence[float] | None = None) -> Figures:
    """Return the means over runs and over rates or CVs, by default all."""
    return Figures(*_by_run(case, scheduler, runs, values).mean(axis=0).tolist())


def _by_run(
    case: Case, scheduler: str, runs: int, values: Sequence[float] | None
) -> NDArray[np.float64]:
    """Return figures by run, each the mean over rates or CVs."""
    chosen = KINDS[case.kind] if values is None else values
    rows = [[run(case, scheduler, value, number) for value in chosen] for number in range(runs)]
    return np.array(rows).mean(axis=1)
