"""Settings of a worker, in a form that can be sent to another process."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, unavailable
from orsched.runner.worker.graphs import Budget
from orsched.runner.worker.language_model import DTYPES, settled

LONGEST_S = 1e6

MOST_THREADS = 1024
"""More than torch is asked for: where the system gives no more threads, the process dies."""

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")

AUTO = "auto"
"""Device or type of numbers that an engine chooses by itself; of torch it is settled before."""


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is to be: arguments of a ``TorchWorker``, or of an ``EngineDevice``.

    Raises ``InputError`` for a value out of range; the worker itself looks at the model.
    """

    model: str = "tiny"  # a preset or a folder
    slots: int = 8  # requests that are on the worker at one time
    length: int = 1024  # tokens of the longest request, prompt and output
    device: str = "cpu"  # ``cpu``, ``cuda`` or ``cuda:1``
    dtype: str = "float32"  # of weights and caches
    seed: int = 0  # of random weights
    threads: int | None = None  # on the CPU; None: as many as torch takes by itself
    allow_pickle: bool = False  # whether weights in a folder may be pickled
    stored_blocks: int = 0  # blocks of prefixes that are kept beside the slots
    block_tokens: int = 1  # of each such block
    graph_sizes: int = Budget().sizes  # the most graphs, on a GPU, captured before time 0
    graph_bytes: int = Budget().bytes  # the most memory for them
    worker: str = "torch"  # the engine: ``torch``, one of ``ENGINES``, or ``module:Class``
    step_tokens: int | None = None  # the most in a step; None: all slots full at once
    arguments: tuple[tuple[str, Any], ...] = ()  # of the engine's own, by name

    def __post_init__(self) -> None:
        for name in ("slots", "length"):
            whole_number(getattr(self, name), name, minimum=1)
        if self.step_tokens is not None:
            whole_number(self.step_tokens, "step_tokens", minimum=1)
        whole_number(self.seed, "seed", minimum=0)
        whole_number(self.stored_blocks, "stored_blocks", minimum=0)
        whole_number(self.block_tokens, "block_tokens", minimum=1)
        require_budget(self.graph_sizes, self.graph_bytes)
        if self.threads is not None:
            whole_number(self.threads, "threads", minimum=1, maximum=MOST_THREADS)
        other = self.worker != "torch"
        if not (_DEVICE.fullmatch(self.device) or (other and self.device == AUTO)):
            raise InputError(
                f"unknown device {self.device!r}", field="device", remedy="cpu, cuda or cuda:0"
            )
        if not (self.dtype in DTYPES or (other and self.dtype == AUTO)):
            raise InputError(
                f"unknown type {self.dtype!r}", field="dtype", remedy=", ".join(DTYPES)
            )


def require_budget(sizes: int, most_bytes: int) -> None:
    """Raise ``InputError`` unless a number of sizes and bytes can be a budget for graphs."""
    whole_number(sizes, "graph_sizes", minimum=0)
    whole_number(most_bytes, "graph_bytes", minimum=0)


def one_each(settings: WorkerSettings, workers: int) -> list[WorkerSettings]:
    """Return the settings of several workers on one machine.

    On ``cuda`` each has a GPU of its own; on ``cpu`` or ``auto`` they share the threads. A GPU that
    is named with its number is shared by all.
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
    if settings.device in ("cpu", AUTO) and settings.threads is None:
        settings = replace(settings, threads=max(1, cores() // workers))
    return [settings] * workers


def cores() -> int:
    """Return how many CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpu(device: str) -> tuple[dict[str, str], str]:
    """Return the environment that hides all other GPUs, and their memory, and its name there."""
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


class Chosen(NamedTuple):
    """A device that torch has, a GPU with its index, and the type of weights and caches on it."""

    device: str
    dtype: str

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")


def require_torch() -> None:
    """Raise ``MissingDependencyError`` where torch or transformers is missing."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise unavailable(
            error,
            "a torch worker needs torch and transformers: pip install 'orsched[runner]' "
            "(a run does without them on --worker virtual)",
        ) from None


def choose(device: str = "auto", dtype: str | None = None) -> Chosen:
    """Return a device by torch's name for it, or the one that ``auto`` stands for, settled.

    ``auto`` is a GPU where there is one. Without a type of numbers it is bfloat16 on a GPU, else
    float32.
    """
    require_torch()
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    else:
        try:
            device = settled(device)
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(
                f"torch cannot use {device!r}: {str(error).splitlines()[0]}",
                field="device",
                remedy="auto, cpu, cuda or cuda:1",
            ) from None
    usual = "bfloat16" if device.startswith("cuda") else "float32"
    return Chosen(settled(device), dtype or usual)


_NOISE = 0.25  # load that even an idle machine has


def load() -> float | None:
    """Return how many processes want a core, over the last minute; None where it is unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def contention(settings: WorkerSettings) -> list[str]:
    """Say, a sentence each, what slows steps: a core is wanted by each CPU thread, one by a GPU."""
    there, others = cores(), load()
    threads = settings.threads or there
    if settings.device != "cpu":
        threads = 1
    if threads > there:
        return [
            f"{threads} threads share {_cores(there)}: times will vary (--threads {there} or fewer)"
        ]
    if others is None or others <= _NOISE or threads + others <= there + _NOISE:
        return []
    free = max(0, int(there - others))
    remedy = f"--threads {free}, or" if settings.device == "cpu" and free else "wait for"
    return [
        f"others keep {others:.1f} of {_cores(there)} busy, the worker wants {threads}: steps will "
        f"take longer than on a free machine ({remedy} a calmer moment)"
    ]


def _cores(count: int) -> str:
    return f"{count} core" + "s" * (count != 1)
