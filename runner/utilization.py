"""What is recorded beside a run's steps: memory, readings of the GPU, use of its peaks."""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from orsched.calibration.observed import StepContents, step_contents
from orsched.common.units import NS_PER_S
from orsched.metrics.summary import client_time
from orsched.metrics.timeline import Timeline, yielded_tokens
from orsched.metrics.token_times import request_times

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.worker.torch_worker import TorchWorker

    Floats = NDArray[np.float64]


SIZES = {"cuda": (8192, 2**30), "cpu": (1024, 2**27)}
"""Rows of square matrices, and bytes of a copy, by type of device."""

REPEATS = 10


class Peaks(NamedTuple):
    """The best that was seen."""

    flops_per_s: float  # of a product of square matrices; a multiplication and an addition are two
    bytes_per_s: float  # of a copy, bytes read and bytes written together


def measure_peaks(
    device: str, dtype: str, rows: int | None = None, size: int | None = None
) -> Peaks:
    """Measure a device's peaks: a product of matrices [rows, rows], a copy of ``size`` bytes.

    The copy must be larger than the caches of the device.
    """
    import torch

    kind = torch.device(device).type
    rows = SIZES[kind][0] if rows is None else rows
    size = SIZES[kind][1] if size is None else size
    numbers = getattr(torch, dtype)
    a = torch.ones((rows, rows), dtype=numbers, device=device)
    b, c = a.clone(), a.clone()
    product = best_ns(lambda: torch.matmul(a, b, out=c), device)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    copy = best_ns(lambda: target.copy_(source), device)
    return Peaks(2.0 * rows**3 * 1e9 / product, 2.0 * size * 1e9 / copy)


def best_ns(action: Callable[[], Any], device: str) -> float:
    """Return the shortest time that an action took on a device, in nanoseconds.

    On a CPU that is CPU time of this thread, as that of steps is.
    """
    import torch

    if torch.device(device).type != "cuda":
        action()
        times = []
        for _ in range(REPEATS):
            begin = thread_time_ns()
            action()
            times.append(thread_time_ns() - begin)
        return float(max(1, min(times)))
    for _ in range(3):
        action()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        action()
        mark.record()
    torch.cuda.synchronize(device)
    return min(float(a.elapsed_time(b)) for a, b in pairwise(marks)) * 1e6


INTERVAL_S = 0.5


class Reading(NamedTuple):
    """What the driver says of a GPU at a moment."""

    moment_ns: int
    busy: int  # per cent of a short while before in which a kernel ran
    bytes: int  # of memory in use, by all processes
    milliwatts: int
    mhz: int
    millijoules: int | None  # since the driver was loaded; None: this GPU does not count them


class NvmlSampler:
    """Samples a GPU in the background; a context manager.

    Where there is no ``pynvml``, no GPU or no driver it does nothing, and ``summary`` is None.
    """

    def __init__(self, device: str, interval_s: float = INTERVAL_S) -> None:
        self.samples: list[Reading] = []
        self._interval = interval_s
        self._stop = threading.Event()
        self._read = _reader(device)
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        if self._read is not None:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._read is not None:
            self._thread.join()
            self._note()

    def _sample(self) -> None:
        while not self._stop.is_set():
            self._note()
            self._stop.wait(self._interval)

    def _note(self) -> None:
        assert self._read is not None
        with suppress(Exception):  # the run does not depend on what the driver says
            self.samples.append(self._read())

    def summary(self) -> dict[str, Any] | None:
        """Return means, ``busy_%`` of time in a kernel, the most memory used, and the energy.

        ``energy_j`` is what the GPU counted from the first sample to the last, or, of a GPU that
        does not count, the mean power times that time.
        """
        if not self.samples:
            return None
        first, last, n = self.samples[0], self.samples[-1], len(self.samples)
        power_w = sum(sample.milliwatts for sample in self.samples) / n / 1000
        energy_j = power_w * (last.moment_ns - first.moment_ns) / NS_PER_S
        if first.millijoules is not None and last.millijoules is not None:
            energy_j = (last.millijoules - first.millijoules) / 1000
        return {
            "samples": n,
            "busy_%": sum(sample.busy for sample in self.samples) / n,
            "memory_bytes": max(sample.bytes for sample in self.samples),
            "power_w": power_w,
            "clock_mhz": sum(sample.mhz for sample in self.samples) / n,
            "energy_j": energy_j,
        }


