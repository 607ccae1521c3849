"""Lengths that the Gittins policy learns, and predicted distributions, against definitions."""

import random
from dataclasses import replace
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, Information, Instance, Requests, Worker
from orsched.heuristics.gittins import LengthModel, Lengths, lengths
from orsched.heuristics.gittins.lengths import ATOMS, Calibration, Calibrations, LengthAtoms, bins
from tests.heuristics.building import built, same, solved
from tests.heuristics.gittins.drawn import drawn, params_of
from tests.heuristics.gittins.plain import PlainGittins
from tests.in_order import in_order


def learned(seed):
    rng = random.Random(seed)
    lengths = Lengths(bins(rng.choice((1, 2, 7, 100, 2048))), rng.choice((None, 5, 300)))
    for _ in range(rng.randint(0, 30)):
        lengths.finished[rng.randrange(len(lengths.edges))] += rng.randint(1, 9)
    running = {}
    if len(lengths.edges) > 1:
        running = {rng.randrange(len(lengths.edges) - 1): rng.randint(1, 5)}
    lengths.tables(running)
    return rng, lengths


def test_bins_grow_up_to_the_limit():
    for limit in (1, 2, 3, 10, 2048):
        edges = bins(limit)
        assert (edges[0], edges[-1]) == (1, limit)
        assert edges == sorted(set(edges))


def test_the_index_is_the_least_ratio_of_work_to_chance():
    for seed in range(200):
        rng, lengths = learned(seed)
        for _ in range(30):
            prefill, token = rng.choice((0.0, 1e9, 1e3 * rng.random())), 1e-9 + rng.random()
            ratios = [(prefill + token * spent) / done
                      for spent, done in zip(lengths.spent, lengths.done, strict=True)]  # fmt: skip
            assert lengths.rank(prefill, token) == pytest.approx(min(ratios), rel=1e-9)
            assert min(ratios) <= prefill + token * lengths.mean + 1e-6


def test_chances_and_expectations_are_in_order():
    for seed in range(200):
        _, lengths = learned(seed)
        assert lengths.done == sorted(lengths.done)
        assert lengths.done[-1] == 1.0
        assert lengths.spent == sorted(lengths.spent)
        assert 0 < lengths.mean <= lengths.edges[-1]
        assert lengths.left(0) == pytest.approx(lengths.mean)
        assert min(lengths.rest) > 0


def test_enough_finished_requests_give_their_mean():
    model = LengthModel(1000)
    rng = random.Random(0)
    tokens = [rng.randint(1, 400) for _ in range(20_000)]
    for each in tokens:
        model.finish((0, -1), each)
    model.learn(())
    assert model.lengths((0, -1)).mean == pytest.approx(sum(tokens) / len(tokens), rel=0.05)
    assert model.all.mean == pytest.approx(sum(tokens) / len(tokens), rel=0.05)


def test_requests_that_still_run_count_as_longer_than_what_they_have_yielded():
    """Of a hundred, ten were done after 10 tokens; the other ninety have yielded 500 each."""
    model = LengthModel(1000)
    for _ in range(10):
        model.finish((0, -1), 10)
    model.learn(())
    naive = model.lengths((0, -1)).mean
    model.learn([((0, -1), 500)] * 90)
    assert model.lengths((0, -1)).mean > 400 > 2 * naive / 2 > 0
    assert naive < 200


def test_a_prediction_counts_until_requests_show_what_it_is_worth():
    model = LengthModel(2048)
    short, long = model.group(0, 8), model.group(0, 600)
    assert model.lengths(short).mean < model.lengths(long).mean
    for _ in range(300):
        model.finish(short, 900)
        model.finish(long, 30)
    model.learn(())
    assert model.lengths(short).mean > 600
    assert model.lengths(long).mean < 100


def test_past_its_predicted_length_a_request_is_expected_to_go_on():
    model = LengthModel(2048)
    group = model.group(0, 64)
    for tokens in [64] * 100 + [1500] * 20:
        model.finish(group, tokens)
    model.learn(())
    lengths = model.lengths(group)
    assert lengths.left(10) < 450
    assert lengths.left(120) > 1000


LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
ROWS = st.lists(st.integers(1, 500), min_size=5, max_size=5).map(sorted)
PARAMS = {"aging": 1e9, "gate": 1e9}
WORKER = Worker(1, in_order(AffineCost, 10, 1, 10, 1))


def spread(instance, rows, levels=LEVELS):
    """The instance with these quantiles."""
    requests = instance.requests.replace(predicted_quantiles=rows, quantile_levels=levels)
    return instance.replace(requests=requests)


def run(instance, **params):
    return solved(instance, "gittins", "predicted", **params)


def fresh(row, limit=1000):
    calibrations = Calibrations(LEVELS, limit)
    return lengths.OwnLengths(
        calibrations.law.of(row), calibrations.of((0, 0)), Lengths(bins(limit), None)
    )


def test_equal_quantiles_are_one_length():
    atoms = LengthAtoms(LEVELS, 1000)
    assert atoms.of([37] * 5) == [37] * ATOMS
    assert atoms.of([2000] * 5) == [1000] * ATOMS
    assert atoms.mean([37] * 5) == 37


@given(ROWS)
def test_atoms_are_lengths_in_order_within_their_quantiles(row):
    found = LengthAtoms(LEVELS, 400).of(row)
    assert found == sorted(found)
    assert len(found) == ATOMS
    assert 1 <= found[0] <= found[-1] <= 400
    for level, quantile in zip(LEVELS, row, strict=True):
        if quantile < 400:
            share = sum(atom <= quantile for atom in found) / ATOMS
            assert share >= level - 1 / ATOMS


