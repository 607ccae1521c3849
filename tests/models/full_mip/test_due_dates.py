"""Weighted tardiness and maximum lateness: the MIP beside exhaustive search, figures by hand."""

import random
from fractions import Fraction

import pytest

import orsched
from orsched import BlockMemory, Instance, PrefixCache, Prefixes, Requests, Worker
from orsched.checker.certificates import bound_violations
from orsched.costs import AffineCost, BilinearCost
from orsched.metrics.objective_values import DueDates
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import finishes_ns
from orsched.models.exact_search.aims import DueAim
from orsched.models.exact_search.stage_plan import plan_of, read_problem
from orsched.models.exact_search.starts import served_alone
from orsched.models.full_mip.latency_mip import LatencyMip, bins_that_suffice
from orsched.models.full_mip.solve import solve_full_mip
from orsched.solving.objectives import objective_named
from tests.brute_force import least_late
from tests.in_order import in_order
from tests.models.full_mip.small import weighted
from tests.refusals import refused

OBJECTIVES = ("weighted_tardiness_mean", "lateness_max")
COST = in_order(AffineCost, 25, 1, 29, 2)


def due(seed, most):
    """A small instance with weights and deadlines, some requests without one."""
    instance, rng = weighted(seed, most), random.Random(seed)
    limits = [rng.choice((0, rng.randint(1, 200))) for _ in range(len(instance) - 1)]
    requests = instance.requests.replace(deadline_ns=[*limits, rng.randint(1, 200)])
    return instance.replace(requests=requests)


def optimum(instance, objective):
    """The least value in nanoseconds, the sum for the mean."""
    dates = DueDates.of(instance)
    at = dict(zip(dates.rows.tolist(), dates.due_ns.tolist(), strict=True))
    counts = dict(zip(dates.rows.tolist(), dates.weights.tolist(), strict=True))
    if objective == "lateness_max":
        return least_late(instance, lambda i, end: end - at.get(i, 2**40), max)
    return least_late(
        instance, lambda i, end: counts.get(i, 0) * max(0, end - at.get(i, 2**40)), sum
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 600), marks=pytest.mark.full)])
def test_a_certified_bound_is_at_most_the_least_value(objective, seeds):
    """And within a nanosecond of it for some: it is no bound of nothing."""
    met = 0
    for seed in seeds:
        instance = due(seed, 3 + seed % 2)
        least = optimum(instance, objective)
        least //= DueDates.of(instance).weight if objective == OBJECTIVES[0] else 1
        found = orsched.bound(instance, objective)
        assert found.value_ns <= least
        assert bound_violations(instance, found.to_dict(), objective) == []
        higher = {**found.to_dict(), "value_ns": found.value_ns + 1}
        assert bound_violations(instance, higher, objective)
        met += found.value_ns == least
    assert met > len(seeds) // 5


PAGES = BlockMemory(12, 2, prefix_cache=PrefixCache())
ANY_WAY = {
    "stages": (Worker(3, COST), "fcfs"),
    "by due date": (Worker(3, COST), "fcfs+order=due"),
    "mean contexts": (Worker(3, in_order(BilinearCost, *[10**6] * 8)), "fcfs"),
    "two workers": ((Worker(2, COST, name="a"), Worker(1, COST.scaled(2), name="b")), "vllm"),
    "mixed steps, evictions, a cache": (Worker(3, COST, memory=PAGES), "vllm+order=due"),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("worker", "method"), ANY_WAY.values(), ids=ANY_WAY)
def test_no_schedule_is_below_the_bound_that_holds_for_it(worker, method, objective):
    better = False
    for seed in range(8):
        rng = random.Random(seed)
        prompts, outputs, arrivals, limits = (
            [rng.randint(4, most) for _ in range(9)] for most in (9, 6, 400, 200)
        )
        keys = Prefixes.from_documents([k % 3 for k in range(9)], 4, 2)
        requests = Requests(
            prompts, outputs, arrival_ns=arrivals, deadline_ns=limits, prefixes=keys
        )
        instance = Instance(requests, worker, first_token="prefill")
        result = orsched.solve(instance, method, objective=objective)
        value = result.mean_bounds[objective]["value_ns"]
        claim = result.mean_bounds[objective]
        assert bound_violations(instance, claim, objective) == []
        dates, ends = DueDates.of(instance), finishes_ns(Timeline(instance, result.schedule))
        if objective == "lateness_max":
            assert value <= dates.max_lateness(ends)
        else:
            assert value <= Fraction(dates.weighted_tardiness(ends), dates.weight)
        better |= value > 0
    assert better


