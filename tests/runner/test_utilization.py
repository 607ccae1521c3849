"""Work of steps and shares of the peaks, against figures worked out by hand."""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from orsched.calibration.observed import step_contents
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.schedule import Schedule, Steps, Work
from orsched.data.workers import Worker
from orsched.runner.utilization import (
    ModelSize,
    NvmlSampler,
    Peaks,
    gaps,
    model_size,
    peak_bytes,
    step_work,
    utilization,
)
from tests.in_order import in_order

SIZE = ModelSize(
    layers=2, heads=4, kv_heads=2, head_dim=8, weights=1000, output_weights=100, number_bytes=2
)
"""A token in the caches: 2 x 2 x 2 x 8 numbers of 2 bytes, 128 bytes; attention 256 a context."""


def trace(arrivals=(0, 0)):
    """Two requests of 4 and 6 tokens: a stage (3, 5), three rounds of both, two of the second."""
    instance = Instance(
        Requests([3, 5], [4, 6], arrival_ns=list(arrivals)),
        (Worker(2, AffineCost()),),
        first_token="prefill",
    )
    steps = Steps(
        worker=np.zeros(3, np.int64),
        phase=np.array([0, 1, 1]),
        start_ns=np.array([0, 110, 430]),
        end_ns=np.array([100, 410, 630]),
        rounds=np.array([1, 3, 2]),
    )
    work = Work(
        request=np.array([0, 0, 1, 1]),
        client=np.array([0, 0, 1, 1]),
        phase=np.array([0, 1, 0, 1]),
        first_step=np.array([0, 1, 0, 1]),
        last_step=np.array([0, 1, 0, 2]),
        tokens=np.array([3, 1, 5, 1]),
    )
    run = {"device": "x", "clock": "y"}
    return instance, Schedule(instance.sha256, steps, work, "by hand", "none", run=run)


def test_what_is_in_the_steps():
    steps = step_contents(*trace())
    assert steps.prompts.tolist() == [2, 0, 0]
    assert steps.tokens.tolist() == [8, 0, 0]
    assert steps.longest.tolist() == [5, 0, 0]
    assert steps.cached.tolist() == [0, 0, 0]
    assert steps.attended.tolist() == [1 + 2 + 3 + 1 + 2 + 3 + 4 + 5, 0, 0]
    assert steps.active.tolist() == [0, 2, 1]
    assert steps.context_sum.tolist() == [0, 4 + 6, 9]
    assert steps.context_max.tolist() == [0, 6, 9]


def test_flops_and_bytes_by_hand():
    work = step_work(SIZE, step_contents(*trace()))
    # three rounds of two: contexts 4+6, 5+7, 6+8; two of one: 9, 10
    contexts = [0, 10 + 12 + 14, 9 + 10]
    tokens, scored, attended = [8, 6, 2], [2, 6, 2], [21, *contexts[1:]]
    assert work.flops.tolist() == [
        2000 * t + 200 * s + 256 * a for t, s, a in zip(tokens, scored, attended, strict=True)
    ]
    passes = [1, 3, 2]
    assert work.bytes.tolist() == [
        2200 * p + 128 * (c + t) for p, c, t in zip(passes, contexts, tokens, strict=True)
    ]


def test_shares_of_the_peaks_by_hand():
    instance, schedule = trace()
    found = utilization(instance, schedule, SIZE, Peaks(1e12, 2e11))
    work = step_work(SIZE, step_contents(instance, schedule))
    assert found["wall_ns"] == 630
    assert found["device_busy_share"] == 600 / 630
    assert found["mfu"] == pytest.approx(work.flops.sum() / (1000 * 600))
    assert found["decode"]["time_ns"] == 500
    assert found["decode"]["bandwidth_utilization"] == pytest.approx(
        (work.bytes[1] + work.bytes[2]) / (200 * 500)
    )
    assert found["prefill"]["flops"] == work.flops[0]
    # busy clients: the stage and three rounds for both, two rounds more for the second
    assert found["slot_utilization"] == (100 + 300 + 100 + 300 + 200) / (2 * 630)
    assert found["gaps"] == {
        "count": 2,
        "total_ns": 30,
        "share": 30 / 630,
        "p50_ns": 10,
        "max_ns": 20,
    }
    json.dumps(found)


def test_a_wait_for_an_arrival_is_no_gap():
    instance, schedule = trace()
    steps = step_contents(instance, schedule)
    assert gaps(instance, schedule, steps)["total_ns"] == 30
    later, same = trace(arrivals=(0, 0))
    alone = Instance(
        Requests([3, 5], [4, 6], arrival_ns=[500, 500]), later.workers, first_token="prefill"
    )
    moved = same.replace(instance_sha256=alone.sha256)
    assert gaps(alone, moved, steps)["total_ns"] == 0
    assert gaps(alone, moved, steps)["p50_ns"] is None


def test_nothing_done_has_no_shares():
    instance = Instance(Requests([], []), (Worker(2, AffineCost()),), first_token="decode")
    none = np.zeros(0, np.int64)
    empty = Schedule(
        instance.sha256,
        in_order(Steps, none, none, none, none, none),
        Work(none, none, none, none, none, none),
        "x",
        "none",
    )
    found = utilization(instance, empty, SIZE, Peaks(1.0, 1.0))
    assert found["mfu"] is None
    assert found["device_busy_share"] is None


@pytest.mark.parametrize("name", ["tiny", "tiny-gpt2", "tiny-gpt-neo", "tiny-qwen3"])
def test_the_size_of_a_model(name):
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    torch.set_num_threads(1)
    from tests.runner.torch_workers import torch_worker

    worker = torch_worker(name, slots=2, length=16)
    size = model_size(worker)
    hidden, inner = worker.model.config.hidden_size, 128
    assert size.output_weights == hidden * 512
    assert (size.layers, size.heads, size.number_bytes) == (2, 4, 4)
    # one token more is for what nobody reads
    assert worker.slots.bytes() in [size.cache_bytes * tokens for tokens in (2 * 16, 2 * 16 + 1)]
    if name == "tiny":
        layer = 2 * hidden * hidden + 2 * hidden * hidden // 2 + 3 * hidden * inner
        assert size.weights == 2 * layer
    if name == "tiny-gpt2":
        assert size.weights == 2 * 12 * hidden * hidden


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
