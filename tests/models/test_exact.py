"""The methods exact and auto, and pauses: what is proven is said to be the best without them."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import SLO, AffineCost, BilinearCost, InputError, Worker, solve
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.schedule_classes import (
    ALL_SCHEDULES,
    PLAIN_SCHEDULES,
    WITHOUT_PAUSES,
    ScheduleClass,
    allowances_of,
    class_of,
)
from orsched.metrics.token_times import request_times
from orsched.models.best_first import solve_best_first
from orsched.models.best_first_times import solve_best_first_times
from orsched.models.bounds.bounds import Bound
from orsched.models.exact import choose
from orsched.models.exact_search.aims import MakespanAim, TimesAim, pauses_cannot_help
from orsched.models.exact_search.stage_plan import read_problem
from orsched.models.full_mip import solve_full_mip
from orsched.models.full_mip.programs import read_program
from orsched.solving.objectives import objective_named
from orsched.views.pictures import verdict_of
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.full_mip.small import TIMES, optimum, random_instance, weighted
from tests.models.full_mip.test_models import best_attainment

SMALL = decoding([3, 2, 4], [4, 3, 2], Worker(2))


@pytest.mark.parametrize("backend", ["cpsat", "scip"])
def test_exact_proves_a_small_optimum_on_both_back_ends(backend):
    result = orsched.solve(SMALL, "exact", parameters={"backend": backend}, time_limit=600)
    assert result.makespan_ns == optimum_ns(SMALL)
    assert (result.status, result.checked, result.gap) == ("optimal", True, 0)
    assert result.certified
    assert not any("without a certificate" in note for note in result.notes)


@pytest.mark.parametrize("backend", ["cpsat", "scip"])
def test_a_proof_beyond_the_certified_bound_is_said_to_have_no_certificate(backend, monkeypatch):
    claim = {"bound": "last_arrival", "value_ns": 0}
    weak = Bound("last_arrival", value_ns=0, certificate=claim, reference={})
    names = ("models.bounds.bounds.bound", "models.exact_search.starts.bound")
    for name in (*names, "solving.checked_run.bound_once"):
        monkeypatch.setattr(f"orsched.{name}", lambda *_, **__: weak)
    result = orsched.solve(SMALL, "exact", parameters={"backend": backend}, time_limit=600)
    assert (result.status, result.termination) == ("optimal", "finished")
    assert (result.bound_ns, result.certified) == (0, False)
    (note,) = [note for note in result.notes if "without a certificate" in note]
    assert f"{backend} proved that {result.best_of} take at least {result.makespan:.6f} s" in note


def test_exact_searches_best_first_where_nothing_arrives_late_and_says_what_it_proved():
    instance = orsched.load("gate")
    result = orsched.solve(instance, "exact", time_limit=600)
    assert (result.status, result.schedule.method) == ("optimal", "exact")
    assert result.checked
    assert not any(note.startswith("K =") for note in result.notes)
    (note,) = [note for note in result.notes if "without a certificate" in note]
    assert note.startswith("the best-first search proved")
    assert not result.certified
    by_mip = orsched.solve(instance, "exact", parameters={"search": "mip"}, time_limit=600)
    assert by_mip.makespan_ns == result.makespan_ns
    assert any(note.startswith("K =") for note in by_mip.notes)


def test_exact_takes_the_mip_where_requests_arrive_over_time():
    late = orsched.load("with-arrivals")
    result = orsched.solve(late, "exact", time_limit=600)
    assert any(note.startswith("K =") for note in result.notes)
    with pytest.raises(InputError, match="arrive over time") as caught:
        orsched.solve(late, "exact", parameters={"search": "best_first"})
    assert caught.value.field == "search"


@pytest.mark.parametrize(
    ("method", "parameters", "field"),
    [
        ("exact", {"search": "best_first", "stages": 3}, None),
        ("exact", {"search": "depth"}, None),
        ("exact", {"x": 1}, "parameters"),
        ("auto", {"x": 1}, "parameters"),
        ("exact", {"backend": "gurobi"}, None),
    ],
)
def test_parameters_that_make_no_sense_are_refused(method, parameters, field):
    with pytest.raises(InputError, match="gurobi" if "backend" in parameters else None) as caught:
        orsched.solve(SMALL, method, parameters=parameters)
    assert field is None or caught.value.field == field


def test_a_callback_and_a_target_gap_reach_the_best_first_search():
    seen = []
    instance = orsched.load("gate")
    result = orsched.solve(instance, "exact", callback=seen.append, stop=orsched.TargetGap(0.9))
    assert result.termination == "target_gap"
    assert seen


def test_auto_says_what_it_picked():
    assert choose(SMALL)[0] == "exact"
    assert choose(orsched.load("pang-100x20"))[0] == "windows"
    assert choose(decoding([1] * 20, [2] * 20, Worker(2), arrival_ns=range(20)))[0] == "hybrid"
    bilinear = Worker(2, in_order(BilinearCost, *[1] * 8))
    assert choose(SMALL.replace(workers=(bilinear,)))[0] == "hybrid"
    result = orsched.solve(SMALL, "auto", time_limit=600)
    assert result.makespan_ns == optimum_ns(SMALL)
    assert any("auto picked exact" in note for note in result.notes)


def test_paged_memory_that_never_limits_is_none():
    """Two clients, and the largest two of three requests hold 3 blocks of 4 tokens each."""

    def on(memory):
        worker = Worker(2, in_order(AffineCost, 5, 0, 3, 0), memory=memory)
        return decoding([4, 5, 2], [5, 6, 3], worker)

    enough = BlockMemory(6, 4, "paged")
    found, known = (orsched.solve(on(memory), "exact") for memory in (enough, None))
    assert (found.makespan, found.status) == (known.makespan, known.status)
    for memory in (BlockMemory(5, 4, "paged"), BlockMemory(6, 4, "paged", PrefixCache())):
        with pytest.raises(InputError, match="--allocation whole"):
            orsched.solve(on(memory), "exact")
        assert "paged memory" in choose(on(memory))[1]


WORDS = "schedules without pauses, chunked prefills, mixed steps and evictions"


def at_once(outputs, clients, *times):
    worker = Worker(clients, in_order(AffineCost, *times))
    return decoding([2] * len(outputs), outputs, worker)


ISSUE = at_once([1, 1], 2, 10_000_000, 0, 0, 1_000_000)
TPOT = at_once([3, 3], 3, 7, 0, 9, 1)
HELPED = {
    "jct_mean": (ISSUE, None, Fraction(12_000_000), Fraction(11_500_000)),
    "ttft_mean": (ISSUE, None, Fraction(12_000_000), Fraction(11_500_000)),
    "slo_attainment": (TPOT, SLO(ttft_ns=39, tpot_ns=10), Fraction(1, 2), Fraction(1)),
}
"""By objective an instance, limits, the best value without pauses, and a better one with them."""


@pytest.mark.parametrize("objective", HELPED)
def test_what_a_pause_beats_is_said_to_be_the_best_without_pauses(objective):
    instance, slo, without, paused = HELPED[objective]
    best, given = (optimum, objective) if slo is None else (best_attainment, slo)
    assert [best(instance, given, pauses) for pauses in (False, True)] == [without, paused]
    result = solve(instance, "exact", objective=objective, slo=slo, time_limit=600)
    unit = 1 if slo else 10**9
    assert Fraction(result.objective_value).limit_denominator(10**9) * unit == without
    assert (result.status, result.best_of) == ("optimal", WITHOUT_PAUSES)
    assert f"optimal among {WORDS})" in repr(result)
    assert result.to_row()["best_of"] == WORDS
    assert verdict_of(result.schedule).words.startswith(f"optimal for {objective} among {WORDS}")
    assert any(f"proved that {WORDS} have {objective} of at" in note for note in result.notes)
    if slo is None:
        assert result.certified_bound * unit <= paused


class Listed(orsched.Policy):
    """Prefills both requests first, then has those of each list in a round."""

    name = "listed"
    information = orsched.Information.CLAIRVOYANT

    def __init__(self, rounds):
        self.steps = [orsched.Step(prefill=[0, 1], decode=())]
        self.steps += [orsched.Step(decode=each) for each in rounds]

    def decide(self, view):
        return self.steps.pop(0)


def least(instance, objective, pauses):
    if objective == "makespan":
        return optimum_ns(instance, pauses)
    return optimum(instance, objective, pauses)


def test_a_given_schedule_with_a_pause_takes_the_place_of_the_proof():
    start = orsched.simulate(ISSUE, Listed([[0], [1]])).schedule
    assert class_of(ISSUE, start) == PLAIN_SCHEDULES
    result = solve(ISSUE, "exact", objective="jct_mean", initial_schedule=start, time_limit=600)
    assert (result.objective_value, result.certified) == (0.0115, True)
    assert result.best_of == PLAIN_SCHEDULES  # by its bound, no longer by the search
    assert any(f"among {WORDS}: it is not proven" in note for note in result.notes)
    assert all(point.bound <= 11_500_000 for point in result.history if point.bound is not None)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(("makespan", *TIMES)))
def test_a_proof_holds_for_every_schedule_of_the_class_that_it_names(seed, objective):
    """Beside exhaustive search, with pauses where the class has them."""
    instance = weighted(seed, 3)
    found = solve_best_first_times(instance, objective, alone=True)
    best, paused = (least(instance, objective, pauses) for pauses in (False, True))
    assert found.value == best >= paused
    assert found.schedules == PLAIN_SCHEDULES or objective != "makespan"
    assert found.value == paused or found.schedules == WITHOUT_PAUSES


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(["makespan", "jct_mean", "ttft_mean"]))
def test_bounds_hold_for_the_best_of_the_schedules_with_pauses(seed, objective):
    """Arrivals, caps, levels and memory among them."""
    instance = random_instance(seed, 3)
    found = orsched.bound(instance, objective)
    assert found.schedules >= PLAIN_SCHEDULES
    assert found.value_ns <= least(instance, objective, True)


def test_pauses_help_nobody_where_it_is_said_and_somebody_elsewhere():
    """On 200 instances, with arrivals or without."""
    helped = said = 0
    for seed in range(200):
        instance, rng = weighted(seed, 3), random.Random(seed)
        cost = in_order(AffineCost, *(rng.randint(0, 4) for _ in range(4)))
        instance = instance.replace(workers=replace(instance.worker, cost=cost))
        objective = TIMES[seed % len(TIMES)]
        problem = read_problem(instance, exact=True)
        aim = TimesAim(instance, problem, objective_named(objective))
        cannot = pauses_cannot_help(problem, aim)
        gained = optimum(instance, objective) - optimum(instance, objective, True)
        assert gained == 0 or not cannot, (seed, objective)
        helped, said = helped + (gained > 0), said + cannot
    assert min(helped, said) > 10, (helped, said)


def test_the_makespan_needs_no_pauses_whoever_proves_it():
    rng = random.Random(1)
    instance = at_once([rng.randint(1, 5) for _ in range(5)], 2, 9, 1, 2, 5)
    assert pauses_cannot_help(read_problem(instance), MakespanAim(read_problem(instance)))
    best = optimum_ns(instance, True)
    for found in (solve_best_first(instance, alone=True), solve_full_mip(instance, "cpsat")):
        assert (found.makespan_ns, found.schedules) == (best, PLAIN_SCHEDULES)
    assert read_program(instance, "full-mip").schedules == PLAIN_SCHEDULES
    assert read_program(ISSUE, "latency-mip").schedules == WITHOUT_PAUSES


def test_classes_have_words_and_nobody_does_better_than_everyone_within_the_limits():
    assert str(ALL_SCHEDULES) == "all schedules"
    assert str(WITHOUT_PAUSES) == WORDS
    assert str(ScheduleClass.allowing(["chunks", "mixed"])) == "schedules without evictions"
    assert WITHOUT_PAUSES <= PLAIN_SCHEDULES <= ALL_SCHEDULES
    assert not ALL_SCHEDULES <= PLAIN_SCHEDULES
    slo = SLO(ttft_ns=10**9)
    result = solve(ISSUE, "exact", objective="slo_attainment", slo=slo, time_limit=600)
    assert (result.slo_attainment, result.best_of) == (1, ALL_SCHEDULES)
    assert result.verdict == "optimal among all schedules"


def test_a_class_is_read_from_what_its_schedules_do():
    """Steps by hand: a pause between rounds, one before the first, and none."""
    instance = at_once([2, 2], 2, 10, 0, 5, 1)
    for steps, paused in (
        ([[0, 1], [0, 1]], False),
        ([[0], [1], [0, 1]], True),
        ([[0, 1], [0], [1]], True),
        ([[0], [0], [1], [1]], True),
    ):
        schedule = orsched.simulate(instance, Listed(steps)).schedule
        found = class_of(instance, schedule)
        assert found == (PLAIN_SCHEDULES if paused else WITHOUT_PAUSES), steps
        assert allowances_of(instance, schedule) == frozenset()


@pytest.mark.parametrize("objective", ["makespan", "jct_mean"])
def test_without_a_method_a_policy_serves_requests_that_wait_for_others(objective):
    """Each of three is in flight alone: they end in the order in which they are given."""
    instance = SMALL.replace(concurrency=1)
    result = orsched.solve(instance, objective=objective)
    assert any("auto picked vllm" in note for note in result.notes)
    assert result.checked
    ends = request_times(instance, result.schedule)["finish_ns"].tolist()
    assert ends == sorted(ends)
