"""Objectives of solve: names, weighted sums, exact values."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched import SLO, AffineCost, InputError, Worker, load, solve
from orsched.cli.commands import run
from orsched.metrics.objective_values import objective_value, weighted_times
from orsched.metrics.token_times import request_times
from orsched.solving.objectives import MINIMISED, OBJECTIVES, objective_named
from tests.decoding import decoding
from tests.in_order import in_order


def instance(n=12, seed=0, weights=None, arrivals=False):
    random = np.random.default_rng(seed)
    prompts, outputs = random.integers(1, 50, n), random.integers(1, 20, n)
    times = random.integers(0, 10**9, n) if arrivals else None
    worker = Worker(3, in_order(AffineCost, 20_000_000, 100_000, 10_000_000, 1_000_000))
    return decoding(prompts, outputs, [worker], arrival_ns=times, weights=weights)


def test_aliases_and_sums_are_read_and_written_back():
    assert objective_named("mean_jct") is OBJECTIVES["jct_mean"]
    assert objective_named("mean_ttft") is OBJECTIVES["ttft_mean"]
    found = objective_named(" 0.30 * makespan + .7*mean_jct")
    assert found.name == "0.3*makespan+0.7*jct_mean"
    assert objective_named(found.name) == found
    assert found.parts == ("makespan", "jct_mean")
    assert found.is_linear
    assert [share.weight for share in found.shares] == [Fraction(3, 10), Fraction(7, 10)]


@pytest.mark.parametrize(("text", "problem"), [
    ("jct", "not an objective"), (3, "not an objective"), (None, "not an objective"),
    ("-1*makespan", "not a term"), ("nan*makespan", "not a term"),
    ("inf*makespan+1*jct_mean", "not a term"), ("0.5*makespan+", "not a term"),
    ("1e3*makespan", "not a term"), ("makespan+jct_mean", "not a term"),
    ("0*makespan+0*jct_mean", "all weights are 0"), ("1*makespan+2*makespan", "appears twice"),
    ("1*jct_mean+2*mean_jct", "appears twice"),
    ("0.5*slo_attainment+0.5*makespan", "no place in a weighted sum"),
    ("0.5*jct_p99+0.5*makespan", "no place in a weighted sum"),
    ("9999999999*makespan", "too many digits"), ("0.1234567891*makespan", "too many digits"),
    ("tpot_p99", "no method is made for it"), ("gap", "no method is made for it"),
    ("slo_attainment", "without limits"), ("9" * 5000 + "*makespan", "not a term"),
])  # fmt: skip
def test_a_wrong_objective_is_refused_at_its_field(text, problem):
    with pytest.raises(InputError, match=problem) as caught:
        solve(instance(), "fcfs", objective=text)
    assert caught.value.field == "objective"
    assert caught.value.remedy


@pytest.mark.parametrize("method", ["windows", "hybrid"])
def test_a_method_that_plans_for_the_makespan_says_which_others_can(method):
    with pytest.raises(InputError, match="minimises") as caught:
        solve(instance(), method, objective="jct_mean")
    assert caught.value.field == "objective"
    assert "auto" in caught.value.remedy


@pytest.mark.parametrize("objective", [*MINIMISED, "0.5*makespan+2*ttft_mean"])
def test_a_policy_takes_any_objective_and_says_that_it_goes_its_own_way(objective):
    given = instance(weights=range(12))
    given = given.replace(requests=given.requests.replace(deadline_ns=[10**6] * 12))
    result = solve(given, "fcfs", objective=objective, slo=SLO(ttft_s=0.4))
    assert result.objective.name == objective
    assert result.objective_value is not None
    said = any("does not search" in note for note in result.notes)
    assert said == (objective != "makespan")


def test_the_bound_and_the_gap_are_those_of_the_objective():
    result = solve(instance(), "gittins@clairvoyant", objective="mean_jct")
    assert result.objective_bound == result.jct_mean_bound_s
    assert result.gap == pytest.approx(result.jct_mean_s / result.jct_mean_bound_s - 1)
    mixed = solve(instance(), "gittins@clairvoyant", objective="0.25*makespan+0.75*mean_jct")
    bound = 0.25 * mixed.bound + 0.75 * mixed.jct_mean_bound_s
    assert mixed.objective_bound == pytest.approx(bound)
    assert mixed.objective_bound <= mixed.objective_value


def test_no_method_named_is_auto_for_other_objectives():
    result = solve(instance(), objective="jct_mean", iterations=1)
    assert any(note.startswith("auto picked") for note in result.notes)
    assert solve(instance()).schedule.method == "hybrid"


def test_a_method_is_told_the_objective():
    seen = []

    class Spy:
        name, information, summary = "spy", ("clairvoyant",), ""
        objectives = ("makespan", "jct_mean")

        def __call__(self, problem, run):
            seen.append((run.objective.name, run.bound_ns))
            from orsched.common.registry import resolve

            return resolve("methods", "fcfs")(problem, run)

    result = solve(instance(), Spy(), objective="jct_mean")
    assert seen == [("jct_mean", result.mean_bounds["mean_jct"]["value_ns"])]
    with pytest.raises(InputError, match="spy minimises makespan, jct_mean"):
        solve(instance(), Spy(), objective="0.5*jct_mean+0.5*ttft_mean")


def test_progress_has_the_value():
    seen = []
    result = solve(instance(), "fcfs", callback=seen.append)
    assert [progress.value for progress in seen] == [result.makespan_ns]


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(0, 10**6), st.booleans(), st.data())
def test_the_value_is_the_literal_sum(n, seed, arrivals, data):
    weights = data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n).filter(any))
    problem = instance(n, seed, weights, arrivals)
    result = solve(problem, "fcfs")
    times = request_times(problem, result.schedule)
    arrival = problem.requests.arrival_ns
    jct = [int(a - b) for a, b in zip(times["finish_ns"], arrival, strict=True)]
    ttft = [int(a - b) for a, b in zip(times["first_token_ns"], arrival, strict=True)]
    weighted = sum(w * t for w, t in zip(weights, jct, strict=True))
    literal = {
        "makespan": Fraction(result.makespan_ns), "jct_mean": Fraction(sum(jct), n),
        "ttft_mean": Fraction(sum(ttft), n),
        "weighted_jct_mean": Fraction(weighted, sum(weights)),
    }  # fmt: skip
    for name, value in literal.items():
        assert objective_value(problem, result.schedule, name) == value
        assert OBJECTIVES[name].value(result) == pytest.approx(float(value) / 1e9)
    mixed = "0.3*makespan+1.7*weighted_jct_mean+2*ttft_mean"
    expected = Fraction(3, 10) * literal["makespan"] + 2 * literal["ttft_mean"]
    expected += Fraction(17, 10) * literal["weighted_jct_mean"]
    assert objective_value(problem, result.schedule, mixed) == expected
    sums = weighted_times(problem, mixed)
    assert sums.denominator >= 1
    assert min(sums.finish) >= 0
    assert min(sums.first) >= 0


def test_weights_that_are_all_zero_are_refused_where_they_matter():
    problem = instance(3, weights=[0, 0, 0])
    assert solve(problem, "fcfs").schedule.results["weighted_jct_ns"]["mean"] is None
    with pytest.raises(InputError, match="all weights are 0") as caught:
        solve(problem, "fcfs", objective="weighted_jct_mean")
    assert caught.value.field == "weight"


@pytest.mark.parametrize(("weights", "problem"), [
    ([1, -1, 1], "-1"), ([1, float("nan"), 1], "nan"), ([1, 0.5, 1], "0.5"),
    ([1, 10**7, 1], "10000000"), ([1, 10**30, 1], "0"), ([1, "x", 1], "x"), ([1, 1], "2 values"),
])  # fmt: skip
def test_wrong_weights_are_refused_at_the_door(weights, problem):
    with pytest.raises(InputError, match=problem) as caught:
        instance(3, weights=weights)
    assert caught.value.field == "weight"
    assert caught.value.remedy


@pytest.fixture
def call(capsys):
    """Run the command line in this process; return (exit code, stdout, stderr)."""

    def invoke(*args):
        code = run([str(a) for a in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


def test_what_is_no_slo_is_refused_before_anything_runs():
    with pytest.raises(InputError, match="is not an SLO"):
        solve(load("two-by-two"), slo=3)


def test_a_search_that_counts_no_iterations_says_so(monkeypatch):
    """``exact`` ends by its own limit, here of no time at all, whatever the iterations."""
    from orsched.models import exact

    monkeypatch.setattr(exact, "DEFAULT_LIMIT_S", 1e-3)
    aim, case = "0.5*makespan+0.5*jct_mean", instance(30)
    said = "exact counts no iterations: its own time limit ended it; give one to set another"
    assert said in solve(case, "exact", aim, iterations=2).notes
    assert said not in solve(case, "exact", aim, iterations=2, time_limit=1).notes
