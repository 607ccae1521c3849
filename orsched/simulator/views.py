"""Building of views: what an information class grants a policy, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import read_only
from orsched.common.errors import InputError
from orsched.data.feasibility import roles_of, takes_prompt
from orsched.simulator.policy import ClairvoyantView, Information, PredictedView, View, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.memory import BlockMemory


_UNLIMITED = 2**62
LABELS = ("service_class", "tenant", "deadline_ns", "weights")
"""Columns of requests that every view holds, whatever its information class, if they are there."""


def build_views(
    instance: Instance,
    states: Sequence[WorkerState],
    information: Information,
    chunks: bool = False,
) -> tuple[list[View], list[tuple[memoryview, memoryview]]]:
    """Return the workers' views that an information class grants, and what is hidden from them.

    Prompts, arrivals, predictions, classes, tenants, deadlines, weights and memory needs of
    requests that have not arrived read as 0 unless the policy is clairvoyant. The second value
    pairs each shown column with its truth: at a request's arrival the executor copies that row.
    ``chunks``: the policy may prefill a prompt in parts.
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
    models = blocks_set_aside(instance, sighted, chunks)
    columns += models.values()
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
    instance: Instance, sighted: bool, chunks: bool
) -> dict[BlockMemory, IntColumn]:
    """Return the blocks to set aside for each request, by memory: all that any policy goes by.

    Those of prompt and output limit, for a clairvoyant policy of prompt and true output. Where no
    worker has as many, the largest of those that take the prompt sets all its blocks aside: the
    request runs alone there, as one of a server runs whose limit is cut to what its memory holds.
    """
    req = instance.requests
    tokens = req.prompt_tokens + (req.output_tokens if sighted else instance.output_limit_tokens)
    models = dict.fromkeys(w.memory for w in instance.workers if w.memory is not None)
    needed: dict[BlockMemory, IntColumn] = {m: -(-tokens // m.block_tokens) for m in models}
    for able in roles_of(instance):
        whole = not chunks and able == "prefills"
        kinds = dict.fromkeys(
            (w.memory, w.prefill_limit if whole else None)
            for w in instance.workers
            if getattr(w, able)
        )
        rooms = [
            (memory, np.where(takes_prompt(req, limit), _tokens_of(memory), -1))
            for memory, limit in kinds
        ]
        most = np.max([room for _, room in rooms], axis=0)
        for memory, room in rooms:
            if memory is not None:
                alone = (tokens > most) & (room == most)
                needed[memory] = np.where(alone, memory.blocks, needed[memory])
    return needed


def _tokens_of(memory: BlockMemory | None) -> int:
    return _UNLIMITED if memory is None else memory.tokens
