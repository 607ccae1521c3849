"""Distributions and attainment in the page: points of exact curves, and reported numbers."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched.metrics.request_times import request_times
from orsched.metrics.summary import summarise
from orsched.views.comparison import rows_of
from orsched.views.latency_data import FACTORS, POINTS, latency_data
from tests.views.plotting.samples import empty, random_instance, served
from tests.views.plotting.test_classes import mixed


def data_of(instance, schedules, slo=None):
    return latency_data(instance, rows_of(instance, schedules, slo), slo)


@pytest.mark.parametrize("n", [1, 30, 900])
def test_distributions_go_through_the_percentiles(n):
    instance = random_instance(n=n, clients=7, latest_ns=20 * 10**9)
    schedule = served(instance, bound=False)
    results, found = summarise(instance, schedule), data_of(instance, [schedule])
    for name in ("ttft", "jct"):
        (curve,) = found[name]["methods"]
        values, shares = curve["values"], curve["shares"]
        assert len(values) == len(shares) <= POINTS
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
    part = data_of(instance, [schedule], slo)["attainment"]
    assert part["over"] == "multiple"
    assert part["x"] == FACTORS.tolist()
    (shares,) = part["methods"]
    assert shares == sorted(shares)
    expected = summarise(instance, schedule, slo)["slo"]["attainment"]
    assert shares[part["x"].index(1.0)] == pytest.approx(expected, abs=1e-6)


def test_limits_of_classes_judge_their_own_requests():
    instance, schedule = mixed()
    part = data_of(instance, [schedule])["attainment"]
    results = summarise(instance, schedule)
    expected = results["classes"]["interactive"]["slo"]["attainment"]
    assert part["over"] == "multiple"
    assert part["methods"][0][part["x"].index(1.0)] == pytest.approx(expected, abs=1e-6)


def test_without_limits_attainment_is_over_limits_on_ttft():
    instance, schedule = mixed(limits=())
    part = data_of(instance, [schedule])["attainment"]
    assert part["over"] == "ttft"
    times = request_times(instance, schedule)
    ttft = times["first_token_ns"] - instance.requests.arrival_ns
    for limit, share in zip(part["x"], part["methods"][0], strict=True):
        assert share == pytest.approx((ttft <= limit).mean(), abs=1e-6)
    assert part["methods"][0][-1] == 1


def test_values_far_beyond_the_others_are_beyond_the_border():
    requests = orsched.Requests(np.full(300, 10), np.append(np.full(299, 10), 3000))
    instance = orsched.Instance(requests, orsched.Worker(300), first_token="decode")
    found = data_of(instance, [served(instance, bound=False)])
    (curve,) = found["jct"]["methods"]
    usual = summarise(instance, served(instance))["jct_ns"]["p99"]
    assert usual < found["jct"]["border"] < curve["values"][-1]
    assert found["ttft"]["border"] is None


def test_nothing_without_requests():
    instance, schedule = empty()
    assert data_of(instance, [schedule]) is None
