"""Peaks are rates of what was timed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")

from orsched.runner import utilization  # noqa: E402
from orsched.runner.utilization import best_ns, measure_peaks  # noqa: E402


def test_rates_follow_from_sizes_and_times(monkeypatch):
    times = iter([2_000.0, 500.0])
    monkeypatch.setattr(utilization, "best_ns", lambda action, device: (action(), next(times))[1])
    found = measure_peaks("cpu", "float32", rows=8, size=100)
    assert found.flops_per_s == 2 * 8**3 * 1e9 / 2_000
    assert found.bytes_per_s == 2 * 100 * 1e9 / 500


def test_the_best_of_some_runs_is_taken():
    calls = []
    assert best_ns(lambda: calls.append(0), "cpu") >= 1
    assert len(calls) > 2


def test_something_is_measured():
    torch.set_num_threads(1)
    found = measure_peaks("cpu", "float32", rows=64, size=2**16)
    assert found.flops_per_s > 0
    assert found.bytes_per_s > 0
