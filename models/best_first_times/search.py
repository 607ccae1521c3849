"""The search: from the start, the state of the least bound is expanded next."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from orsched.models.best_first_times.relaxation import Relaxation
from orsched.models.full_mip.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.models.best_first_times.epochs import Counts, Epochs, Move, State

_CHECKED_EVERY = 256
"""Moves between two looks at the clock."""

NO_COST = 2**200


class Node(NamedTuple):
    """A state with the way to it: what it has cost, the node before, the move in between."""

    state: State
    spent: int
    before: Node | None
    stage: Counts | None
    rounds: int


class TimesSearch:
    """The open states, what is known of those met, the incumbent and the bound, in units.

    Attributes:
        best: cost of the incumbent.
        bound: no schedule costs less.
        expanded, left_out: how many states were.
    """

    def __init__(self, epochs: Epochs, best: int, bound: int, most_states: int) -> None:
        self.epochs, self.best, self.bound = epochs, best, bound
        self.most_states = most_states
        self.found: Node | None = None
        self.expanded = self.left_out = 0
        self._relaxation = Relaxation(epochs)
        self._serial = self._kept = self._moves = 0
        self._heap: list[tuple[int, int, int, Node]] = []
        self._known: dict[tuple[Counts, tuple[int, ...]], list[tuple[int, int]]] = {}
        self._fronts: dict[Counts, list[tuple[int, int, tuple[int, ...]]]] = {}

    def run(self, out_of_time: Callable[[], bool], improved: Callable[[], bool]) -> str:
        """Search; return why it ended: ``finished``, ``time_limit``, ``too_large`` or ``stopped``.

        Args:
            out_of_time: whether to end.
            improved: called after each better incumbent or bound; True ends the search.
        """
        start = Node(self.epochs.start, 0, None, None, 0)
        self._offer(start, self.bound)
        dive_at = 1
        while self._heap:
            least, _, _, node = heappop(self._heap)
            if least >= self.best:
                break
            better = least > self.bound
            self.bound = max(least, self.bound)
            if self._is_beaten(node):
                self.left_out += 1
                continue
            found = self.found
            self.expanded += 1
            if self.expanded >= dive_at:
                dive_at *= 4
                self._dive(node, out_of_time)
            in_time = self._expand(node, least, out_of_time)
            if (better or self.found is not found) and improved():
                return "stopped"
            if not in_time:
                return "time_limit"
            if self._kept > self.most_states:
                return "too_large"
        self.bound = self.best
        return "finished"

    def _expand(self, node: Node, least: int, out_of_time: Callable[[], bool]) -> bool:
        """Offer all that may follow; False if time was up before the end."""
        for move in self.epochs.moves(node.state):
            if self._is_late(out_of_time):
                return False
            self._offer(_behind(node, move), least)
        return True

    def _is_late(self, out_of_time: Callable[[], bool]) -> bool:
        self._moves += 1
        return self._moves % _CHECKED_EVERY == 0 and out_of_time()

    def _offer(self, node: Node, least: int) -> None:
        """Open a state, unless it is known, no better than the incumbent, or at its end."""
        state = node.state
        if not any(state.waiting):
            end = node.spent + self.epochs.close(state)
            if end < self.best:
                self.best, self.found = end, node
            return
        known = self._known.get((state.waiting, state.running))
        if known is not None and self._is_known(known, node):
            return
        least = max(least, node.spent + self._relaxation.least(state))
        if least >= self.best:
            return
        if known is None:
            known = self._known[state.waiting, state.running] = []
        known.append((state.clock, node.spent))
        self._kept += 1
        self._serial += 1
        heappush(self._heap, (least, sum(state.waiting), self._serial, node))

    def _is_known(self, known: list[tuple[int, int]], node: Node) -> bool:
        """Return whether the same was reached earlier, and waiting until now costs no more."""
        clock, spent = node.state.clock, node.spent
        if not self.epochs.timed:
            if known and known[0][1] <= spent:
                return True
            known.clear()  # those dearer are left out, whether this one is kept or not
            return False
        rate = self.epochs.rate(node.state.waiting, node.state.running)
        if any(then <= clock and cost + (clock - then) * rate <= spent for then, cost in known):
            return True
        known[:] = [
            (then, cost) for then, cost in known
            if then < clock or spent + (then - clock) * rate > cost
        ]  # fmt: skip
        return False

    def _is_beaten(self, node: Node) -> bool:
        """Return whether another leads to no worse an end; if not, it stands against the rest."""
        state, spent = node.state, node.spent
        if (state.clock, spent) not in self._known[state.waiting, state.running]:
            return True
        if self.epochs.many > 1:
            return False
        front = self._fronts.setdefault(state.waiting, [])
        running, clients = state.running, len(state.running)
        rate = self.epochs.rate(state.waiting, running)
        for clock, cost, other in front:
            if clock > state.clock or cost + (state.clock - clock) * rate > spent:
                continue
            if len(other) <= clients:
                for a, b in zip(other, running[clients - len(other) :], strict=True):
                    if a > b:
                        break
                else:
                    return True
        front.append((state.clock, spent, running))
        return False

    def _dive(self, node: Node, out_of_time: Callable[[], bool]) -> None:
        """Go from a state to an end, always to the least bound: an incumbent."""
        while any(node.state.waiting):
            best, least = None, NO_COST
            for move in self.epochs.moves(node.state):
                if self._is_late(out_of_time):
                    return
                child = _behind(node, move)
                if any(child.state.waiting):
                    bound = child.spent + self._relaxation.least(child.state)
                else:
                    bound = child.spent + self.epochs.close(child.state)
                if bound < least:
                    best, least = child, bound
            if best is None:
                return
            node = best
        end = node.spent + self.epochs.close(node.state)
        if end < self.best:
            self.best, self.found = end, node

    def plan(self) -> Plan | None:
        """Return the plan of the best end found, or None where none beats the first incumbent."""
        if self.found is None:
            return None
        way, node = [self.found], self.found
        while node.before is not None:
            node = node.before
            way.append(node)
        rows = [list(each) for each in self.epochs.case.rows]
        stage, rounds = [0] * sum(map(len, rows)), list[int]()
        for node in reversed(way):
            if node.stage is not None:
                for kind, count in zip(rows, node.stage, strict=True):
                    for _ in range(count):
                        stage[kind.pop(0)] = len(rounds)
                rounds.append(0)
            if rounds:
                rounds[-1] += node.rounds
        running = self.found.state.running
        if running:
            rounds[-1] += running[-1] // self.epochs.many
        return Plan(tuple(stage), None, tuple(rounds))


def _behind(node: Node, move: Move) -> Node:
    return Node(move.state, node.spent + move.cost, node, move.stage, move.rounds)
