"""The search for the fewest workers or the cheapest mix, on fleets whose estimates are made up."""

import random
from fractions import Fraction
from types import SimpleNamespace

import pytest

from orsched.planning.capacity.question import price_of
from orsched.planning.capacity.search import cheapest_fleet, fewest_workers


class Evaluation:
    """Says which fleets suffice by a rule, and counts what it is asked."""

    def __init__(self, rule, prices=(1,), at_once=1):
        machines = [SimpleNamespace(name=str(k), price=Fraction(p)) for k, p in enumerate(prices)]
        self.question = SimpleNamespace(machines=machines)
        self.rule, self.at_once, self.known = rule, at_once, {}

    def estimate(self, fleet):
        return self.estimates([fleet])[0]

    def estimates(self, fleets):
        fleets = list(fleets)
        for fleet in fleets:
            assert sum(fleet) >= 1
            found = {"fleet": fleet, "suffices": self.rule(fleet), "workers": sum(fleet)}
            self.known.setdefault(fleet, SimpleNamespace(**found))
        return [self.known[fleet] for fleet in fleets]


@pytest.mark.parametrize("at_once", [1, 2, 5])
@pytest.mark.parametrize("exhaustive", [False, True])
def test_the_fewest_workers_are_found_and_those_below_do_not_suffice(at_once, exhaustive):
    for enough in range(1, 60):
        for lower in {1, enough // 2 + 1, enough}:
            evaluation = Evaluation(lambda fleet, n=enough: fleet[0] >= n, at_once=at_once)
            found = fewest_workers(evaluation, lower, 100, exhaustive)
            assert found.workers == enough
            assert min(evaluation.known)[0] >= lower  # what is proven is not simulated
            assert enough == lower or (enough - 1,) in evaluation.known


def test_bisection_takes_few_fleets_an_exhaustive_search_all_and_none_may_suffice():
    for exhaustive, most in ((False, 14), (True, 50)):
        evaluation = Evaluation(lambda fleet: fleet[0] >= 50)
        fewest_workers(evaluation, 1, 1000, exhaustive)
        assert len(evaluation.known) <= most
    assert len(evaluation.known) == 50
    for most in (1, 2, 7):
        evaluation = Evaluation(lambda fleet: False)
        assert fewest_workers(evaluation, 1, most, False) is None
        assert max(evaluation.known) == (most,)


def test_attainment_that_is_not_monotone_is_noticed_near_the_answer():
    evaluation = Evaluation(lambda fleet: fleet[0] in (2, 5) or fleet[0] >= 7)
    assert fewest_workers(evaluation, 1, 100, True).workers == 2
    # Upwards 1, 3, 7; between 5 and 4 (then 2 is the only number left, and is tried).
    assert fewest_workers(Evaluation(evaluation.rule), 1, 100, False).workers == 2


def random_rule(rng, kinds):
    """Fleets that suffice by speed, unless they have too few of some machine beside others."""
    speeds = [rng.randint(1, 9) for _ in range(kinds)]
    need = rng.randint(1, 40)
    least = [rng.choice((0, 0, 0, 1, 2)) for _ in range(kinds)]

    def rule(fleet):
        work = sum(a * b for a, b in zip(speeds, fleet, strict=True))
        enough = all(a >= b for a, b in zip(fleet, least, strict=True))
        return work >= need and (enough or work >= 2 * need)

    return rule


@pytest.mark.parametrize("kinds", [2, 3])
def test_the_cheapest_mix_costs_what_an_exhaustive_search_says(kinds):
    for seed in range(60):
        rng = random.Random(seed)
        prices = [rng.randint(1, 12) for _ in range(kinds)]
        rule, most = random_rule(rng, kinds), 12 if kinds == 2 else 7
        quick, slow = Evaluation(rule, prices), Evaluation(rule, prices)
        found = cheapest_fleet(quick, lambda fleet: False, most, False)
        wanted = cheapest_fleet(slow, lambda fleet: False, most, True)
        alone = [rule(tuple(most * (k == n) for k in range(kinds))) for n in range(kinds)]
        if found is None:  # mixes are looked for below the price of one machine alone
            assert wanted is None or not any(alone)
            continue
        machines = quick.question.machines
        assert price_of(machines, found.fleet) == price_of(machines, wanted.fleet), seed
        assert len(quick.known) <= 60


def test_what_is_proven_too_small_is_not_simulated():
    rule = random_rule(random.Random(3), 2)
    evaluation = Evaluation(lambda fleet: rule(fleet) and sum(fleet) > 3, (2, 3))
    cheapest_fleet(evaluation, lambda fleet: sum(fleet) <= 3, 40, False)
    assert all(sum(fleet) > 3 for fleet in evaluation.known)
