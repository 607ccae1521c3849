"""What a device can do at most, measured: multiplications in matrices, and bytes copied."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {"cuda": (8192, 2**30), "cpu": (1024, 2**27)}
"""Rows of square matrices, and bytes of a copy, by type of device."""

REPEATS = 10


class Peaks(NamedTuple):
    """The best that was seen.

    Attributes:
        flops_per_s: of a product of two square matrices; a multiplication and an addition are two.
        bytes_per_s: of a copy, bytes read and bytes written together.
    """

    flops_per_s: float
    bytes_per_s: float


def measure_peaks(
    device: str, dtype: str, rows: int | None = None, size: int | None = None
) -> Peaks:
    """Measure a device's peaks.

    Args:
        device: as torch names it.
        dtype: of the matrices.
        rows: of the square matrices.
        size: bytes of the copy; more than the caches of the device hold.
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
    """Return the shortest time that an action took on a device, in nanoseconds."""
    import torch

    if torch.device(device).type != "cuda":
        action()
        times = []
        for _ in range(REPEATS):
            begin = perf_counter_ns()
            action()
            times.append(perf_counter_ns() - begin)
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
