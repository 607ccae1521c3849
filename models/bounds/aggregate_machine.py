"""How a worker's steps are shared among the requests in them, so that most is charged.

What follows from the choice is worked out in ``orsched.certificates.aggregate_machine``.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from orsched.certificates.jobs import Jobs, jobs_on, sum_of_products, whole_memory

if TYPE_CHECKING:
    from orsched.certificates.scope import Scope
    from orsched.costs import Floor
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


def choices_of(instance: Instance, scope: Scope) -> list[dict[str, Any]]:
    """Return the choices of all workers onto which a request fits, as in a certificate."""
    found = []
    for number, worker in enumerate(instance.workers):
        rows, jobs = jobs_on(instance, worker, scope.chunks)
        if rows:
            found.append({"worker": number, "weight": 1, **shares_of(worker, jobs, scope)})
    return found


def shares_of(worker: Worker, jobs: Jobs, scope: Scope) -> dict[str, Any]:
    """Share a worker's steps by clients, or by cap or memory where that charges more."""
    by_stage, by_round = _shared_by(worker, jobs)
    choices: dict[str, Any] = {"stage_share": by_stage, "round_share": by_round}
    floor = scope.require_floor(worker)
    if floor.by_counts:
        choices["line"] = list(_best_line(worker, floor, jobs, by_stage))
        if scope.mixed and floor.mixed != "sum":
            choices["line"] = [0, floor.stage.token if floor.mixed == "one_fixed" else 0, 1]
    return choices


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


def _best_line(worker: Worker, floor: Floor, jobs: Jobs, by_stage: str) -> tuple[int, int, int]:
    """Return (a, b, scale): a stage takes at least (a + b tokens) / scale; that of most charge."""
    tokens = int(jobs.prompts.sum())
    stages = Fraction(len(jobs), jobs.clients)
    if by_stage == "cap":
        stages = Fraction(tokens, worker.prefill_limit or 1)
    lines = _lines(floor, worker.prefill_limit)
    return max(lines, key=lambda line: ((line[0] * stages + line[1] * tokens) / line[2], line))


def _lines(floor: Floor, limit: int | None) -> list[tuple[int, int, int]]:
    """Lines (a, b, scale) that no stage's time is below: a, b >= 0."""
    if floor.stage.levels is None:
        return [(floor.stage.fixed, floor.stage.token, 1)]
    assert limit is not None
    # A level above the limit holds no more than the limit.
    points = [(min(cap, limit), time) for cap, time in floor.stage.levels]
    least = min(points, key=lambda point: Fraction(point[1], point[0]))
    lines = [(points[0][1], 0, 1), (0, least[1], least[0])]
    for (cap, time), (next_cap, next_time) in pairwise(points):
        slope, scale = next_time - time, next_cap - cap
        if scale:
            height = min(t * scale - slope * c for c, t in points)
            if height >= 0:
                lines.append((height, slope, scale))
    return lines