def _reader(device: str) -> Callable[[], Reading] | None:
    """Return a function that reads a GPU, or None.

    The driver numbers all GPUs in its own order, torch those of CUDA_VISIBLE_DEVICES in another:
    what both call by one name is the GPU's UUID.
    """
    if not device.startswith("cuda"):
        return None
    try:
        import torch

        pynvml: Any = import_module("pynvml")
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(
            f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        )

        def energy() -> int | None:
            try:
                return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu))
            except Exception:  # older GPUs do not count it
                return None

        def read() -> Reading:
            return Reading(
                perf_counter_ns(),
                int(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
                int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used),
                int(pynvml.nvmlDeviceGetPowerUsage(gpu)),
                int(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
                energy(),
            )

        read()
    except Exception:  # no package, no driver, no permission: the run does not depend on it
        return None
    return read


def peak_bytes(device: str) -> int:
    """Return the most memory that torch held on a GPU, or that this process held."""
    if device.startswith("cuda"):
        import torch

        most: int = torch.cuda.max_memory_allocated(device)
        return most
    import resource
    import sys

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


class Watch:
    """Watches a worker in this process while a run lasts; a context manager.

    Args:
        worker: the torch worker, if it is one.
        size: of its model; None: without its use of the peaks, which are measured now.
        where: its device by torch's name, with an index.
        dtype: of its weights.
    """

    def __init__(
        self, worker: TorchWorker | None, size: ModelSize | None, where: str, dtype: str
    ) -> None:
        self.worker, self.size, self.where = worker, size, where
        self.peaks = None if size is None else measure_peaks(where, dtype)
        self.sampler = NvmlSampler(where)

    def __enter__(self) -> Self:
        self.sampler.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.sampler.__exit__(*exc)

    def summary(self, instance: Instance, trace: Schedule) -> dict[str, Any]:
        """Return what a trace's ``run`` says of it."""
        found: dict[str, Any] = {"memory_bytes": peak_bytes(self.where)}
        if self.worker is not None and self.worker.graphs.mode != "off":
            found["graphs"] = graphs_summary(self.worker)
        samples = self.sampler.summary()
        if samples is not None:
            tokens = int(yielded_tokens(instance, trace).sum())
            samples["tokens_per_j"] = _share(tokens, samples["energy_j"])
            found["nvml"] = samples
        if self.peaks is not None and self.size is not None:
            found["peaks"] = self.peaks._asdict()
            found["utilization"] = utilization(instance, trace, self.size, self.peaks)
        return found


_USE: tuple[tuple[str, str, tuple[str, ...], float, str], ...] = (
    ("busy", "%", ("busy_share",), 100, "time in passes, of workers x makespan"),
    ("gaps", "%", ("gap_share",), 100, "time between passes that no arrival explains, of the same"),
    ("kernels", "%", ("nvml", "busy_%"), 1, "time in which a kernel ran, by the GPU's driver"),
    ("tensor peak", "%", ("utilization", "mfu"), 100, "FLOPs needed / measured FLOP/s, in passes"),
    ("  prefill", "%", ("utilization", "prefill", "mfu"), 100, "in passes without a round"),
    ("memory peak", "%", ("utilization", "bandwidth_utilization"), 100,
     "bytes needed / bytes/s of a measured copy, in passes"),
    ("  decode", "%", ("utilization", "decode", "bandwidth_utilization"), 100,
     "in passes with a round"),
    ("power", "W", ("nvml", "power_w"), 1, "mean draw, by the GPU's driver"),
    ("energy", "J", ("nvml", "energy_j"), 1, "drawn during the run, by the GPU's driver"),
    ("tokens/J", "", ("nvml", "tokens_per_j"), 1, "tokens yielded / energy"),
)  # fmt: skip
"""Figures of a device's use: name, unit, place in a trace's ``run`` block, factor, definition."""


def use_rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of a device's use that a trace's ``run`` block has: a row with words each.

    None where nothing but the steps is known of the device.
    """
    rows = []
    for name, unit, path, factor, words in _USE:
        value: Any = run
        for key in path:
            value = None if value is None else value.get(key)
        if value is not None:
            text = f"{factor * value:,.2f} {unit}".strip()
            rows.append({"use of the device": name, "value": text, "is": words})
    return rows if len(rows) > 2 else []


def graphs_summary(worker: TorchWorker) -> dict[str, int]:
    """Return how many graphs a worker has, how many steps ran as one, and what padding cost.

    ``left_out`` are sizes that the budget left no room for, ``padded_rows`` and ``padded_tokens``
    what was computed for no request, in rounds and in chunks of prompts.
    """
    graphs = worker.graphs
    return {
        "graphs": len(graphs.graphs),
        "left_out": graphs.left_out,
        "steps": worker.forward_passes,
        "replays": graphs.replays,
        "padded_rows": worker.padded_rows,
        "padded_tokens": worker.padded_tokens,
    }


class ModelSize(NamedTuple):
    """What the work of a model is counted by."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    weights: int  # numbers in the matrices of all layers
    output_weights: int  # numbers in the matrix that turns a hidden state into scores of tokens
    number_bytes: int  # of a weight, and of a number in the caches

    @property
    def cache_bytes(self) -> int:
        """Bytes of a token in the caches."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.number_bytes


class StepWork(NamedTuple):
    """Work of each step: floating-point operations, and bytes moved to and from memory."""

    flops: Floats
    bytes: Floats


def model_size(model: Any) -> ModelSize:
    """Return the size of a model of transformers, loaded or on paper."""
    from orsched.runner.worker.language_model import shape_of

    shape = shape_of(model.config)
    output = model.get_output_embeddings().weight
    names = ("embed_tokens", "wte", "wpe", "lm_head")
    matrices = [
        part
        for name, part in model.named_parameters()
        if part.dim() >= 2 and name.split(".")[-2] not in names
    ]
    return ModelSize(
        shape.layers,
        model.config.num_attention_heads,
        shape.kv_heads,
        shape.head_dim,
        sum(part.numel() for part in matrices),
        output.numel(),
        output.itemsize,
    )


def step_work(size: ModelSize, steps: StepContents) -> StepWork:
    """Return what each step needs: all rounds of a run of rounds together."""
    rounds = np.where(steps.active > 0, steps.rounds, 0)
    yielded = (steps.active * rounds).astype(np.float64)
    contexts = rounds * (steps.context_sum + steps.active * (rounds - 1) / 2)
    tokens = steps.tokens + yielded
    scored = steps.prompts + yielded
    attention = 4.0 * size.layers * size.heads * size.head_dim
    flops = 2.0 * size.weights * tokens + 2.0 * size.output_weights * scored
    flops += attention * (steps.attended + contexts)
    passes = np.maximum(rounds, 1)
    moved = size.number_bytes * float(size.weights + size.output_weights) * passes
    moved = moved + float(size.cache_bytes) * (contexts + tokens + steps.cached)
    return StepWork(flops, moved)


def utilization(
    instance: Instance, trace: Schedule, size: ModelSize, peaks: Peaks
) -> dict[str, Any]:
    """Return what a run made of its device, as plain values.

    ``device_busy_share`` is the share of the wall time in which a step ran. ``mfu`` are needed
    FLOPs by the measured peak of matrix products, ``bandwidth_utilization`` needed bytes by the
    measured rate of a copy, both over the time of the steps: of all, of the stages (``prefill``)
    and of the steps with a round (``decode``). ``gaps`` are the times between two steps while there
    was a request to serve. ``peaks`` are those of one worker's device.
    """
    steps = step_contents(instance, trace)
    work, durations = step_work(size, steps), steps.end_ns - steps.start_ns
    wall = trace.makespan_ns * len(instance.workers)
    busy = int(durations.sum())
    client_ns, _ = client_time(Timeline(instance, trace))
    clients = sum(worker.clients for worker in instance.workers)
    decode = steps.active > 0
    return {
        "wall_ns": trace.makespan_ns,
        "steps": len(durations),
        "device_busy_share": _share(busy, wall),
        "slot_utilization": _share(client_ns, clients * trace.makespan_ns),
        "gaps": gaps(instance, trace, steps),
        **_rates(work, durations, peaks, np.ones(len(durations), bool)),
        "prefill": _rates(work, durations, peaks, ~decode),
        "decode": _rates(work, durations, peaks, decode),
    }


def _rates(
    work: StepWork, durations: IntColumn, peaks: Peaks, kept: NDArray[np.bool_]
) -> dict[str, Any]:
    time = int(durations[kept].sum())
    flops, moved = float(work.flops[kept].sum()), float(work.bytes[kept].sum())
    return {
        "time_ns": time,
        "flops": flops,
        "bytes": moved,
        "mfu": _share(flops * 1e9, peaks.flops_per_s * time),
        "bandwidth_utilization": _share(moved * 1e9, peaks.bytes_per_s * time),
    }


def gaps(instance: Instance, trace: Schedule, steps: StepContents) -> dict[str, Any]:
    """Return the time between a worker's steps while a request was there, in nanoseconds.

    ``total_ns``, ``share`` of the wall time, ``count``, ``p50_ns`` and ``max_ns`` of one.
    """
    same = steps.worker[1:] == steps.worker[:-1]
    ends, starts = steps.end_ns[:-1][same], steps.start_ns[1:][same]
    finish = request_times(instance, trace)["finish_ns"]
    arrived = np.searchsorted(np.sort(instance.requests.arrival_ns), ends, side="right")
    finished = np.searchsorted(np.sort(finish[finish >= 0]), ends, side="right")
    found = np.sort((starts - ends)[arrived > finished])
    total = int(found.sum())
    return {
        "count": len(found),
        "total_ns": total,
        "share": _share(total, trace.makespan_ns * len(instance.workers)),
        "p50_ns": int(found[(len(found) - 1) // 2]) if len(found) else None,
        "max_ns": int(found[-1]) if len(found) else None,
    }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
