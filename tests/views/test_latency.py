"""Distributions of latencies and attainment over limits, against counting by hand."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import orsched
from orsched.common.errors import InputError
from orsched.metrics.summary import SLO, summarise
from orsched.metrics.token_times import request_times
from orsched.views.latency import latency, line_names, save_latency
from orsched.views.latency_curves import (
    FACTORS,
    PAGE_POINTS,
    POINTS,
    ecdf,
    latencies,
    latency_data,
    needed_multiples,
)
from tests.in_order import in_order
from tests.metrics.any_schedule import any_schedule
from tests.seeds import seeds
from tests.views.samples import empty, every_kind, mixed, one_long, random_instance, served


@pytest.mark.parametrize("n", [1, 2, 7, 599, 601, 5000])
def test_the_distribution_is_that_of_numpy(n):
    values = np.random.default_rng(n).integers(0, max(2, n // 2), n)
    curve = ecdf(values)
    assert len(curve.value) <= POINTS
    assert (np.diff(curve.share) > 0).all()
    assert curve.share[-1] == 1
    for share, value in zip(curve.share, curve.value, strict=True):
        assert value == np.quantile(values, share - 1e-12, method="inverted_cdf")
    if n <= POINTS:  # the whole function, at every place
        for at in np.unique(values):
            assert curve.share[curve.value <= at][-1] == (values <= at).mean()


def test_the_slowest_are_all_in_it():
    values = np.arange(100_000)
    curve = ecdf(values)
    assert set(range(99_990, 100_000)) <= set(curve.value.astype(int).tolist())
    assert len(ecdf(np.array([], np.int64)).value) == 0


@pytest.mark.parametrize("seed", range(10))
def test_percentiles_of_the_curves_are_the_reported_ones(seed):
    instance, schedule = any_schedule(seed)
    results, found = summarise(instance, schedule), latencies(instance, schedule)
    for name in ("ttft", "tpot", "jct"):
        reported, curve = results[f"{name}_ns"], ecdf(found.of(name))
        if reported is None:
            assert len(curve.value) == 0
            continue
        for percent in (50, 90, 99):
            assert curve.value[curve.share >= percent / 100 - 1e-12][0] == reported[f"p{percent}"]
        assert curve.value[-1] == reported["max"]


@pytest.mark.parametrize("seed", seeds(3, 10))
@pytest.mark.parametrize("limits", [(40, 5), (1, 1), (10**6, 10**6), (0, 3), (50, None), (None, 4)])
def test_attainment_over_multiples_is_that_of_multiplied_limits(seed, limits):
    instance, schedule = any_schedule(seed)
    found = latencies(instance, schedule)
    need = needed_multiples(instance, found, limits)
    outputs = instance.requests.output_tokens.tolist()
    for multiple in (0, 0.25, 0.5, 1, 2, 3.5, 64):
        met = 0
        for ttft, tpot, tokens in zip(found.ttft_ns, found.tpot_ns, outputs, strict=True):
            first = limits[0] is None or ttft <= multiple * limits[0]
            later = limits[1] is None or tokens < 2 or tpot <= multiple * limits[1]
            met += bool(first and later)
        assert int((need <= multiple).sum()) == met
    if None not in limits:
        attained = summarise(instance, schedule, in_order(SLO, *limits))["slo"]["attained"]
        assert int((need <= 1).sum()) == attained


def test_classes_are_judged_by_their_own_limits():
    instance, schedule = mixed()
    need = needed_multiples(instance, latencies(instance, schedule))
    reported = summarise(instance, schedule)["classes"]["interactive"]
    assert len(need) == reported["requests"]
    assert int((need <= 1).sum()) == reported["slo"]["attained"]
    part = latency_data(instance, [schedule])["attainment"]
    assert part["over"] == "multiple"
    share = part["methods"][0][part["x"].index(1.0)]
    assert share == pytest.approx(reported["slo"]["attainment"], abs=1e-6)


def curves(axes):
    return {line.get_gid(): line for ax in axes for line in ax.lines if line.get_gid()}


def test_lines_are_the_distributions_and_the_dot_the_attainment():
    instance = random_instance(n=60)
    schedule = served(instance)
    slo = SLO(ttft_ns=2 * 10**9, tpot_ns=40 * 10**6)
    axes = latency(instance, [schedule, schedule], slo=slo, names=["a", "b"])
    found = curves(axes)
    drawn = found["ttft-0"].get_xydata()[1:-1]
    values = np.sort(latencies(instance, schedule).ttft_ns)
    assert drawn[:, 0] == pytest.approx(values / 1e9, rel=1e-12)
    assert drawn[:, 1] == pytest.approx(100 * np.arange(1, 61) / 60)
    attained = summarise(instance, schedule, slo)["slo"]["attainment"]
    assert found["attained-1"].get_xydata().tolist() == [[1, 100 * attained]]
    assert [ax.get_xlabel() for ax in axes] == ["TTFT (s)", "TPOT (s)", "JCT (s)",
                                                "multiple of the limits"]  # fmt: skip
    assert [t.get_text() for t in axes[0].figure.legends[0].get_texts()] == ["a", "b"]


def test_of_one_schedule_without_limits_there_are_three_panels_and_no_legend():
    """And an axis is logarithmic where values lie far apart."""
    instance = random_instance(n=60)
    axes = latency(instance, served(instance))
    assert len(axes) == 3
    assert axes[0].figure.legends == []
    ttft = latencies(instance, served(instance)).ttft_ns
    assert ttft.max() > 30 * ttft.min()
    assert [ax.get_xscale() for ax in axes[:2]] == ["log", "linear"]


@pytest.mark.parametrize("many", [2, 3, 12, 25])
def test_no_legend_is_cut_off_and_no_words_leave_the_picture(many):
    instance = random_instance(n=30)
    schedule = served(instance)
    names = [f"a policy of mine, {k}: with_some=parameters" for k in range(many)]
    figure = Figure(figsize=(10, 6.6), layout="constrained")
    latency(instance, [schedule] * many, figure, names=names, slo=SLO(ttft_ns=10**9, tpot_ns=10**8))
    figure.canvas.draw()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == many
    box, page = legend.get_window_extent(), figure.bbox
    assert page.x0 <= box.x0 <= box.x1 <= page.x1
    assert page.y0 <= box.y0
    looks = {(line.get_color(), str(line.get_linestyle()), str(line._dash_pattern))
             for line in legend.get_lines()}  # fmt: skip
    assert len(looks) == many


def test_names_of_lines():
    _, schedule = every_kind()
    assert line_names([schedule]) == ["drawn"]
    assert line_names([schedule, schedule]) == ["drawn (clairvoyant)"] * 2
    assert line_names([schedule], ["_x$"]) == ["x$"]


def test_a_run_that_was_stopped_has_no_latencies():
    instance, schedule = every_kind()
    stopped = schedule.replace(run={**schedule.run, "complete": False})
    with pytest.raises(InputError, match="was stopped"):
        latency(instance, stopped)


def test_nothing_to_do_is_drawn_and_has_no_data(tmp_path):
    instance, schedule = empty()
    save_latency(instance, schedule, tmp_path / "a.png", slo=SLO(ttft_ns=1, tpot_ns=1))
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert latency_data(instance, [schedule]) is None


@pytest.mark.parametrize("n", [1, 30, 900])
def test_distributions_go_through_the_percentiles(n):
    instance = random_instance(n=n, clients=7, latest_ns=20 * 10**9)
    schedule = served(instance, bound=False)
    results, found = summarise(instance, schedule), latency_data(instance, [schedule])
    for name in ("ttft", "jct"):
        (curve,) = found[name]["methods"]
        values, shares = curve["values"], curve["shares"]
        assert len(values) == len(shares) <= PAGE_POINTS
        assert shares[-1] == 1
        assert values == sorted(set(values))
        assert shares == sorted(shares)
        assert values[-1] == results[f"{name}_ns"]["max"]
        assert values[int(np.searchsorted(shares, 0.99 - 1e-9))] == results[f"{name}_ns"]["p99"]
    times = request_times(instance, schedule)
    ttft = np.sort(times["first_token_ns"] - instance.requests.arrival_ns)
    curve = found["ttft"]["methods"][0]
    for value, share in zip(curve["values"], curve["shares"], strict=True):
        assert share == pytest.approx((ttft <= value).mean(), abs=1e-6)


@pytest.mark.parametrize("limits", [(2, 0.05), (5, None), (None, 0.04)])
def test_attainment_at_factor_one_is_the_reported_one(limits):
    instance = random_instance(n=60, latest_ns=9 * 10**9)
    schedule = served(instance, bound=False)
    slo = orsched.SLO(ttft_s=limits[0], tpot_s=limits[1])
    part = latency_data(instance, [schedule], slo)["attainment"]
    assert part["over"] == "multiple"
    assert part["x"] == FACTORS.tolist()
    (shares,) = part["methods"]
    assert shares == sorted(shares)
    expected = summarise(instance, schedule, slo)["slo"]["attainment"]
    assert shares[part["x"].index(1.0)] == pytest.approx(expected, abs=1e-6)


def test_without_limits_attainment_is_over_limits_on_ttft():
    instance, schedule = mixed(limits=())
    part = latency_data(instance, [schedule])["attainment"]
    assert part["over"] == "ttft"
    times = request_times(instance, schedule)
    ttft = times["first_token_ns"] - instance.requests.arrival_ns
    for limit, share in zip(part["x"], part["methods"][0], strict=True):
        assert share == pytest.approx((ttft <= limit).mean(), abs=1e-6)
    assert part["methods"][0][-1] == 1


def test_values_far_beyond_the_others_are_beyond_the_border():
    instance = one_long()
    schedule = served(instance, bound=False)
    found = latency_data(instance, [schedule])
    (curve,) = found["jct"]["methods"]
    usual = summarise(instance, schedule)["jct_ns"]["p99"]
    assert usual < found["jct"]["border"] < curve["values"][-1]
    assert found["ttft"]["border"] is None
