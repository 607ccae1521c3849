"""Readings of a GPU during a run, where ``pynvml`` is installed."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any, Self

INTERVAL_S = 0.5


class NvmlSampler:
    """Samples a GPU in the background; a context manager.

    Where there is no ``pynvml``, no GPU or no driver it does nothing, and ``summary`` is None.

    Args:
        device: as torch names it.
        interval_s: between two samples.
    """

    def __init__(self, device: str, interval_s: float = INTERVAL_S) -> None:
        self.samples: list[tuple[int, int, int, int]] = []
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

    def _sample(self) -> None:
        while not self._stop.is_set():
            self.samples.append(self._read())
            self._stop.wait(self._interval)

    def summary(self) -> dict[str, Any] | None:
        """Return means over the samples, and the most memory; None without any.

        ``busy_%`` is the share of time in which a kernel ran, as the driver says.
        """
        if not self.samples:
            return None
        busy, used, watt, clock = (list(column) for column in zip(*self.samples, strict=True))
        n = len(busy)
        return {
            "samples": n,
            "busy_%": sum(busy) / n,
            "memory_bytes": max(used),
            "power_w": sum(watt) / n / 1000,
            "clock_mhz": sum(clock) / n,
        }


def _reader(device: str) -> Any:
    """Return a function that samples busy share, bytes used, milliwatts and MHz, or None."""
    if not device.startswith("cuda"):
        return None
    try:
        pynvml: Any = import_module("pynvml")
        pynvml.nvmlInit()
        index = int(device.partition(":")[2] or 0)
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)

        def read() -> tuple[int, int, int, int]:
            return (
                int(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
                int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used),
                int(pynvml.nvmlDeviceGetPowerUsage(gpu)),
                int(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
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
