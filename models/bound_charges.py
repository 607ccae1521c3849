"""What each request is charged of each worker's time, and all workers as one machine.

A step's time is divided among the requests in it, so that nobody is charged more than their part
and no step charges more than it takes (docs/bounds.md has the proofs). Until its end a request has
been charged a *machine time*; whatever a schedule does, it serves these on one machine per worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING, Any

from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost
from orsched.costs.exact import FS_PER_NS
from orsched.models.counts import Jobs, sum_of_products, whole_memory
from orsched.models.floors import lost_by_rounding, pooled_rounds_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.columns import IntColumn
    from orsched.costs import CostModel
    from orsched.instance import Instance
    from orsched.workers import Worker


@dataclass(frozen=True)
class Terms:
    """Parts of a step that no schedule can avoid, in 1 / unit nanoseconds.

    A stage takes at least ``stage_fixed`` and ``stage_own`` for each request in it; a round at
    least ``round_fixed`` and, for each request, ``round_own`` and ``context_own`` a context token.
    """

    unit: int
    stage_fixed: int
    stage_own: list[int]
    round_fixed: int
    round_own: int
    context_own: int


@dataclass(frozen=True)
class Charges:
    """What a worker's steps charge the requests that it can serve.

    Attributes:
        choices: how fixed parts are shared, as it stands in a certificate.
        clients: most requests that are on the worker's clients at one time.
        rows: the requests that fit onto the worker.
        scale: charges are in 1 / scale nanoseconds.
        stages: of the prefill stage, by row of ``rows``.
        first: of a round, less what grows with the rounds before.
        growth: by which each further round charges more.
        round_fixed, round_most: a round of y requests takes ``round_fixed * (1 - y / clients)``
            more than it charges, and charges each at most ``round_most``; (0, 1) if unknown.
    """

    choices: dict[str, Any]
    clients: int
    rows: list[int]
    scale: int
    stages: list[int]
    first: list[int]
    growth: int
    round_fixed: int
    round_most: int

    def machine_times(self, rounds: Sequence[int]) -> list[int]:
        """Charges until so many rounds are done."""
        grown = self.growth
        columns = zip(self.stages, self.first, rounds, strict=True)
        return [stage + u * d + grown * (d * (d + 1) // 2) for stage, u, d in columns]


def charges_of(worker: Worker, jobs: Jobs, rows: list[int], mixed: bool = False) -> Charges:
    """Divide a worker's steps: by the clients, or by cap or memory where that charges more.

    ``jobs`` are the requests that fit onto the worker, at least one. The cost model has a floor.
    ``mixed``: under the affine cost, stages charge tokens only, as a mixed step has one fixed part.
    """
    clients, prompts = jobs.clients, jobs.prompts.tolist()
    by_stage, by_round = _shared_by(worker, jobs)
    choices: dict[str, Any] = {"stage_share": by_stage, "round_share": by_round}
    if isinstance(worker.cost, AffineCost | LevelsCost):
        choices["line"] = list(_best_line(worker, jobs, by_stage))
    if mixed and isinstance(worker.cost, AffineCost):
        choices["line"] = [0, worker.cost.prefill_token_ns, 1]
    terms = terms_of(worker.cost, jobs, choices.get("line"))
    stage_parts, stage_whole = [1] * len(jobs), clients
    if by_stage == "cap":
        stage_parts, stage_whole = prompts, worker.prefill_limit or 1
    round_parts, round_whole = [1] * len(jobs), clients
    if by_round == "memory" and (memory := whole_memory(worker)):
        round_parts, round_whole = jobs.blocks.tolist(), memory.blocks
    both = stage_whole * round_whole
    stages = [
        terms.stage_fixed * part * round_whole + own * both
        for part, own in zip(stage_parts, terms.stage_own, strict=True)
    ]
    first = [
        terms.round_fixed * part * stage_whole + (terms.round_own + terms.context_own * p) * both
        for part, p in zip(round_parts, prompts, strict=True)
    ]
    growth, fixed, most = terms.context_own * both, 0, 1
    if by_round == "clients":
        fixed = terms.round_fixed * both
        most = max(u + growth * d for u, d in zip(first, jobs.rounds.tolist(), strict=True))
    return Charges(
        choices, clients, rows, terms.unit * both, stages, first, growth, fixed, max(1, most)
    )


def _shared_by(worker: Worker, jobs: Jobs) -> tuple[str, str]:
    """Say what divides the fixed parts: whatever adds up to at most 1 in a step, and more in all.

    By clients each request has one J-th; by the cap a stage is shared by prompt tokens, by memory
    a round by blocks.
    """
    by_stage, by_round = "clients", "clients"
    if worker.prefill_limit is not None:
        by_tokens = Fraction(int(jobs.prompts.sum()), worker.prefill_limit)
        if by_tokens > Fraction(len(jobs), jobs.clients):
            by_stage = "cap"
    if memory := whole_memory(worker):
        held = Fraction(sum_of_products(jobs.blocks, jobs.rounds), memory.blocks)
        if held > Fraction(int(jobs.rounds.sum()), jobs.clients):
            by_round = "memory"
    return by_stage, by_round


def _best_line(worker: Worker, jobs: Jobs, by_stage: str) -> tuple[int, int, int]:
    """Return (a, b, scale): a stage takes at least (a + b tokens) / scale; that of most charge."""
    tokens = int(jobs.prompts.sum())
    stages = Fraction(len(jobs), jobs.clients)
    if by_stage == "cap":
        stages = Fraction(tokens, worker.prefill_limit or 1)
    return max(
        _lines(worker), key=lambda line: ((line[0] * stages + line[1] * tokens) / line[2], line)
    )


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


def terms_of(cost: CostModel, jobs: Jobs, line: Sequence[int] | None) -> Terms:
    """Return the unavoidable parts of a stage and a round; what rounding takes off is given away.

    Bilinear: N L is at least the sum of the prompts, and L at least a J-th of it. Pooling: as the
    longest and the mean context, each at least a J-th of the contexts' sum.
    """
    prompts, clients = jobs.prompts.tolist(), jobs.clients
    if isinstance(cost, AffineCost | LevelsCost):
        assert line is not None
        fixed, token, unit = line
        everyone = cost.round_ns(0, 0, 0)
        each = cost.round_ns(1, 0, 0) - everyone
        own = [token * p for p in prompts]
        return Terms(unit, fixed, own, everyone * unit, each * unit, 0)
    if isinstance(cost, BilinearCost):
        return _bilinear_terms(cost, prompts, clients)
    assert isinstance(cost, PoolingCost)
    return _pooling_terms(cost, prompts, clients)


def _bilinear_terms(cost: BilinearCost, prompts: list[int], clients: int) -> Terms:
    stage_fixed = cost.p4_fs - lost_by_rounding(cost.p1_fs, cost.p2_fs, cost.p3_fs, cost.p4_fs)
    round_fixed = cost.d4_fs - lost_by_rounding(cost.d1_fs, cost.d2_fs, cost.d3_fs, cost.d4_fs)
    scale = cost.time_scale
    stage_own = [0] * len(prompts)
    if stage_fixed >= 0:
        each, token = cost.p2_fs * clients, cost.p1_fs * clients + cost.p3_fs
        stage_own = [(each + token * p) * scale for p in prompts]
    round_own = context_own = 0
    if round_fixed >= 0:
        round_own, context_own = cost.d2_fs * clients, cost.d1_fs * clients + cost.d3_fs
    return Terms(
        FS_PER_NS * clients,
        max(0, stage_fixed) * clients * scale,
        stage_own,
        max(0, round_fixed) * clients * scale,
        round_own * scale,
        context_own * scale,
    )


def _pooling_terms(cost: PoolingCost, prompts: list[int], clients: int) -> Terms:
    """Each request pays for the rounding of its step, so that no share is below 0."""
    alpha, beta, least, scale = cost.alpha_fs, cost.beta_fs, cost.c_fs, cost.time_scale
    lost = lost_by_rounding(alpha, beta, least)
    own = [max(0, max((alpha * p + beta) * p, least) - lost) * clients * scale for p in prompts]
    each, half = cost.gamma_fs + cost.delta_fs, FS_PER_NS // 2 * clients
    if each * (min(prompts) + 1) < half:
        each = half = 0
    return Terms(FS_PER_NS * clients, 0, own, 0, -half * scale, each * scale)


@dataclass(frozen=True)
class Machine:
    """All workers as one machine of their summed speed, and each request's least time on it.

    Attributes:
        scale: times on the machine are in 1 / scale nanoseconds.
        arrivals: in nanoseconds.
        times: least time of each request on the machine.
        after_ns: least distance of a request's end from the mean time at which it is charged.
        alone_ns: least time until the request's end if served alone.
    """

    scale: int
    arrivals: list[int]
    times: list[int]
    after_ns: list[int]
    alone_ns: list[int]

    def releases(self) -> list[int]:
        """Arrivals in the machine's unit."""
        return [arrival * self.scale for arrival in self.arrivals]


