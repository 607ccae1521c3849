"""Work of steps and shares of the peaks, against figures worked out by hand."""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from orsched import AffineCost, Instance, Requests, Schedule, Steps, Work, Worker
from orsched.calibration.observed import step_contents
from orsched.runner import utilization as module
from orsched.runner.utilization import ModelSize, NvmlSampler, Peaks, gaps, step_work, utilization
from tests.in_order import in_order

ROOT = Path(__file__).parents[2]
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
    size = module.model_size(worker.model)
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


ENERGY = {  # millijoules at each reading; what is said after readings 1 to 4
    "counted": (lambda: iter(range(0, 10**9, 5_000)), 15.0),
    "not counted": (lambda: iter(()), 900.0),  # 300 W for 3 s
}


@pytest.mark.parametrize("energy", ENERGY)
def test_samples_are_those_of_the_gpu_that_torch_calls_by_the_index(energy, monkeypatch):
    """The driver numbers all GPUs; CUDA_VISIBLE_DEVICES=3,1 makes its 1 torch's cuda:1."""
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    visible = {"cuda:0": 3, "cuda:1": 1}
    asked = lambda device: SimpleNamespace(uuid=f"u{visible[device]}")  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_properties", asked)
    (counter, joules), used = ENERGY[energy], iter(range(100, 10**6))
    millijoules, moments = counter(), iter(range(0, 10**12, 10**9))
    driver = SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: int(uuid[len("GPU-u") :]),
        nvmlDeviceGetUtilizationRates=lambda gpu: SimpleNamespace(gpu=50 + gpu),
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=next(used)),
        nvmlDeviceGetPowerUsage=lambda gpu: 300_000, nvmlDeviceGetClockInfo=lambda gpu, kind: 1500,
        nvmlDeviceGetTotalEnergyConsumption=lambda gpu: next(millijoules), NVML_CLOCK_SM=1,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(module, "perf_counter_ns", lambda: next(moments))
    for device, busy in (("cuda:1", 51), ("cuda:0", 53)):
        sampler = NvmlSampler(device)
        for _ in range(4):
            sampler._note()
        found = sampler.summary()
        assert (found["busy_%"], found["power_w"], found["clock_mhz"]) == (busy, 300, 1500)
        assert (found["samples"], found["energy_j"]) == (4, joules)
    assert found["memory_bytes"] == 100 + 9  # after a trial of each sampler


def test_a_run_is_sampled_from_its_begin_to_its_end(monkeypatch):
    reading = module.Reading(0, 50, 100, 300_000, 1500, None)
    monkeypatch.setattr(module, "_reader", lambda device: lambda: reading)
    with NvmlSampler("cuda:0", interval_s=100) as sampler:
        while not sampler.samples:
            time.sleep(0.001)
    assert len(sampler.samples) == 2


def test_a_watched_run_has_its_use_in_words(monkeypatch):
    reading = module.Reading(0, 50, 100, 300_000, 1500, 0)
    readings = iter([reading, reading._replace(moment_ns=630, millijoules=4_000)])
    monkeypatch.setattr(module, "_reader", lambda device: None)
    monkeypatch.setattr(module, "measure_peaks", lambda where, dtype: Peaks(1e12, 2e11))
    watch = module.Watch(None, SIZE, "cpu", "float32")
    watch.sampler.samples += readings
    run = {"busy_share": 600 / 630, "gap_share": 0.0} | watch.summary(*trace())
    assert run["nvml"]["tokens_per_j"] == 10 / 4  # 4 and 6 tokens
    rows = {row["use of the device"].strip(): row["value"] for row in module.use_rows(run)}
    use = run["utilization"]
    assert rows == {
        "busy": "95.24 %", "gaps": "0.00 %", "kernels": "50.00 %", "power": "300.00 W",
        "tensor peak": f"{100 * use['mfu']:,.2f} %", "energy": "4.00 J", "tokens/J": "2.50",
        "prefill": f"{100 * use['prefill']['mfu']:,.2f} %",
        "memory peak": f"{100 * use['bandwidth_utilization']:,.2f} %",
        "decode": f"{100 * use['decode']['bandwidth_utilization']:,.2f} %",
    }  # fmt: skip
    page = (ROOT / "docs/run.md").read_text()
    assert all(f"| {name} |" in page for name in rows)
    assert module.use_rows({"busy_share": 1.0, "gap_share": 0.0}) == []


def as_vllm_counts(size, passes, vocabulary_weights):
    """Return what ``vllm:estimated_flops_per_gpu_total`` adds for passes of (tokens, context).

    By vllm/v1/metrics/perf.py: each token passes the matrices; a request's tokens attend to its
    whole context after the pass; one score for a chunk of a prompt, one for each token in a round.
    """
    pairs = sum(tokens * context for tokens, context in passes)
    tokens, attention = sum(tokens for tokens, _ in passes), 4 * size.layers * size.heads
    return 2 * size.weights * tokens + attention * size.head_dim * pairs + (
        2 * vocabulary_weights * len(passes)
    )  # fmt: skip


def test_flops_are_those_of_vllm_but_for_what_a_prompt_attends_to():
    work = step_work(SIZE, step_contents(*trace()))
    rounds = [(1, c) for c in (4, 6, 5, 7, 6, 8)], [(1, 9), (1, 10)]
    for flops, passes in zip(work.flops[1:].tolist(), rounds, strict=True):
        assert flops == as_vllm_counts(SIZE, passes, SIZE.output_weights)
    stage = as_vllm_counts(SIZE, [(3, 3), (5, 5)], SIZE.output_weights)
    later = 3 * 2 // 2 + 5 * 4 // 2  # pairs of a prompt token and one after it
    assert work.flops[0] == stage - 4 * SIZE.layers * SIZE.heads * SIZE.head_dim * later


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
