"""An instance as the exact searches see it, in whole numbers of one unit of time; and their plans.

Levels are Pang's own cost model. The affine model is one level of the fixed time; what a token
costs adds up to a constant while all requests arrive together, and stays in the stages' times
when they do not. A round that depends on contexts cannot be written with Pang's variables.

A plan says which request starts in which prefill stage on which client, and the rounds after each:
all that a solution of the MIP decides. It becomes a schedule through the simulator, and a schedule
becomes a plan for a warm start.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from orsched.checker import check
from orsched.common.errors import InputError, InvalidScheduleError, OrschedError
from orsched.costs import splits
from orsched.data.schedule import DECODE, INVALID, PREFILL
from orsched.data.schedule_classes import FEATURES, class_of
from orsched.data.step import Step, Wait, decode_rounds, prefill_stage
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.workers import Worker
    from orsched.simulator.policy import View


MAX_UNITS = 2**50
"""Largest horizon, in units of time, that both solvers can still count in whole numbers."""


@dataclass(frozen=True)
class Problem:
    """The data of Pang's MIP; times in units of ``unit_ns``, counted from ``first_ns``.
    ``prompts``, ``needed``, ``blocks``, ``arrivals``: one entry a request: N^p, decode rounds,
    memory blocks, arrival after the first one; ``prompt_token``, ``round_client``: time a token,
    where stage times must hold it; else 0."""

    prompts: tuple[int, ...]
    needed: tuple[int, ...]
    blocks: tuple[int, ...]
    arrivals: tuple[int, ...]
    clients: int  # J
    levels: tuple[tuple[int, int], ...]  # pairs (N^cap_l, T^p_l), Pang eq. (5)-(7)
    round_fixed: int  # T^d as the time of a round, eq. (8)
    prompt_token: int
    round_client: int
    constant_ns: int  # what all tokens cost together, where stage times need not hold it
    memory_blocks: int | None  # blocks of the worker, or None
    timed: bool  # whether arrivals differ
    unit_ns: int
    first_ns: int

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def most_rounds(self) -> int:
        """Rounds of the longest request: no decode stage needs more."""
        return max(self.needed, default=0)

    def horizon(self, stages: int) -> int:
        """Return a time by which some best schedule with at most ``stages`` stages has ended. The
        worker waits for arrivals only, and in each round some request is active."""
        return (
            max(self.arrivals, default=0)
            + stages * self.levels[-1][1]
            + self.prompt_token * sum(self.prompts)
            + (self.round_fixed + self.round_client) * sum(self.needed)
        )

    def to_ns(self, units: int) -> int:
        """Return the makespan in nanoseconds of an objective value."""
        return self.first_ns + self.constant_ns + self.unit_ns * units


def read_problem(instance: Instance, *, exact: bool = False) -> Problem:
    """Return the data of the MIP for an instance with one worker. ``exact``: what tokens cost stays
    in the times of stages and rounds, where the end of each request is asked for, not only that of
    all. Raises ``InputError``: several workers, padding, paged memory, a cost model that does not
    map, or times too far apart. Raises ``InfeasibleError``: a request is over the prefill cap or
    the memory."""
    worker = instance.require_stages("the full MIP", paged=False)
    instance.require_feasible()
    req = instance.requests
    levels, round_fixed, prompt_token, round_client = _times(worker, int(req.prompt_tokens.sum()))
    arrivals = req.arrival_ns.tolist()
    first = min(arrivals, default=0)
    timed = exact or max(arrivals, default=0) > first
    inside = [prompt_token, round_client, *(a - first for a in arrivals)] if timed else []
    unit = gcd(round_fixed, *(time for _, time in levels), *inside) or 1
    outside = prompt_token * int(req.prompt_tokens.sum())
    outside += round_client * int(instance.rounds_needed.sum())
    problem = Problem(
        prompts=tuple(req.prompt_tokens.tolist()),
        needed=tuple(instance.rounds_needed.tolist()),
        blocks=_blocks(instance, worker),
        arrivals=tuple((a - first) // unit for a in arrivals),
        clients=worker.clients,
        levels=tuple((cap, time // unit) for cap, time in levels),
        round_fixed=round_fixed // unit,
        prompt_token=prompt_token // unit if timed else 0,
        round_client=round_client // unit if timed else 0,
        constant_ns=0 if timed else outside,
        memory_blocks=None if worker.memory is None else worker.memory.blocks,
        timed=timed,
        unit_ns=unit,
        first_ns=first,
    )
    if problem.horizon(len(problem)) > MAX_UNITS:
        raise InputError(
            f"the times span more than {MAX_UNITS} units of {unit} ns, too many for a solver",
            field="requests",
            remedy="round costs and arrivals to a coarser unit",
        )
    return problem


def _times(worker: Worker, all_prompts: int) -> tuple[tuple[tuple[int, int], ...], int, int, int]:
    """Return levels, time of a round, time of a prompt token and of an active client, in ns."""
    cost, cap = worker.cost, worker.prefill_limit
    floor = splits(cost)
    if floor is None:
        raise InputError(
            f"the cost model {cost.model!r} does not map into Pang's MIP: its stages must take the "
            "time of a level or an affine time, its rounds a time that no context changes, and it "
            "must state that as an exact floor",
            field="cost",
            remedy="use levels or affine, state a floor, or use a method without the full MIP",
        )
    parts = (floor.round.fixed, floor.stage.token, floor.round.request)
    if floor.stage.levels is not None:
        return (_capped(floor.stage.levels, cap), *parts)
    most = all_prompts if cap is None else min(cap, all_prompts)
    return (((max(1, most), floor.stage.fixed),), *parts)


def _capped(levels: tuple[tuple[int, int], ...], cap: int | None) -> tuple[tuple[int, int], ...]:
    """Return the levels with none above the worker's cap."""
    if cap is None:
        return levels
    below = [pair for pair in levels if pair[0] < cap]
    above = next((time for size, time in levels if size >= cap), None)
    return (*below, (cap, above)) if above is not None else tuple(below)


