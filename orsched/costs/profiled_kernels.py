"""A profiled cost model from times of single kernels, as profilers of GPUs list them."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.units import MAX_TIME_NS
from orsched.costs.exact import round_half_up
from orsched.costs.profiled import GRIDS, PER_SEQUENCE, ProfiledCost
from orsched.costs.profiled_grid import MAX_POINTS, Grid, completed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PS_PER_NS = 1000
AttentionRow = tuple[int, int, int, int, int]
"""Prompt tokens, tokens cached before them, requests in the round, context of each, picoseconds."""


def from_kernels(
    dense: Iterable[tuple[str, int, int]],
    attention: Iterable[AttentionRow],
    *,
    times_a_step: Mapping[str, int],
    layers: int,
    fixed_ns: int = 0,
    per_sequence: Iterable[tuple[str, int, int]] = (),
) -> ProfiledCost:
    """Add up the kernels of a step of a whole model; times are whole picoseconds.

    ``dense`` rows are (kernel, tokens, time), ``per_sequence`` rows (kernel, sequences, time), and
    ``times_a_step`` says how often a step runs each. ``attention`` rows are of one layer. Those
    without a round give the table ``prefill``. Of those with a round, the one with the least cached
    before the prompt tokens gives ``decode``: the time that the round adds to the prompt tokens
    beside it, by the table ``prefill``, at least 0. Combinations that are missing are filled in
    (``profiled_grid.completed``); each entry is rounded once. Raises ``InputError`` for an unknown
    kernel, one without any time, a row that appears twice, a negative time, or no attention.
    """
    prefill: dict[tuple[int, ...], int] = {}
    rounds: dict[tuple[int, int, int], tuple[int, int]] = {}
    for (chunk, cached, batch, context), time in _attention_times(attention).items():
        if not batch:
            prefill[chunk, cached] = time * layers
        elif cached <= rounds.get((chunk, batch, context), (cached, 0))[0]:
            rounds[chunk, batch, context] = cached, time * layers
    table = _grid("prefill", prefill)
    decode: dict[tuple[int, ...], int] = {}
    for (chunk, batch, context), (cached, time) in rounds.items():
        alone = _alone(prefill, table, chunk, cached)
        decode[chunk, batch, context] = max(0, time - alone)
    sequences = _sums(per_sequence, times_a_step, "sequences")
    tokens = _sums(dense, times_a_step, "tokens")
    _require_all(times_a_step, tokens.kernels | sequences.kernels)
    return ProfiledCost(
        fixed_ns=fixed_ns,
        dense=_grid("dense", tokens.times),
        prefill=table,
        decode=_grid("decode", decode),
        per_sequence=_grid("per_sequence", sequences.times) if sequences.times else None,
    )


def _alone(prefill: Mapping[tuple[int, ...], int], table: Grid, chunk: int, cached: int) -> int:
    """Return the picoseconds that a chunk takes alone: as measured, else by the table."""
    if not chunk:
        return 0
    found = prefill.get((chunk, cached))
    return found if found is not None else round(table.at(chunk, cached) * PS_PER_NS)


class _Sums(NamedTuple):
    times: dict[tuple[int, ...], int]
    kernels: set[str]


def _sums(
    rows: Iterable[tuple[str, int, int]], times_a_step: Mapping[str, int], axis: str
) -> _Sums:
    """Sum the kernels of a step by its tokens or sequences; missing times are filled by kernel."""
    kernels: dict[str, dict[int, int]] = {}
    for row, (kernel, size, time) in enumerate(rows):
        if kernel not in times_a_step:
            raise InputError(
                f"the kernel {kernel!r} is in no step",
                row=row,
                field="layer",
                remedy=known_names(kernel, times_a_step),
            )
        if size in kernels.setdefault(kernel, {}):
            raise InputError(
                f"{kernel} at {size} {axis} appears twice",
                row=row,
                field="layer",
                remedy="keep one row",
            )
        kernels[kernel][size] = whole_number(time, "time_ns", maximum=MAX_TIME_NS)
    sizes = sorted({size for times in kernels.values() for size in times})
    sums: dict[tuple[int, ...], int] = {(size,): 0 for size in sizes}
    for kernel, times in kernels.items():
        full, _ = completed([sizes], [times.get(size) for size in sizes])
        for size, time in zip(sizes, full, strict=True):
            sums[size,] += time * times_a_step[kernel]
    return _Sums(sums, set(kernels))


def _require_all(times_a_step: Mapping[str, int], found: set[str]) -> None:
    for kernel in times_a_step:
        if kernel not in found:
            raise InputError(
                f"no time of {kernel}",
                field="layer",
                remedy="measure it, or leave it out of the kernels of a step",
            )


def _attention_times(rows: Iterable[AttentionRow]) -> dict[tuple[int, int, int, int], int]:
    found: dict[tuple[int, int, int, int], int] = {}
    for row, (*place, time) in enumerate(rows):
        chunk, cached, batch, context = place
        if (chunk, cached, batch, context) in found:
            raise InputError(
                "this combination appears twice",
                row=row,
                field="prefill_chunk",
                remedy="keep one row",
            )
        found[chunk, cached, batch, context] = time
    return found


def _grid(owner: str, times: Mapping[tuple[int, ...], int]) -> Grid:
    """Arrange times as a table; combinations of its points that are not there are filled in."""
    names = GRIDS.get(owner, PER_SEQUENCE)
    if not times:
        raise InputError(
            f"no measurement for the table {owner}",
            field=owner,
            remedy="measure it, or add its rows",
        )
    axes = [sorted({place[i] for place in times}) for i in range(len(names))]
    size = prod(map(len, axes))
    if size > MAX_POINTS:
        raise InputError(
            f"{size} combinations of {', '.join(names)}: at most {MAX_POINTS}",
            field=owner,
            remedy="measure at the same points of each, or leave some out",
        )
    values = [
        None if time is None else round_half_up(time, PS_PER_NS)
        for time in map(times.get, product(*axes))
    ]
    return Grid(names, tuple(map(tuple, axes)), values)  # type: ignore[arg-type]
