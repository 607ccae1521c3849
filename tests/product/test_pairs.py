"""The covering array covers every allowed pair and holds no other, in few rows."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.product.pairs import pairs_of, pairwise


@st.composite
def problems(draw):
    """Factors with some levels each, and pairs that are not allowed."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=5))
    factors = {f"f{k}": [f"{k}{level}" for level in range(n)] for k, n in enumerate(sizes)}
    every = pairs_of(factors, lambda one, other: True)
    # The first level of each factor goes with everything, so that each pair has a row.
    able = [(a, b) for a, b in every if a[1][1] != "0" and b[1][1] != "0"]
    refused = draw(st.sets(st.sampled_from(able))) if able else set()
    return factors, lambda one, other: (one, other) not in refused and (other, one) not in refused


@given(problem=problems())
def test_every_allowed_pair_is_covered_and_no_other(problem):
    factors, allowed = problem
    rows = pairwise(factors, allowed)
    assert all(row.keys() == factors.keys() for row in rows)
    covered = {pair for row in rows for pair in combinations(row.items(), 2)}
    assert covered == set(pairs_of(factors, allowed))
    assert pairwise(factors, allowed) == rows


def test_rows_are_few():
    """At least the two largest factors' product; 3 ** 8 combinations need few more than 9 rows."""
    factors = {name: range(3) for name in "abcdefgh"}
    assert 9 <= len(pairwise(factors)) <= 21
    sizes = {"policy": range(40), "workload": range(8), "memory": range(5), "rule": range(2)}
    assert 320 <= len(pairwise(sizes)) <= 360


def test_a_pair_without_a_row_is_an_error():
    factors = {"a": [0, 1], "b": [0], "c": [0]}
    with pytest.raises(ValueError, match="no row can hold"):
        pairwise(factors, lambda one, other: {one, other} != {("a", 1), ("c", 0)})
