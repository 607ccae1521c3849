"""Settings of a worker, in a form that can be sent to another process."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_seconds
from orsched.runner.worker.graphs import Budget
from orsched.runner.worker.language_model import DTYPES

LONGEST_S = 1e6

MOST_THREADS = 1024
"""More than torch is asked for: where the system gives no more threads, the process dies."""

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


@dataclass(frozen=True)
class WorkerSettings:
    """Arguments of a ``TorchWorker``, and the threads it computes with.

    Attributes:
        model: a preset or a folder.
        slots: requests that are on the worker at one time.
        length: tokens of the longest request, prompt and output.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        dtype: of weights and caches.
        seed: of random weights.
        threads: on the CPU; None: as many as torch takes by itself.
        allow_pickle: whether weights in a folder may be pickled.
        stored_blocks, block_tokens: blocks of prefixes that are kept beside the slots (0: none),
            and tokens of each.

        graph_seconds, graph_bytes: what graphs of steps may take, on a GPU, before time 0.

    Raises:
        InputError: a value is out of range; the model is looked at by the worker itself.
    """

    model: str = "tiny"
    slots: int = 8
    length: int = 1024
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    threads: int | None = None
    allow_pickle: bool = False
    stored_blocks: int = 0
    block_tokens: int = 1
    graph_seconds: float = Budget().seconds
    graph_bytes: int = Budget().bytes

    def __post_init__(self) -> None:
        for name in ("slots", "length"):
            whole_number(getattr(self, name), name, minimum=1)
        whole_number(self.seed, "seed", minimum=0)
        whole_number(self.stored_blocks, "stored_blocks", minimum=0)
        whole_number(self.block_tokens, "block_tokens", minimum=1)
        require_budget(self.graph_seconds, self.graph_bytes)
        if self.threads is not None:
            whole_number(self.threads, "threads", minimum=1, maximum=MOST_THREADS)
        if not _DEVICE.fullmatch(self.device):
            raise InputError(
                f"unknown device {self.device!r}", field="device", remedy="cpu, cuda or cuda:0"
            )
        if self.dtype not in DTYPES:
            raise InputError(
                f"unknown type {self.dtype!r}", field="dtype", remedy=", ".join(DTYPES)
            )


def require_budget(seconds: float, size: int) -> None:
    """Raise ``InputError`` unless seconds and bytes can be a budget for graphs."""
    require_seconds(seconds, "graph_seconds", LONGEST_S)
    whole_number(size, "graph_bytes", minimum=0)


def one_each(settings: WorkerSettings, workers: int) -> list[WorkerSettings]:
    """Return the settings of several workers on one machine.

    On ``cuda`` each has a GPU of its own; on ``cpu`` they share the threads. A GPU that is named
    with its number is shared by all.

    Raises:
        InputError: there are more workers than GPUs.
    """
    whole_number(workers, "workers", minimum=1)
    if workers == 1:
        return [settings]
    if settings.device == "cuda":
        count = _gpus()
        if workers > count:
            raise InputError(
                f"{workers} workers, and {count} GPUs",
                field="workers",
                remedy="a worker per GPU, or name one with its number to share it: cuda:0",
            )
        return [replace(settings, device=f"cuda:{index}") for index in range(workers)]
    if settings.device == "cpu" and settings.threads is None:
        settings = replace(settings, threads=max(1, cores() // workers))
    return [settings] * workers


def cores() -> int:
    """Return how many CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpu(device: str) -> tuple[dict[str, str], str]:
    """Return the environment that shows a process one GPU only, and its name there.

    A process that sees one GPU cannot take memory on another one by accident.
    """
    if ":" not in device:
        return {}, device
    index = int(device.partition(":")[2])
    shown = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if shown == [""]:
        return {"CUDA_VISIBLE_DEVICES": str(index)}, "cuda:0"
    if index >= len(shown):
        raise InputError(
            f"no GPU {index} among CUDA_VISIBLE_DEVICES={','.join(shown)}",
            field="device",
            remedy="name one of them, counted from 0",
        )
    return {"CUDA_VISIBLE_DEVICES": shown[index]}, "cuda:0"


def _gpus() -> int:
    import torch

    count: int = torch.cuda.device_count()
    return count
