"""The queue of ``robust`` in two orders, against a plain list."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, Information, Instance, Requests, Worker
from orsched.heuristics.robust import _FEW, LongLengths, Skill, TwoOrders, long_lengths
from orsched.simulator import simulate_policy
from orsched.simulator.policy import PredictedView
from tests.heuristics.building import batch_of, built, require_sound, same, solved, starts_of
from tests.in_order import in_order
from tests.simulator.scripted import OneByOne

MOST = 4 * _FEW


def plain(waiting, clients, trusted, sample, started, room):
    """Take from ``waiting``, (key, request) in the order of arrival, what fits; one a client."""
    stage = []
    for _ in clients:
        if not waiting:
            break
        first = not started % sample or not trusted
        entry = waiting[0] if first else min(waiting)
        room -= 1 + entry[1] % 3
        if room < 0:
            break
        waiting.remove(entry)
        stage.append(entry[1])
        started += 1
    return stage, started


@given(st.integers(0, 2**32))
def test_it_takes_what_a_plain_list_takes(seed):
    rng = random.Random(seed)
    keys = [rng.randint(-5, 5) for _ in range(rng.randint(1, MOST))]
    sample, skill = rng.randint(2, 5), Skill(0.5)
    queue = TwoOrders(skill, sample, lambda request: 1, len(keys))
    prompts = [1 + request % 3 for request in range(len(keys))]
    waiting, served, started, arrived = [], [], 0, 0
    while arrived < len(keys) or waiting:
        for _ in range(rng.randint(0, 2 * _FEW)):
            if arrived < len(keys):
                queue.add(arrived, 0, keys[arrived], 1)
                waiting.append((keys[arrived], arrived))
                arrived += 1
        skill.trusted = rng.random() < 0.7
        clients, tokens = range(rng.randint(1, _FEW)), rng.randint(3, 99)
        expected, started = plain(waiting, clients, skill.trusted, sample, started, tokens)
        stage, places = queue.fill(clients, batch_of(prompts, tokens))
        assert stage == expected
        assert places == list(clients)[: len(stage)]
        assert queue.queued == len(waiting)
        served += stage
    assert sorted(served) == list(range(len(keys)))


LEVELS = (0.25, 0.5, 0.9)
SEEDS = st.integers(0, 2**32)


def drawn(seed, most=12):
    """Requests on one worker, some of them late, with points and quantiles of their own."""
    rng = random.Random(seed)
    n = rng.randint(1, most)
    late = rng.random() < 0.5
    arrivals = [rng.randint(0, 300) if late else 0 for _ in range(n)]
    rows = [sorted(rng.randint(1, 12) for _ in LEVELS) for _ in range(n)]
    requests = Requests(
        [rng.randint(1, 9) for _ in range(n)], [rng.randint(1, 9) for _ in range(n)],
        arrival_ns=arrivals, predicted_quantiles=rows, quantile_levels=LEVELS,
    )  # fmt: skip
    worker = Worker(rng.randint(1, 4), in_order(AffineCost, 30, 1, 10, 1), rng.choice((None, 12)))
    return Instance(requests, worker, output_limit_tokens=12, first_token="decode")


@given(SEEDS)
def test_quantiles_of_one_length_decide_as_the_length_does(seed):
    instance = drawn(seed)
    points = instance.requests.predicted_tokens
    rows = np.repeat(np.asarray(points)[:, None], len(LEVELS), axis=1)
    told = [{}, {"predicted_quantiles": rows, "quantile_levels": LEVELS}]
    plain = instance.requests.replace(predicted_quantiles=None, quantile_levels=None)
    cases = [instance.replace(requests=plain.replace(predicted_tokens=points, **e)) for e in told]
    assert same(*(solved(case, "robust", "predicted") for case in cases))


@given(SEEDS)
def test_any_instance_with_distributions_is_served_and_checked(seed):
    require_sound(drawn(seed), lambda case: built(case, "robust", "predicted"))


def test_of_equal_medians_the_one_that_may_be_long_is_first():
    rows = [[8, 9, 10], [8, 9, 11], [8, 9, 60]]
    requests = Requests([4] * 3, [9] * 3, predicted_quantiles=rows, quantile_levels=LEVELS)
    worker = Worker(1, in_order(AffineCost, 10, 1, 10, 1))
    instance = Instance(requests, worker, "decode", output_limit_tokens=99)
    # One in eight that robust starts is the first that has arrived, the first of all among them.
    assert list(starts_of(solved(instance, "robust", "predicted"))) == [0, 2, 1]


class Looks(OneByOne):
    """Reads what would be planned for before any has arrived."""

    information = Information.PREDICTED

    def start(self, view):
        self.long = long_lengths(view)
        self.before = [] if self.long is None else [self.long[row] for row in range(3)]


@pytest.mark.parametrize(("levels", "wanted"), [((0.5, 0.9), [30, 9, 7]), ((0.1, 0.25, 0.5), None)])
def test_it_is_the_quantile_at_nine_tenths(levels, wanted):
    """Given, or as the outer piece goes on: from 0.25 to 0.5 by 0.67449, from there by 1.28155."""
    rows = [[20, 30], [9, 9], [5, 7]] if len(levels) == 2 else [[7, 10, 25], [9] * 3, [4, 5, 7]]
    told = {"predicted_quantiles": rows, "quantile_levels": levels}
    requests = Requests([4] * 3, [5] * 3, arrival_ns=[50, 60, 70], **told)
    policy = Looks()
    simulate_policy(Instance(requests, Worker(2), first_token="decode"), policy)
    assert isinstance(policy.long, LongLengths)
    assert policy.before == [0, 0, 0]
    found = [policy.long[row] for row in range(3)]
    if wanted is None:
        ratio = 1.2815515655 / 0.6744897502
        wanted = [round(last * (last / left) ** ratio) for left, last in ((10, 25), (9, 9), (5, 7))]
    assert found == wanted


def test_without_distributions_there_is_nothing_to_plan_for():
    requests = Requests([4], [5], predicted_tokens=[6])
    policy = Looks()
    simulate_policy(Instance(requests, Worker(2), first_token="decode"), policy)
    assert policy.long is None
    assert PredictedView.quantile_levels == ()
