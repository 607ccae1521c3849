"""The best-first search for sums of times: incumbent and bound, whatever ends it."""

from __future__ import annotations

from heapq import heappush
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.models.best_first_times.epochs import Epochs, read_case
from orsched.models.best_first_times.relaxation import Relaxation
from orsched.models.exact_search.aims import Answer, ExactSearch, TimesAim
from orsched.models.exact_search.best_first import (
    CHECKED_EVERY,
    MAX_FIRST_STAGES,
    MAX_STATES,
    NO_COST,
    BestFirstRun,
    OpenStates,
    first_values,
    plan_of_steps,
)
from orsched.models.exact_search.bounded import BestFirstResult
from orsched.models.exact_search.stage_plan import read_problem
from orsched.models.exact_search.starts import prepare_values
from orsched.solving.objectives import Objective, minimised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.best_first_times.epochs import Counts, Move, State
    from orsched.models.exact_search.bounded import FullMipProgress
    from orsched.models.exact_search.stage_plan import Plan


def refusal_for_times(instance: Instance, objective: Objective) -> str:
    """Return why this search does not take an instance and an objective, or ""."""
    if not objective.is_linear:
        return f"{objective.name} is not a sum of times"
    if len(instance) == 0:
        return "no requests are given"
    problem = read_problem(instance, exact=True)
    terms = TimesAim(instance, problem, objective).terms
    count = read_case(problem, terms, instance.first_token != "prefill").first_stages
    if count > MAX_FIRST_STAGES:
        return f"up to {count:,} first stages are possible, more than {MAX_FIRST_STAGES:,}"
    return ""


def solve_best_first_times(
    instance: Instance,
    objective: str | Objective = "jct_mean",
    time_limit: float | None = None,
    initial_schedule: Schedule | None = None,
    callback: Callable[[FullMipProgress], object] | None = None,
    *,
    max_states: int = MAX_STATES,
    alone: bool = False,
) -> BestFirstResult:
    """Minimise a sum of times over schedules without pauses, the state of the least bound first.

    Which schedules are enumerated, and why no other is better: ``epochs``. Reproducible but for the
    clock. Arrivals, memory, prefill caps, levels and weights are as they are.

    Args:
        instance: one worker, at least one request; a cost model that the full MIP takes.
        objective: means of completion times or first tokens, weighted ones, the makespan, or
            weighted sums of these.
        time_limit: seconds from this call to its return.
        initial_schedule: any valid schedule; policies are run beside.
        callback: called with ``FullMipProgress`` after each better incumbent or bound; returning
            True ends the search.
        max_states: with more states the search ends and says what it has proven.
        alone: search without heuristics and certified bounds: the reference for tests.

    Raises:
        InputError: an argument is wrong, or the instance or objective is not taken.
        InfeasibleError: no schedule exists; names the request and the limit.
        InvalidScheduleError: the initial schedule is not valid.
    """
    begin = perf_counter()
    max_states = whole_number(max_states, "max_states", minimum=1)
    wanted = minimised(objective)
    why_not = refusal_for_times(instance, wanted)
    if why_not:
        raise InputError(
            f"the best-first search does not take this: {why_not}",
            field="objective",
            remedy="use exact with search=mip, or latency_search",
        )
    problem = read_problem(instance, exact=True)
    aim = TimesAim(instance, problem, wanted)
    search = ExactSearch(instance, problem, callback, begin, aim, time_limit)
    prepare_values(search, initial_schedule, alone)
    search.report_start()
    started = perf_counter()
    answer = search.answer_at_once() or _searched(search, aim, max_states)
    bound = search.proven_bound(answer)
    return BestFirstResult(
        bound_ns=None if bound is None else aim.shown_ns(bound),
        objective=wanted.name,
        value=None if search.value is None else aim.fraction(search.value),
        value_bound=None if bound is None else aim.fraction(bound),
        expanded=answer.solver.get("expanded", 0),
        left_out=answer.solver.get("left_out", 0),
        **search.outcome(answer, started),
    )


def _searched(search: ExactSearch, aim: TimesAim, max_states: int) -> Answer:
    in_round = search.instance.first_token != "prefill"
    epochs = Epochs(read_case(search.problem, aim.terms, in_round))
    found = TimesSearch(epochs, *first_values(search), max_states)
    return BestFirstRun(search, found).answer()


class Node(NamedTuple):
    """A state with the way to it: what it has cost, the node before, the move in between."""

    state: State
    spent: int
    before: Node | None
    stage: Counts | None
    rounds: int


class TimesSearch(OpenStates):
    """The open states and what is known of those met."""

    def __init__(self, epochs: Epochs, best: int, bound: int, most_states: int) -> None:
        super().__init__(best, bound, most_states)
        self.epochs = epochs
        self._relaxation = Relaxation(epochs)
        self._states, self._dive_at = 0, 1
        self._known: dict[tuple[Counts, tuple[int, ...]], list[tuple[int, int]]] = {}
        self._fronts: dict[Counts, list[tuple[int, int, tuple[int, ...]]]] = {}

    def _start(self) -> Node:
        return Node(self.epochs.start, 0, None, None, 0)

    def _kept(self) -> int:
        return self._states

    def _expand(self, node: Node, least: int, out_of_time: Callable[[], bool]) -> bool:
        """Offer all that may follow, now and then behind a dive."""
        if self.expanded >= self._dive_at:
            self._dive_at *= 4
            self._dive(node, out_of_time)
        return super()._expand(node, least, out_of_time)

    def _following(self, node: Node) -> Iterator[Node]:
        return (_behind(node, move) for move in self.epochs.moves(node.state))

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
        self._states += 1
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
                self._children += 1
                if self._children % CHECKED_EVERY == 0 and out_of_time():
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
        steps = [(node.stage, node.rounds) for node in self.way()]
        running = self.found.state.running
        rest = running[-1] // self.epochs.many if running else 0
        return plan_of_steps(self.epochs.case.rows, steps, rest)


def _behind(node: Node, move: Move) -> Node:
    return Node(move.state, node.spent + move.cost, node, move.stage, move.rounds)
