"""``sample_average``: drawn lengths, the chance constraint, the search, what it is refused."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import orsched
from benchmarks.stochastic import problem
from orsched.checker import check
from orsched.errors import InputError
from orsched.heuristics.sample_average.params import SampleParams
from orsched.heuristics.sample_average.policy import GATES, Plan, PlannedOrder
from orsched.heuristics.sample_average.scenarios import draw_scenarios, mean_scenario
from orsched.heuristics.sample_average.search import Scenarios, neighbours
from orsched.instances import with_arrivals
from orsched.objectives import objective_named
from orsched.policy import Information
from orsched.simulator import simulate_policy


def test_scenarios_have_the_quantiles_that_are_predicted_and_a_seed_gives_them_again():
    instance = problem(6, 2, 0)
    drawn = draw_scenarios(instance, 400, 3)
    assert drawn.shape == (400, 6)
    assert drawn.min() >= 1
    assert drawn.max() <= 1000
    quantiles = instance.requests.predicted_quantiles
    for place, level in enumerate(instance.requests.quantile_levels):
        share = (drawn <= quantiles[:, place]).mean(axis=0)
        inside = quantiles[:, place] < 1000
        assert np.abs(share - level)[inside].max() < 0.05
    assert np.array_equal(drawn, draw_scenarios(instance, 400, 3))
    assert not np.array_equal(drawn, draw_scenarios(instance, 400, 4))
    assert mean_scenario(drawn).shape == (1, 6)


def test_columns_are_drawn_independently():
    drawn = draw_scenarios(problem(6, 2, 0), 1000, 1).astype(float)
    correlation = np.corrcoef(np.log(drawn).T) - np.eye(6)
    assert np.abs(correlation).max() < 0.12


@pytest.mark.parametrize("objective", ["makespan", "jct_mean"])
def test_the_search_finds_the_best_of_all_orders_of_four(objective):
    """Brute force over 24 orders and both gates, on the same scenarios."""
    instance = problem(4, 2, 1)
    lengths = draw_scenarios(instance, 4, 0)
    scenarios = Scenarios(
        instance, lengths, objective_named(objective), Information.PREDICTED, 0.05
    )
    least = min(
        scenarios.value(Plan(order, gate)).total
        for order in permutations(range(4))
        for gate in GATES
    )
    result = orsched.solve(instance, "sample_average+scenarios=4", objective, seed=0, iterations=15)
    chosen = result.schedule.parameters
    plan = Plan(tuple(chosen["order"]), chosen["gate"])
    assert scenarios.value(plan).total == least
    assert scenarios.value(plan, least - 1) is None


def test_the_truth_does_not_change_the_plan_and_the_plan_is_the_same_again():
    instance = problem(8, 2, 2)
    longer = instance.replace(
        requests=instance.requests.replace(output_tokens=instance.requests.output_tokens * 2)
    )
    plans = [
        orsched.solve(each, "sample_average+scenarios=4", iterations=3, seed=5).schedule.parameters
        for each in (instance, longer, instance)
    ]
    assert plans[0] == plans[1] == plans[2]


def test_clairvoyant_it_plans_for_the_lengths_themselves():
    instance = problem(6, 2, 3)
    known = orsched.solve(instance, "sample_average@clairvoyant", iterations=15)
    guess = orsched.solve(instance, "sample_average+scenarios=4", iterations=3)
    assert known.makespan <= guess.makespan
    assert known.gap >= 0


@pytest.mark.parametrize("risk", [0.0, 0.3, 1.0])
def test_with_short_paged_memory_schedules_are_valid_and_more_risk_admits_more(risk):
    instance = problem(16, 6, 0, blocks=80)
    drawn = draw_scenarios(instance, 16, 0)
    plan = Plan(tuple(range(16)), "prefill_first")
    evicted = []
    for row in draw_scenarios(instance, 10, 9):
        truth = instance.replace(requests=instance.requests.replace(output_tokens=row))
        policy = PlannedOrder(plan, drawn, risk, Information.PREDICTED)
        schedule = simulate_policy(truth, policy).schedule
        assert not check(truth, schedule)
        evicted.append(int((schedule.work.stay > 0).sum()))
    assert sum(evicted) <= 10 if risk == 0 else True
    assert sum(evicted) > 10 if risk == 1 else True


def test_points_are_one_scenario_and_a_note_says_so():
    instance = problem(5, 2, 4)
    lengths = instance.requests.output_tokens
    points = instance.requests.replace(
        predicted_tokens=lengths, predicted_quantiles=None, quantile_levels=None
    )
    points = instance.replace(requests=points)
    assert np.array_equal(draw_scenarios(points, 9, 0), lengths[None, :])
    found, known = (
        orsched.solve(points, f"sample_average@{information}", iterations=3, seed=1)
        for information in ("predicted", "clairvoyant")
    )
    assert found.makespan == known.makespan  # they are right
    assert any("no distributions" in note for note in found.notes)
    assert not any("no distributions" in note for note in known.notes)


def test_moves_keep_every_request_once():
    plan = Plan(tuple(range(9)), GATES[0])
    changes = neighbours(plan, 0)
    for _ in range(200):
        plan = next(changes)(plan)
        assert sorted(plan.order) == list(range(9))
        assert plan.gate in GATES


def test_one_request_and_none():
    instance = problem(1, 1, 0)
    assert orsched.solve(instance, "sample_average", iterations=1).gap >= 0
    nobody = instance.replace(requests=instance.requests.take([]))
    assert orsched.solve(nobody, "sample_average", iterations=1).makespan == 0


def test_progress_says_the_mean_over_the_scenarios():
    seen = []
    orsched.solve(
        problem(5, 2, 0), "sample_average+scenarios=4", "jct_mean", iterations=2,
        callback=seen.append,
    )  # fmt: skip
    assert len(seen) == 2
    assert 0 < seen[1].value <= seen[0].value


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda i: with_arrivals(i, "poisson:rate=1", 0), "arrival_ns"),
        (
            lambda i: i.replace(requests=i.requests.replace(
                predicted_quantiles=None, quantile_levels=None, predicted_tokens=None,
            )),
            "predicted_quantiles",
        ),
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_refused_with_a_remedy(change, field):
    with pytest.raises(InputError) as error:
        orsched.solve(change(problem(4, 2, 0)), "sample_average")
    assert error.value.field == field
    assert error.value.remedy


@pytest.mark.parametrize("values", [{"scenarios": 0}, {"scenarios": 2000}, {"risk": -0.1}])
def test_parameters_out_of_range_are_refused(values):
    with pytest.raises(InputError) as error:
        SampleParams(**values)
    assert error.value.field in values
