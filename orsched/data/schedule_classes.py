"""Classes of schedules: of which schedules a bound, a search or a claim of optimality speaks.

This is the only definition. In the smallest class a request has a single stay on a client: one step
prefills its whole prompt and does nothing else, and from then on each round of its worker yields a
token of it until it is done. A schedule can do more in five ways, its *features*:

* ``pauses``: a round leaves out a request that is prefilled, is on a client and is not done;
* ``chunks``: several steps prefill one prompt;
* ``mixed``: a step prefills beside a round;
* ``restarts``: a request is evicted, and prefilled again in a further stay;
* ``moves``: a further stay is on another worker than the stay before it.

All else is in every class: waits, static batches with their invalid rounds, padding, memory that is
paged or not, tokens that a prefix cache has, transfers over links, any number of workers.

Bounds hold whatever pauses. Where pauses cannot help a search either, ``models.exact_search.aims``
says and proves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

    BoolColumn = NDArray[np.bool_]

FEATURES = {
    "pauses": "pauses",
    "chunks": "chunked prefills",
    "mixed": "mixed steps",
    "restarts": "evictions",
    "moves": "moves between workers",
}
"""Each feature with its words, in the order in which they are named."""

ALLOWANCES = ("chunks", "mixed", "restarts", "moves")
"""The features that a bound has to allow; it always allows pauses. Moves are restarts, too."""


@dataclass(frozen=True)
class ScheduleClass:
    """All schedules that have no feature but these."""

    features: frozenset[str]

    @classmethod
    def allowing(cls, names: Iterable[str]) -> ScheduleClass:
        """Return the class of a bound with these allowances."""
        features = {"pauses", *names}
        return cls(frozenset(features | {"restarts"} if "moves" in features else features))

    def __le__(self, other: ScheduleClass) -> bool:
        return self.features <= other.features

    @property
    def names(self) -> list[str]:
        """The features by name, in their order."""
        return [name for name in FEATURES if name in self.features]

    def __str__(self) -> str:
        lacking = {name: words for name, words in FEATURES.items() if name not in self.features}
        if "restarts" in lacking:
            lacking.pop("moves", None)
        missing = list(lacking.values())
        if not missing:
            return "all schedules"
        *some, last = missing
        return f"schedules without {', '.join(some)}{' and ' * bool(some)}{last}"


ALL_SCHEDULES = ScheduleClass(frozenset(FEATURES))
PLAIN_SCHEDULES = ScheduleClass.allowing(())
"""Whole prefills between rounds, once each, with or without pauses."""

WITHOUT_PAUSES = ScheduleClass(frozenset())
"""The smallest class."""


def class_of(instance: Instance, schedule: Schedule) -> ScheduleClass:
    """Return the smallest class of a schedule; a pause that ends with an eviction is not seen."""
    found = set()
    if (schedule.steps.phase == MIXED).any():
        found.add("mixed")
    work = schedule.work
    rows = (work.phase == PREFILL) & (work.request < len(instance))
    if (work.stay[rows] > 0).any():  # what comes over a link is not prefilled again
        found.add("restarts")
        found.update(["moves"] if _moves(schedule, rows) else ())
    had = (work.tokens + work.hit)[rows]
    request = work.request[rows]
    stays = request + len(instance) * work.stay[rows]
    if len(stays) > len(np.unique(stays)) or (had < instance.requests.prompt_tokens[request]).any():
        found.add("chunks")
    if _pauses(schedule):
        found.add("pauses")
    return ScheduleClass(frozenset(found))


def allowances_of(instance: Instance, schedule: Schedule) -> frozenset[str]:
    """Return what a bound has to allow to hold for a schedule."""
    return class_of(instance, schedule).features.intersection(ALLOWANCES)


def _moves(schedule: Schedule, prefills: BoolColumn) -> bool:
    """Say if a request is prefilled on two workers."""
    work = schedule.work
    places = work.request[prefills], schedule.steps.worker[work.first_step[prefills]]
    return len(np.unique(np.stack(places), axis=1).T) > len(np.unique(places[0]))


def _pauses(schedule: Schedule) -> bool:
    """Say if a round leaves out a request between its prefill and its last token."""
    steps, work = schedule.steps, schedule.work
    rounds = np.zeros(len(steps), np.int64)  # of the worker, up to each step
    for worker in np.unique(steps.worker):
        own = steps.worker == worker
        rounds[own] = np.cumsum(steps.phase[own] != PREFILL)
    rows = np.flatnonzero(work.phase != INVALID)
    keys = (work.first_step[rows], work.stay[rows], work.request[rows])
    rows = rows[np.lexsort(keys)]
    before, after = rows[:-1], rows[1:]
    since, until = work.last_step[before], work.first_step[after]
    same = (work.request[before] == work.request[after]) & (work.stay[before] == work.stay[after])
    same &= (work.phase[after] == DECODE) & (steps.worker[since] == steps.worker[until])
    return bool((rounds[until] - rounds[since] > 1)[same].any())
