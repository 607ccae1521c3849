"""The batching problem in the form that all three methods work on: one entry a distinct length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from orsched.common.columns import int_column, whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import set_whole
from orsched.common.units import MAX_TOKENS
from orsched.costs import as_bilinear

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from orsched.common.columns import IntColumn
    from orsched.costs import BilinearCost, CostModel


MILLION = 1_000_000
MAX_BYTES = 2**62


@runtime_checkable
class BatchMemory(Protocol):
    """The largest batch as a function of the tokens that each of its requests is padded to."""

    def most(self, tokens: IntColumn) -> IntColumn:
        """Return the most requests in a batch padded to these tokens (longest prompt + slice)."""


@dataclass(frozen=True)
class PaddedMemory:
    """A batch of N holds ``(L + S) N`` tokens of cache (SCLS, eq. 5-9).

    ``N_max = floor(zeta (capacity - model - engine) / (token_bytes (L + S)))``, in integers.

    Attributes:
        capacity_bytes: memory of the device (M_cap).
        token_bytes: cache of one token of one request (Delta).
        model_bytes: parameters of the model (M_model).
        engine_bytes: what the engine keeps for itself (M_engine).
        zeta_ppm: usable share in millionths; SCLS takes 900,000 for transformers.

    Raises:
        InputError: a field is out of range, or nothing is available.
    """

    capacity_bytes: int
    token_bytes: int
    model_bytes: int = 0
    engine_bytes: int = 0
    zeta_ppm: int = MILLION

    def __post_init__(self) -> None:
        limits = {
            "capacity_bytes": (1, MAX_BYTES),
            "token_bytes": (1, MAX_BYTES),
            "model_bytes": (0, MAX_BYTES),
            "engine_bytes": (0, MAX_BYTES),
            "zeta_ppm": (1, MILLION),
        }
        for name, (least, most) in limits.items():
            set_whole(self, name, minimum=least, maximum=most)
        if self.available_bytes <= 0:
            raise InputError(
                f"model and engine leave {self.available_bytes} bytes for the cache",
                field="capacity_bytes",
                remedy="give a capacity above model_bytes + engine_bytes",
            )

    @property
    def available_bytes(self) -> int:
        """M_ava of eq. (6)."""
        return self.capacity_bytes - self.model_bytes - self.engine_bytes

    def most(self, tokens: IntColumn) -> IntColumn:
        """Return ``N_max`` of eq. (8) with zeta of eq. (9).

        The floor of a quotient by a product is the floor of the floor, so the budget is counted
        in whole tokens once.
        """
        budget = self.zeta_ppm * self.available_bytes // (MILLION * self.token_bytes)
        return budget // tokens


@dataclass(frozen=True)
class TableMemory:
    """Profiled largest batches by total length (SCLS, Algorithm 2, for DeepSpeed).

    Attributes:
        limits: pairs of a number of tokens and the most requests that fit when ``L + S`` is at
            most that; tokens strictly growing.
        beyond: the most requests above the last of these; 0: no such request can be served.

    Raises:
        InputError: the pairs are not whole numbers, not in order, or there are none.
    """

    limits: tuple[tuple[int, int], ...]
    beyond: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.limits, (list, tuple)) or not self.limits:
            raise InputError(
                "not a list of pairs (tokens, most requests)",
                field="limits",
                remedy="give a list of pairs",
            )
        pairs: list[tuple[int, int]] = []
        for row, pair in enumerate(self.limits):
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise InputError(
                    "not a pair (tokens, most requests)",
                    field="limits",
                    row=row,
                    remedy="give two whole numbers",
                )
            tokens = whole_number(pair[0], "limits", minimum=1, maximum=2 * MAX_TOKENS)
            if pairs and tokens <= pairs[-1][0]:
                text = f"{tokens} tokens after {pairs[-1][0]}"
                raise InputError(text, field="limits", row=row, remedy="sort by tokens")
            pairs.append((tokens, whole_number(pair[1], "limits", maximum=MAX_TOKENS)))
        object.__setattr__(self, "limits", tuple(pairs))
        beyond = whole_number(self.beyond, "beyond", maximum=MAX_TOKENS)
        object.__setattr__(self, "beyond", beyond)

    def most(self, tokens: IntColumn) -> IntColumn:
        """Return the entry of the table for each number of tokens."""
        steps = np.array([pair[0] for pair in self.limits], dtype=np.int64)
        sizes = np.array([*(pair[1] for pair in self.limits), self.beyond], dtype=np.int64)
        return sizes[np.searchsorted(steps, tokens, side="left")]


DEEPSPEED = TableMemory(((512, 28), (1024, 22)), beyond=12)
"""The numbers of Algorithm 2; its authors' settings keep ``L + S`` at 2,048 or less."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Requests sorted by length; those of one length are a group. A batch of N requests, the
    longest of group k, takes ``slopes[k] N + bases[k]`` femtoseconds."""

    order: IntColumn  # row of each request, by length and then by row
    lengths: list[int]  # distinct lengths, growing
    ends: list[int]  # position after the last request of each group
    sizes: list[int]  # most requests in a batch whose longest is of the group, at most all
    slopes: list[int]  # A, femtoseconds a request
    bases: list[int]  # B, femtoseconds a batch

    def __len__(self) -> int:
        return len(self.order)

    def groups(self) -> zip[tuple[int, int, int, int, int]]:
        """Iterate over (start, end, most requests, A, B) of each group."""
        starts = [0, *self.ends][:-1]
        return zip(starts, self.ends, self.sizes, self.slopes, self.bases, strict=True)

    @cached_property
    def conditions(self) -> dict[str, bool]:
        """Return what holds of these lengths, this cost and this memory. ``batch_time_grows``: a
        batch of any admissible number takes no less time when its longest request is longer (it is
        linear in the length, so two numbers decide). ``largest_batch_falls``: N_max never grows
        with the length. ``slope_grows``: A never falls with it, so the queries come in order.
        ``windows_advance``: the first position that a batch may begin at never goes back."""
        sizes, ends = self.sizes, self.ends
        falls = all(b <= a for a, b in pairwise(sizes))
        # In order to go back, N_max must grow by two or more from one length to the next.
        advance = all(b <= a + 1 for a, b in pairwise(sizes))
        grows = slope = True
        if len(ends) > 1:
            rise = self.slopes[-1] - self.slopes[0]
            base = self.bases[-1] - self.bases[0]
            most = max(min(size, end) for size, end in zip(sizes, ends, strict=True))
            grows = rise + base >= 0 and rise * most + base >= 0
            slope = rise >= 0
        return {
            "batch_time_grows": grows,
            "largest_batch_falls": falls,
            "slope_grows": slope,
            "windows_advance": advance,
        }


def build(
    lengths: ArrayLike,
    cost: BilinearCost,
    slice_tokens: int,
    memory: BatchMemory | None,
    max_batch: int | None,
) -> Problem:
    """Validate the input and sort it; raises ``InputError`` with the first wrong row."""
    column = int_column(lengths, "lengths", minimum=1, maximum=MAX_TOKENS)
    tokens = whole_number(slice_tokens, "slice_tokens", minimum=1, maximum=MAX_TOKENS)
    cap = max(1, len(column))
    if max_batch is not None:
        cap = min(cap, whole_number(max_batch, "max_batch", minimum=1))
    if memory is not None and not isinstance(memory, BatchMemory):
        raise InputError(
            f"{type(memory).__name__} is not a memory rule of a batch",
            field="memory",
            remedy="give a memory rule of orsched.models.batch, or None",
        )
    order = sorted_rows(column)
    ordered = column[order]
    ends = np.flatnonzero(np.diff(ordered, append=0))
    distinct = ordered[ends]
    sizes = np.full(len(distinct), cap, dtype=np.int64)
    if memory is not None:
        most = int_column(memory.most(distinct + tokens), "memory", length=len(distinct))
        sizes = np.minimum(sizes, most)
        _check_sizes(sizes, order, ends, distinct, tokens)
    values = distinct.tolist()
    problem = Problem(
        order,
        values,
        (ends + 1).tolist(),
        sizes.tolist(),
        *coefficients(values, cost, tokens),
    )
    _check_times(problem, cost, tokens)
    return problem


def linear_in_size(cost: CostModel) -> BilinearCost:
    """Return the bilinear model that a cost model states to be; ``InputError`` if it does not."""
    found = as_bilinear(cost)
    if found is None:
        raise InputError(
            f"{type(cost).__name__} states no time of a batch linear in its size and its longest",
            field="cost",
            remedy="give a BilinearCost, or a model with the method as_bilinear",
        )
    return found


def sorted_rows(column: IntColumn) -> IntColumn:
    """Return rows by value, equal ones in order: a radix sort by halves of 16 bits."""
    order = np.argsort((column & 0xFFFF).astype(np.uint16), kind="stable")
    high = (column >> 16).astype(np.uint16)
    if high.any():
        order = order[np.argsort(high[order], kind="stable")]
    order.setflags(write=False)
    return order


def coefficients(
    lengths: list[int], cost: BilinearCost, slice_tokens: int
) -> tuple[list[int], list[int]]:
    """Return A and B of each length: SCLS eq. (1)-(4) summed over the rounds of a slice."""
    rounds = slice_tokens
    contexts = rounds * (rounds + 1) // 2  # each round's context is l = 1..S above the length
    rise = cost.p1_fs + rounds * cost.d1_fs
    first = cost.p2_fs + rounds * cost.d2_fs + contexts * cost.d1_fs
    base_rise = cost.p3_fs + rounds * cost.d3_fs
    base_first = cost.p4_fs + rounds * cost.d4_fs + contexts * cost.d3_fs
    slopes = [rise * length + first for length in lengths]
    return slopes, [base_rise * length + base_first for length in lengths]


def _check_sizes(
    sizes: IntColumn, order: IntColumn, ends: IntColumn, distinct: IntColumn, tokens: int
) -> None:
    """Raise for a request that fits into no batch: Algorithm 1 would serve it regardless."""
    wrong = np.flatnonzero(sizes < 1)
    if len(wrong):
        firsts = order[np.concatenate([[0], ends[:-1] + 1])[wrong]]
        row, length = int(firsts.min()), int(distinct[wrong[np.argmin(firsts)]])
        raise InputError(
            f"a request of {length} tokens and a slice of {tokens} does not fit into the memory",
            row=row,
            field="lengths",
            remedy="leave it out, shorten the slice or give more memory",
        )


def _check_times(problem: Problem, cost: BilinearCost, slice_tokens: int) -> None:
    """Raise where an admissible batch would take a negative time. Every step is linear in the
    number, in the length and in the round, so the corners decide."""
    if not cost.warnings():
        return
    for row, (length, size, end) in enumerate(
        zip(problem.lengths, problem.sizes, problem.ends, strict=True)
    ):
        for count in {1, min(size, end)}:
            stage = (cost.p1_fs * length + cost.p2_fs) * count + cost.p3_fs * length + cost.p4_fs
            steps = [stage]
            for context in (length + 1, length + slice_tokens):
                each = cost.d1_fs * context + cost.d2_fs
                steps.append(each * count + cost.d3_fs * context + cost.d4_fs)
            if min(steps) < 0:
                start = problem.ends[row - 1] if row else 0
                raise InputError(
                    f"a batch of {count} requests of {length} tokens would take a negative time",
                    row=int(problem.order[start]),
                    field="cost",
                    remedy="fit coefficients of at least 0, or limit max_batch",
                )
