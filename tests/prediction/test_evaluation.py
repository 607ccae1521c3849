"""Distributions over lengths, and how good predictors are: by class, in tokens, as an order."""

from itertools import combinations
from math import isnan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.prediction import ConstantPredictor, LabelledPrompts, evaluate
from orsched.prediction.distribution import LengthDistribution, class_of
from orsched.prediction.evaluation import inversions, kendall_tau, macro_f1, pinball
from tests.refusals import refusal

DATA = LabelledPrompts(["a", "b", "c", "d"], [10, 20, 30, 400])


def test_figures_by_hand():
    model = ConstantPredictor(np.array([0.25, 0.5, 0.75]), np.log([10.0, 20.0, 30.0]), 400.0)
    found = evaluate(model, DATA, edges=[15, 25, 100], latency=False)
    assert (found["rows"], found["accuracy"]) == (4, 0.25)
    assert found["mae_tokens"] == pytest.approx((10 + 0 + 10 + 380) / 4)
    assert found["coverage_25_75"] == pytest.approx(0.75)
    assert np.isnan(found["tau"])
    pairs = [(p, y - q) for y in DATA.output_tokens for p, q in ((0.25, 10), (0.5, 20), (0.75, 30))]
    by_hand = np.mean([max(p * over, (p - 1) * over) for p, over in pairs])
    assert found["pinball"] == pytest.approx(by_hand)
    truth = np.array([5, 9])
    perfect = np.tile(truth[:, None], (1, 3)).astype(float)
    assert pinball(LengthDistribution(np.array([0.1, 0.5, 0.9]), perfect, 9.0), truth) == 0
    # class 0: precision 1/2, recall 1; class 1: 0; class 2: precision 1, recall 1/2
    f1 = macro_f1(np.array([0, 1, 2, 2]), np.array([0, 0, 2, 1]))
    assert f1 == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)


def test_f1_and_accuracy_are_those_of_scikit_learn(fitted, corpus):
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    wanted, found = random.integers(0, 5, 500), random.integers(0, 5, 500)
    f1 = metrics.f1_score(wanted, found, average="macro")
    assert macro_f1(wanted, found) == pytest.approx(f1)
    test = corpus.part("test", 2)
    model = fitted["lexical"].predict(test.prompts)
    by_level = [
        metrics.mean_pinball_loss(test.output_tokens, model.values[:, k], alpha=level)
        for k, level in enumerate(model.levels)
    ]
    assert pinball(model, test.output_tokens) == pytest.approx(np.mean(by_level))


def test_wrong_edges_and_no_rows_are_refused_and_latencies_are_positive(fitted, corpus):
    for edges in ([], [0, 5], [5, 5], [9, 5], [[5]]):
        assert refusal(evaluate, fitted["constant"], DATA, edges=edges).field == "edges"
    assert "no rows" in str(refusal(evaluate, fitted["constant"], LabelledPrompts([], [])))
    found = evaluate(fitted["constant"], corpus.rows(np.arange(10)))
    assert 0 < found["latency_1_ms"] <= found["latency_64_ms"] * 2


def by_pairs(first, second):
    agreed = in_x = in_y = 0
    for (x, y), (u, v) in combinations(zip(first, second, strict=True), 2):
        agreed += np.sign(x - u) * np.sign(y - v)
        in_x += x != u
        in_y += y != v
    return agreed / sqrt(in_x * in_y) if in_x and in_y else float("nan")


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=2, max_size=40))
def test_it_is_that_of_all_pairs(pairs):
    first, second = (np.array(column) for column in zip(*pairs, strict=True))
    found, wanted = kendall_tau(first, second), by_pairs(first, second)
    assert (isnan(found) and isnan(wanted)) or found == pytest.approx(wanted)


def test_it_is_that_of_scipy_on_many_rows():
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    first = random.integers(0, 300, 5000)
    second = first + random.integers(0, 200, 5000)
    assert kendall_tau(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


@given(st.lists(st.integers(0, 20), max_size=30))
def test_inversions(ranks):
    wanted = sum(a > b for a, b in combinations(ranks, 2))
    assert inversions(np.array(ranks, np.int64)) == wanted


def test_ends_and_refusals():
    rising = np.arange(10)
    assert kendall_tau(rising, 3 * rising) == pytest.approx(1)
    assert kendall_tau(rising, -rising) == pytest.approx(-1)
    assert isnan(kendall_tau(rising, rising * 0))
    refusal(kendall_tau, rising, rising[:-1])


LEVELS = np.array([0.1, 0.5, 0.9])


def make(values, longest=1000.0):
    return LengthDistribution(LEVELS, np.array(values, float), longest)


rows = st.lists(
    st.lists(st.floats(1, 5000), min_size=3, max_size=3).map(sorted), min_size=1, max_size=5
)


def test_quantiles_at_their_levels_and_between_two():
    found = make([[10, 100, 300], [1, 1, 1]])
    for column, level in enumerate(LEVELS):
        assert np.allclose(found.quantile(level), found.values[:, column])
    assert np.allclose(found.quantile(0), 1)
    assert np.allclose(found.quantile(1), 1000)
    assert found.tokens().tolist() == [100, 1]
    assert found.tokens(0.9).tolist() == [300, 1]
    between = make([[10, 1000, 1000]], 2000).quantile(0.3)[0]  # halfway from 0.1 to 0.5
    assert between == pytest.approx(100), "the logarithm is linear"


@given(rows, st.floats(0.001, 0.999))
def test_probability_and_quantile_are_inverse(values, level):
    found = make(values, 10_000.0)
    lengths = found.quantile(level)
    for row, length in enumerate(lengths):
        assert found.below([length * (1 + 1e-9)])[row, 0] >= level - 1e-6


@given(rows, st.lists(st.integers(1, 6000), min_size=1, max_size=6, unique=True).map(sorted))
def test_classes_have_probabilities_that_add_up(values, edges):
    found = make(values).buckets(edges)
    assert found.shape == (len(values), len(edges) + 1)
    assert (found >= 0).all()
    assert np.allclose(found.sum(axis=1), 1)


@given(rows)
def test_the_mean_is_that_of_many_quantiles(values):
    found = make(values, 6000.0)
    levels = (np.arange(1000) + 0.5) / 1000
    sampled = np.mean([found.quantile(level) for level in levels], axis=0)
    assert np.allclose(found.mean(), sampled, rtol=0.02)


def test_a_length_on_an_edge_belongs_below_it_in_both_readings():
    assert class_of([58, 59], [58, 147]).tolist() == [0, 1]
    point = make([[58, 58, 58]], 58.0).buckets([58, 147])
    assert point[0, 0] == pytest.approx(1)


@pytest.mark.parametrize(("levels", "values", "field"), [
    ([0.5, 0.1], [[1, 2]], "levels"), ([0.0, 0.5], [[1, 2]], "levels"),
    ([0.1, 0.5], [[2, 1]], "values"), ([0.1, 0.5], [[0.5, 1]], "values"),
    ([0.1, 0.5], [[1, np.nan]], "values"), ([0.1, 0.5], [[1, 2, 3]], "values"),
])  # fmt: skip
def test_what_is_no_distribution_and_no_point_is_refused(levels, values, field):
    given = (np.array(levels), np.array(values, float), 10.0)
    assert refusal(LengthDistribution, *given).field == field
    for point in ("mode", 0, 1, 2.5, None, "nan"):
        assert refusal(make([[1, 2, 3]]).tokens, point).field == "point"
