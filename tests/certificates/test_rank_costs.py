"""Bounds by ranks: no step pays more than it costs, and nothing is above the optimum."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.certificates import rank_costs
from orsched.certificates.charges import Shares
from orsched.certificates.context import Context
from orsched.certificates.fields import Budget, BudgetError
from orsched.certificates.rank_costs import KINDS, Choices, Term, least_ranking, least_sum_by_ranks
from orsched.checker.certificates import bound_violations
from orsched.models.bounds.latency_bounds import candidates, rank_certificates
from orsched.models.bounds.makespan_certificates import best_shares
from tests.brute_force import least_sum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.cases import small

numbers = st.integers(0, 30)


@settings(max_examples=200)
@given(st.integers(1, 12), st.integers(1, 5), numbers, numbers, st.booleans())
def test_no_round_pays_more_than_it_costs(count, clients, fixed, own, late):
    """INV: any N of u ranks pay at most a round of N beside u, and none less than a lower rank."""
    weights = np.arange(1, count + 1)
    weights = np.maximum(weights - clients, 0) if late else weights
    paid = rank_costs.rank_costs(weights, clients, fixed, own, Budget())
    assert (np.diff(paid) >= 0).all()
    for left in range(1, count + 1):
        for active in range(1, min(left, clients) + 1):
            most = int(paid[left - active : left].sum())
            assert most <= (fixed + own * active) * weights[left - 1]


def test_equal_requests_pay_their_best_batches():
    """Five equal requests, two clients: batches of 2, 2 and 1; each round counts who is left."""
    paid = rank_costs.rank_costs(np.arange(1, 6), 2, 10, 1, Budget())
    assert int(paid.sum()) == 12 * 5 + 12 * 3 + 11 * 1
    alone = rank_costs.rank_costs(np.arange(1, 6), 2, 0, 1, Budget())  # nothing is shared
    assert alone.tolist() == [1, 2, 3, 4, 5]


@settings(max_examples=100)
@given(st.data(), st.integers(1, 5))
def test_prices_bound_every_ranking(data, count):
    """INV: weak duality, against all assignments."""
    column = st.lists(numbers, min_size=count, max_size=count)
    works = [np.array(data.draw(column)) for _ in range(2)]
    pays = [np.sort(data.draw(column)) for _ in range(2)]
    terms = [Term(work, pay) for work, pay in zip(works, pays, strict=True)]
    ones = np.ones(count, np.int64)
    found = least_ranking(terms, ones, Choices(0, data.draw(st.integers(0, 3))), Budget())
    best = min(
        sum(int((work[list(order)] * pay).sum()) for work, pay in zip(works, pays, strict=True))
        for order in permutations(range(count))
    )
    assert found <= best
    if count < 3:
        one = least_ranking(terms[:1], ones, Choices(0, 0), Budget())
        assert one == int((np.sort(works[0])[::-1] * pays[0]).sum())


@settings(max_examples=120)
@given(small(), st.integers(0, 60), st.integers(0, 3), st.sampled_from(("clients", "cap")))
def test_whatever_is_chosen_is_at_most_the_least_sum(instance, level, smooth, share):
    """INV: every level, order and share proves a bound, whatever the instance and its costs."""
    if not Context(instance).has_floors:
        return
    context = Context(instance)
    if share == "cap" and instance.worker.prefill_limit is None:
        return
    shares = best_shares(context)[0]._replace(stage=share, round="clients")
    work = rank_costs.work_of(context, shares)
    chosen = Choices(min(level * work.unit, int(work.stages.max())), smooth)
    for kind in ("ranks", "queue_ranks"):
        objective = KINDS[kind]
        found = least_sum_by_ranks(kind, instance, work, chosen, Budget())
        assert found <= least_sum_ns(instance, objective)


@settings(max_examples=100)
@given(small(), st.data())
def test_weighted_bounds_are_at_most_the_least_weighted_sum(instance, data):
    """INV: with any weights, counted in any grain, and by whatever level."""
    requests = instance.requests
    weights = data.draw(st.lists(st.integers(0, 5), min_size=len(requests), max_size=len(requests)))
    if not Context(instance).has_floors or not any(weights):
        return
    weighted = instance.replace(requests=replace(requests, weights=weights))
    grain, context = data.draw(st.integers(1, 3)), Context(weighted)
    shares = best_shares(context)[0]._replace(round="clients")
    work = rank_costs.work_of(context, shares, rank_costs.weights_of(weighted, grain))
    level = data.draw(st.integers(0, 60)) * work.unit
    chosen = Choices(min(level, int(work.stages.max(initial=0))), 1, grain)
    found = least_sum_by_ranks("weighted_ranks", weighted, work, chosen, Budget())
    least = least_sum_ns(weighted, "mean_jct", weights)
    assert found <= least
    bound = orsched.bound(weighted, "weighted_jct_mean")
    assert bound.certificate["sum_ns"] <= least
    assert bound.value_ns == bound.certificate["sum_ns"] // sum(weights)
    assert bound_violations(weighted, bound.to_dict(), "weighted_jct_mean") == []


def test_equal_weights_prove_what_none_do():
    """Without weights it is the mean, and a bound for some weights is none for others."""
    instance = orsched.load("pang-100x20")
    plain = orsched.bound(instance, "weighted_jct_mean")
    assert plain.name == "weighted_ranks"
    assert plain.value_ns == orsched.bound(instance, "mean_jct").value_ns
    twice = instance.replace(requests=replace(instance.requests, weights=[2] * 100))
    assert orsched.bound(twice, "weighted_jct_mean").value_ns == plain.value_ns
    heavy = replace(instance.requests, weights=[1] * 50 + [3] * 50)
    bound = orsched.bound(instance.replace(requests=heavy), "weighted_jct_mean")
    assert bound_violations(instance, bound.to_dict(), "weighted_jct_mean")


@pytest.mark.parametrize(("objective", "gain"), [("mean_jct", 1.02), ("mean_ttft", 1.03)])
def test_ranks_are_above_all_others_where_clients_are_full(objective, gain):
    instance = orsched.load("pang-100x20")
    by_name = {}
    for each in candidates(Context(instance), objective, lambda: False):
        by_name[each["bound"]] = max(by_name.get(each["bound"], 0), each["sum_ns"])
    kind = next(name for name in KINDS if KINDS[name] == objective)
    assert by_name[kind] > gain * max(v for name, v in by_name.items() if name != kind)


def test_equal_requests_without_prefills_are_solved():
    """Five equal requests on two clients: the bound is the optimum, to the nanosecond."""
    instance = decoding([1] * 5, [3] * 5, Worker(2, in_order(AffineCost, 0, 0, 10, 1)))
    bound = orsched.bound(instance, "mean_jct")
    assert bound.name == "ranks"
    assert bound.certificate["sum_ns"] == 3 * (12 * 5 + 12 * 3 + 11)
    assert bound.certificate["sum_ns"] == least_sum_ns(instance, "mean_jct")


def test_numbers_of_any_size_do_not_wrap_around():
    """Where sums need more than 64 bits, times are rounded down; the sum scales with the times."""
    large = 10**12
    worker = Worker(4, in_order(AffineCost, 25 * large, large, 29 * large, 2 * large))
    instance = decoding([9, 2, 7] * 20, [30, 900, 20] * 20, worker)
    little = instance.replace(workers=Worker(4, in_order(AffineCost, 25, 1, 29, 2)))
    (_, total, _), *_ = rank_certificates(Context(instance), "mean_jct", lambda: False)
    (_, exact, _), *_ = rank_certificates(Context(little), "mean_jct", lambda: False)
    assert 0.999 < total / (exact * large) < 1.001


def test_what_it_does_not_know_is_refused():
    one = decoding([3, 4], [2, 5], Worker(2, in_order(AffineCost, 5, 1, 10, 1)))
    two = one.replace(workers=(one.worker, Worker(2, one.worker.cost, name="b")))
    shares = Shares("clients", "clients", (5, 1, 1))
    work = rank_costs.work_of(Context(one), shares)
    with pytest.raises(ValueError, match="above all prefills"):
        least_sum_by_ranks("ranks", one, work, Choices(10**6, 0), Budget())
    with pytest.raises(BudgetError):
        least_sum_by_ranks("ranks", one, work, Choices(0, 0), Budget(5))
    with pytest.raises(ValueError, match="one worker"):
        rank_costs.work_of(Context(two), shares)
    with pytest.raises(ValueError, match="memory"):
        rank_costs.work_of(Context(one), shares._replace(round="memory"))


def test_repeated_prefills_that_yield_tokens_take_the_place_of_rounds():
    """Where prefills cost nearly nothing, tokens do: a rank pays for them, not for rounds."""
    worker = Worker(2, in_order(AffineCost, 5, 9, 10, 1))
    dear = Instance(Requests([3] * 6, [5] * 6), worker, first_token="prefill")
    cheap = dear.replace(workers=Worker(2, in_order(AffineCost, 0, 1, 1000, 1)))
    assert sum_by_ranks(dear, ("restarts",)) == sum_by_ranks(dear, ())
    assert sum_by_ranks(cheap, ("restarts",)) < sum_by_ranks(cheap, ()) / 10


def sum_by_ranks(instance, allows):
    """Return the best bound by ranks on the sum of JCTs of schedules that may do this."""
    found = rank_certificates(Context.allowing(instance, allows), "mean_jct", lambda: False)
    return max(total for _, total, _ in found)
