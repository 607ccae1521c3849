"""Every pair of a policy, a mode and a workload, in one cell at least: all invariants hold."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.product.cell import Size, content, instance_of_cell, judge, serve
from tests.product.modes import FACTORS
from tests.product.pairs import pairs_of, pairwise
from tests.product.policies import POLICIES, SHARING, goes_together

ALL = {"policy": POLICIES, "sharing": tuple(SHARING), **FACTORS}
CELLS = pairwise(ALL, goes_together)
SIZE = Size(9, 14, (0.0, 0.3, 0.6, 0.9))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_pair_of_policy_mode_and_workload(policy):
    """INV-1 to INV-10, INV-12, INV-15 and INV-17 to INV-19 in every cell of a covering array."""
    for cell in [cell for cell in CELLS if cell["policy"] == policy]:
        try:
            judge(cell, SIZE)
        except Exception as error:
            error.add_note(f"in the cell {cell}")
            raise


def test_the_array_covers_every_pair():
    covered = {pair for cell in CELLS for pair in combinations(cell.items(), 2)}
    assert covered == set(pairs_of(ALL, goes_together))
    # Of each two modes that are no policy's, all pairs but a dispatcher's on one worker.
    modes = {name: levels for name, levels in ALL.items() if name != "policy"}
    for first, second in combinations(modes, 2):
        pairs = {(cell[first], cell[second]) for cell in CELLS}
        alone = (len(SHARING) - 1) * ({first, second} == {"sharing", "workers"})
        assert len(pairs) == len(modes[first]) * len(modes[second]) - alone


def digests():
    """Return the hash of the schedule of each cell of the array."""
    contents = (content(serve(instance_of_cell(cell, SIZE), cell)) for cell in CELLS)
    return [hashlib.sha256(each).hexdigest() for each in contents]


def test_the_same_bytes_in_another_process(repo_root):
    """INV-9 does not depend on the order of sets, which Python's hash seed changes."""
    code = "from tests.product.test_pairwise import digests; print(*digests())"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(repo_root)}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    both = zip(CELLS, told.stdout.split(), digests(), strict=True)
    assert [cell for cell, theirs, ours in both if theirs != ours] == []


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
