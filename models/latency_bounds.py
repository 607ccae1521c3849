"""Lower bounds on the sums of completion times: mean JCT and mean TTFT, with certificates.

Two relaxations, each exact in integers (docs/bounds.md has the proofs). A request cannot end
before it would if served alone. And a worker is one machine: a round of ``c + d y`` is shared by
at most J requests, so each of them accounts for ``c / J + d`` of it; what all requests account
for is a preemptive schedule of one machine, where shortest remaining time first is optimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from orsched.costs import AffineCost, LevelsCost, PoolingCost
from orsched.models.counts import Jobs, all_jobs
from orsched.models.floors import has_floor, pooled_rounds_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance
    from orsched.workers import Worker

OBJECTIVES = ("mean_jct", "mean_ttft")


@dataclass(frozen=True)
class _Load:
    """What each request needs until its end (JCT) or its first token (TTFT).

    Attributes:
        arrivals: in nanoseconds.
        rounds: decode rounds until then.
        stage_ns, round_ns: its prefill stage and one round with nobody else in it.
        alone_ns: time until then if served alone.
        scale: S; machine times are whole multiples of 1 / S nanoseconds.
        stage_shares, round_shares: machine time of its stage, and of each of its rounds.
    """

    arrivals: list[int]
    rounds: list[int]
    stage_ns: list[int]
    round_ns: int
    alone_ns: list[int]
    scale: int
    stage_shares: list[int]
    round_shares: list[int]

    def machine_times(self) -> list[int]:
        shares = zip(self.stage_shares, self.round_shares, self.rounds, strict=True)
        return [stage + a_round * rounds for stage, a_round, rounds in shares]

    def releases(self) -> list[int]:
        return [arrival * self.scale for arrival in self.arrivals]


def latency_certificate(instance: Instance, objective: str) -> dict[str, Any]:
    """Return the certificate of the best lower bound on the mean JCT or the mean TTFT.

    ``sum_ns`` is the bound on the sum over the requests, ``value_ns`` that sum divided by their
    number, rounded down. Candidates: ``ranked`` (the k-th end is at least the k-th of requests
    served alone, and the k-th of shortest remaining time first), ``mean_busy`` (mean busy times on
    the machine, and half of what each request takes alone) and, for TTFT, ``queue`` (the k-th
    start waits for k - J ends) and ``queue_busy`` (these ends by mean busy times). Cost models
    without a machine time get ``alone``, those without
    a known floor ``arrivals``. The instance has one worker, is feasible and not empty.
    """
    jobs, cost = all_jobs(instance), instance.worker.cost
    arrivals = instance.requests.arrival_ns.tolist()
    until_first, first = objective == "mean_ttft", int(instance.first_token == "decode")
    found: list[tuple[int, str]]
    shares: dict[str, Any] = {}
    if not has_floor(cost):
        found = [(sum(arrivals), "arrivals")]
    else:
        rounds = [first] * len(jobs) if until_first else instance.rounds_needed.tolist()
        alone = _alone(instance, jobs, rounds)
        found = [(sum(arrivals) + sum(alone), "alone")]
        if isinstance(cost, AffineCost | LevelsCost):
            shares = _shares(instance.worker, jobs)
            load = _load(instance, jobs, rounds, alone, shares)
            found = [(sum(_ranked(load)), "ranked"), (_mean_busy(load), "mean_busy")]
            if until_first:
                ends = instance.rounds_needed.tolist()
                whole = _load(instance, jobs, ends, _alone(instance, jobs, ends), shares)
                found.append((_queue(whole, load.alone_ns, jobs.clients), "queue"))
                found.append((_queue_mean_busy(whole, load.alone_ns, jobs.clients), "queue_busy"))
    best, name = max(found, key=lambda candidate: candidate[0])
    total = best - sum(arrivals)
    return {
        "bound": name,
        "objective": objective,
        "clients": jobs.clients,
        **shares,
        "sum_ns": total,
        "value_ns": total // len(jobs),
    }


def _alone(instance: Instance, jobs: Jobs, rounds: Sequence[int]) -> list[int]:
    """Time of each request's own stage and rounds, with nobody else in them."""
    cost, least = instance.worker.cost, int(jobs.prompts.min())
    known: dict[tuple[int, int], int] = {}
    for p, d in set(zip(jobs.prompts.tolist(), rounds, strict=True)):
        if isinstance(cost, PoolingCost):
            decode = pooled_rounds_ns(cost, jobs.clients, least, p, d)
        else:
            decode = cost.rounds_ns(d, 1, p + 1, p + 1) if d else 0
        known[p, d] = cost.prefill_ns([p]) + decode
    return [known[key] for key in zip(jobs.prompts.tolist(), rounds, strict=True)]


