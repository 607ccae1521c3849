"""The MIP of means, weighted sums and attainment, beside exhaustive search."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched import SLO, AffineCost, InputError, Instance, Requests, Worker, solve
from orsched.metrics.objective_values import objective_value
from orsched.models.exact_search.aims import MissesAim, TimesAim
from orsched.models.exact_search.stage_plan import plan_of, read_problem
from orsched.models.exact_search.starts import served_alone
from orsched.models.full_mip import solve_full_mip
from orsched.models.full_mip.latency_mip import LatencyMip, bins_that_suffice
from orsched.solving.objectives import objective_named
from tests.brute_force import least_total, most_attained, optimum_ns
from tests.in_order import in_order
from tests.models.full_mip.small import TIMES, optimum, random_instance, weighted


def best_attainment(instance, slo, pauses=False):
    arrivals = instance.requests.arrival_ns.tolist()
    outputs = instance.requests.output_tokens.tolist()

    def met(i, first, finish):
        if slo.ttft_ns is not None and first - arrivals[i] > slo.ttft_ns:
            return False
        return (
            slo.tpot_ns is None
            or outputs[i] < 2
            or ((finish - first) // (outputs[i] - 1) <= slo.tpot_ns)
        )

    return Fraction(most_attained(instance, met, pauses), len(instance))


def limits(seed, timed):
    """A limit on TTFT, one on TPOT or both; with arrivals none on TPOT, where a wait may help."""
    rng = random.Random(seed)
    ttft, tpot = rng.randint(5, 150), rng.randint(1, 80)
    if timed:
        return SLO(ttft_ns=ttft)
    return rng.choice([SLO(ttft_ns=ttft), SLO(ttft_ns=ttft, tpot_ns=tpot), SLO(tpot_ns=tpot)])


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_the_oracle_of_the_makespan_is_that_of_sums(seed):
    instance = random_instance(seed, 4)
    n = len(instance)
    assert least_total(instance, 1, [0] * n, [0] * n) == optimum_ns(instance)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(TIMES))
def test_bounds_are_below_the_optimum_and_policies_above(seed, objective):
    instance = weighted(seed, 4)
    best = optimum(instance, objective)
    problem = read_problem(instance, exact=True)
    aim = TimesAim(instance, problem, objective_named(objective))
    assert aim.fraction(aim.lower(0, {}, served_alone(instance, problem))) <= best
    for method in ("fcfs", "offline", "gittins@clairvoyant", "mc_sf", "vllm"):
        result = solve(instance, method, objective=objective)
        value = objective_value(instance, result.schedule, objective)
        whole = not {"mixed", "chunks", "restarts"} & allowed(instance, result.schedule)
        assert not whole or value >= best
        if result.objective_bound is not None and whole:
            assert Fraction(result.objective_bound) <= best / 10**9 + Fraction(1, 10**12)


def allowed(instance, schedule):
    from orsched.data.schedule_classes import allowances_of

    return allowances_of(instance, schedule)


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_no_more_attain_than_could_alone_and_no_policy_beats_the_best(seed):
    instance = random_instance(seed, 4)
    slo = limits(seed, bool(instance.requests.arrival_ns.any()))
    best = best_attainment(instance, slo)
    problem = read_problem(instance, exact=True)
    aim = MissesAim(instance, problem, slo)
    assert aim.fraction(aim.lower(served_alone(instance, problem))) >= best
    for method in ("fcfs", "offline"):
        result = solve(instance, method, objective="slo_attainment", slo=slo)
        assert result.slo_attainment <= best


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(TIMES), st.sampled_from(["fcfs", "hybrid"]))
def test_schedules_are_solutions_with_the_same_value(seed, objective, method):
    instance = weighted(seed, 6)
    problem = read_problem(instance, exact=True)
    aim = TimesAim(instance, problem, objective_named(objective))
    schedule = solve(instance, method, iterations=1).schedule
    in_round = instance.first_token != "prefill"
    mip = LatencyMip(problem, bins_that_suffice(problem), aim.terms, in_round)
    values = mip.values_of(plan_of(instance, schedule))
    assert mip.model.violation(values) is None
    assert aim.of_units(mip.model.value(values)) == aim.of(schedule)
    again = mip.plan_of([float(value) for value in values])
    assert mip.values_of(again) == values


@pytest.mark.parametrize("seed", range(4))
def test_cpsat_proves_what_exhaustive_search_finds(seed):
    instance = weighted(seed, 3)
    for objective in TIMES:
        found = solve_full_mip(instance, "cpsat", objective=objective)
        assert found.status == "optimal"
        assert found.value == found.value_bound == optimum(instance, objective)
        assert objective_value(instance, found.schedule, objective) == found.value
        assert found.gap in (0.0, None)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["cpsat", "scip"])
@pytest.mark.parametrize("seed", range(4, 12))
def test_both_solvers_prove_it_for_four_requests(seed, backend):
    instance = weighted(seed, 4)
    for objective in TIMES:
        found = solve_full_mip(instance, backend, objective=objective, alone=True)
        assert found.value == optimum(instance, objective)
        assert found.status == "optimal" or backend == "scip"


@pytest.mark.parametrize("seed", range(6))
def test_cpsat_proves_the_best_attainment(seed):
    instance = random_instance(seed, 3)
    slo = limits(seed, bool(instance.requests.arrival_ns.any()))
    found = solve_full_mip(instance, "cpsat", objective="slo_attainment", slo=slo)
    assert found.status == "optimal"
    assert found.value == found.value_bound == best_attainment(instance, slo)
    assert solve(instance, found_by(found), slo=slo).slo_attainment == float(found.value)


def found_by(found):
    """Return a method that answers with a schedule that is there already."""

    class Ready:
        name, information, summary = "ready", ("clairvoyant",), ""

        def __call__(self, instance, run):
            from array import array

            from orsched.solving.methods import Outcome
            from orsched.solving.result import Termination

            schedule = found.schedule.replace(method="ready", information="clairvoyant")
            return Outcome(schedule, Termination.FINISHED, array("q"), {})

    return Ready()


def test_a_wait_that_no_arrival_asks_for_can_keep_a_limit_between_tokens():
    # The second request comes in the middle of the first one's rounds, and its prefill takes long:
    # with a wait both tokens of the first come behind it.
    instance = Instance(
        Requests([1, 1], [3, 1], arrival_ns=[0, 30]), Worker(2, in_order(AffineCost, 20, 0, 10, 0)),
        first_token="prefill",
    )  # fmt: skip
    slo = SLO(ttft_ns=45, tpot_ns=12)
    found = solve_full_mip(instance, "cpsat", objective="slo_attainment", slo=slo)
    assert found.status == "optimal"
    assert found.value >= best_attainment(instance, slo)


def test_too_few_bins_prove_nothing():
    instance = random_instance(5, 4)
    found = solve_full_mip(instance, "cpsat", stages=2, objective="jct_mean")
    assert found.value_bound is None
    assert found.status in ("optimal_for_K", "infeasible", "feasible", "unknown")


def test_the_method_exact_says_what_was_proven_and_by_whom():
    instance = weighted(3, 3)
    result = solve(instance, "exact", objective="jct_mean")
    assert objective_value(instance, result.schedule, "jct_mean") == optimum(instance, "jct_mean")
    assert result.status == "optimal"
    options = {"search": "best_first", "stages": 4}
    with pytest.raises(InputError, match="best first"):
        solve(instance, "exact", objective="jct_mean", parameters=options)


def test_only_the_makespan_has_other_formulations():
    with pytest.raises(InputError) as caught:
        solve_full_mip(weighted(1, 3), objective="jct_mean", formulation="windows")
    assert caught.value.field == "formulation"


def test_no_requests():
    found = solve_full_mip(
        Instance(
            Requests([], []), Worker(2, in_order(AffineCost, 1, 1, 1, 1)), first_token="decode"
        ),
        objective="jct_mean",
    )
    assert found.status == "optimal"
