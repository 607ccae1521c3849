"""The exact search: the full MIP in a child process, with incumbent and bound whatever stops it."""

from __future__ import annotations

import math
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import TimeLimitError
from orsched.common.registry import attached
from orsched.common.scalars import require_one_of
from orsched.common.stop import MaxRuntime
from orsched.models.bounds.bounds import bound
from orsched.models.full_mip.formulation import FORMULATIONS
from orsched.models.full_mip.objectives import solve_for_objective
from orsched.models.full_mip.plan import plan_of
from orsched.models.full_mip.problem import read_problem
from orsched.models.full_mip.search import Search
from orsched.models.full_mip.size import Size, full_mip_size, windows_mip_size
from orsched.models.full_mip.solver_run import ModelSpec, end_of, refusal_of, result_of
from orsched.solving.objectives import minimised

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.slo import SLO
    from orsched.models.full_mip.problem import Problem
    from orsched.models.full_mip.result import FullMipProgress, FullMipResult
    from orsched.solving.objectives import Objective


def stages_that_suffice(problem: Problem, makespan_ns: int | None) -> tuple[int, str]:
    """Return a K with which the model has an optimal schedule, and why.

    n suffices, since no prefill stage is empty. Given the makespan of a schedule, so does the
    largest K for which K stages and the least number of rounds can end by then: a schedule with
    more stages ends later than the given one, and that one has no more than K.
    """
    n = len(problem)
    if makespan_ns is None:
        return max(1, n), _all(n)
    low, high = 1, max(1, n)
    while low < high:  # the least makespan grows with the number of stages
        middle = (low + high + 1) // 2
        if least_makespan_ns(problem, middle) <= makespan_ns:
            low = middle
        else:
            high = middle - 1
    if low >= n:
        return max(1, n), _all(n)
    least = least_makespan_ns(problem, low + 1)
    return low, (
        f"{low + 1} stages with the least number of rounds take at least {least} ns, "
        f"longer than the schedule of {makespan_ns} ns that is known"
    )


def _all(n: int) -> str:
    return f"no prefill stage is empty, so {n} requests need at most {n} stages"


