"""Building of views: what an information class grants a policy, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.errors import InfeasibleError, InputError
from orsched.policy import ClairvoyantView, Information, PredictedView, View, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.memory import BlockMemory


LABELS = ("service_class", "tenant", "deadline_ns", "weights")
"""Columns of requests that every view holds, whatever its information class, if they are there."""


def build_views(
    instance: Instance, states: Sequence[WorkerState], information: Information
) -> tuple[list[View], list[tuple[memoryview, memoryview]]]:
    """Return the workers' views that an information class grants, and what is hidden from them.

    Prompts, arrivals, predictions, classes, tenants, deadlines, weights and memory needs of
    requests that have not arrived read as 0 unless the policy is clairvoyant. The second value
    pairs each shown column with its truth: at a request's arrival the executor copies that row.
    """
    req = instance.requests
    sighted = information is Information.CLAIRVOYANT
    columns = [req.prompt_tokens, req.arrival_ns]
    if information is Information.PREDICTED:
        if req.predicted_tokens is None:
            raise InputError(
                "the instance has no predicted lengths",
                field="predicted_tokens",
                remedy="--predictions classes adds some, in Python predictions='classes'; or "
                "choose a policy with other information",
            )
        columns.append(req.predicted_tokens)
        if req.predicted_quantiles is not None:
            columns.extend(np.ascontiguousarray(req.predicted_quantiles.T))  # one a level
    levels = req.quantile_levels or ()
    labels = {name: getattr(req, name) for name in LABELS if getattr(req, name) is not None}
    columns += labels.values()
    models = dict.fromkeys(w.memory for w in instance.workers if w.memory is not None)
    alone = len(instance.workers) == 1
    columns += [blocks_set_aside(instance, model, sighted, must_fit=alone) for model in models]
    hide = not sighted and bool(req.arrival_ns.any())
    live = [np.zeros(len(req), np.int64) if hide else c for c in columns]
    shown = [read_only(c) for c in live]
    blocks = dict(zip(models, shown[len(shown) - len(models) :], strict=True))
    labelled = dict(zip(labels, shown[len(shown) - len(models) - len(labels) :], strict=False))
    views: list[View] = []
    for state in states:
        own = blocks[state.worker.memory] if state.worker.memory is not None else None
        if information is Information.PREDICTED:
            seen = PredictedView(state, *shown[:2], own, predicted_tokens=shown[2])
            seen.show_quantiles(levels, shown[3 : 3 + len(levels)])
            views.append(seen)
        elif sighted:
            truth = read_only(req.output_tokens)
            views.append(ClairvoyantView(state, *shown[:2], own, output_tokens=truth))
        else:
            views.append(View(state, shown[0], shown[1], own))
        views[-1].classes = instance.classes
        for name, column in labelled.items():
            setattr(views[-1], name, column)
    everyone = tuple(views)
    for view in views:
        view.workers = everyone  # one tuple: a copy each would take the square of the workers
    pairs = zip(live, columns, strict=True) if hide else ()
    return views, [(memoryview(shows), read_only(truth)) for shows, truth in pairs]  # type: ignore[arg-type]


def blocks_set_aside(
    instance: Instance, memory: BlockMemory, sighted: bool, must_fit: bool = True
) -> IntColumn:
    """Return the blocks to set aside for each request: by the output limit unless clairvoyant.

    Raises ``InfeasibleError`` when a request that must fit needs more blocks than the worker has:
    no policy that sets memory aside could serve it. Under paged memory it need not fit.
    """
    req, limit = instance.requests, instance.output_limit_tokens
    tokens = req.prompt_tokens + (req.output_tokens if sighted else limit)
    blocks: IntColumn = -(-tokens // memory.block_tokens)
    row = int(np.argmax(blocks)) if len(blocks) else -1
    if must_fit and not memory.is_paged and row >= 0 and blocks[row] > memory.blocks:
        raise InfeasibleError(
            f"request {req.id_of(row)} (row {row}) may need {blocks[row]} memory blocks, more than "
            f"the {memory.blocks} of the worker, if it yields all {limit} tokens of the output "
            "limit: lower output_limit_tokens, raise blocks, or use a clairvoyant method"
        )
    return blocks


def read_only(column: IntColumn) -> memoryview:
    """Return a view that indexes to Python integers and cannot be written through."""
    return memoryview(column).toreadonly()  # type: ignore[arg-type]
