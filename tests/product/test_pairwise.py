"""Every pair of a policy, a mode and a workload, in one cell at least: all invariants hold."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import combinations

import pytest

from tests.product.cell import Size, content, instance_of_cell, judge, serve
from tests.product.modes import FACTORS
from tests.product.pairs import pairs_of, pairwise
from tests.product.policies import POLICIES, SHARING
from tests.product.refusals import goes_together

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