def least_makespan_ns(problem: Problem, stages: int) -> int:
    """Return a bound on the makespan of every schedule with exactly ``stages`` prefill stages.

    The worker does one thing at a time. Rounds: at least as many as the longest request needs,
    and as all need on J clients. Stages: with any line a + b x below the time of a stage of x
    tokens, together at least a K + b sum N^p.
    """
    tokens, rounds = sum(problem.prompts), sum(problem.needed)
    least_rounds = max(problem.most_rounds, -(-rounds // problem.clients))
    prefill = max(a * stages + b * tokens for a, b in _lines_below(problem.levels))
    units = problem.round_fixed * least_rounds + problem.round_client * rounds
    return problem.to_ns(units + problem.prompt_token * tokens + max(0, math.ceil(prefill)))


def _lines_below(levels: tuple[tuple[int, int], ...]) -> list[tuple[Fraction, Fraction]]:
    """Return lines (a, b) with a, b >= 0 and a + b x <= the time of a stage of x >= 1 tokens.

    A stage's time is a step function and the line rises: it is below the time everywhere when it
    is at the capacity of each level.
    """
    found = [(Fraction(levels[0][1]), Fraction(0))]
    for number, (x, y) in enumerate(levels):
        for u, v in levels[number + 1 :]:
            slope = Fraction(v - y, u - x)
            base = y - slope * x
            if base >= 0 and all(base + slope * at <= time for at, time in levels):
                found.append((base, slope))
    return found


BACKENDS = ("scip", "cpsat")
MODELS = (*FORMULATIONS, "windows")

MAX_NONZEROS = 2_000_000
"""Above this the model is not built: at half of it (Pang's 100 requests on 20 clients with 32 bins)
loading takes seconds and half a gigabyte, and neither solver improves on its start in a minute."""


def solve_full_mip(
    instance: Instance,
    backend: str = "scip",
    stages: int | None = None,
    time_limit: float | None = None,
    initial_schedule: Schedule | None = None,
    callback: Callable[[FullMipProgress], object] | None = None,
    seed: int = 0,
    *,
    formulation: str = "compact",
    symmetry_breaking: bool = True,
    alone: bool = False,
    max_nonzeros: int = MAX_NONZEROS,
    objective: str | Objective = "makespan",
    slo: SLO | None = None,
) -> FullMipResult:
    """Solve Pang's full MIP, eq. (1)-(25), as read and repaired; see the page *The full MIP*.

    Args:
        instance: one worker; levels or affine cost; arrivals and memory as they are.
        backend: ``scip`` or ``cpsat``, each on one thread in a child process.
        stages: K, the number of bins; default: as many as are proven to suffice.
        time_limit: seconds from this call to its return.
        initial_schedule: any valid schedule, for a warm start; default: that of ``hybrid``, also
            in the place of one that is no solution (mixed steps, chunks), which a note says.
        callback: called with ``FullMipProgress``; returning True ends the search.
        seed: the solver's seed.
        formulation: ``compact``, ``printed`` (eq. (10) and (11) as they stand, the other rows
            repaired as in ``compact``) or ``windows`` (the window MIP); all have the same optimum.
        symmetry_breaking: number clients and bins; False for the bare model.
        alone: leave the solver without heuristic, analytic bound and smaller K: the reference.
        max_nonzeros: a larger model is not built; the answer is then the heuristic's schedule
            and the analytic bound.
        objective: means of completion times or first tokens, weighted ones, weighted sums of these
            and the makespan, or the attainment, which is made large: by ``LatencyMip``, whose bins
            ``stages`` counts then.
        slo: the limits to attain; default: those of the classes.

    Raises:
        InputError: an argument is wrong or the instance does not map into the model.
        InfeasibleError: no schedule exists; names the request and the limit.
        InvalidScheduleError: the initial schedule is not valid.
    """
    begin = perf_counter()
    _check_arguments(backend, formulation, time_limit)
    seed = whole_number(seed, "seed", maximum=2**63 - 1)
    max_nonzeros = whole_number(max_nonzeros, "max_nonzeros")
    if len(instance) and not minimised(objective).is_makespan:
        require_one_of(formulation, "formulation", FORMULATIONS[:1])
        return solve_for_objective(
            instance, objective, backend, stages, time_limit, initial_schedule, callback, seed, slo,
            symmetry_breaking=symmetry_breaking, alone=alone, max_nonzeros=max_nonzeros,
        )  # fmt: skip
    problem = read_problem(instance)
    end = end_of(begin, time_limit)
    search = Search(instance, problem, callback, begin)
    prepare(search, initial_schedule, alone, end)
    stages, proven, reason = _stages(stages, search, alone)
    search.proven = proven
    if not proven and search.plan is not None and len(search.plan.rounds) > stages:
        search.forget()
    size = _size(problem, stages, formulation, symmetry_breaking)
    model = ModelSpec(backend, stages, formulation, symmetry_breaking, seed)
    return result_of(search, model, reason, size, refusal_of(size, max_nonzeros), end)


def _check_arguments(backend: str, formulation: str, time_limit: float | None) -> None:
    require_one_of(backend, "backend", BACKENDS)
    require_one_of(formulation, "formulation", MODELS)
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates


def prepare(search: Search, initial: Schedule | None, alone: bool, end: float | None) -> None:
    """Bound the instance and find the incumbent to start from."""
    instance = search.instance
    if not alone or len(instance) == 0:
        share = None if end is None else max(1e-3, (end - perf_counter()) / 10)
        proven = bound(instance, time_limit=share)
        search.lower_ns, search.certificate = proven.value_ns, proven.certificate
    given = initial is not None and search.begin_with(initial)
    if not given and (not alone or len(instance) == 0):
        _hybrid(search, end)
    if search.schedule is not None and search.report():
        search.done = True


def _hybrid(search: Search, end: float | None) -> None:
    """Take the schedule of the method ``hybrid``, in a third of the time at most."""
    limit = None if end is None else max(1e-3, (end - perf_counter()) / 3)
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


def _stages(wanted: int | None, search: Search, alone: bool) -> tuple[int, bool, str]:
    """Return K, whether it is proven to suffice, and why."""
    known = None if alone or search.schedule is None else search.schedule.makespan_ns
    enough, reason = stages_that_suffice(search.problem, known)
    if wanted is None:
        return enough, True, reason
    wanted = whole_number(wanted, "stages", minimum=1)
    if wanted >= enough:
        return wanted, True, reason
    return wanted, False, f"{wanted} stages were asked for; they are not known to suffice"


def _size(problem: Problem, stages: int, formulation: str, symmetry_breaking: bool) -> Size:
    if formulation == "windows":
        return windows_mip_size(problem, stages, symmetry_breaking)
    return full_mip_size(problem, stages, formulation, symmetry_breaking)


def solve_windows_mip(instance: Instance, backend: str = "cpsat", **options: Any) -> FullMipResult:
    """Solve the window MIP, the reference of the stage windows; options as ``solve_full_mip``."""
    return solve_full_mip(instance, backend, formulation="windows", **options)
