"""Numbers that change over time: clients by use, and KV blocks, as step functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.metrics.intervals import covered_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.metrics.timeline import Timeline

USES = ("prefill", "decode", "invalid", "paused")


class Curve(NamedTuple):
    """A step function of time: ``value[k]`` holds from ``time_ns[k]`` on, and 0 before the first.

    Times rise strictly, and each is a change.
    """

    time_ns: IntColumn
    value: IntColumn


def curve_of(moments: IntColumn, changes: IntColumn) -> Curve:
    """Return the running sum of changes at moments, in any order."""
    times, place = np.unique(moments, return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, place, changes)
    kept = change != 0
    return Curve(times[kept], np.cumsum(change)[kept])


def interval_curve(start_ns: IntColumn, end_ns: IntColumn, weight: IntColumn | int = 1) -> Curve:
    """Return the weight of all intervals that hold each moment."""
    weights = np.broadcast_to(np.asarray(weight, np.int64), start_ns.shape)
    return curve_of(np.concatenate([start_ns, end_ns]), np.concatenate([weights, -weights]))


def sum_of(curves: Sequence[Curve]) -> Curve:
    """Return the sum of step functions."""
    empty = np.empty(0, np.int64)
    moments = np.concatenate([empty, *(curve.time_ns for curve in curves)])
    changes = np.concatenate([empty, *(np.diff(curve.value, prepend=0) for curve in curves)])
    return curve_of(moments, changes)


def means(curve: Curve, borders_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean between each two of some rising moments, from 0 on."""
    if len(curve.time_ns) == 0:
        return np.zeros(len(borders_ns) - 1)
    times = np.concatenate([[0], curve.time_ns, [max(borders_ns[-1], curve.time_ns[-1])]])
    values = np.concatenate([[0], curve.value]).astype(np.float64)
    areas = np.concatenate([[0.0], np.cumsum(np.diff(times) * values)])
    until = np.interp(borders_ns, times.astype(np.float64), areas)
    found: NDArray[np.float64] = np.diff(until) / np.maximum(np.diff(borders_ns), 1e-9)
    return found


def client_curves(line: Timeline) -> dict[str, Curve]:
    """Return how many clients are in each of ``USES``, over all workers.

    ``prefill`` and ``decode`` are busy clients; ``paused`` ones hold a request that the worker's
    step, if there is one, does not serve.
    """
    caches = line.caches
    counts = {
        "prefill": line.by_place(line.batches.size),
        "decode": caches.decoding,
        "invalid": caches.active - caches.decoding,
    }
    curves = {
        name: interval_curve(line.start_ns, line.end_ns, count) for name, count in counts.items()
    }
    served = sum_of(list(curves.values()))
    held = interval_curve(line.start_ns[line.stay_first], line.end_ns[line.stay_last])
    curves["paused"] = sum_of([held, Curve(served.time_ns, -served.value)])
    return curves


def block_curves(instance: Instance, line: Timeline) -> list[Curve | None]:
    """Return the KV blocks held on each worker; None for those without a memory model.

    Blocks that are set aside are held from the prefill's start to the end of the stay; paged ones
    are those after the last round of each step, and stay while the worker has a request and no
    step.
    """
    table, request = instance.requests, line.stay_request
    tokens = table.prompt_tokens[request] + table.output_tokens[request]
    paged = any(w.memory is not None and w.memory.is_paged for w in instance.workers)
    blocks = line.caches.blocks if paged else np.empty(0, np.int64)
    curves: list[Curve | None] = []
    for index, worker in enumerate(instance.workers):
        if worker.memory is None:
            curves.append(None)
        elif worker.memory.is_paged:
            curves.append(_paged_curve(line, blocks, index))
        else:
            mine = np.flatnonzero(line.stay_worker == index)
            start, end = line.start_ns[line.stay_first[mine]], line.end_ns[line.stay_last[mine]]
            held = -(-tokens[mine] // worker.memory.block_tokens)
            curves.append(interval_curve(start, end, held))
    return curves


def _paged_curve(line: Timeline, blocks: IntColumn, worker: int) -> Curve:
    """Blocks in each step of a worker; none from the end of a step after which no request stays."""
    low, high = np.searchsorted(line.worker, [worker, worker + 1])
    places = np.arange(low, high)
    stays = np.flatnonzero(line.stay_worker == worker)
    first, last = line.stay_first[stays] - low, line.stay_last[stays] - low
    empty = places[covered_sum(len(places), first, last - 1) == 0]
    moments = np.concatenate([line.start_ns[places], line.end_ns[empty]])
    value = np.concatenate([blocks[places], np.zeros_like(empty)])
    # At one moment the later step counts; a step follows the end of the one before.
    order = np.lexsort((np.concatenate([2 * places, 2 * empty + 1]), moments))
    return curve_of(moments[order], np.diff(value[order], prepend=0))
