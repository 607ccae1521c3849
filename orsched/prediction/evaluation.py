"""How good a predictor is: by class, in tokens, as a distribution, as an order, and in time."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.prediction.distribution import class_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from orsched.common.columns import IntColumn
    from orsched.prediction.data import LabelledPrompts
    from orsched.prediction.distribution import LengthDistribution
    from orsched.prediction.predictor import LengthPredictor


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Return Kendall's tau-b of two columns: from -1 to 1, NaN where one of them is flat.

    Pairs that are tied in one of them count in neither direction (Kendall 1945). Raises
    ``InputError`` for columns of different lengths.
    """
    x = np.unique(np.asarray(first), return_inverse=True)[1].astype(np.int64)
    y = np.unique(np.asarray(second), return_inverse=True)[1].astype(np.int64)
    if len(x) != len(y):
        raise InputError(
            f"{len(x)} values beside {len(y)}", field="second", remedy="give as many values in both"
        )
    both = _ties(x * (len(y) + 1) + y)
    pairs, in_x, in_y = len(x) * (len(x) - 1) // 2, _ties(x), _ties(y)
    if in_x == pairs or in_y == pairs:
        return float("nan")
    order = np.lexsort((y, x))
    agreed = pairs - in_x - in_y + both - 2 * inversions(y[order])
    return float(agreed / np.sqrt(float(pairs - in_x)) / np.sqrt(float(pairs - in_y)))


def _ties(values: IntColumn) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def inversions(ranks: IntColumn) -> int:
    """Return the number of pairs whose earlier member is the larger; ranks are 0 or more.

    Two ranks are in the wrong order by the highest bit in which they differ: among those that
    agree above a bit, each 0 counts the 1s before it.
    """
    total = 0
    for bit in range(int(ranks.max(initial=0)).bit_length()):
        above = ranks >> (bit + 1)
        order = np.argsort(above, kind="stable")
        group, ones = above[order], (ranks[order] >> bit) & 1
        before = np.cumsum(ones) - ones
        starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
        within = before - np.repeat(before[starts], np.diff(np.append(starts, len(group))))
        total += int(within[ones == 0].sum())
    return total


PERCENTILES = (25, 50, 75, 99)  # where SSJF's five classes end (Qiu et al., arXiv 2404.08509)
BATCHES = (1, 64)  # sizes of the batches whose latency is measured

LATENCY_S = 10.0
"""Most seconds that the latency of a size of batches is measured for, but for the last call."""


class Latency(NamedTuple):
    """How long a prediction for a batch takes: the median over calls."""

    seconds: float
    calls: int


def evaluate(
    predictor: LengthPredictor,
    data: LabelledPrompts,
    *,
    edges: Sequence[float] | None = None,
    latency: bool = True,
) -> dict[str, Any]:
    """Return figures of a predictor on labelled prompts, which it should not have seen.

    ``accuracy`` and ``f1`` (mean over the classes that occur or are predicted) are of the most
    probable class; ``mae_tokens`` and ``tau`` (Kendall's tau-b) of the median; ``pinball`` is the
    mean pinball loss in tokens over the levels; ``coverage_A_B`` the share of replies between those
    quantiles; ``latency_B_ms`` the median time of a batch of B prompts, features included, over
    ``latency_B_calls`` calls: 300, or as many as begin within ``LATENCY_S``.

    Args:
        predictor: a fitted one.
        data: the rows.
        edges: where classes end, in tokens, increasing; None: percentiles 25, 50, 75 and 99 of
            ``data``, as in SSJF.
        latency: whether times are measured.

    Raises:
        InputError: no rows, or edges that do not increase.
    """
    if len(data) == 0:
        raise InputError("no rows to evaluate on", field="data", remedy="give more conversations")
    truth = data.output_tokens
    ends = np.unique(np.percentile(truth, PERCENTILES)) if edges is None else _edges(edges)
    found = predictor.predict(data.prompts)
    median = found.quantile(0.5)
    classes, wanted = found.buckets(ends).argmax(axis=1), class_of(truth, ends)
    figures = {
        "rows": len(data),
        "accuracy": float((classes == wanted).mean()),
        "f1": macro_f1(wanted, classes),
        "mae_tokens": float(np.abs(median - truth).mean()),
        "pinball": pinball(found, truth),
        **_coverage(found, truth),
        "tau": kendall_tau(median, truth),
    }
    if latency:
        for size in BATCHES:
            took = measured_latency(predictor, data, size)
            figures[f"latency_{size}_ms"] = 1e3 * took.seconds
            figures[f"latency_{size}_calls"] = took.calls
    return figures


def macro_f1(wanted: IntColumn, predicted: NDArray[Any]) -> float:
    """Return the mean over classes of the harmonic mean of precision and recall."""
    scores = []
    for name in np.union1d(wanted, predicted):
        hits = int(((wanted == name) & (predicted == name)).sum())
        named = int((wanted == name).sum() + (predicted == name).sum())
        scores.append(2 * hits / named)
    return float(np.mean(scores))


def pinball(found: LengthDistribution, truth: IntColumn) -> float:
    """Return the mean pinball loss over levels and rows, in tokens."""
    over = truth[:, None] - found.values
    return float(np.maximum(found.levels * over, (found.levels - 1) * over).mean())


def measured_latency(
    predictor: LengthPredictor,
    data: LabelledPrompts,
    size: int,
    calls: int = 300,
    seconds: float = LATENCY_S,
) -> Latency:
    """Return the median time of a prediction for a batch, over calls in a row.

    There are at most ``calls``, at least one, and none begins after so many seconds: a full-size
    encoder takes seconds for a batch on a CPU.
    """
    rows = np.resize(np.arange(len(data)), calls + size)
    times: list[float] = []
    began = perf_counter()
    while not times or (len(times) < calls and perf_counter() - began < seconds):
        first = len(times)
        batch = [data.prompts[i] for i in rows[first : first + size].tolist()]
        start = perf_counter()
        predictor.predict(batch)
        times.append(perf_counter() - start)
    return Latency(float(np.median(times)), len(times))


def _coverage(found: LengthDistribution, truth: IntColumn) -> dict[str, float]:
    """Return the share of replies between each quantile and the one opposite to it."""
    shares, last = {}, len(found.levels) - 1
    for low in range((last + 1) // 2):
        inside = (truth >= found.values[:, low]) & (truth <= found.values[:, last - low])
        name = f"coverage_{100 * found.levels[low]:g}_{100 * found.levels[last - low]:g}"
        shares[name] = float(inside.mean())
    return shares


def _edges(edges: Sequence[float]) -> NDArray[np.float64]:
    found = np.asarray(edges, np.float64)
    if found.ndim != 1 or not len(found) or not (found >= 1).all() or (np.diff(found) <= 0).any():
        raise InputError(
            "must be lengths that increase", field="edges", remedy="for example 58,147,280,499"
        )
    return found
