"""Dealing by groups: by hand, its balance, its linear work, and shares of unequal clouds."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.heuristics.mico import Distributor
from orsched.heuristics.mico.distribution import whole_shares


def dealt(distributor, groups):
    """Requests by cloud, in the order dealt."""
    clouds = [[] for _ in distributor.shares]
    for cloud, (_, request) in distributor.deal(groups):
        clouds[cloud].append(request)
    return clouds


CASES = {
    # Request 2 makes a round with the borrowed 3; then cloud 1 has less (15, not 20) and is first.
    "a group that does not come out even borrows": (
        [1, 1], [[(10, 0), (10, 1), (10, 2)], [(5, 3), (5, 4), (5, 5)]],
        [[0, 2, 5], [1, 3, 4]], [25, 20],
    ),
    "a borrowed round gives the long request to the cloud with less": (
        [1, 1], [[(12, 0), (10, 1), (10, 2)], [(5, 3)]], [[0, 3], [1, 2]], [17, 20],
    ),
    "a group may borrow from several": (
        [1, 1, 1], [[(9, 0)], [(6, 1)], [], [(3, 2), (3, 3), (3, 4), (3, 5)]],
        [[0, 5], [1, 4], [2, 3]], [12, 9, 6],
    ),
    "clouds get their shares of each round": (
        [2, 1], [[(4, 0), (4, 1), (4, 2)], [(1, 3), (1, 4), (1, 5)]],
        [[0, 1, 3, 4], [2, 5]], [10, 5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_dealing_by_hand(case):
    shares, groups, clouds, loads = CASES[case]
    distributor = Distributor(shares)
    assert dealt(distributor, groups) == clouds
    assert distributor.loads == loads


def test_in_turn_means_round_robin_or_by_share():
    equal = Distributor([1, 1, 1])
    assert [equal.in_turn(1, range(3)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    unequal = Distributor([2, 1])
    turns = [unequal.in_turn(1, range(2)) for _ in range(6)]
    assert turns.count(0) == 4
    assert turns.count(1) == 2


def test_what_is_finished_or_moved_counts_no_more():
    distributor = Distributor([1, 1])
    assert distributor.least_loaded(7, range(2)) == 0
    assert distributor.least_loaded(3, range(2)) == 1
    distributor.moved(0, 1, 7)
    assert distributor.loads == [0, 10]
    distributor.done(1, 3)
    assert distributor.loads == [0, 7]
    assert distributor.least_loaded(1, range(2)) == 0


def test_whole_shares_are_small_and_in_proportion():
    assert whole_shares([Fraction(5), Fraction(5), Fraction(5)]) == [1, 1, 1]
    assert whole_shares([Fraction(3), Fraction(2)]) == [3, 2]
    assert whole_shares([Fraction(1, 70), Fraction(1, 35)]) == [1, 2]
    assert whole_shares([Fraction(100), Fraction(1)]) == [100, 1]


groups_of_requests = st.lists(
    st.lists(st.integers(1, 1000), max_size=12), min_size=1, max_size=6
).map(
    lambda lists: [
        [(weight, 100 * place + i) for i, weight in enumerate(weights)]
        for place, weights in enumerate(lists)
    ]
)


@given(groups_of_requests, st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_each_request_is_dealt_once_and_loads_add_up(groups, shares):
    distributor = Distributor(shares)
    clouds = dealt(distributor, groups)
    weights = {request: weight for group in groups for weight, request in group}
    assert sorted(request for cloud in clouds for request in cloud) == sorted(weights)
    assert distributor.loads == [sum(weights[request] for request in cloud) for cloud in clouds]


@given(groups_of_requests, st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_full_rounds_keep_the_loads_within_one_round(groups, shares):
    """The difference of two loads per share is bounded by the widest round, as ``deal`` states."""
    flat = [each for group in groups for each in group]
    size = sum(shares)
    whole = flat[: len(flat) // size * size]
    kept = set(whole)
    groups = [[each for each in group if each in kept] for group in groups]
    distributor = Distributor(shares)
    dealt(distributor, groups)
    per_share = [Fraction(*pair) for pair in zip(distributor.loads, shares, strict=True)]
    rounds = [whole[i : i + size] for i in range(0, len(whole), size)]
    widest = max((max(each)[0] - min(each)[0] for each in rounds), default=0)
    assert max(per_share) - min(per_share) <= widest


@given(groups_of_requests, st.integers(2, 5))
def test_the_last_requests_add_at_most_one_to_the_difference(groups, clouds):
    distributor = Distributor([1] * clouds)
    dealt(distributor, groups)
    weights = [weight for group in groups for weight, _ in group]
    assert max(distributor.loads) - min(distributor.loads) <= max(weights, default=0)


class Counted(int):
    """A weight that counts the operations on it."""

    operations = 0

    def __lt__(self, other):
        Counted.operations += 1
        return int(self) < int(other)

    def __radd__(self, other):
        Counted.operations += 1
        return other + int(self)


def operations(requests, clouds):
    """Operations on weights while so many requests are dealt in ten groups."""
    groups = [[] for _ in range(10)]
    for request in range(requests):
        groups[request * 7 % 10].append((Counted(1 + request * 37 % 1000), request))
    distributor = Distributor([1] * clouds)
    Counted.operations = 0
    assert len(list(distributor.deal(groups))) == requests
    return Counted.operations


def test_the_work_is_linear_in_the_requests():
    for clouds in (1, 3, 8):
        small, large = operations(1000, clouds), operations(10_000, clouds)
        assert large <= 10 * small + 200
        assert large <= 10_000 * (2 + clouds)
