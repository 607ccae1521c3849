"""What is recorded beside a run's steps: memory, readings of the GPU, use of its peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from orsched.runner.measured.nvml import NvmlSampler, peak_bytes
from orsched.runner.measured.peaks import measure_peaks
from orsched.runner.measured.utilization import model_size, utilization

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.worker.torch_worker import TorchWorker


class Watch:
    """Watches a torch worker in this process while a run lasts; a context manager.

    Args:
        worker: that runs.
        device, dtype: as torch names them.
        peaks: whether to measure, now, what the device can do at most.
    """

    def __init__(self, worker: TorchWorker, device: str, dtype: str, peaks: bool) -> None:
        self.worker, self.device = worker, device
        self.peaks = measure_peaks(device, dtype) if peaks else None
        self.sampler = NvmlSampler(device)

    def __enter__(self) -> Self:
        self.sampler.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.sampler.__exit__(*exc)

    def summary(self, instance: Instance, trace: Schedule) -> dict[str, Any]:
        """Return what a trace's ``run`` says of it."""
        found: dict[str, Any] = {"memory_bytes": peak_bytes(self.device)}
        if self.worker.graphs.mode != "off":
            found["graphs"] = graphs_summary(self.worker)
        samples = self.sampler.summary()
        if samples is not None:
            found["nvml"] = samples
        if self.peaks is not None:
            found["peaks"] = self.peaks._asdict()
            size = model_size(self.worker)
            found["utilization"] = utilization(instance, trace, size, self.peaks)
        return found


def graphs_summary(worker: TorchWorker) -> dict[str, int]:
    """Return how many graphs a worker has, how many steps ran as one, and what padding cost.

    ``left_out`` are sizes that the budget left no room for, ``padded_rows`` and ``padded_tokens``
    what was computed for nobody, in rounds and in chunks of prompts.
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