@given(ROWS, st.integers(0, 600))
def test_what_is_left_is_the_mean_of_the_longer_atoms(row, tokens):
    own = fresh(row)
    longer = [atom for atom in own.atoms if atom > tokens]
    if longer:
        assert own.left(tokens) == pytest.approx(sum(longer) / len(longer) - tokens)
    assert own.left(tokens) > 0
    assert own.mean == pytest.approx(own.left(0))


@given(ROWS, st.floats(0, 1e6), st.floats(1, 1e4))
def test_the_index_is_the_least_ratio_over_all_moments_to_stop_at(row, prefill_ns, token_ns):
    own = fresh(row)
    ratios = []
    for stop in own.atoms:
        spent = sum(min(atom, stop) for atom in own.atoms) / ATOMS
        done = sum(atom <= stop for atom in own.atoms) / ATOMS
        ratios.append((prefill_ns + token_ns * spent) / done)
    assert own.rank(prefill_ns, token_ns) == pytest.approx(min(ratios))


def test_of_one_length_the_index_is_its_work():
    assert fresh([37] * 5).rank(500.0, 10.0) == pytest.approx(500 + 370)


def learned_from(error, count=4000, seed=1):
    """The chances after requests whose logarithms are off by ``error`` standard deviations."""
    rng, calibration = random.Random(seed), Calibration()
    law = LengthAtoms(LEVELS, 10**6)
    atoms = law.of([round(1000 * exp(z)) for z in (-1.2816, -0.6745, 0, 0.6745, 1.2816)])
    for _ in range(count):
        calibration.finish(atoms, round(1000 * exp(rng.gauss(error, 1))))
    calibration.learn([0] * (ATOMS + 1), None)
    return calibration, atoms


def test_right_predictions_leave_all_atoms_alike():
    calibration, _ = learned_from(0.0)
    assert sum(calibration.chances) == pytest.approx(1)
    assert max(calibration.chances) < 1.5 / ATOMS
    assert min(calibration.chances) > 0.6 / ATOMS


def test_predictions_that_are_too_short_are_stretched():
    right, atoms = learned_from(0.0)
    short, _ = learned_from(1.0)
    means = [
        lengths.OwnLengths(atoms, each, Lengths(bins(10**6), None)).mean for each in (right, short)
    ]
    assert means[0] == pytest.approx(1000 * exp(0.5), rel=0.1)
    assert means[1] == pytest.approx(1000 * exp(1.5), rel=0.1)


def test_those_that_run_count_as_longer():
    calibration = Calibration()
    atoms = list(range(10, 10 * ATOMS + 1, 10))
    for _ in range(50):
        calibration.finish(atoms, 10)
    alive = [0] * (ATOMS + 1)
    calibration.learn(alive, None)
    alone = calibration.chances[0]
    alive[4] = 50  # as many have passed four atoms and still run
    calibration.learn(alive, None)
    assert calibration.chances[0] < 0.6 * alone
    assert sum(calibration.chances) == pytest.approx(1)


def test_a_new_group_starts_from_what_holds_for_all():
    calibrations = Calibrations(LEVELS, 1000)
    atoms = calibrations.law.of([10, 20, 40, 80, 160])
    for _ in range(200):
        calibrations.finish((0, 1), atoms, 900)
    calibrations.learn([])
    assert calibrations.of((0, 9)).chances == calibrations.all.chances
    assert calibrations.all.chances[-1] > 0.8
    assert calibrations.all.stretch > 1.2


SEEDS = st.integers(0, 2**32)


@given(SEEDS)
def test_quantiles_of_one_length_decide_as_the_length_does(seed):
    instance, params = drawn(seed), params_of(seed)
    rows = np.repeat(instance.requests.predicted_tokens[:, None], len(LEVELS), axis=1)
    assert same(run(instance, **params), run(spread(instance, rows), **params))


@given(SEEDS, st.data())
def test_any_instance_with_distributions_is_served_and_checked(seed, data):
    """As the plain policy decides, which knows no short cuts."""
    instance, params = drawn(seed), params_of(seed)
    n = len(instance)
    row = st.lists(st.integers(1, 12), min_size=5, max_size=5).map(sorted)
    instance = spread(instance, data.draw(st.lists(row, min_size=n, max_size=n)))
    known = built(instance, "gittins", "predicted", **params).params
    classes = memoryview(instance.requests.service_class)
    plain = solved(instance, PlainGittins(known, Information.PREDICTED, classes))
    assert same(plain, run(instance, **params))


def test_of_equal_medians_the_one_that_may_be_over_soon_is_first():
    """An even chance of 2 or 200 tokens is worth trying before a sure 20: what Gittins is for."""
    rows = [[20, 20, 20, 21, 21], [2, 2, 20, 200, 200], [1, 1, 1, 1, 2]]
    instance = Instance(Requests([5, 5, 5], [20, 2, 1]), WORKER, "decode", output_limit_tokens=400)
    told = spread(instance, rows)
    plain = told.replace(requests=told.requests.replace(predicted_quantiles=None))
    for case, order in ((told, [2, 1, 0]), (plain, [2, 0, 1])):
        finish = run(case, **PARAMS).request_times(case)["finish_ns"]
        assert np.argsort(finish).tolist() == order


def test_a_policy_without_information_does_not_change_with_the_distributions():
    instance = Instance(Requests([5, 4, 3], [20, 2, 1]), replace(WORKER, clients=2), "decode")
    rows = [[1, 2, 3, 4, 5], [9] * 5, [1, 1, 1, 1, 50]]
    assert same(*(solved(case, "gittins") for case in (instance, spread(instance, rows))))
