"""The exact search for objectives other than the makespan: means, weighted sums, attainment."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError
from orsched.common.registry import attached
from orsched.models.full_mip.aim import Alone, MissesAim, TimesAim
from orsched.models.full_mip.latency_mip import LatencyMip, bins_that_suffice, refined
from orsched.models.full_mip.plan import Plan, plan_of, schedule_of
from orsched.models.full_mip.problem import MAX_UNITS, read_problem
from orsched.models.full_mip.search import Search
from orsched.models.full_mip.size import Size
from orsched.models.full_mip.solver_run import ModelSpec, end_of, refusal_of, result_of
from orsched.solving.objectives import Objective, minimised

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.slo import SLO
    from orsched.models.full_mip.aim import Aim
    from orsched.models.full_mip.problem import Problem
    from orsched.models.full_mip.result import FullMipProgress, FullMipResult

NONZEROS_A_BIN = 40
"""Of each request in each bin, at most: what a model is refused by before it is built."""

BUILD_S = 2e-6
"""Seconds a nonzero that building takes, at least: where there is less time, none is built."""


def solve_for_objective(
    instance: Instance,
    objective: str | Objective,
    backend: str,
    stages: int | None,
    time_limit: float | None,
    initial_schedule: Schedule | None,
    callback: Callable[[FullMipProgress], object] | None,
    seed: int,
    slo: SLO | None,
    *,
    symmetry_breaking: bool,
    alone: bool,
    max_nonzeros: int,
) -> FullMipResult:
    """Solve the MIP of an objective; the arguments are those of ``solve_full_mip``."""
    begin = perf_counter()
    aim_name = minimised(objective)
    problem = read_problem(instance, exact=True)
    aim: TimesAim | MissesAim
    if aim_name.is_linear:
        aim = TimesAim(instance, problem, aim_name)
    else:
        aim = MissesAim(instance, problem, slo)
    search = Search(instance, problem, callback, begin, aim)
    end = end_of(begin, time_limit)
    enough = bins_that_suffice(problem)
    count = enough if stages is None else whole_number(stages, "stages", minimum=1)
    search.proven = count >= enough
    if not alone:
        search.lower_ns = lower_bound(instance, problem, aim, end)
    _start(search, initial_schedule, count, alone, end)
    reason = _reason(enough, count)
    estimate = len(problem) * count * NONZEROS_A_BIN
    size, refusal = Size(0, 0, estimate), refusal_of(Size(0, 0, estimate), max_nonzeros)
    spec = ModelSpec(
        backend, count, "latency", symmetry_breaking, seed, aim.terms,
        instance.first_token != "prefill", _least_units(search, problem, aim),
    )  # fmt: skip
    if not refusal and (end is None or perf_counter() + estimate * BUILD_S < end):
        size = _size(problem, spec)
    result = result_of(search, spec, reason, size, refusal, end)
    bound = result.bound_ns  # of the value, in the units of the aim
    return replace(
        result,
        bound_ns=aim.shown_ns(bound) if bound is not None and isinstance(aim, TimesAim) else None,
        objective=aim_name.name,
        value=None if search.value is None else aim.fraction(search.value),
        value_bound=None if bound is None else aim.fraction(bound),
    )


def lower_bound(
    instance: Instance, problem: Problem, aim: TimesAim | MissesAim, end: float | None
) -> int:
    """Return a bound on the value from the certified ones, and each request served alone."""
    from orsched.models.bounds.bounds import bound

    least = served_alone(instance, problem)
    if isinstance(aim, MissesAim):
        return aim.lower(least)
    share = None if end is None else max(1e-3, (end - perf_counter()) / 30)
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


def _least_units(search: Search, problem: Problem, aim: Aim) -> int | None:
    """Return the known bound in units of the model's objective, rounded up; None without one."""
    if search.lower_ns is None:
        return None
    zero = aim.of_units(0)
    step = aim.of_units(1) - zero
    return -((zero - search.lower_ns) // step)


def _reason(enough: int, count: int) -> str:
    if count >= enough:
        return f"every bin begins with a prefill stage or behind a finish, so {enough} suffice"
    return f"{count} bins were asked for; {enough} are known to suffice"


def _size(problem: Problem, spec: ModelSpec) -> Size:
    """Return the size of the model, which is built for it."""
    assert spec.terms is not None
    model = LatencyMip(
        problem, spec.stages, spec.terms, spec.first_in_round, spec.symmetry_breaking
    ).model
    if model.objective_upper > MAX_UNITS * 2**10:
        raise InputError(
            f"the objective spans more than {MAX_UNITS * 2**10} units, too many for a solver",
            field="objective",
            remedy="give weights with fewer digits, or round costs and arrivals",
        )
    return Size(len(model.names), len(model.rows), model.nonzeros)


def _start(
    search: Search, initial: Schedule | None, count: int, alone: bool, end: float | None
) -> None:
    """Find the incumbent to start from: first come and shortest first, batched or one by one."""
    offer_starts(search, initial, alone, end)
    if search.plan is not None and len(refined(search.problem, search.plan).bins) > count:
        search.forget()
    if search.schedule is not None and search.report():
        search.done = True


def offer_starts(
    search: Search, initial: Schedule | None, alone: bool, end: float | None = None
) -> None:
    """Offer the schedule that was given, and, unless ``alone``, what orders and methods make.

    Of these the first whatever the time, the others until the end on the clock ``perf_counter``.
    """
    instance, problem = search.instance, search.problem
    if initial is not None:
        search.begin_with(initial)
    if alone:
        return
    for number, order in enumerate(_orders(search)):
        if number and _is_late(end):
            return
        plan = _one_by_one(problem, order)
        search.offer(schedule_of(instance, plan, problem=problem), plan)
    _of_methods(search, end)


def _orders(search: Search) -> list[list[int]]:
    """Return orders to serve requests in: as they come, and by work over weight."""
    problem, terms = search.problem, getattr(search.aim, "terms", None)
    n = range(len(problem))
    weight = [1 if terms is None else max(1, terms.finish[i] + terms.first[i]) for i in n]
    work = [problem.needed[i] + 1 for i in n]
    short = sorted(n, key=lambda i: (problem.arrivals[i], work[i] / weight[i], i))
    return [sorted(n, key=lambda i: (problem.arrivals[i], i)), short]


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


def _is_late(end: float | None) -> bool:
    return end is not None and perf_counter() >= end


def _of_methods(search: Search, end: float | None) -> None:
    """Offer what methods make that plan in whole prefills, each in a third of the time left."""
    for name in ("fcfs", "hybrid"):
        if _is_late(end):
            return
        limit = None if end is None else max(1e-3, (end - perf_counter()) / 3)
        try:
            found = attached("solve")(
                search.instance, name, iterations=2, time_limit=limit
            ).schedule
            bare = found.bare()
            search.offer(bare, plan_of(search.instance, bare))
        except OrschedError:
            continue