def _shares(worker: Worker, jobs: Jobs) -> dict[str, Any]:
    """Say how a stage and a round are shared: what adds up to at most 1 in each of them.

    By clients each request has one J-th; by the cap a stage is shared by prompt tokens, by memory
    a round by blocks. ``line`` is [a, b, scale]: a stage takes at least (a + b tokens) / scale.
    """
    stage = Fraction(len(jobs), jobs.clients)
    by_stage, by_round = "clients", "clients"
    if worker.prefill_limit is not None:
        by_tokens = Fraction(int(jobs.prompts.sum()), worker.prefill_limit)
        if by_tokens > stage:
            stage, by_stage = by_tokens, "cap"
    if worker.memory is not None:
        totals = jobs.totals()
        held = Fraction(totals["block_rounds"], worker.memory.blocks)
        if held > Fraction(totals["rounds_needed"], jobs.clients):
            by_round = "memory"
    tokens = int(jobs.prompts.sum())
    line = max(
        _lines(worker), key=lambda line: ((line[0] * stage + line[1] * tokens) / line[2], line)
    )
    return {"stage_share": by_stage, "round_share": by_round, "line": list(line)}


def _lines(worker: Worker) -> list[tuple[int, int, int]]:
    """Lines (a, b, scale) that no stage's time is below: a, b >= 0."""
    cost = worker.cost
    if isinstance(cost, AffineCost):
        return [(cost.prefill_fixed_ns, cost.prefill_token_ns, 1)]
    assert isinstance(cost, LevelsCost)
    limit = worker.prefill_limit
    assert limit is not None
    # A level above the limit holds no more than the limit.
    points = [(min(cap, limit), time) for cap, time in cost.levels]
    least = min(points, key=lambda point: Fraction(point[1], point[0]))
    lines = [(points[0][1], 0, 1), (0, least[1], least[0])]
    for (cap, time), (next_cap, next_time) in pairwise(points):
        slope, scale = next_time - time, next_cap - cap
        if scale:
            height = min(t * scale - slope * c for c, t in points)
            if height >= 0:
                lines.append((height, slope, scale))
    return lines


def _load(
    instance: Instance,
    jobs: Jobs,
    rounds: Sequence[int],
    alone: list[int],
    shares: dict[str, Any],
) -> _Load:
    """Split every stage and every round among the requests in it."""
    worker = instance.worker
    cost, n = worker.cost, len(jobs)
    fixed, token, scale = shares["line"]
    prompts = jobs.prompts.tolist()
    stage_parts, stage_whole = [1] * n, jobs.clients
    if shares["stage_share"] == "cap":
        stage_parts, stage_whole = prompts, worker.prefill_limit or 1
    round_parts, round_whole = [1] * n, jobs.clients
    if shares["round_share"] == "memory" and worker.memory is not None:
        round_parts, round_whole = jobs.blocks.tolist(), worker.memory.blocks
    both = round_whole * stage_whole
    a_round = cost.round_ns(0, 0, 0)
    client = cost.round_ns(1, 0, 0) - a_round
    return _Load(
        instance.requests.arrival_ns.tolist(),
        list(rounds),
        [cost.prefill_ns([p]) for p in prompts],
        cost.round_ns(1, 0, 0),
        alone,
        both * scale,
        [
            fixed * part * round_whole + token * p * both
            for part, p in zip(stage_parts, prompts, strict=True)
        ],
        [(a_round * part + client * round_whole) * stage_whole * scale for part in round_parts],
    )


