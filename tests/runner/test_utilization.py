"""Work of steps and shares of the peaks, against figures worked out by hand."""

import json
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from orsched import AffineCost, Instance, Requests, Schedule, Steps, Work, Worker
from orsched.calibration.observed import step_contents
from orsched.runner import utilization as module
from orsched.runner.utilization import ModelSize, NvmlSampler, Peaks, gaps, step_work, utilization
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
        worker=np.zeros(3, np.int64), phase=np.array([0, 1, 1]), start_ns=np.array([0, 110, 430]),
        end_ns=np.array([100, 410, 630]), rounds=np.array([1, 3, 2]),
    )  # fmt: skip
    work = Work(
        request=np.array([0, 0, 1, 1]), client=np.array([0, 0, 1, 1]), phase=np.array([0, 1, 0, 1]),
        first_step=np.array([0, 1, 0, 1]), last_step=np.array([0, 1, 0, 2]),
        tokens=np.array([3, 1, 5, 1]),
    )  # fmt: skip
    run = {"device": "x", "clock": "y"}
    return instance, Schedule(instance.sha256, steps, work, "by hand", "none", run=run)


def test_what_is_in_the_steps():
    expected = {
        "prompts": [2, 0, 0], "tokens": [8, 0, 0], "longest": [5, 0, 0], "cached": [0, 0, 0],
        "attended": [1 + 2 + 3 + 1 + 2 + 3 + 4 + 5, 0, 0], "active": [0, 2, 1],
        "context_sum": [0, 4 + 6, 9], "context_max": [0, 6, 9],
    }  # fmt: skip
    steps = step_contents(*trace())
    assert {name: getattr(steps, name).tolist() for name in expected} == expected


def test_flops_and_bytes_by_hand():
    work = step_work(SIZE, step_contents(*trace()))
    # three rounds of two: contexts 4+6, 5+7, 6+8; two of one: 9, 10
    contexts = [0, 10 + 12 + 14, 9 + 10]
    tokens, scored, attended = [8, 6, 2], [2, 6, 2], [21, *contexts[1:]]
    rows = zip(tokens, scored, attended, strict=True)
    assert work.flops.tolist() == [2000 * t + 200 * s + 256 * a for t, s, a in rows]
    passes = [1, 3, 2]
    rows = zip(passes, contexts, tokens, strict=True)
    assert work.bytes.tolist() == [2200 * p + 128 * (c + t) for p, c, t in rows]


def test_shares_of_the_peaks_by_hand():
    instance, schedule = trace()
    found = utilization(instance, schedule, SIZE, Peaks(1e12, 2e11))
    work = step_work(SIZE, step_contents(instance, schedule))
    assert (found["wall_ns"], found["device_busy_share"]) == (630, 600 / 630)
    assert found["mfu"] == pytest.approx(work.flops.sum() / (1000 * 600))
    assert found["decode"]["time_ns"] == 500
    bandwidth = (work.bytes[1] + work.bytes[2]) / (200 * 500)
    assert found["decode"]["bandwidth_utilization"] == pytest.approx(bandwidth)
    assert found["prefill"]["flops"] == work.flops[0]
    # busy clients: the stage and three rounds for both, two rounds more for the second
    assert found["slot_utilization"] == (100 + 300 + 100 + 300 + 200) / (2 * 630)
    between = {"count": 2, "total_ns": 30, "share": 30 / 630, "p50_ns": 10, "max_ns": 20}
    assert found["gaps"] == between
    json.dumps(found)


def test_a_wait_for_an_arrival_is_no_gap():
    steps = step_contents(*trace())
    assert gaps(*trace(), steps)["total_ns"] == 30
    found = gaps(*trace(arrivals=(500, 500)), steps)
    assert (found["total_ns"], found["p50_ns"]) == (0, None)


def test_nothing_done_has_no_shares():
    instance = Instance(Requests([], []), (Worker(2, AffineCost()),), first_token="decode")
    none = np.zeros(0, np.int64)
    empty = in_order(Steps, *[none] * 5), Work(*[none] * 6)
    schedule = Schedule(instance.sha256, *empty, "x", "none")
    found = utilization(instance, schedule, SIZE, Peaks(1.0, 1.0))
    assert found["mfu"] is found["device_busy_share"] is None


@pytest.mark.parametrize("name", ["tiny", "tiny-gpt2", "tiny-gpt-neo", "tiny-qwen3"])
def test_the_size_of_a_model(name):
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    torch.set_num_threads(1)
    from tests.runner.torch_workers import torch_worker

    worker = torch_worker(name, slots=2, length=16)
    size = module.model_size(worker)
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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_a_gpu_or_its_driver_there_are_no_samples(device, monkeypatch):
    def fail():
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=fail))
    with NvmlSampler(device) as sampler:
        pass
    assert sampler.summary() is None


def test_samples_are_summed_up(monkeypatch):
    used = iter(range(100, 10**6))
    driver = SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda gpu: SimpleNamespace(gpu=50 + gpu),
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=next(used)),
        nvmlDeviceGetPowerUsage=lambda gpu: 300_000, nvmlDeviceGetClockInfo=lambda gpu, kind: 1500,
        NVML_CLOCK_SM=1,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    with NvmlSampler("cuda:2", interval_s=0.001) as sampler:
        while len(sampler.samples) < 3:
            time.sleep(0.001)
    found = sampler.summary()
    assert (found["busy_%"], found["power_w"]) == (52, 300)
    assert found["memory_bytes"] == 100 + found["samples"]  # the first reading was a trial
    assert found["clock_mhz"] == pytest.approx(1500)


def test_this_process_uses_memory():
    assert module.peak_bytes("cpu") > 2**20


def test_rates_follow_from_sizes_and_times(monkeypatch):
    pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    times = iter([2_000.0, 500.0])
    monkeypatch.setattr(module, "best_ns", lambda action, device: (action(), next(times))[1])
    found = module.measure_peaks("cpu", "float32", rows=8, size=100)
    assert found.flops_per_s == 2 * 8**3 * 1e9 / 2_000
    assert found.bytes_per_s == 2 * 100 * 1e9 / 500


def test_the_best_of_some_runs_is_taken_and_something_is_measured():
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    calls = []
    assert module.best_ns(lambda: calls.append(0), "cpu") >= 1
    assert len(calls) > 2
    torch.set_num_threads(1)
    found = module.measure_peaks("cpu", "float32", rows=64, size=2**16)
    assert min(found.flops_per_s, found.bytes_per_s) > 0
