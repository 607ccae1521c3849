"""Every pair of a policy, a mode and a workload, in one cell at least: all invariants hold. So they
do in the full product on small instances. Its modes are cut to those that differ in kind: one
worker and two unequal ones; no memory, room for two and a half requests set aside whole or in
pages, and pages for one request. The second product is that of four equal workers with all
dispatchers and stealing, under one cost model and one rule for the first token."""

import hashlib
import os
import subprocess
import sys
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.product.cell import Size, content, instance_of_cell, judge, serve
from tests.product.modes import FACTORS
from tests.product.policies import POLICIES, SHARING, goes_together, is_dispatched, refusals_of
from tests.product.test_refusals import require_refusal


def pairs_of(factors, allowed):
    """Return all pairs of levels that may stand in one row, in order: ``factors`` maps a name to
    its levels; ``allowed(level, level)`` is asked for two pairs (factor, level)."""
    return [
        (one, other)
        for first, second in combinations(factors, 2)
        for one in ((first, level) for level in factors[first])
        for other in ((second, level) for level in factors[second])
        if allowed(one, other)
    ]


def pairwise(factors, allowed=lambda one, other: True):
    """Return rows (factor -> level) that cover every allowed pair; equal input, equal rows. Greedy:
    a row begins with the first pair that is not covered, and takes of each other factor the level
    that covers the most; among equals the one in the fewest rows so far. A level is taken back
    where it leaves another factor without one. Raises ``ValueError`` for a pair that no row can
    hold."""
    left = dict.fromkeys(pairs_of(factors, allowed))
    used = {(name, level): 0 for name, levels in factors.items() for level in levels}
    rows = []
    while left:
        pair = next(iter(left))
        row = _fill(dict(pair), factors, allowed, left, used)
        if row is None:
            raise ValueError(f"no row can hold {pair}")
        for name, level in row.items():
            used[name, level] += 1
        rows.append({name: row[name] for name in factors})
        for covered in combinations(rows[-1].items(), 2):
            left.pop(covered, None)
    return rows


def _fill(row, factors, allowed, left, used):
    """Return the row with a level of each factor, or None."""
    open_factors = [name for name in factors if name not in row]
    if not open_factors:
        return row
    place = {name: k for k, name in enumerate(factors)}
    name = open_factors[0]

    def covers(level):
        pairs = [sorted(((name, level), item), key=lambda x: place[x[0]]) for item in row.items()]
        return sum(tuple(pair) in left for pair in pairs)

    levels = [
        level
        for level in factors[name]
        if all(allowed(item, (name, level)) for item in row.items())
    ]
    for level in sorted(levels, key=lambda level: (-covers(level), used[name, level])):
        filled = _fill({**row, name: level}, factors, allowed, left, used)
        if filled is not None:
            return filled
    return None


ALL = {"policy": POLICIES, "sharing": tuple(SHARING), **FACTORS}
CELLS = pairwise(ALL, goes_together)
SIZE, SMALL = Size(9, 14, (0.0, 0.3, 0.6, 0.9)), Size(5, 6, (0.5,))


def judge_all(cells, size):
    """Judge cells, and assert that those are refused that are to be; return how many of each."""
    served = refused = 0
    for cell in cells:
        refusals = refusals_of(cell)
        try:
            if refusals:
                require_refusal(cell, {refusal.field for refusal in refusals})
            else:
                judge(cell, size)
        except Exception as error:
            error.add_note(f"in the cell {cell}")
            raise
        refused, served = refused + bool(refusals), served + (not refusals)
    return served, refused


@pytest.mark.parametrize("policy", POLICIES)
def test_every_pair_of_policy_mode_and_workload(policy):
    """INV-1 to INV-10, INV-12, INV-15 and INV-17 to INV-19 in every cell of a covering array."""
    _, refused = judge_all([cell for cell in CELLS if cell["policy"] == policy], SIZE)
    assert refused == 0


@pytest.mark.full
@pytest.mark.parametrize("workload", FACTORS["workload"])
@pytest.mark.parametrize("memory", ["none", "whole", "paged", "paged_tight"])
@pytest.mark.parametrize("workers", ["one", "two_unequal"])
def test_policies_modes_and_workloads(workers, memory, workload):
    """INV-1 to INV-10, INV-12, INV-15 and INV-17 to INV-19."""
    modes = {"workers": workers, "memory": memory, "workload": workload, "sharing": "as_it_is"}
    names = ("padding", "first_token", "cost")
    cells = (
        {**modes, **dict(zip(names, levels, strict=True)), "policy": policy}
        for levels in product(*(FACTORS[name] for name in names))
        for policy in POLICIES
    )
    served, refused = judge_all(cells, SMALL)
    assert served > refused / 2 > 0


@pytest.mark.full
@pytest.mark.parametrize("workload", FACTORS["workload"])
@pytest.mark.parametrize("memory", ["none", "paged_tight"])
def test_policies_dispatchers_and_workloads(memory, workload):
    """The same invariants on four workers, with each dispatcher, with and without stealing."""
    modes = {"workers": "four_equal", "memory": memory, "workload": workload}
    modes |= {"first_token": "prefill", "cost": "affine"}
    cells = (
        {**modes, "padding": padding, "sharing": sharing, "policy": policy}
        for padding in FACTORS["padding"]
        for sharing in SHARING
        for policy in POLICIES
        if sharing == "as_it_is" or is_dispatched(policy)
    )
    served, refused = judge_all(cells, SMALL)
    assert served > refused > 0


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
