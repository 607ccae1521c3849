"""Batch builders without a run: on a worker that nothing is on."""

from __future__ import annotations

from array import array

from orsched import AffineCost, Worker
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.simulator.policy import View, WorkerState


def batch_of(prompts, cap=None, clients=100, blocks=None, **worker):
    """A builder for requests with these prompts, and blocks to set aside for each."""
    state = WorkerState(Worker(clients, AffineCost(), cap, **worker), "decode", 9)
    column = memoryview(array("q", prompts))
    own = None if blocks is None else memoryview(array("q", blocks))
    return BatchBuilder(View(state, column, column, own))
