"""References in the rows of a schedule, validated before anything but the checker reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.data.schedule import DECODE, PREFILL

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def require_references(instance: Instance, schedule: Schedule) -> None:
    """Raise ``InputError`` unless all rows point to something."""
    steps, work = schedule.steps, schedule.work
    first, last = work.first_step, work.last_step
    clients = np.array([worker.clients for worker in instance.workers])
    stray = steps.worker >= len(clients)
    _refuse(stray, "steps.worker", "the worker does not exist")
    worker, prefills = steps.worker[first], work.phase == PREFILL
    _refuse(work.request >= len(instance), "work.request", "the request does not exist")
    _refuse(work.client >= clients[worker], "work.client", "the worker has fewer clients")
    _refuse(last < first, "work.last_step", "the row ends before it begins")
    _refuse(steps.worker[last] != worker, "work.last_step", "the row changes workers")
    _refuse(prefills & (last != first), "work.last_step", "a prefill row has one step")
    wrong = np.where(prefills, DECODE, PREFILL)
    fits = (steps.phase[first] != wrong) & (steps.phase[last] != wrong)
    _refuse(~fits, "work.phase", "the step does not do that")
    stays = np.zeros(len(work), bool)
    stays[1:] = (work.request[1:] == work.request[:-1]) & (work.stay[1:] == work.stay[:-1])
    before = np.arange(len(work)) - stays
    _refuse(stays & (worker != worker[before]), "work.first_step", "the stay changes workers")
    _refuse(stays & (first <= last[before]), "work.first_step", "the rows overlap")


def _refuse(wrong: np.ndarray[Any, np.dtype[np.bool_]], field: str, problem: str) -> None:
    if wrong.any():
        raise InputError(
            problem, row=int(np.argmax(wrong)), field=field, remedy="check the schedule"
        )
