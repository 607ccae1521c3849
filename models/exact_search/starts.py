"""Where an exact search begins: a bound that is certified, and schedules of heuristics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from orsched.common.errors import OrschedError, TimeLimitError
from orsched.common.registry import attached
from orsched.models.bounds.bounds import bound
from orsched.models.exact_search.aims import Alone, DueAim, MissesAim, TimesAim
from orsched.models.exact_search.stage_plan import Plan, plan_of, schedule_of

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.exact_search.aims import ExactSearch
    from orsched.models.exact_search.stage_plan import Problem


def prepare(search: ExactSearch, initial: Schedule | None, alone: bool) -> None:
    """Bound the makespan and find the incumbent to start from."""
    instance = search.instance
    helped = not alone or len(instance) == 0
    if helped:
        proven = bound(instance, time_limit=search.part_of_time(10))
        search.lower_ns, search.certificate = proven.value_ns, proven.certificate
    given = initial is not None and search.begin_with(initial)
    if not given and helped:
        _hybrid(search)
    search.report_start()


def _hybrid(search: ExactSearch) -> None:
    """Take the schedule of the method ``hybrid``, in a third of the time at most."""
    limit = search.part_of_time(3)
    try:
        found = attached("solve")(search.instance, "hybrid", time_limit=limit, iterations=18)
    except TimeLimitError:
        return
    except KeyboardInterrupt:
        search.interrupted = True
        return
    search.interrupted = found.termination == "interrupted"
    schedule = found.schedule.bare()
    search.offer(schedule, plan_of(search.instance, schedule))


def prepare_values(search: ExactSearch, initial: Schedule | None, alone: bool) -> None:
    """Bound the value of another objective, and offer schedules to start from."""
    if not alone:
        search.lower_ns = lower_bound(search)
    offer_starts(search, initial, alone)


def lower_bound(search: ExactSearch) -> int:
    """Return a bound on the value from the certified ones, and each request served alone."""
    instance, aim = search.instance, search.aim
    least = served_alone(instance, search.problem)
    if isinstance(aim, (MissesAim, DueAim)):
        return aim.lower(least)
    assert isinstance(aim, TimesAim)
    share = search.part_of_time(30)
    makespan, sums = 0, {}
    if aim.times.makespan:
        makespan = bound(instance, time_limit=share).value_ns
    for name, wanted in (("mean_jct", aim.times.finish), ("mean_ttft", aim.times.first)):
        if any(wanted):
            sums[name] = int(bound(instance, name, share).certificate["sum_ns"])
    return aim.lower(makespan, sums, least)


def served_alone(instance: Instance, problem: Problem) -> Alone:
    """Return how long each request takes where it is the only one."""
    first, finish = [], []
    a_round = problem.round_fixed + problem.round_client
    in_round = instance.first_token != "prefill"
    for prompt, needed in zip(problem.prompts, problem.needed, strict=True):
        prefill = next(time for cap, time in problem.levels if cap >= prompt)
        prefill += problem.prompt_token * prompt
        first.append(problem.unit_ns * (prefill + a_round * in_round))
        finish.append(problem.unit_ns * (prefill + a_round * needed))
    return Alone(tuple(first), tuple(finish))


def offer_starts(search: ExactSearch, initial: Schedule | None, alone: bool) -> None:
    """Offer the schedule that was given, and, unless ``alone``, what orders and methods make. Of
    these the first whatever the time, the others until the end."""
    instance, problem = search.instance, search.problem
    if initial is not None:
        search.begin_with(initial)
    if alone:
        return
    for number, order in enumerate(_orders(search)):
        if number and search.is_late():
            return
        plan = _one_by_one(problem, order)
        search.offer(schedule_of(instance, plan, problem=problem), plan)
    for name in ("fcfs", "hybrid"):  # these plan in whole prefills
        if search.is_late():
            return
        limit = search.part_of_time(3)
        try:
            found = attached("solve")(instance, name, iterations=2, time_limit=limit)
            bare = found.schedule.bare()
            search.offer(bare, plan_of(instance, bare))
        except OrschedError:
            continue


def _orders(search: ExactSearch) -> list[list[int]]:
    """Return orders to serve requests in: as they come, and by work over weight."""
    problem, terms = search.problem, getattr(search.aim, "terms", None)
    n = range(len(problem))
    weight = [1 if terms is None else max(1, terms.finish[i] + terms.first[i]) for i in n]
    work = [problem.needed[i] + 1 for i in n]
    short = sorted(n, key=lambda i: (problem.arrivals[i], work[i] / weight[i], i))
    found = [sorted(n, key=lambda i: (problem.arrivals[i], i)), short]
    if terms is not None and terms.due is not None:  # earliest due date first
        due = [math.inf if each is None else each for each in terms.due]
        found.append(sorted(n, key=lambda i: (due[i], i)))
    return found


def _one_by_one(problem: Problem, order: list[int]) -> Plan:
    """Return the plan that prefills each request alone, as soon as a client and memory are free."""
    stage = [0] * len(order)
    rounds: list[int] = []
    left: dict[int, int] = {}
    for i in order:
        while left and not _fits(problem, left, i):
            part = min(left.values())
            rounds[-1] += part
            left = {j: count - part for j, count in left.items() if count > part}
        stage[i] = len(rounds)
        rounds.append(0)
        if problem.needed[i]:
            left[i] = problem.needed[i]
    if rounds:
        rounds[-1] += max(left.values(), default=0)
    return Plan(tuple(stage), None, tuple(rounds))


def _fits(problem: Problem, left: dict[int, int], i: int) -> bool:
    if len(left) >= problem.clients:
        return False
    held = sum(problem.blocks[j] for j in left) + problem.blocks[i]
    return problem.memory_blocks is None or held <= problem.memory_blocks
