"""Use of the device by a run: FLOPs and bytes of each step against the measured peaks.

Counted is the work that the requests need, whatever a worker does beyond it (padding, slots that
yield nothing): every token passes through all weights of the layers, the weights are read once
a forward pass, and every round reads the caches of its requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.step_contents import StepContents, step_contents
from orsched.metrics.client_time import client_time
from orsched.metrics.request_times import request_times
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.measured.peaks import Peaks

    Floats = NDArray[np.float64]


class ModelSize(NamedTuple):
    """What the work of a model is counted by.

    Attributes:
        layers, heads, kv_heads, head_dim: of its attention.
        weights: numbers in the matrices of all layers.
        output_weights: numbers in the matrix that turns a hidden state into scores of tokens.
        number_bytes: of a weight, and of a number in the caches.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    weights: int
    output_weights: int
    number_bytes: int

    @property
    def cache_bytes(self) -> int:
        """Bytes of a token in the caches."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.number_bytes


class StepWork(NamedTuple):
    """Work of each step: floating-point operations, and bytes moved to and from memory."""

    flops: Floats
    bytes: Floats


def model_size(worker: Any) -> ModelSize:
    """Return the size of a torch worker's model."""
    model, shape = worker.model, worker.shape
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
    and of the steps with a round (``decode``). ``gaps`` are the times between two steps while
    there was a request to serve.

    Args:
        instance: the trace's.
        trace: a schedule with measured times.
        size: of the model.
        peaks: of one worker's device.
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
