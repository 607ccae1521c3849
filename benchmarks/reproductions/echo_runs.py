"""One run in Echo's setting, with the figures that the paper reports."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.reproductions import echo_setting as setting
from orsched.checker import check
from orsched.common.registry import resolve
from orsched.common.units import NS_PER_S
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import token_times
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.step import Step
    from orsched.simulator.policy import View

    Column = NDArray[np.int64]

Parameters = tuple[tuple[str, Any], ...]

SAMPLES = 2_000
"""About so many times a day what runs is looked at."""


class Sample(NamedTuple):
    """What runs at a moment.

    Attributes:
        now_ns: the moment.
        online, bulk: interactive and bulk requests on the worker.
        online_blocks: memory blocks of the interactive ones.
        used_blocks: blocks that any request holds.
    """

    now_ns: int
    online: int
    bulk: int
    online_blocks: int
    used_blocks: int


class Run(NamedTuple):
    """What a run yields up to the end of the day.

    Attributes:
        bulk_tokens: tokens of bulk requests: each token yielded, with its part of the prompt,
            cached or computed (the credit ``output`` of ``bulk_bound``).
        answered: bulk requests that are done.
        attainment: share of the interactive requests of which every token is in time.
        tokens_in_time: share of their tokens.
        ttft_s, tpot_s: of each interactive request; TPOT is the mean behind the first token.
        hit, computed: prompt tokens of bulk requests, found in the cache and computed, by hour.
        preemptions: stays of bulk requests that were cut short, in the whole run.
        steps: steps of the whole run.
        end_s: when everything is done, the bulk work that outlasts the day as well.
        samples: what ran, over the day.
    """

    bulk_tokens: int
    answered: int
    attainment: float
    tokens_in_time: float
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    hit: Column
    computed: Column
    preemptions: int
    steps: int
    end_s: float
    samples: list[Sample]

    @property
    def hit_rate(self) -> float:
        """Share of the bulk prompt tokens of the day that were found in the cache."""
        return int(self.hit.sum()) / max(1, int(self.hit.sum() + self.computed.sum()))


class Sampler:
    """Looks at the worker now and then."""

    def __init__(self, problem: Instance, day_s: float) -> None:
        self.bulk: list[bool] = problem.bulk.tolist()
        self.day_ns = round(day_s * NS_PER_S)
        self.gap = self.day_ns // SAMPLES
        self.next_ns = 0
        self.samples: list[Sample] = []

    def __call__(self, view: View, step: Step) -> None:
        """Look at the worker before a step."""
        if not self.next_ns <= view.now_ns <= self.day_ns:
            return
        self.next_ns = view.now_ns + self.gap
        memory = view.worker.memory
        assert memory is not None
        online = [each for each in view.running if not self.bulk[each]]
        held = sum(-(-view.cached(each) // memory.block_tokens) for each in online)
        used = memory.blocks - (view.blocks_unused or 0)
        count = len(view.running) - len(online)
        self.samples.append(Sample(view.now_ns, len(online), count, held, used))


@cache
def problem_of(workload: str, seed: int, changes: Parameters = ()) -> Instance:
    """Return an instance of the setting."""
    return setting.instance(workload, seed, **dict(changes))


@cache
def run(
    workload: str, method: str, parameters: Parameters = (), seed: int = 0, changes: Parameters = ()
) -> Run:
    """Return what a method yields; ``changes`` are of the instance."""
    problem = problem_of(workload, seed, changes)
    policy, _ = resolve("methods", method).build(problem, Information.NONE, dict(parameters), seed)
    day_s = dict(changes).get("day_s", setting.DAY_S)
    sampler = Sampler(problem, day_s)
    schedule = simulate_policy(problem, policy, sampler).schedule
    wrong = check(problem, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    return measured(problem, schedule, day_s, sampler.samples)


def measured(problem: Instance, schedule: Schedule, day_s: float, samples: list[Sample]) -> Run:
    """Measure a schedule up to the end of the day."""
    line, requests = Timeline(problem, schedule), problem.requests
    yielded, first, last, late = _tokens(problem, line, round(day_s * NS_PER_S))
    whole = requests.prompt_tokens + requests.output_tokens
    done = whole * yielded / requests.output_tokens
    people = np.flatnonzero(~problem.bulk)
    gaps = np.maximum(requests.output_tokens[people] - 1, 1)
    stays = np.bincount(line.stay_request, minlength=len(problem))
    hit, computed = _prompts(problem, schedule, line, day_s)
    return Run(
        int(done[problem.bulk].sum()),
        int((yielded == requests.output_tokens)[problem.bulk].sum()),
        float((late[people] == 0).mean()),
        1 - int(late[people].sum()) / int(requests.output_tokens[people].sum()),
        (first - requests.arrival_ns)[people] / NS_PER_S,
        (last - first)[people] / gaps / NS_PER_S,
        hit,
        computed,
        int((stays[problem.bulk] - 1).sum()),
        len(schedule.steps),
        schedule.makespan_ns / NS_PER_S,
        samples,
    )


def _tokens(problem: Instance, line: Timeline, end_ns: int) -> tuple[Column, ...]:
    """Return by request: tokens up to a time, times of the first and last one, and late tokens."""
    n, codes = len(problem), problem.requests.service_class
    ttft, tpot = (
        np.array([getattr(each, name) or 0 for each in problem.classes])[codes]
        for name in ("ttft_ns", "tpot_ns")
    )
    yielded, late, last = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    first = np.full(n, 2**62)
    due = problem.requests.arrival_ns + ttft
    for request, index, time in token_times(line, np.ones(n, bool)):
        yielded += np.bincount(request[time <= end_ns], minlength=n)
        np.minimum.at(first, request, time)
        np.maximum.at(last, request, time)
        behind = (time > due[request] + index * tpot[request]) & ~problem.bulk[request]
        late += np.bincount(request[behind], minlength=n)
    return yielded, first, last, late


def _prompts(
    problem: Instance, schedule: Schedule, line: Timeline, day_s: float
) -> tuple[Column, Column]:
    """Return the prompt tokens that bulk requests found and computed in each hour of the day."""
    hours = line.end_ns[line.first] * 24 // round(day_s * NS_PER_S)
    rows = np.flatnonzero(line.is_prefill & problem.bulk[line.request] & (hours < 24))
    hits = schedule.work.hit
    found = np.zeros(len(line.row)) if hits is None else hits[line.row]
    by_hour = (
        np.bincount(hours[rows], column[rows], minlength=24).astype(np.int64)
        for column in (found, line.tokens)
    )
    hit, computed = by_hour
    return hit, computed