def _blocks(instance: Instance, worker: Worker) -> tuple[int, ...]:
    if worker.memory is None:
        return (0,) * len(instance)
    req = instance.requests
    pairs = zip(req.prompt_tokens.tolist(), req.output_tokens.tolist(), strict=True)
    return tuple(worker.memory.blocks_held(p, d) for p, d in pairs)


@dataclass(frozen=True)
class Plan:
    """A solution: stage and client of each request, rounds of each decode stage. ``client`` may be
    None: clients are interchangeable, and the lowest free ones are taken. ``begins`` are times, in
    units, before which bins do not begin; None: as early as they can."""

    stage: tuple[int, ...]
    client: tuple[int, ...] | None
    rounds: tuple[int, ...]
    begins: tuple[int, ...] | None = None

    def tokens(self, needed: tuple[int, ...]) -> list[dict[int, int]]:
        """Return for each request its rounds in each decode stage of its window, in order. A
        request decodes in every round from its prefill on; the window ends with its last one."""
        shares = []
        for stage, rounds in zip(self.stage, needed, strict=True):
            share, left = {stage: min(rounds, self.rounds[stage])}, rounds
            left -= share[stage]
            while left:
                stage += 1
                if stage == len(self.rounds):
                    raise OrschedError("a plan ends before its requests do: a bug in orsched")
                share[stage] = min(left, self.rounds[stage])
                left -= share[stage]
            shares.append(share)
        return shares


class _PlannedPolicy(Policy):
    """Carries out a plan stage by stage, waiting for arrivals where it must."""

    name = "full-mip"
    information = Information.CLAIRVOYANT

    def __init__(self, plan: Plan, arrivals: list[int], begins_ns: list[int] | None = None) -> None:
        self.plan, self.arrivals, self.begins_ns = plan, arrivals, begins_ns
        self.bins: list[list[int]] = [[] for _ in plan.rounds]
        for request, stage in enumerate(plan.stage):
            self.bins[stage].append(request)
        self.bin, self.until = -1, 0

    def decide(self, view: View) -> Step | Wait | None:
        """Decode until the stage's rounds are over or no request is left, then prefill the next."""
        while not (view.running and view.rounds < self.until):
            upcoming = self.bin + 1
            if upcoming == len(self.bins):
                raise OrschedError("a plan ends before its requests do: a bug in orsched")
            stage = self.bins[upcoming]
            if stage and max(self.arrivals[request] for request in stage) > view.now_ns:
                return None
            if stage and self.begins_ns and view.now_ns < self.begins_ns[upcoming]:
                return Wait(self.begins_ns[upcoming])
            self.bin, self.until = upcoming, view.rounds + self.plan.rounds[upcoming]
            if stage:
                clients = self.plan.client
                chosen = None if clients is None else [clients[request] for request in stage]
                return prefill_stage(stage, chosen)
        return decode_rounds(self.until - view.rounds, until=0)


