"""What is in a step: where each token stands, and where its keys and values go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from orsched.runner.worker.inputs import Inputs
    from orsched.runner.worker.slots import Slots

REACH_STEP = 64
"""Rounds attend to multiples of this many tokens, so that shapes seldom change."""


class Run(NamedTuple):
    """Rows of a round whose slots are neighbours: ``size`` rows from ``row`` on.

    Attributes:
        row: the first one.
        slot: of the first one.
        size: how many rows, and slots.
        reach: no cache of these slots holds more tokens after the step.
    """

    row: int
    slot: int
    size: int
    reach: int


class Layout(NamedTuple):
    """The tokens of a step, in one row: one for each request of a round, then those of the chunks.

    Attributes:
        rows: the first rows are a round's, if any.
        reach: no cache of a round's slots holds more tokens after the step.
        slots: [rows] of a round's rows, on the device.
        runs: the same as the host knows it; None in a graph, which serves any slots.
        chunks: of prompts, if any.
        positions: [tokens] of each token in its request, on the device.
        places: [tokens] row of the caches that takes its keys and values, on the device.
    """

    rows: int
    reach: int
    slots: torch.Tensor
    runs: tuple[Run, ...] | None
    chunks: Inputs | None
    positions: torch.Tensor
    places: torch.Tensor


def lay_out(
    slots: Slots,
    rows: int,
    reach: int,
    runs: tuple[Run, ...] | None = None,
    chunks: Inputs | None = None,
) -> Layout:
    """Return the layout of a step, from what is on the device only.

    The rows of a round are the first slots of ``slots.order``.
    """
    import torch

    order = slots.order[:rows]
    positions = slots.lengths[order]
    places = slots.begins[order] + positions
    if chunks is not None:
        positions = torch.cat([positions, chunks.positions]) if rows else chunks.positions
        places = torch.cat([places, chunks.places]) if rows else chunks.places
    return Layout(rows, reach, order, runs, chunks, positions, places)


def runs_of(active: Sequence[int], lengths: Sequence[int], most: int) -> tuple[Run, ...]:
    """Return the runs of neighbours among slots in ascending order.

    Args:
        active: the slots.
        lengths: tokens in the cache of each slot before the step.
        most: tokens that a slot holds.
    """
    runs: list[Run] = []
    for row, slot in enumerate(active):
        reach = min(most, -(-(lengths[slot] + 1) // REACH_STEP) * REACH_STEP)
        last = runs[-1] if runs else None
        if last is not None and last.slot + last.size == slot:
            runs[-1] = Run(last.row, last.slot, last.size + 1, max(last.reach, reach))
        else:
            runs.append(Run(row, slot, 1, reach))
    return tuple(runs)
