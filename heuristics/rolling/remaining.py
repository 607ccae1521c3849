"""What is left of a run at a moment, as an instance of the window model, and plans for it.

A request that runs cannot move: its client is free after so many rounds. The window model takes
that as follows. Time is shifted by B rounds, more than all that is left; every client begins with a
request of B + (rounds until it is free) rounds, in stages at time 0. Two of them do not fit on
one client, and what waits starts at time B, which is now, or later: a plan that puts it in front
of a client's own request is refused. Clients are interchangeable, so a plan says only which
requests start when.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.costs import AffineCost
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.instance import Instance
from orsched.models.windows.plan import FollowPlan, PlannedStage
from orsched.models.windows.prices import prices_of
from orsched.models.windows.terms import Terms
from orsched.policy import Information
from orsched.requests import Requests
from orsched.schedule import DECODE, PREFILL
from orsched.simulator import simulate_policy
from orsched.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.schedule import Schedule


class Stage(NamedTuple):
    """A stage of a plan.

    Attributes:
        round: rounds from now (in the policy: of the worker) before it.
        requests: those that start, longest first.
        spare: clients that are free then and stay free.
    """

    round: int
    requests: tuple[int, ...]
    spare: int


class Remaining(NamedTuple):
    """A snapshot.

    Attributes:
        free_at: rounds from now until each client is free.
        requests: those that wait.
        rounds, prompts: of each of them.
        stage_ns, round_ns: fixed times of a stage and of a round.
        cap: most prompt tokens of a stage, or None.
        previous: stages of the plan that is followed now.
    """

    free_at: tuple[int, ...]
    requests: tuple[int, ...]
    rounds: tuple[int, ...]
    prompts: tuple[int, ...]
    stage_ns: int
    round_ns: int
    cap: int | None
    previous: tuple[Stage, ...] = ()

    @property
    def shift(self) -> int:
        """B: more rounds than any sensible schedule of what is left takes."""
        clients = len(self.free_at)
        longest = max(self.rounds)
        return max(self.free_at) + 2 * (sum(self.rounds) // clients + 1) + 2 * longest


def as_instance(left: Remaining) -> Instance:
    """Return the instance of the window model: clients' own first requests, then the waiting."""
    clients, shift = len(left.free_at), left.shift
    lengths = [shift + rounds for rounds in left.free_at] + list(left.rounds)
    prompts = [1] * clients + list(left.prompts)
    requests = Requests(np.array(prompts, np.int64), np.array(lengths, np.int64))
    worker = Worker(
        clients, AffineCost(left.stage_ns, 0, left.round_ns, 0), prefill_cap_tokens=left.cap
    )
    return Instance(requests, (worker,), "decode", max(lengths))


def room_of(left: Remaining) -> int:
    """Return how many mean prompts a stage takes."""
    clients, cap = len(left.free_at), left.cap
    if cap is None:
        return clients
    return min(clients, max(1, cap * len(left.prompts) // sum(left.prompts)))


def terms_of_remaining(left: Remaining, instance: Instance) -> Terms:
    """Return what the search minimises: stages and rounds, with their bounds by volume."""
    clients, n, room = len(left.free_at), len(instance), room_of(left)
    stages = -(-clients // room) + -(-len(left.requests) // room)
    volume = -(-int(instance.requests.output_tokens.sum()) // clients)
    rounds = max(volume, int(instance.requests.output_tokens.max()))
    prompts = instance.requests.prompt_tokens
    tokens = int(prompts.sum())
    kinds = [(left.cap or tokens, left.stage_ns)]
    prices = prices_of(kinds, prompts, clients, left.round_ns)
    least = stages * left.stage_ns
    return Terms(0, left.stage_ns, 0, left.round_ns, least, rounds, n, tokens, prices)


def first_schedule(left: Remaining, instance: Instance, room: int) -> Schedule:
    """Return the better of longest first under the derived gate and the plan followed so far."""
    params = GatedParams("shared", "longest", gate="shadow_price")
    policy = GatedPolicy(params, Information.CLAIRVOYANT)
    best = simulate_policy(instance, policy).schedule
    plan = _previous_plan(left, room)
    if plan is not None:
        kept = simulate_policy(instance, FollowPlan(plan)).schedule
        best = min(kept, best, key=lambda schedule: schedule.makespan_ns)
    return best


def _previous_plan(left: Remaining, room: int) -> list[PlannedStage] | None:
    """Return the previous plan for the instance, or None where it no longer fits."""
    clients, shift = len(left.free_at), left.shift
    row = {request: clients + index for index, request in enumerate(left.requests)}
    if sum(len(stage.requests) for stage in left.previous) != len(row):
        return None
    free = [(shift + rounds, client) for client, rounds in enumerate(left.free_at)]
    heapify(free)
    plan = [
        PlannedStage(0, chunk, chunk)
        for chunk in (range(k, min(clients, k + room)) for k in range(0, clients, room))
    ]
    last = shift
    for stage in left.previous:
        now = last = max(last, shift + stage.round)
        rows, places = [], []
        for request in stage.requests:
            if request not in row or not free or free[0][0] > now:
                return None
            _, client = heappop(free)
            rows.append(row[request])
            places.append(client)
        for request, client in zip(stage.requests, places, strict=True):
            heappush(free, (now + left.rounds[row[request] - clients], client))
        if rows:
            plan.append(PlannedStage(now, rows, places))
    return plan


def starts_now(left: Remaining, plan: Sequence[PlannedStage]) -> bool:
    """Whether clients' own requests start at time 0, and the others not before now."""
    clients, shift = len(left.free_at), left.shift
    return all(
        stage.round >= shift if row >= clients else stage.round == 0
        for stage in plan
        for row in stage.requests
    )


def as_stages(left: Remaining, plan: Sequence[PlannedStage]) -> tuple[Stage, ...]:
    """Return the plan's stages of waiting requests, with the clients that stay free."""
    clients, shift = len(left.free_at), left.shift
    free = sorted(left.free_at)
    stages = []
    for stage in plan:
        rows = [row - clients for row in stage.requests if row >= clients]
        if not rows:
            continue
        now = max(0, stage.round - shift)
        rows.sort(key=lambda row: (-left.rounds[row], left.requests[row]))
        heapify(free)
        for _ in rows:
            heappop(free)
        spare = sum(1 for end in free if end <= now)
        for row in rows:
            heappush(free, now + left.rounds[row])
        stages.append(Stage(now, tuple(left.requests[row] for row in rows), spare))
    return tuple(stages)


def plan_of_schedule(instance: Instance, schedule: Schedule) -> list[PlannedStage]:
    """Return the stages of a schedule of the instance by the rounds before them."""
    steps, work = schedule.steps, schedule.work
    before = np.concatenate([[0], np.cumsum(np.where(steps.phase == DECODE, steps.rounds, 0))])
    found: dict[int, list[tuple[int, int]]] = {}
    prefills = work.phase == PREFILL
    for step, request, client in zip(
        work.first_step[prefills].tolist(),
        work.request[prefills].tolist(),
        work.client[prefills].tolist(),
        strict=True,
    ):
        found.setdefault(step, []).append((request, client))
    stages = []
    for step in sorted(found):
        rows, places = zip(*found[step], strict=True)
        stages.append(PlannedStage(int(before[step]), rows, places))
    return stages
