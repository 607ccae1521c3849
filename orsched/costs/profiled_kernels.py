"""A profiled cost model from times of single kernels, as profilers of GPUs list them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orsched.costs.exact import round_half_up
from orsched.costs.profiled import GRIDS, ProfiledCost
from orsched.costs.profiled_grid import Grid
from orsched.errors import InputError
from orsched.near_names import known_names

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
) -> ProfiledCost:
    """Add up the kernels of a step of a whole model; times are whole picoseconds.

    ``dense`` rows are (kernel, tokens, time), ``times_a_step`` says how often a step runs each.
    ``attention`` rows are of one layer. Those without a round give the table ``prefill``; those
    with a round and nothing cached before the prompt tokens give ``decode``: the time that the
    round adds to the prompt tokens beside it, at least 0. Each entry is rounded once.

    Raises:
        InputError: an unknown kernel, a row that is there twice, or a combination that is missing.
    """
    found = _attention_times(attention)
    prefill: dict[tuple[int, ...], int] = {}
    decode: dict[tuple[int, ...], int] = {}
    for (chunk, cached, batch, context), time in found.items():
        if not batch:
            prefill[chunk, cached] = time * layers
        elif not cached:
            alone = found.get((chunk, 0, 0, 0), 0)
            decode[chunk, batch, context] = max(0, time - alone) * layers
    return ProfiledCost(
        fixed_ns,
        _grid("dense", _dense_times(dense, times_a_step)),
        _grid("prefill", prefill),
        _grid("decode", decode),
    )


def _dense_times(
    rows: Iterable[tuple[str, int, int]], times_a_step: Mapping[str, int]
) -> dict[tuple[int, ...], int]:
    """Sum the kernels of a step by its tokens."""
    sums: dict[tuple[int, ...], int] = {}
    seen = set()
    for row, (kernel, tokens, time) in enumerate(rows):
        if kernel not in times_a_step:
            raise InputError(
                f"the kernel {kernel!r} is in no step",
                row=row,
                field="layer",
                remedy=known_names(kernel, times_a_step),
            )
        if (kernel, tokens) in seen:
            raise InputError(f"{kernel} at {tokens} tokens is there twice", row=row, field="layer")
        seen.add((kernel, tokens))
        sums[tokens,] = sums.get((tokens,), 0) + time * times_a_step[kernel]
    for kernel in times_a_step:
        for (tokens,) in sums:
            if (kernel, tokens) not in seen:
                raise InputError(f"no time of {kernel} at {tokens} tokens", field="tokens")
    return sums


def _attention_times(rows: Iterable[AttentionRow]) -> dict[tuple[int, int, int, int], int]:
    found: dict[tuple[int, int, int, int], int] = {}
    for row, (*place, time) in enumerate(rows):
        chunk, cached, batch, context = place
        if (chunk, cached, batch, context) in found:
            raise InputError("this combination is there twice", row=row, field="prefill_chunk")
        found[chunk, cached, batch, context] = time
    return found


def _grid(owner: str, times: Mapping[tuple[int, ...], int]) -> Grid:
    """Arrange times as a table, which has one for every combination of its points."""
    names = GRIDS[owner]
    if not times:
        raise InputError(f"no measurement for the table {owner}", field=owner)
    axes = [sorted({place[i] for place in times}) for i in range(len(names))]
    size = prod(map(len, axes))
    if size != len(times):
        raise InputError(
            f"{len(times)} of the {size} combinations of {', '.join(names)} are measured",
            field=owner,
            remedy="measure all of them, or leave out the points that are not everywhere",
        )
    values = [round_half_up(times[place], PS_PER_NS) for place in sorted(times)]
    return Grid(names, tuple(map(tuple, axes)), tuple(values))
