"""The best-first search itself: from the start, the state of the least bound is expanded next."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from orsched.models.full_mip.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.models.best_first.states import Counts, States

_CHECKED_EVERY = 256
"""Children between two looks at the clock."""
_NO_SLACK = 2**60
_Key = tuple["Counts", tuple[int, ...], bool]


class Node(NamedTuple):
    """A state with the way to it.

    Attributes:
        waiting, active: the state.
        waited: in plain states, whether clients were left free at the finish before.
        spent: time of the stages and rounds until here.
        before: the node before, or None at the start.
        stage, rounds: what lies between the two: a stage (or None), then rounds.
    """

    waiting: Counts
    active: tuple[int, ...]
    waited: bool
    spent: int
    before: Node | None
    stage: Counts | None
    rounds: int

    @property
    def key(self) -> _Key:
        """Equal for nodes of which only the cheapest is of use."""
        return self.waiting, self.active, self.waited


class BestFirst:
    """The open states, what is known of those met, the incumbent and the bound; times in units.

    **What is left out.** Of equal states all but the cheapest. And a plain state B if another, A,
    with the same requests waiting has been expanded that can do as B does and end no later: let s
    rounds pass at A, as many as B has cost more. If then no client is busy longer than its
    counterpart in B, A goes on as B would. For that A may have to wait, so it is said only of
    states that did not (``waited``), neither of A nor of B: two could otherwise each wait to be
    the other.
    Between states that did not wait lies a stage, so fewer requests wait after each; by induction
    on their number an expanded state leads to no worse an end than any that was left out for it.

    Attributes:
        best: time of the incumbent.
        bound: no schedule takes less.
        expanded, left_out: how many states were.
    """

    def __init__(self, states: States, best: int, bound: int, most_states: int) -> None:
        self.states, self.best, self.bound = states, best, bound
        self.most_states = most_states
        self.found: Node | None = None
        self.expanded = self.left_out = 0
        self._serial = self._children = 0
        self._heap: list[tuple[int, int, int, Node]] = []
        self._spent: dict[_Key, int] = {}
        self._front: dict[Counts, list[tuple[int, tuple[int, ...]]]] = {}

    def run(self, out_of_time: Callable[[], bool], improved: Callable[[], bool]) -> str:
        """Search; return why it ended: ``finished``, ``time_limit``, ``too_large`` or ``stopped``.

        Args:
            out_of_time: whether to end.
            improved: called after each better incumbent or bound; True ends the search.
        """
        start = Node(self.states.start, (), False, 0, None, None, 0)
        self._offer(start, self.bound)
        while self._heap:
            least, _, _, node = heappop(self._heap)
            if least >= self.best:
                break
            if least > self.bound:
                self.bound = least
                if improved():
                    return "stopped"
            if self._spent[node.key] < node.spent or self._is_dominated(node):
                self.left_out += 1
                continue
            found = self.found
            if not self._expand(node, least, out_of_time):
                return "time_limit"
            if self.found is not found and improved():
                return "stopped"
            if len(self._spent) > self.most_states:
                return "too_large"
        self.bound = self.best
        return "finished"

    def beat(self, best: int) -> None:
        """Go on below the time of a better incumbent that was found elsewhere."""
        self.best, self.found = best, None

    def _expand(self, node: Node, least: int, out_of_time: Callable[[], bool]) -> bool:
        """Offer all that may follow; False if time was up before the end."""
        self.expanded += 1
        for child in self._following(node):
            self._children += 1
            if self._children % _CHECKED_EVERY == 0 and out_of_time():
                return False
            self._offer(child, least)
        return True

    def _following(self, node: Node) -> Iterator[Node]:
        """Yield what may follow a state: a stage, or rounds until the next finish."""
        states = self.states
        for stage in states.stages(node.waiting, node.active):
            waiting = tuple(a - b for a, b in zip(node.waiting, stage, strict=True))
            spent = node.spent + states.stage_time(stage)
            active, rounds = states.with_stage(node.active, stage), 0
            if states.is_plain and any(waiting):
                rounds, active = states.until_finish(active)
                spent += rounds * states.round
            yield Node(waiting, active, False, spent, node, stage, rounds)
        if node.active:
            rounds, active = states.until_finish(node.active)
            spent = node.spent + rounds * states.round
            yield Node(node.waiting, active, states.is_plain, spent, node, None, rounds)

    def _offer(self, node: Node, least: int) -> None:
        """Open a state, unless it is known, no better than the incumbent, or at its end."""
        known = self._spent.get(node.key)
        if known is not None and known <= node.spent:
            return
        states = self.states
        if not any(node.waiting):
            end = node.spent + states.round * states.rounds_left(node.active)
            if end < self.best:
                self.best, self.found = end, node
            return
        least = max(least, node.spent + states.least(node.waiting, node.active))
        if least >= self.best:
            return
        self._spent[node.key] = node.spent
        self._serial += 1
        heappush(self._heap, (least, sum(node.waiting), self._serial, node))

    def _is_dominated(self, node: Node) -> bool:
        """Return whether a state can be left out; one that cannot stands against those to come."""
        if node.waited or not self.states.is_plain:
            return False
        spent, one = node.spent, self.states.round
        left = (0,) * (self.states.clients - len(node.active)) + node.active
        front = self._front.setdefault(node.waiting, [])
        for before, other in front:
            if before <= spent:
                slack = (spent - before) // one if one else _NO_SLACK
                for a, b in zip(other, left, strict=True):
                    if a - slack > b:
                        break
                else:
                    return True
        front.append((spent, left))
        return False

    def plan(self) -> Plan | None:
        """Return the plan of the best end found, or None where none beats the first incumbent."""
        if self.found is None:
            return None
        way, node = [self.found], self.found
        while node.before is not None:
            node = node.before
            way.append(node)
        rows = [list(each) for each in self.states.rows]
        stage, rounds = [0] * sum(map(len, rows)), list[int]()
        for node in reversed(way):
            if node.stage is not None:
                for kind, count in zip(rows, node.stage, strict=True):
                    for _ in range(count):
                        stage[kind.pop(0)] = len(rounds)
                rounds.append(0)
            if rounds:
                rounds[-1] += node.rounds
        rounds[-1] += self.states.rounds_left(self.found.active)
        return Plan(tuple(stage), None, tuple(rounds))
