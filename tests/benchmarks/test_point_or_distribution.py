"""The program that compares medians with distributions."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from benchmarks import point_or_distribution as program
from benchmarks.point_or_distribution import LEVELS


@pytest.mark.parametrize("workload", ["two spreads", "short or long"])
def test_the_quantiles_are_those_of_the_lengths(workload):
    """As many lengths are within each quantile as its level says, but for whole tokens."""
    drawn = program.LAWS[workload](20_000, 3)
    shares = (drawn.outputs[:, None] <= drawn.quantiles).mean(axis=0)
    assert shares == pytest.approx(LEVELS, abs=0.03)


def test_a_claimed_spread_moves_the_quantiles_and_not_the_lengths():
    right, narrow = program.two_spreads(500, 1), program.two_spreads(500, 1, 1 / 3)
    assert (right.outputs == narrow.outputs).all()
    assert (narrow.quantiles[:, 0] >= right.quantiles[:, 0]).all()
    assert (narrow.quantiles[:, -1] <= right.quantiles[:, -1]).all()


def test_of_a_mixture_the_quantiles_lie_at_its_two_lengths():
    wide = [program._quantile(0.45, level) for level in (0.25, 0.75)]
    assert wide[0] == pytest.approx(0.1 * NormalDist().inv_cdf(0.25 / 0.55), abs=1e-6)
    assert wide[1] == pytest.approx(np.log(10) + 0.1 * NormalDist().inv_cdf(0.2 / 0.45), abs=1e-6)


def test_the_program_prints_both_tables(capsys):
    arguments = ["--seeds", "2", "--requests", "12", "--batch", "8", "--workload", "two spreads"]
    assert program.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("|") for line in lines] == [9, 9, 9, 0, 6, 6, 6, 6]
    assert program.main([*arguments[2:], "--seeds", "1", "--aging", "60"]) == 0


def test_medians_are_the_same_predictions():
    instance = program.served("few", 30, 0)
    bare = program.medians(instance)
    assert bare.requests.predicted_quantiles is None
    assert (bare.requests.predicted_tokens == instance.requests.predicted_tokens).all()
