"""Samples of a GPU, from a stand-in for the driver."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from orsched.runner.utilization import NvmlSampler, peak_bytes


def test_without_a_gpu_there_are_no_samples():
    with NvmlSampler("cpu") as sampler:
        pass
    assert sampler.summary() is None


def test_a_driver_that_fails_is_not_asked_again(monkeypatch):
    def fail():
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=fail))
    with NvmlSampler("cuda") as sampler:
        pass
    assert sampler.summary() is None


def test_samples_are_summed_up(monkeypatch):
    used = iter(range(100, 10**6))
    driver = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda gpu: SimpleNamespace(gpu=50 + gpu),
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=next(used)),
        nvmlDeviceGetPowerUsage=lambda gpu: 300_000,
        nvmlDeviceGetClockInfo=lambda gpu, kind: 1500,
        NVML_CLOCK_SM=1,
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    with NvmlSampler("cuda:2", interval_s=0.001) as sampler:
        while len(sampler.samples) < 3:
            time.sleep(0.001)
    found = sampler.summary()
    assert found["busy_%"] == 52
    assert found["power_w"] == 300
    assert found["memory_bytes"] == 100 + found["samples"]  # the first reading was a trial
    assert found["clock_mhz"] == pytest.approx(1500)


def test_this_process_uses_memory():
    assert peak_bytes("cpu") > 2**20