@dataclass(frozen=True)
class OneWorker:
    """A worker's charges, and the times of requests served alone there, by row of ``charges``."""

    charges: Charges
    rounds: list[int]
    stage_ns: list[int]
    round_ns: list[int]
    alone_ns: list[int]

    def after_ns(self, times: list[int]) -> list[int]:
        """Return the least distance of an end from the mean time of its charges, rounded down.

        The rounds take ``round_ns`` each at least, one after the other, after the stage.
        """
        charges, found = self.charges, []
        columns = (
            times,
            charges.stages,
            charges.first,
            self.rounds,
            self.stage_ns,
            self.round_ns,
            self.alone_ns,
        )
        for time, stage, u, d, stage_ns, round_ns, alone in zip(*columns, strict=True):
            grown = charges.growth * (d * (d + 1) * (2 * d + 1) // 6)
            twice = (u * d * d + grown) * round_ns + stage * (2 * d * round_ns + stage_ns)
            found.append(twice // (2 * time) if time else alone)
        return found


def on_worker(
    worker: Worker, jobs: Jobs, rows: list[int], rounds: IntColumn, mixed: bool = False
) -> OneWorker:
    """Return a worker's charges for these many rounds of the requests that fit onto it."""
    charges, cost = charges_of(worker, jobs, rows, mixed), worker.cost
    least, clients = int(jobs.prompts.min()), jobs.clients
    known: dict[tuple[int, int], tuple[int, int, int]] = {}
    pairs = list(zip(jobs.prompts.tolist(), rounds.tolist(), strict=True))
    for p, d in set(pairs):
        stage = cost.prefill_ns([p])
        if isinstance(cost, PoolingCost):
            a_round = pooled_rounds_ns(cost, clients, least, p, 1)
            decode = pooled_rounds_ns(cost, clients, least, p, d)
        else:
            a_round = cost.round_ns(1, p + 1, p + 1)
            decode = cost.rounds_ns(d, 1, p + 1, p + 1) if d else 0
        known[p, d] = (stage, a_round, stage + decode)
    stage_ns, round_ns, alone_ns = ([known[pair][k] for pair in pairs] for k in range(3))
    return OneWorker(charges, rounds.tolist(), stage_ns, round_ns, alone_ns)


def machine_of(instance: Instance, workers: list[OneWorker], weights: Sequence[int]) -> Machine:
    """Return all workers as one machine, worker w with the speed ``weights[w]``.

    A request's time is the least of its times on the workers, each at that worker's speed.
    """
    common = lcm(*(worker.charges.scale for worker in workers))
    n = len(instance)
    times: list[int | None] = [None] * n
    after: list[int | None] = [None] * n
    alone: list[int | None] = [None] * n
    for worker, weight in zip(workers, weights, strict=True):
        factor = weight * (common // worker.charges.scale)
        own = worker.charges.machine_times(worker.rounds)
        columns = zip(worker.charges.rows, own, worker.after_ns(own), worker.alone_ns, strict=True)
        for row, time, later, by_itself in columns:
            times[row] = _least(times[row], factor * time)
            after[row] = _least(after[row], later)
            alone[row] = _least(alone[row], by_itself)
    arrivals = instance.requests.arrival_ns.tolist()
    return Machine(common * sum(weights), arrivals, _whole(times), _whole(after), _whole(alone))


def _least(one: int | None, other: int) -> int:
    return other if one is None or other < one else one


def _whole(column: list[int | None]) -> list[int]:
    return [value for value in column if value is not None]
