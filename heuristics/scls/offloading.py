"""Batches by the DP of Algorithm 1 or in the order given, each to the least loaded worker.

The longest batch is offloaded first (SCLS, section 4.5).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import frame, int_column, whole_number
from orsched.common.errors import InputError
from orsched.common.registry import attached
from orsched.costs import BilinearCost, as_bilinear
from orsched.costs.bilinear import COEFFICIENTS
from orsched.costs.exact import FS_PER_NS, MAX_COEFFICIENT_FS
from orsched.models.batch import DEEPSPEED, batch
from orsched.models.batch.batcher import serving_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.workers import Worker
    from orsched.simulator.policy import View


LONGEST = 2048  # other cost models are sampled up to the longest total of the paper's settings


def bilinear_of(worker: Worker) -> BilinearCost:
    """Return the bilinear model by which a worker's batches are estimated.

    A bilinear cost is its own estimate. Any other is sampled at the four corners of 1 to J requests
    by 1 to 2,048 tokens, and the bilinear function through them is taken: exact where the cost is
    one, as the affine model is. Negative coefficients count as 0, so that no estimate is negative.
    """
    cost, known = worker.cost, as_bilinear(worker.cost)
    if known is not None:
        names = [f.name for f in fields(known) if f.name.endswith("_fs")]
        negative = {name: 0 for name in names if getattr(known, name) < 0}
        return replace(known, **negative) if negative else known
    most, longest = _ranges(worker)
    rounds = _through_corners(lambda n, c: cost.round_ns(n, n * c, c), max(2, worker.clients))
    if longest < 2:
        stages = [0, 0, 0, min(MAX_COEFFICIENT_FS, cost.prefill_ns([1]) * FS_PER_NS)]
    else:
        stages = _through_corners(lambda n, c: cost.prefill_ns([c] * n), most, longest)
    return BilinearCost(**dict(zip(COEFFICIENTS, (*stages, *rounds), strict=True)))


def _ranges(worker: Worker) -> tuple[int, int]:
    """Return how many requests of how many tokens a sampled prefill stage may have."""
    limit = worker.prefill_limit
    most = min(64, max(2, worker.clients))
    if limit is None:
        return most, LONGEST
    longest = min(LONGEST, limit // 2)
    return (max(2, min(most, limit // longest)) if longest else 2), longest


def _through_corners(
    value_ns: Callable[[int, int], int], most: int, longest: int = LONGEST
) -> list[int]:
    """Return the four coefficients, in femtoseconds, through the values at the corners."""
    low, long = value_ns(1, 1) * FS_PER_NS, value_ns(1, longest) * FS_PER_NS
    many, both = value_ns(most, 1) * FS_PER_NS, value_ns(most, longest) * FS_PER_NS
    wide, tall = most - 1, longest - 1
    cross = (both - many - long + low) // (wide * tall)
    each = (many - low) // wide - cross
    token = (long - low) // tall - cross
    alone = low - cross - each - token
    return [min(max(value, 0), MAX_COEFFICIENT_FS) for value in (cross, each, token, alone)]


MILLION = 1_000_000
RULES = ("worker", "deepspeed")


class SliceMemory:
    """The largest batch that every worker can serve for a slice, by the tokens it is padded to.

    Under paged memory a batch of N padded to L + S tokens holds ``N ceil((L + S) / block)`` blocks
    (eq. 5, in blocks); under ``whole`` memory each request is set aside the output limit instead of
    the slice. Clients bound the batch as well; a cap on prefill stages does not: there can be
    several. A request alone is always admitted: it is served as long as its true tokens fit.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        slice_tokens: int,
        output_limit_tokens: int,
        rule: str = "worker",
        share: float = 1.0,
    ) -> None:
        self.workers = list(dict.fromkeys(workers))
        self.slice_tokens = slice_tokens  # S, rounds of a slice
        self.output_limit_tokens = output_limit_tokens
        self.table = DEEPSPEED if rule == "deepspeed" else None
        self.share_ppm = round(share * MILLION)
        self.known: dict[int, int] = {}

    def most(self, tokens: IntColumn) -> IntColumn:
        """Return the most requests in a batch padded to these tokens (longest + slice)."""
        sizes = np.full(len(tokens), min(w.clients for w in self.workers), dtype=np.int64)
        if self.table is not None:
            sizes = np.minimum(sizes, self.table.most(tokens))
        for worker in self.workers:
            self._bound(worker, tokens, sizes)
        return np.maximum(sizes, 1)

    def _bound(self, worker: Worker, tokens: IntColumn, sizes: IntColumn) -> None:
        memory = worker.memory
        if memory is not None:
            held = tokens
            if not memory.is_paged:
                held = tokens - self.slice_tokens + self.output_limit_tokens
            blocks = self.share_ppm * memory.blocks // MILLION
            np.minimum(sizes, blocks // -(-held // memory.block_tokens), out=sizes)

    def most_of(self, longest: int) -> int:
        """Return the most requests in a batch whose longest has this many tokens."""
        found = self.known.get(longest)
        if found is None:
            found = int(self.most(np.array([longest + self.slice_tokens], dtype=np.int64))[0])
            self.known[longest] = found
        return found


class SlicedBatch(NamedTuple):
    """Requests that are served together for a slice."""

    requests: list[int]  # their rows
    longest: int  # the tokens that all are padded to
    serving_ns: int  # estimated serving time, by the cost that the batcher was given


class Batcher:
    """Cuts a pool of requests into batches that fit into memory."""

    def __init__(
        self, cost: BilinearCost, memory: SliceMemory, batch_size: int | None, adaptive: bool
    ) -> None:
        self.cost = cost
        self.memory = memory
        self.batch_size = batch_size  # most requests in a batch, or None
        self.slice_tokens = memory.slice_tokens
        self.adaptive = adaptive

    def cut(self, requests: Sequence[int], lengths: Sequence[int]) -> list[SlicedBatch]:
        """Return the batches of requests with these lengths (prompt and yielded tokens)."""
        return (self._least_time if self.adaptive else self._in_order)(requests, lengths)

    def _least_time(self, requests: Sequence[int], lengths: Sequence[int]) -> list[SlicedBatch]:
        """Cut for the least total serving time; as in Algorithm 1, the longest come first."""
        column = np.array(lengths, dtype=np.int64)
        found = batch(column, self.cost, self.slice_tokens, self.memory, self.batch_size)
        ordered = np.array(requests, dtype=np.int64)[found.order].tolist()
        cuts = found.boundaries.tolist()
        times = found.serving_ns.tolist()
        longest = found.longest.tolist()
        return [
            SlicedBatch(ordered[cuts[i] : cuts[i + 1]], longest[i], times[i])
            for i in reversed(range(len(longest)))
        ]

    def _in_order(self, requests: Sequence[int], lengths: Sequence[int]) -> list[SlicedBatch]:
        """Cut by count, in the order given."""
        batches, start, end = [], 0, len(requests)
        while start < end:
            count, longest = self.front(lengths[i] for i in range(start, end))
            batches.append(self.price(requests[start : start + count], longest))
            start += count
        return batches

    def front(self, lengths: Iterable[int]) -> tuple[int, int]:
        """Return how many requests from the front make a batch, and the longest of them."""
        count = longest = 0
        for length in lengths:
            padded = max(longest, length)
            if count and (count == self.batch_size or count >= self.memory.most_of(padded)):
                break
            count, longest = count + 1, padded
        return count, longest

    def price(self, requests: Sequence[int], longest: int) -> SlicedBatch:
        """Return the batch of these requests with its estimated time (eq. 1-4)."""
        time_ns = serving_ns(self.cost, len(requests), longest, self.slice_tokens)
        return SlicedBatch(list(requests), longest, time_ns)


MAX_COST = 2**53


def max_min(costs: Sequence[int], loads: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (job, worker): the job of largest cost next, to the worker of least load, which grows
    by that cost; of equals the first."""
    heap = [(load, worker) for worker, load in enumerate(loads)]
    heapify(heap)
    for job in sorted(range(len(costs)), key=lambda job: -costs[job]):
        worker = heap[0][1]
        loads[worker] += costs[job]
        heapreplace(heap, (loads[worker], worker))
        yield job, worker


@dataclass(frozen=True)
class Offloading:
    """Jobs on workers, and how far from the least largest load they can be.

    Attributes:
        makespan: the largest load.
        bound: no assignment has a smaller one: the largest load at the beginning, the mean of all
            loads with every job where it costs least, and each job on its best worker.
        assignment: worker of each job.
        loads: of each worker at the end.
        costs: of each job, on its worker.
        start: loads at the beginning.
    """

    makespan: int
    bound: int
    assignment: list[int] = field(repr=False)
    loads: list[int] = field(repr=False)
    costs: list[int] = field(repr=False)
    start: list[int] = field(repr=False)

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row for each job: its worker, and its cost there."""
        jobs = range(len(self.costs))
        return frame({"job": jobs, "cost": self.costs, "worker": self.assignment})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the load of each worker, a bar for each job, and the bound; return the axes."""
        drawn: Axes = attached("loads_chart")(
            self.costs, self.assignment, self.start, self.bound, "worker", ax
        )
        return drawn


def offload(
    costs: ArrayLike, workers: int | None = None, loads: Sequence[int] | None = None
) -> Offloading:
    """Assign jobs to workers, the largest cost first, each to the least loaded (SCLS, eq. 11).

    >>> found = offload([7, 5, 4, 3], workers=2)
    >>> found.assignment, found.loads, found.bound
    ([0, 1, 1, 0], [10, 9], 10)

    With equal workers that begin empty, the largest load is at most 4/3 - 1/(3 W) of the least
    possible (Graham 1969).

    Args:
        costs: (n,) whole numbers of at least 0 in a unit of your choice, or (n, W): the cost of
            each job on each worker. Jobs then go by their least cost.
        workers: W; default: as many as loads or columns of costs.
        loads: (W,) what each worker has to do already; default: nothing.

    Raises:
        InputError: a number is not whole or below 0, the counts do not agree, or no argument says
            how many workers there are.
    """
    table = _table(costs)
    begun = None if loads is None else int_column(loads, "loads", maximum=MAX_COST).tolist()
    count = _workers(workers, begun, table)
    start = begun or [0] * count
    now, place = list(start), dict[int, int]()
    if table is None:
        least = int_column(costs, "costs", maximum=MAX_COST).tolist()
        place, own = dict(max_min(least, now)), least
        alone = min(start) + max(least, default=0)
    else:
        least = table.min(axis=1).tolist()
        for job in sorted(range(len(table)), key=lambda job: -least[job]):
            place[job] = min(range(count), key=lambda w: (now[w], w))
            now[place[job]] += int(table[job, place[job]])
        own = [int(table[job, place[job]]) for job in range(len(table))]
        alone = int((table + np.array(start)).min(axis=1).max())
    bound = max(*start, -(-(sum(start) + sum(least)) // count), alone)
    return Offloading(max(now), bound, [place[job] for job in range(len(own))], now, own, start)


def _table(costs: ArrayLike) -> NDArray[np.int64] | None:
    """Return costs of each job on each worker; None where each job has one, or there is none."""
    plain = isinstance(costs, (list, tuple)) or (isinstance(costs, np.ndarray) and costs.ndim == 2)
    rows: list[Any] = list(costs) if plain else []  # type: ignore[arg-type]
    if not rows or not all(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        return None
    found = []
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            problem = f"{len(row)} costs where the first job has {len(rows[0])}"
            remedy = "give each job a cost on every worker"
            raise InputError(problem, row=number, field="costs", remedy=remedy)
        try:
            found.append(int_column(row, "costs", maximum=MAX_COST))
        except InputError as error:  # its row is the worker
            raise InputError(
                error.problem, row=number, field="costs", remedy=error.remedy
            ) from None
    return np.stack(found)


def _workers(given: int | None, loads: list[int] | None, table: NDArray[np.int64] | None) -> int:
    """Return how many workers there are, by all that says it."""
    said: dict[str, int] = {}
    if given is not None:
        said["workers"] = whole_number(given, "workers", minimum=1, maximum=10**6)
    if loads is not None:
        said["loads"] = len(loads)
    if table is not None:
        said["costs"] = table.shape[1]
    if said and min(said.values()) and len(set(said.values())) == 1:
        return next(iter(said.values()))
    counts = ", ".join(f"{count} by {name}" for name, count in said.items() if count)
    problem = f"the number of workers differs: {counts}" if counts else "nothing says how many"
    remedy = "give workers=8, or the load of each"
    raise InputError(problem, field="workers", remedy=remedy)


class Offloader:
    """Chooses a worker for each batch, and keeps the loads: estimated time of what is not done."""

    def __init__(
        self, views: Sequence[View], costs: Sequence[BilinearCost], slice_tokens: int, max_min: bool
    ) -> None:
        self.views = views
        self.costs = costs
        self.slice_tokens = slice_tokens
        self.max_min = max_min
        self.loads_ns = [0] * len(views)  # T_load by worker
        self.next = 0
        first = views[0].worker
        self.alike = all(
            (v.worker.memory, cost) == (first.memory, costs[0])
            for v, cost in zip(views, costs, strict=True)
        )

    def offload(self, batches: list[SlicedBatch]) -> Iterator[tuple[int, SlicedBatch]]:
        """Yield (worker, batch, with the time that it is estimated to take there)."""
        if not self.max_min:
            for each in batches:
                worker = self.in_turn(each.requests)
                yield worker, self._add(worker, each)
            return
        if not self.alike:
            for each in sorted(batches, key=lambda each: -each.serving_ns):
                worker = min(self._able(each.requests), key=lambda w: (self.loads_ns[w], w))
                yield worker, self._add(worker, each)
            return
        for place, worker in max_min([each.serving_ns for each in batches], self.loads_ns):
            yield worker, batches[place]

    def in_turn(self, requests: Sequence[int]) -> int:
        """Return the next worker in turn that can hold the requests."""
        count = len(self.views)
        able = range(count) if self.alike else self._able(requests)
        worker = self.next
        while worker not in able:
            worker = (worker + 1) % count
        self.next = (worker + 1) % count
        return worker

    def done(self, worker: int, served: SlicedBatch) -> None:
        """Take a batch that was served off its worker's load."""
        self.loads_ns[worker] -= served.serving_ns

    def _add(self, worker: int, each: SlicedBatch) -> SlicedBatch:
        if not self.alike:
            time_ns = serving_ns(
                self.costs[worker], len(each.requests), each.longest, self.slice_tokens
            )
            each = each._replace(serving_ns=time_ns)
        self.loads_ns[worker] += each.serving_ns
        return each

    def _able(self, requests: Sequence[int]) -> Sequence[int]:
        """Return the workers that hold a batch; several fit everywhere, one may be too large."""
        return range(len(self.views)) if len(requests) > 1 else able(self.views, requests[0])


def able(views: Sequence[View], request: int) -> Sequence[int]:
    """Return the workers that hold a request up to the output limit, else those with most room."""
    found = [w for w, view in enumerate(views) if _room(view, request) >= 0]
    if found:
        return found
    sizes = [_tokens(view) for view in views]
    return [w for w, size in enumerate(sizes) if size == max(sizes)]


def _room(view: View, request: int) -> int:
    memory = view.worker.memory
    return 0 if memory is None else memory.blocks - view.blocks_of(request)


def _tokens(view: View) -> int:
    memory = view.worker.memory
    return 0 if memory is None else memory.tokens
