"""Pictures of loads and batches, and charts that share a figure, by their structure."""

import numpy as np
import pytest
from matplotlib import pyplot

import orsched
from orsched.views.gantt import gantt
from tests.views.samples import by_hand, random_instance, served


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def bars(axes):
    return sorted((b.get_y() + b.get_height() / 2, b.get_x(), b.get_width()) for b in axes.patches)


def test_each_job_is_a_bar_behind_those_before_it():
    axes = orsched.offload([3, 7, 5], loads=[6, 0]).plot()
    np.testing.assert_allclose(bars(axes), [(0, 0, 6), (0, 6, 5), (1, 0, 0), (1, 0, 3), (1, 3, 7)])
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(words) == ["at the start", "largest load 11", "lower bound 11"]
    axes = orsched.pack([9, 7, 6], clients=2).plot()
    assert sum(width for _, _, width in bars(axes)) == 22
    assert axes.get_ylabel() == "client"


@pytest.mark.parametrize("call", [
    lambda: orsched.pack([], 2), lambda: orsched.offload([], 2),
    lambda: orsched.sort_with_stealing([], 2), lambda: orsched.batch([], orsched.AffineCost(), 3),
])  # fmt: skip
def test_nothing_is_drawn_of_nothing(call):
    assert call().plot() is not None
    assert len(call().to_pandas()) == 0


def test_padding_is_what_is_above_the_prompts():
    found = orsched.batch([9, 10, 800, 11, 900], orsched.AffineCost(), 16, max_batch=4)
    padded, lengths = (patch.get_data() for patch in found.plot().patches)
    assert padded.values.tolist() == [11, 11, 11, 900, 900]
    assert lengths.values.tolist() == [9, 10, 11, 800, 900]
    assert repr(found).startswith("Batches: 5 requests in 2 batches, ")
    assert found.to_pandas()["batch"].tolist() == [0, 0, 1, 0, 1]


def boxes(figure):
    figure.canvas.draw()
    render = figure.canvas.get_renderer()
    found = [ax.get_tightbbox(render) for ax in figure.axes]
    return [*found, *(legend.get_window_extent(render) for legend in figure.legends)]


def test_charts_in_one_figure_share_the_legend_and_do_not_overlap():
    figure, axes = pyplot.subplots(2, 2, figsize=(14, 8), sharex=True, sharey=True)
    instance = random_instance(n=60, name="sample")
    ends = []
    for ax, method in zip(axes.ravel(), ("fcfs", "offline", "online", "hybrid"), strict=True):
        result = orsched.solve(instance, method)
        gantt(instance, result, ax)
        ends.append(result.makespan)
    (legend,) = figure.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert len(words) == len(set(words))
    assert "own prefill" in words
    assert all(ax.get_legend() is None for ax in axes.ravel())
    assert len({ax.get_xlim() for ax in axes.ravel()}) == 1
    assert axes[0, 0].get_xlim()[1] >= max(ends)
    found = boxes(figure)
    for k, one in enumerate(found):
        for other in found[k + 1 :]:
            assert not one.padded(-2).overlaps(other.padded(-2))


def test_a_word_of_one_chart_alone_is_explained_once_for_all():
    plain = by_hand()
    instance = random_instance(n=30, name="x")
    figure, (left, right) = pyplot.subplots(1, 2)
    gantt(*plain, left)
    before = len(figure.legends[0].get_texts())
    gantt(instance, served(instance), right)
    (legend,) = figure.legends
    assert len(legend.get_texts()) >= before
