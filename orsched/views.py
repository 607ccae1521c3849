"""Building of views: what an information class grants a policy, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.errors import InfeasibleError, InputError
from orsched.policy import ClairvoyantView, Information, PredictedView, View, WorkerState

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.memory import BlockMemory


def build_view(
    instance: Instance, state: WorkerState, information: Information
) -> tuple[View, list[tuple[IntColumn, IntColumn]]]:
    """Return the view that an information class grants, and what is still hidden from it.

    Prompts, arrivals, predictions and memory needs of requests that have not arrived read as 0
    unless the policy is clairvoyant. The second value pairs each shown column with its truth: at a
    request's arrival the executor copies that row.
    """
    req = instance.requests
    sighted = information is Information.CLAIRVOYANT
    columns = [req.prompt_tokens, req.arrival_ns]
    memory = state.worker.memory
    if memory is not None:
        columns.append(blocks_set_aside(instance, memory, sighted))
    if information is Information.PREDICTED:
        if req.predicted_tokens is None:
            raise InputError(
                "the instance has no predicted lengths",
                field="predicted_tokens",
                remedy="add the column, or choose a policy with other information",
            )
        columns.append(req.predicted_tokens)
    hide = not sighted and bool(req.arrival_ns.any())
    live = [np.zeros(len(req), np.int64) if hide else c for c in columns]
    shown = [_read_only(c) for c in live]
    blocks = shown[2] if memory is not None else None
    view: View
    if information is Information.PREDICTED:
        view = PredictedView(state, shown[0], shown[1], blocks, predicted_tokens=shown[-1])
    elif sighted:
        truth = _read_only(req.output_tokens)
        view = ClairvoyantView(state, shown[0], shown[1], blocks, output_tokens=truth)
    else:
        view = View(state, shown[0], shown[1], blocks)
    return view, list(zip(live, columns, strict=True)) if hide else []


def blocks_set_aside(instance: Instance, memory: BlockMemory, sighted: bool) -> IntColumn:
    """Return the blocks that a policy sets aside for each request: by the output limit if blind.

    Raises ``InfeasibleError`` when one is more than the worker has: no such policy could serve it.
    """
    req, limit = instance.requests, instance.output_limit_tokens
    tokens = req.prompt_tokens + (req.output_tokens if sighted else limit)
    blocks: IntColumn = -(-tokens // memory.block_tokens)
    row = int(np.argmax(blocks)) if len(blocks) else -1
    if row >= 0 and blocks[row] > memory.blocks:
        raise InfeasibleError(
            f"request {req.id_of(row)} (row {row}) may need {blocks[row]} memory blocks, more than "
            f"the {memory.blocks} of the worker, if it yields all {limit} tokens of the output "
            "limit: lower output_limit_tokens, raise blocks, or use a clairvoyant method"
        )
    return blocks


def _read_only(column: IntColumn) -> memoryview:
    """Return a view that indexes to Python integers and cannot be written through."""
    return memoryview(column).toreadonly()  # type: ignore[arg-type]
