"""The theory papers' policies on the real workloads: who is compared, and a short run."""

from __future__ import annotations

import pytest

from benchmarks.reproductions.four_workloads_theory import POLICIES, main, rows_of
from tests.benchmarks.test_four_workloads import needs_data


def test_each_is_compared_at_its_own_information():
    for known, policies in POLICIES.items():
        assert all(each.information == known for each in policies.values())
        assert all(("dispatch", "least_work") in each.options for each in policies.values())
    assert set(POLICIES["predicted"]) == set(POLICIES["clairvoyant"])
    assert not set(POLICIES["none"]) & set(POLICIES["predicted"])


@needs_data
@pytest.mark.full
def test_a_short_run_has_a_ratio_for_each(capsys):
    rows = rows_of(["Azure conv"], [0.9], 1, 10)
    assert len(rows) == sum(map(len, POLICIES.values()))
    assert all(0.5 < float(row["Azure conv, 0.9"]) < 10 for row in rows)
    assert main(["--quick", "--seeds", "1", "--loads", "0.5"]) == 0
    assert "ahead of gittins" in capsys.readouterr().out
