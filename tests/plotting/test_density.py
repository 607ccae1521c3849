"""The image of very large schedules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.plotting import density
from orsched.plotting.density import density_image, shares
from orsched.plotting.spans import decode_spans, prefill_spans
from tests.plotting.samples import random_instance, served


@settings(max_examples=30)
@given(
    cuts=st.lists(st.integers(0, 60), unique=True, max_size=10),
    columns=st.integers(1, 15),
)
def test_shares_are_the_covered_time_of_each_cell(cuts, columns):
    horizon = 60
    cuts = sorted(cuts)[: len(cuts) // 2 * 2]
    start, end = cuts[0::2], cuts[1::2]
    found = shares([0] * len(start), start, end, (1, columns), horizon)[0]
    covered = np.zeros(horizon * columns)  # finer than both grids
    for a, b in zip(start, end, strict=True):
        covered[a * columns : b * columns] = 1
    assert found == pytest.approx(covered.reshape(columns, horizon).mean(axis=1), abs=1e-9)


def test_the_image_holds_the_colours_in_their_shares(monkeypatch):
    monkeypatch.setattr(density, "COLUMNS", 40)
    instance = random_instance()
    schedule = served(instance)
    spans = decode_spans(instance, schedule), prefill_spans(instance, schedule)
    image = density_image(instance, schedule, *spans)
    assert image.shape == (6, 40, 3)
    # Amid its first request a client decodes: blue is the strongest part there.
    middle = int((spans[0].start_ns[0] + spans[0].end_ns[0]) / 2 * 40 / schedule.makespan_ns)
    red, _, blue = image[spans[0].lane[0], middle]
    assert blue > red


def test_clients_share_rows_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(density, "MAX_ROWS", 4)
    monkeypatch.setattr(density, "COLUMNS", 30)
    instance = random_instance()
    schedule = served(instance)
    spans = decode_spans(instance, schedule), prefill_spans(instance, schedule)
    coarse = density_image(instance, schedule, *spans)
    monkeypatch.setattr(density, "MAX_ROWS", 6)
    fine = density_image(instance, schedule, *spans)
    assert coarse.shape == (3, 30, 3)
    assert coarse == pytest.approx(fine.reshape(3, 2, 30, 3).mean(axis=1))
