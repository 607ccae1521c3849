"""The image of very large schedules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.views import density, style
from orsched.views.density import density_image, shares
from orsched.views.spans import client_use
from tests.views.plotting.samples import every_kind, random_instance, served


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
    use = client_use(instance, schedule)
    image = density_image(instance, schedule, use)
    assert image.shape == (6, 40, 3)
    # Amid its first request a client decodes: blue is the strongest part there.
    middle = int((use.decode.start_ns[0] + use.decode.end_ns[0]) / 2 * 40 / schedule.makespan_ns)
    red, _, blue = image[use.decode.lane[0], middle]
    assert blue > red


def test_clients_share_rows_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(density, "MAX_ROWS", 4)
    monkeypatch.setattr(density, "COLUMNS", 30)
    instance = random_instance()
    schedule = served(instance)
    use = client_use(instance, schedule)
    coarse = density_image(instance, schedule, use)
    monkeypatch.setattr(density, "MAX_ROWS", 6)
    fine = density_image(instance, schedule, use)
    assert coarse.shape == (3, 30, 3)
    assert coarse == pytest.approx(fine.reshape(3, 2, 30, 3).mean(axis=1))


def test_invalid_tokens_and_pauses_have_their_colours(monkeypatch):
    from matplotlib.colors import to_rgb

    monkeypatch.setattr(density, "COLUMNS", 59)
    case = every_kind()
    image = density_image(*case, client_use(*case))
    assert image[0, 30] == pytest.approx(to_rgb(style.INVALID_COLOUR))  # one column a nanosecond
    assert image[2, 45] == pytest.approx(to_rgb(style.PAUSED_COLOUR))
    veil = style.MIXED_OPACITY
    decode, stage = np.array(to_rgb(style.DECODE_COLOURS[0])), np.array(to_rgb(style.STAGE_COLOUR))
    assert image[2, 20] == pytest.approx(decode * (1 - veil) + stage * veil)
