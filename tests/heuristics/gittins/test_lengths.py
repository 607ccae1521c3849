"""The learned distribution: hazards, expectations and the index, against their definitions."""

from __future__ import annotations

import random

import pytest

from orsched.heuristics.gittins import LengthModel, Lengths
from orsched.heuristics.gittins.lengths import bins


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
        assert edges[0] == 1
        assert edges[-1] == limit
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
    for _ in range(100):
        model.finish(group, 64)
    for _ in range(20):
        model.finish(group, 1500)
    model.learn(())
    lengths = model.lengths(group)
    assert lengths.left(10) < 450
    assert lengths.left(120) > 1000
