"""Plans: which request starts in which prefill stage on which client, and the rounds after each.

A plan holds all that a solution of the MIP decides; times follow from it. It becomes a
schedule through the simulator, and a schedule becomes a plan for a warm start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.checker import check
from orsched.common.errors import InputError, InvalidScheduleError, OrschedError
from orsched.data.schedule import DECODE, INVALID, PREFILL
from orsched.data.schedule_classes import FEATURES, class_of
from orsched.data.step import Step, Wait, decode_rounds, prefill_stage
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.full_mip.problem import Problem
    from orsched.simulator.policy import View


@dataclass(frozen=True)
class Plan:
    """A solution: stage and client of each request, rounds of each decode stage.

    ``client`` may be None: clients are interchangeable, and the lowest free ones are taken.
    ``begins`` are times, in units, before which bins do not begin; None: as early as they can.
    """

    stage: tuple[int, ...]
    client: tuple[int, ...] | None
    rounds: tuple[int, ...]
    begins: tuple[int, ...] | None = None

    def tokens(self, needed: tuple[int, ...]) -> list[dict[int, int]]:
        """Return for each request its rounds in each decode stage of its window, in order.

        A request decodes in every round from its prefill on; the window ends with its last one.
        """
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
    """Return the schedule of a plan, accepted by the independent checker.

    ``problem`` says what the unit of a plan with times is.

    Raises ``InvalidScheduleError`` when it is not: a bug in the model.
    """
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
    """Return the plan of a valid schedule.

    Raises ``InvalidScheduleError`` when the checker rejects it, ``InputError`` when it has no plan
    (prompts in chunks, steps that prefill and decode at once, requests that pause).
    """
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
    """Return start and length of the prefill and of the decode stage of each bin, in units.

    Each stage starts as early as it can; empty ones take no time.
    """
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
    the clients, so that equal plans up to an exchange of clients become one.
    """
    last = [max(share) for share in plan.tokens(needed)]
    free_from = [0] * clients
    client = [0] * len(plan.stage)
    for i in sorted(range(len(plan.stage)), key=lambda i: (plan.stage[i], i)):
        client[i] = next(c for c in range(clients) if free_from[c] <= plan.stage[i])
        free_from[client[i]] = last[i] + 1
    label: dict[int, int] = {}
    renamed = tuple(label.setdefault(c, len(label)) for c in client)
    return Plan(plan.stage, renamed, plan.rounds)