def schedule_of(
    instance: Instance, plan: Plan, method: str = "full-mip", problem: Problem | None = None
) -> Schedule:
    """Return the schedule of a plan, accepted by the independent checker; ``problem`` says what the
    unit of a plan with times is. Raises ``InvalidScheduleError`` when it is not: a bug in the
    model."""
    begins_ns = None
    if plan.begins is not None:
        assert problem is not None
        begins_ns = [problem.first_ns + problem.unit_ns * begin for begin in plan.begins]
    policy = _PlannedPolicy(plan, instance.requests.arrival_ns.tolist(), begins_ns)
    schedule = simulate_policy(instance, policy).schedule.replace(method=method)
    violations = check(instance, schedule)
    if violations:
        raise InvalidScheduleError(
            f"the model made an invalid schedule, a bug in it: {violations[0].message}", violations
        )
    return schedule


def plan_of(instance: Instance, schedule: Schedule) -> Plan:
    """Return the plan of a valid schedule. Raises ``InvalidScheduleError`` when the checker rejects
    it, ``InputError`` when it has no plan (prompts in chunks, steps that prefill and decode at
    once, requests that pause)."""
    violations = check(instance, schedule.bare())
    if violations:
        raise InvalidScheduleError(
            f"the initial schedule is not valid: {violations[0].message}", violations
        )
    refusal = _refusal(instance, schedule)
    if refusal:
        raise InputError(
            f"a schedule with {refusal} is not a solution of Pang's MIP",
            field="initial_schedule",
            remedy="give one that prefills whole prompts, decodes every running request in every "
            "round and never preempts",
        )
    steps, work, n = schedule.steps, schedule.work, len(instance)
    prefills = work.phase == PREFILL
    bin_of, rounds = [], []
    for phase, count in zip(steps.phase.tolist(), steps.rounds.tolist(), strict=True):
        if phase == PREFILL:
            rounds.append(0)
        elif phase == DECODE:
            rounds[-1] += count
        bin_of.append(len(rounds) - 1)
    stage, client = [0] * n, [0] * n
    for row in prefills.nonzero()[0].tolist():
        request = int(work.request[row])
        stage[request] = bin_of[int(work.first_step[row])]
        client[request] = int(work.client[row])
    return Plan(tuple(stage), tuple(client), tuple(rounds))


def _refusal(instance: Instance, schedule: Schedule) -> str:
    """Return what a valid schedule does that no plan says, or "" where it has a plan."""
    found = [FEATURES[name] for name in class_of(instance, schedule).names]
    if (schedule.work.phase == INVALID).any():
        found.append("invalid tokens")
    return " and ".join(found)


def plan_times(problem: Problem, plan: Plan) -> list[tuple[int, int, int, int]]:
    """Return start and length of the prefill and of the decode stage of each bin, in units. Each
    stage starts as early as it can; empty ones take no time."""
    shares = plan.tokens(problem.needed)
    now, found = 0, []
    for k, rounds in enumerate(plan.rounds):
        inside = [i for i, stage in enumerate(plan.stage) if stage == k]
        now = max([now, *(problem.arrivals[i] for i in inside)])
        tokens = sum(problem.prompts[i] for i in inside)
        prefill = 0
        if inside:
            prefill = next(time for cap, time in problem.levels if cap >= tokens)
            prefill += problem.prompt_token * tokens
        served = sum(share.get(k, 0) for share in shares)
        decode = problem.round_fixed * rounds + problem.round_client * served
        found.append((now, prefill, now + prefill, decode))
        now += prefill + decode
    return found


def with_lowest_clients(plan: Plan, needed: tuple[int, ...], clients: int) -> Plan:
    """Return the plan with clients numbered in the order of the requests that use them first.
    Windows are assigned by their first stage, each to a client that is free again; rows then name
    the clients, so that equal plans up to an exchange of clients become one."""
    last = [max(share) for share in plan.tokens(needed)]
    free_from = [0] * clients
    client = [0] * len(plan.stage)
    for i in sorted(range(len(plan.stage)), key=lambda i: (plan.stage[i], i)):
        client[i] = next(c for c in range(clients) if free_from[c] <= plan.stage[i])
        free_from[client[i]] = last[i] + 1
    label: dict[int, int] = {}
    renamed = tuple(label.setdefault(c, len(label)) for c in client)
    return Plan(plan.stage, renamed, plan.rounds)
