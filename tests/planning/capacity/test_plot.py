"""The plot of a capacity: what was measured, in per cent and seconds, and words outside."""

from __future__ import annotations

import pytest

import orsched
from orsched.planning.capacity import plot as module
from orsched.planning.capacity.plot import save_capacity


@pytest.fixture(scope="module")
def found():
    return orsched.capacity(
        orsched.load("pang-100x20"), "vllm", arrivals="poisson:rate=2", slo_ttft=1, slo_tpot=0.04,
        attainment=0.9, replications=2, jobs=1,
    )  # fmt: skip


def test_attainment_is_in_per_cent_and_no_legend_hides_the_data(found, tmp_path, monkeypatch):
    figures = []
    save = module.save_picture

    def keep(draw, path, size):
        def kept(figure):
            draw(figure)
            figures.append(figure)

        save(kept, path, size)

    monkeypatch.setattr(module, "save_picture", keep)
    save_capacity(found, tmp_path / "a.png")
    (figure,) = figures
    above, below = figure.axes
    assert [ax.get_ylabel() for ax in figure.axes] == ["SLO attainment (%)", "latency (s)"]
    assert below.get_xlabel() == "workers"
    measured = above.containers[0].lines[0]
    rows = sorted(found.curve, key=lambda each: each.workers)
    assert measured.get_ydata().tolist() == pytest.approx([100 * r.attainment for r in rows])
    ttft = next(line for line in below.lines if line.get_label() == "TTFT p99 (s)")
    assert ttft.get_ydata().tolist() == [row.ttft_p99_s for row in rows]
    for ax in (above, below):
        box = ax.get_legend().get_window_extent()
        assert box.y0 >= ax.get_window_extent().y1 - 1
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1


def test_equal_bytes_come_twice(found, tmp_path):
    for name in "ab":
        save_capacity(found, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