def _ranked(load: _Load) -> list[int]:
    """Earliest k-th ends, for each k: of requests served alone, and of the machine.

    Shortest remaining time first has at every moment the most requests done (Schrage 1968).
    """
    alone = sorted(a + t for a, t in zip(load.arrivals, load.alone_ns, strict=True))
    machine = shortest_remaining_first(load.releases(), load.machine_times())
    return [max(one, -(-end // load.scale)) for one, end in zip(alone, machine, strict=True)]


def _queue(whole: _Load, until_first_ns: list[int], clients: int) -> int:
    """Sum of first tokens: the k-th start is no earlier than the (k - J)-th end."""
    ends = _ranked(whole)[: max(0, len(whole.arrivals) - clients)]
    earliest = [0] * (len(whole.arrivals) - len(ends)) + ends
    starts = [max(a, e) for a, e in zip(sorted(whole.arrivals), earliest, strict=True)]
    return sum(starts) + sum(until_first_ns)


def _queue_mean_busy(whole: _Load, until_first_ns: list[int], clients: int) -> int:
    """Sum of first tokens: all but J starts wait for ends, whose sum mean busy times bound.

    Of all sets of n - J requests that may end first, the shortest have the least mean busy times
    (all there at the first arrival), and what must lie after these is least for some such set.
    """
    n, first = len(whole.arrivals), min(whole.arrivals)
    ending = max(0, n - clients)
    times = whole.machine_times()
    twice_busy = clock = 0
    for time in sorted(times)[:ending]:
        twice_busy += 2 * clock + time
        clock += time
    after = [
        moment // (2 * time) if time else alone
        for moment, time, alone in zip(_afterwards(whole), times, whole.alone_ns, strict=True)
    ]
    ends = twice_busy // (2 * whole.scale) + sum(sorted(after)[:ending])
    return n * first + ends + sum(until_first_ns)


def shortest_remaining_first(releases: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return the ends, in order, of shortest remaining processing time first on one machine."""
    order = sorted(zip(releases, times, strict=True))
    ends: list[int] = []
    open_jobs: list[int] = []
    now = at = 0
    while at < len(order) or open_jobs:
        if not open_jobs:
            now = max(now, order[at][0])
        while at < len(order) and order[at][0] <= now:
            heappush(open_jobs, order[at][1])
            at += 1
        left = heappop(open_jobs)
        if at == len(order) or now + left <= order[at][0]:
            now += left
            ends.append(now)
        else:
            heappush(open_jobs, left - (order[at][0] - now))
            now = order[at][0]
    return ends


def _mean_busy(load: _Load) -> int:
    """Sum over requests of mean busy time on the machine and what must lie after it.

    The sum of mean busy times is least when the machine always serves the shortest request there
    is (Goemans 1996). A request's rounds take ``round_ns`` each at least, one after the other, and
    its stage lies before them: its end is that much after its mean busy time. Rounded down for
    each request.
    """
    columns = (load.machine_times(), load.releases(), _afterwards(load), load.alone_ns)
    rows = list(zip(*columns, strict=True))
    rows.sort()  # equal rows are served in any order
    squares = _busy_squares([row[1] for row in rows], [row[0] for row in rows])
    total = 0
    for (time, release, after, alone), square in zip(rows, squares, strict=True):
        if time:
            total += (square + load.scale * after) // (2 * load.scale * time)
        else:
            total += release // load.scale + alone
    return total


def _afterwards(load: _Load) -> list[int]:
    """Return, for each request, twice its machine time times what must lie after its mean."""
    found = []
    rows = zip(load.stage_shares, load.round_shares, load.rounds, load.stage_ns, strict=True)
    for stage, a_round, rounds, stage_ns in rows:
        after = a_round * rounds * rounds * load.round_ns
        found.append(after + stage * (2 * rounds * load.round_ns + stage_ns))
    return found


def _busy_squares(releases: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return the sum of end^2 - start^2 over each job's pieces, the first job there is first."""
    order = sorted(range(len(times)), key=lambda job: (releases[job], job))
    left, squares = list(times), [0] * len(times)
    open_jobs: list[int] = []
    now = at = 0
    while at < len(order) or open_jobs:
        if not open_jobs:
            now = max(now, releases[order[at]])
        while at < len(order) and releases[order[at]] <= now:
            heappush(open_jobs, order[at])
            at += 1
        job = open_jobs[0]
        end = now + left[job]
        if at < len(order):
            end = min(end, releases[order[at]])
        squares[job] += end * end - now * now
        left[job] -= end - now
        if not left[job]:
            heappop(open_jobs)
        now = end
    return squares
