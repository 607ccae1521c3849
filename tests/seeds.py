"""Sweeps over seeds: a few of them in each run, all of them in the full ones."""

import pytest


def seeds(short, full):
    """Return the seeds below ``full``; those from ``short`` on are for the full runs."""
    later = [pytest.param(seed, marks=pytest.mark.full) for seed in range(short, full)]
    return [*range(short), *later]
