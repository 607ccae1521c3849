"""Echo's estimators of time and memory."""

from __future__ import annotations

import math

from orsched.costs import AffineCost, PoolingCost
from orsched.heuristics.echo import (
    MemoryForecast,
    PoolingTime,
    fitted_time,
    micro_benchmarks,
)


def test_the_fit_finds_a_machine_that_follows_the_equations():
    truth = PoolingCost.from_ms(alpha=1e-5, beta=0.05, c=5, gamma=0.004, delta=0.002, lambda_=1.1)
    found = fitted_time(truth, 64, 8192)
    for prompts, active, total, most in (
        ([900], 0, 0, 0), ([], 7, 7000, 3000), ([300], 12, 20_000, 4000)
    ):  # fmt: skip
        time, estimate = truth.mixed_ns(prompts, active, total, most), 0
        estimate = PoolingTime(found).step_ns(prompts, active, total, most)
        assert abs(estimate - time) <= 1e-3 * time


def test_the_fit_is_wrong_for_a_machine_that_does_not():
    """A round of eq. (7) has no fixed part and no number of requests."""
    truth = AffineCost(round_fixed_ns=10_000_000, round_client_ns=200_000)
    found = PoolingTime(fitted_time(truth, 64, 8192))
    assert found.step_ns([], 1, 8192, 8192) == found.step_ns([], 64, 64 * 8192, 8192)


def test_benchmarks_keep_to_the_clients():
    rows = micro_benchmarks(AffineCost(), 4, 500)
    assert set(rows.phase) == {"prefill", "decode", "mixed"}
    assert max(rows.count) <= 4
    assert max(rows.column("context_max")) == 500


def test_nothing_takes_no_time():
    assert PoolingTime(fitted_time(AffineCost(), 4, 500)).step_ns([], 0, 0, 0) == 0


def test_the_forecast_is_the_mean_over_time_plus_deviations():
    forecast = MemoryForecast(window_s=100.0, sigmas=2.0)
    assert forecast.blocks(0) == 0
    forecast.see(0, 10)
    forecast.see(30_000_000_000, 20)
    mean, variance = 17.5, (0.25 * 100 + 0.75 * 400) - 17.5**2  # 30 s at 10, 90 s at 20
    assert forecast.blocks(120_000_000_000) == math.ceil(mean + 2 * math.sqrt(variance))


def test_the_forecast_forgets():
    forecast = MemoryForecast(window_s=10.0, sigmas=0.0)
    for second, blocks in enumerate([100, 0, 0, 7, 8, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7]):
        forecast.see(second * 10**9, blocks)
    assert 7 <= forecast.blocks(17 * 10**9) <= 8


def test_one_value_has_no_deviation():
    forecast = MemoryForecast(window_s=10.0, sigmas=2.0)
    for second in range(5):
        forecast.see(second * 10**9, 40)
    assert forecast.blocks(9 * 10**9) == 40
