"""The frame of best-first searches: open states, incumbent and bound, limits, and the answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from heapq import heappop
from typing import TYPE_CHECKING, Any

from orsched.common.errors import OrschedError
from orsched.models.exact_search.aims import Answer, units_at_least
from orsched.models.exact_search.stage_plan import Plan, schedule_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from orsched.models.exact_search.aims import ExactSearch

MAX_STATES = 2_000_000  # states that are kept at most: about a kilobyte each, with the way to them

MAX_FIRST_STAGES = 100_000
"""With more first stages to choose from a search would not get beyond them."""

NO_COST = 2**200  # more than a schedule can cost: the incumbent where there is none

CHECKED_EVERY = 256  # children between two looks at the clock


class OpenStates(ABC):
    """A search over states: from the start, the one of the least bound is expanded next. A node is
    a state with the way to it: the node ``before``, and ``stage`` and ``rounds`` between the two.
    ``best``: time or cost of the incumbent, in units; no schedule takes less than ``bound``; the
    search ends with more than ``most_states`` kept; ``expanded``, ``left_out``: how many were."""

    bound_first = False
    """Whether a better bound is told before its state is expanded, or with what comes of that."""

    def __init__(self, best: int, bound: int, most_states: int) -> None:
        self.best, self.bound, self.most_states = best, bound, most_states
        self.found: Any = None  # the node of the incumbent, None for one that was found elsewhere
        self.expanded = self.left_out = 0
        self._serial = self._children = 0
        self._heap: list[tuple[int, int, int, Any]] = []

    def run(self, out_of_time: Callable[[], bool], improved: Callable[[], bool]) -> str:
        """Search; return why it ended: ``finished``, ``time_limit``, ``too_large`` or ``stopped``.
        ``out_of_time``: whether to end; ``improved``: called after each better incumbent or bound;
        True ends the search."""
        self._offer(self._start(), self.bound)
        while self._heap:
            least, _, _, node = heappop(self._heap)
            if least >= self.best:
                break
            better = least > self.bound
            self.bound = max(least, self.bound)
            if better and self.bound_first:
                better = False
                if improved():
                    return "stopped"
            if self._is_beaten(node):
                self.left_out += 1
                continue
            found = self.found
            self.expanded += 1
            in_time = self._expand(node, least, out_of_time)
            if not in_time and self.bound_first:
                return "time_limit"
            if (better or self.found is not found) and improved():
                return "stopped"
            if not in_time:
                return "time_limit"
            if self._kept() > self.most_states:
                return "too_large"
        self.bound = self.best
        return "finished"

    def _expand(self, node: Any, least: int, out_of_time: Callable[[], bool]) -> bool:
        """Offer all that may follow; False if time was up before the end."""
        for child in self._following(node):
            self._children += 1
            if self._children % CHECKED_EVERY == 0 and out_of_time():
                return False
            self._offer(child, least)
        return True

    @abstractmethod
    def _start(self) -> Any:
        """Return the node to begin with."""

    @abstractmethod
    def _following(self, node: Any) -> Iterator[Any]:
        """Yield the nodes that may follow."""

    @abstractmethod
    def _offer(self, node: Any, least: int) -> None:
        """Open a state, unless it is known, no better than the incumbent, or at its end."""

    @abstractmethod
    def _is_beaten(self, node: Any) -> bool:
        """Return whether another leads to no worse an end; if not, it stands against the rest."""

    @abstractmethod
    def _kept(self) -> int:
        """Return how many states are known."""

    def way(self) -> list[Any]:
        """Return the nodes from the start to the best end found."""
        way, node = [], self.found
        while node is not None:
            way.append(node)
            node = node.before
        return way[::-1]


def plan_of_steps(
    rows: Sequence[Sequence[int]],
    steps: Iterable[tuple[Sequence[int] | None, int]],
    rest: int,
) -> Plan:
    """Return a plan of stages, as so many of each kind or None, each with the rounds behind it.
    ``rows``: the requests of each kind; ``rest``: rounds until the end, behind the last step."""
    left = [list(each) for each in rows]
    stage, rounds = [0] * sum(map(len, left)), list[int]()
    for started, passed in steps:
        if started is not None:
            for kind, count in zip(left, started, strict=True):
                for _ in range(count):
                    stage[kind.pop(0)] = len(rounds)
            rounds.append(0)
        if rounds:
            rounds[-1] += passed
    rounds[-1] += rest
    return Plan(tuple(stage), None, tuple(rounds))


def first_values(search: ExactSearch) -> tuple[int, int]:
    """Return incumbent and bound to begin with, in units."""
    best = NO_COST if search.value is None else units_at_least(search.aim, search.value)
    if search.lower_ns is None:
        return best, 0
    return best, max(0, units_at_least(search.aim, search.lower_ns))


class BestFirstRun:
    """A search over states from its start to its answer, whatever ends it."""

    def __init__(self, search: ExactSearch, found: Any) -> None:
        self.search, self.found = search, found
        self.counted = {"expanded": 0, "left_out": 0}

    def answer(self) -> Answer:
        """Search, and say what has come of it."""
        termination: Any = "interrupted"
        with suppress(KeyboardInterrupt):
            termination = self._searched()
        if termination == "finished" and self.found.best == NO_COST:
            raise OrschedError("the search found no schedule where there must be one: a bug")
        self._close()
        if termination == "finished":
            self.search.report()  # the last bound, when it is too late to end anything
        notes: tuple[str, ...] = ()
        if termination == "too_large":
            notes = (f"more than {self.found.most_states:,} states",)
        return Answer(termination, "", self.counted, notes)

    def _searched(self) -> str:
        """Return why the search ended."""
        why: str = self.found.run(self._is_over, self._improved)
        return why

    def _is_over(self) -> bool:
        return self.search.is_late()

    def _improved(self) -> bool:
        self._take()
        return self.search.report()

    def _close(self) -> None:
        """Take over what a search over states has found, and count its states."""
        self._take()
        self.counted["expanded"] += self.found.expanded
        self.counted["left_out"] += self.found.left_out

    def _take(self) -> None:
        """Take over bound and incumbent; the incumbent becomes a schedule, through the checker."""
        search, found, aim = self.search, self.found, self.search.aim
        if found.bound < NO_COST:
            search.solver_ns = max(aim.of_units(found.bound), search.solver_ns or 0)
        said, plan = aim.of_units(found.best), found.plan()
        if plan is None or (search.value is not None and search.value <= said):
            return
        schedule = schedule_of(search.instance, plan, "best-first", search.problem)
        value = aim.of(schedule)
        if value != said:
            raise OrschedError(f"a schedule of {value} from {said}: a bug")
        search.offer(schedule, plan)
