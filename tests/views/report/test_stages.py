"""Stages: prefill stages and the decode stages between them."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.data.schedule import DECODE, PREFILL
from orsched.views.stages import COLUMNS, bins, stage_columns
from tests.views.plotting.samples import by_hand, empty, every_kind, random_instance, served


def test_stages_by_hand():
    columns = stage_columns(*by_hand())
    assert tuple(columns) == COLUMNS
    rows = list(zip(*(columns[name].tolist() for name in COLUMNS), strict=True))
    assert rows == [
        (0, 0, 0, 0, 10, 1, 2, 2, 5),
        (0, 0, 1, 10, 20, 1, 1, 1, 2),
        (0, 1, 1, 20, 24, 2, 2, 0, 0),
        (0, 0, 2, 24, 30, 1, 1, 1, 2),
        (0, 1, 2, 30, 33, 1, 1, 0, 0),
        (1, 0, 0, 5, 9, 1, 1, 1, 4),
        (1, 1, 0, 9, 12, 1, 1, 0, 0),
    ]
    assert bins(*by_hand()).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_a_mixed_step_stands_alone():
    columns = stage_columns(*every_kind())
    rows = list(zip(*(columns[name].tolist() for name in COLUMNS), strict=True))
    assert rows == [
        (0, 0, 0, 0, 20, 1, 2, 2, 8),
        (0, 1, 0, 20, 38, 3, 2, 0, 0),
        (1, 0, 0, 0, 14, 1, 1, 1, 4),
        (1, 2, 1, 14, 29, 1, 2, 1, 4),
        (1, 2, 2, 29, 42, 1, 2, 1, 2),
        (1, 1, 2, 42, 59, 3, 2, 0, 0),
    ]
    assert bins(*every_kind()).tolist() == [0, 0, 1, 0, 0, 2, 2, 2]


@pytest.mark.parametrize("latest_ns", [0, 60 * 10**9])
def test_stages_hold_all_time_rounds_and_tokens(latest_ns):
    instance = random_instance(latest_ns=latest_ns)
    schedule = served(instance)
    steps, columns = schedule.steps, stage_columns(instance, schedule)
    for phase in (PREFILL, DECODE):
        mine, own = columns["phase"] == phase, steps.phase == phase
        duration = (columns["end"] - columns["start"])[mine].sum()
        assert duration == (steps.end_ns - steps.start_ns)[own].sum()
        assert columns["rounds"][mine].sum() == steps.rounds[own].sum()
    prefill = columns["phase"] == PREFILL
    assert prefill.sum() == (steps.phase == PREFILL).sum()
    assert columns["tokens"][prefill].sum() == instance.requests.prompt_tokens.sum()
    assert columns["requests"][prefill].sum() == len(instance)
    assert columns["bin"][prefill].tolist() == list(range(prefill.sum()))
    assert (columns["start"][1:] >= columns["end"][:-1]).all()
    # No decode stage follows another without a pause.
    joined = (columns["phase"][1:] == DECODE) & (columns["phase"][:-1] == DECODE)
    assert (columns["start"][1:] > columns["end"][:-1])[joined].all()
    assert np.array_equal(columns["tokens"] > 0, prefill)


def test_nothing_has_no_stages():
    assert all(len(column) == 0 for column in stage_columns(*empty()).values())