def test_one_client_serves_by_due_date():
    """Three equal requests of 10 and 2 x 5 ns on one client: 20, 40, 60. Due at 60, 20 and 40 (70
    from an arrival at 0 would be early), so in order of due dates none is late."""
    cost = in_order(AffineCost, 10, 0, 5, 0)
    requests = Requests([1] * 3, [2] * 3, deadline_ns=[60, 20, 40])
    instance = Instance(requests, Worker(1, cost), first_token="decode")
    result = orsched.solve(instance, "fcfs+order=due", objective="lateness_max")
    assert (result.objective_value, result.objective_bound, result.status.value) == (
        0,
        0,
        "optimal",
    )
    searched = orsched.solve(
        instance, "latency_search", objective="weighted_tardiness_mean", iterations=2
    )
    assert (searched.objective_value, searched.status.value) == (0, "optimal")


def test_the_search_meets_what_exhaustive_search_finds():
    for seed in range(6):
        instance = due(seed, 4)
        result = orsched.solve(
            instance, "latency_search", objective=OBJECTIVES[0], iterations=4,
            parameters={"mixed": False, "chunks": False},
        )  # fmt: skip
        dates, ends = DueDates.of(instance), finishes_ns(Timeline(instance, result.schedule))
        assert dates.weighted_tardiness(ends) == optimum(instance, OBJECTIVES[0])


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    ("seeds", "most", "backend"),
    [
        (range(5), 3, "cpsat"),
        pytest.param(range(5, 25), 4, "cpsat", marks=pytest.mark.full),
        pytest.param(range(25, 35), 4, "scip", marks=pytest.mark.full),
    ],
)
def test_the_mip_proves_what_exhaustive_search_finds(objective, seeds, most, backend):
    for seed in seeds:
        instance = due(seed, most)
        found = solve_full_mip(instance, backend, objective=objective, alone=most > 3)
        weight = DueDates.of(instance).weight if objective == OBJECTIVES[0] else 1
        assert found.value * weight == optimum(instance, objective)
        if backend == "cpsat":
            assert (found.status, found.value_bound) == ("optimal", found.value)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_schedules_are_solutions_with_the_same_value_and_not_below_the_bound(objective):
    for seed in range(40):
        instance = due(seed, 6)
        problem = read_problem(instance, exact=True)
        aim = DueAim(instance, problem, objective_named(objective))
        schedule = orsched.solve(instance, "fcfs").schedule
        in_round = instance.first_token != "prefill"
        mip = LatencyMip(problem, bins_that_suffice(problem), aim.terms, in_round)
        values = mip.values_of(plan_of(instance, schedule))
        assert mip.model.violation(values) is None
        value = aim.of(schedule)
        assert aim.of_units(mip.model.value(values)) == value
        assert aim.lower(served_alone(instance, problem)) <= value
        figure = summarise(instance, schedule)["due"]
        name = "max_lateness_ns" if objective == "lateness_max" else "weighted_tardiness_ns"
        assert figure[name] == pytest.approx(float(aim.fraction(value)), rel=1e-12)


def by_hand(**more):
    """Two requests on one client, 10 ns each: the second is due first and counts three times."""
    cost = in_order(orsched.AffineCost, 4, 0, 6, 0)
    requests = orsched.Requests([1, 1], [1, 1], deadline_ns=[12, 8], weights=[1, 3], **more)
    return orsched.Instance(requests, orsched.Worker(1, cost), first_token="decode")


def test_by_hand():
    first = orsched.solve(by_hand(), "fcfs", objective="weighted_tardiness_mean")
    assert first.schedule.results["due"] == {
        "requests": 2, "weight": 4, "weighted_tardiness_ns": 36 / 4, "max_lateness_ns": 12,
    }  # fmt: skip
    best = orsched.solve(by_hand(), objective="weighted_tardiness_mean")
    assert best.schedule.results["due"]["weighted_tardiness_ns"] == (1 * 8 + 3 * 2) / 4
    assert best.objective_value == best.objective_bound == pytest.approx(3.5e-9)
    assert orsched.solve(by_hand(), objective="lateness_max").objective_value == 8e-9
    assert orsched.check(by_hand(), best.schedule) == []


def test_without_deadlines_the_objective_is_refused():
    plain = orsched.load("two-by-two")
    for objective in OBJECTIVES:
        for method in ("exact", "fcfs"):
            refused("without deadlines", orsched.solve, plain, method, objective=objective)
        refused("minimises", orsched.solve, by_hand(), "windows", objective=objective)
    nothing = by_hand().replace(requests=by_hand().requests.replace(weights=[0, 0]))
    refused("all weights", orsched.solve, nothing, "fcfs", objective="weighted_tardiness_mean")


def test_a_wrong_figure_is_found():
    schedule = orsched.solve(by_hand(), "fcfs").schedule
    wrong = schedule.results["due"] | {"max_lateness_ns": 3}
    found = orsched.check(by_hand(), schedule.replace(results={**schedule.results, "due": wrong}))
    assert [each.field for each in found] == ["results.due.max_lateness_ns"]
