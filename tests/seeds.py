"""Sweeps over seeds: a few of them in each run, all of them in the full ones."""

from itertools import groupby
from operator import itemgetter

import pytest


def seeds(short, full):
    """Return the seeds below ``full``; those from ``short`` on are for the full runs."""
    later = [pytest.param(seed, marks=pytest.mark.full) for seed in range(short, full)]
    return [*range(short), *later]


def in_turn(rows):
    """Return rows that begin with a name: of each name one, at another place than of the name
    before; the others are for the full runs."""
    groups = [list(group) for _, group in groupby(rows, key=itemgetter(0))]
    return [
        row if place == turn % len(group) else pytest.param(*row, marks=pytest.mark.full)
        for turn, group in enumerate(groups)
        for place, row in enumerate(group)
    ]
