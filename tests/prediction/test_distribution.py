"""Distributions over lengths: points, probabilities and classes belong together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.prediction import LengthDistribution
from orsched.prediction.distribution import class_of
from tests.refusals import refusal

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
