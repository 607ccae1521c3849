"""The full product of policies, modes and workloads, on small instances: all invariants hold. The
modes are cut to those that differ in kind: one worker and two unequal ones; no memory, room for two
and a half requests set aside whole or in pages, and pages for one request. The second product is
that of four equal workers with all dispatchers and stealing, under one cost model and one rule for
the first token."""

from __future__ import annotations

from itertools import product

import pytest

from tests.product.cell import Size, judge
from tests.product.modes import FACTORS
from tests.product.policies import POLICIES, SHARING, is_dispatched, refusals_of
from tests.product.test_refusals import require_refusal

pytestmark = pytest.mark.full

SIZE = Size(5, 6, (0.5,))
MEMORY = ("none", "whole", "paged", "paged_tight")


def judge_all(cells):
    """Judge cells, and assert that those are refused that are to be; return how many of each."""
    served = refused = 0
    for cell in cells:
        refusals = refusals_of(cell)
        try:
            if refusals:
                require_refusal(cell, refusals)
            else:
                judge(cell, SIZE)
        except Exception as error:
            error.add_note(f"in the cell {cell}")
            raise
        refused, served = refused + bool(refusals), served + (not refusals)
    return served, refused


@pytest.mark.parametrize("workload", FACTORS["workload"])
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("workers", ["one", "two_unequal"])
def test_policies_modes_and_workloads(workers, memory, workload):
    """INV-1 to INV-10, INV-12, INV-15 and INV-17 to INV-19."""
    modes = {"workers": workers, "memory": memory, "workload": workload, "sharing": "as_it_is"}
    names = ("padding", "first_token", "cost")
    served, refused = judge_all(
        {**modes, **dict(zip(names, levels, strict=True)), "policy": policy}
        for levels in product(*(FACTORS[name] for name in names))
        for policy in POLICIES
    )
    assert served > refused / 2 > 0


@pytest.mark.parametrize("workload", FACTORS["workload"])
@pytest.mark.parametrize("memory", ["none", "paged_tight"])
def test_policies_dispatchers_and_workloads(memory, workload):
    """The same invariants on four workers, with each dispatcher, with and without stealing."""
    modes = {"workers": "four_equal", "memory": memory, "workload": workload}
    modes |= {"first_token": "prefill", "cost": "affine"}
    served, refused = judge_all(
        {**modes, "padding": padding, "sharing": sharing, "policy": policy}
        for padding in FACTORS["padding"]
        for sharing in SHARING
        for policy in POLICIES
        if sharing == "as_it_is" or is_dispatched(policy)
    )
    assert served > refused > 0
