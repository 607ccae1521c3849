"""From a packing and a bound to a proof: capacities by galloping, column generation, dives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.stop import most_within
from orsched.models.compiled_kernels import Kernels, compiled_copies
from orsched.models.pcmax import belief_loops, exchange_loops
from orsched.models.pcmax.columns import Columns
from orsched.models.pcmax.guided import (
    MORE_NODES,
    MORE_PATTERNS,
    NODES,
    TREE_PATTERNS,
    Guided,
    Pool,
    Tree,
)
from orsched.models.pcmax.local_search import Groups, longest_first, repartition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from orsched.common.stop import Clock
    from orsched.models.pcmax.columns import Floats, Solution
    from orsched.models.pcmax.patterns import Ints, Problem


_ROUNDS = 12
_SURE = 0.95
_SEEN = 1e-6


@dataclass
class _Level:
    """A point in the dive."""

    left: Problem  # what is left of the problem
    solution: Solution  # its fractional packing
    chosen: list[Ints]  # the patterns fixed so far
    closed: frozenset[int] = frozenset()  # patterns that lead nowhere from here
    pick: int | None = None  # the pattern that led here, None if there were several at once
    sure: bool = True  # whether nearly whole patterns are still to be tried together


class Dive:
    """One dive: round the fractional packing pattern by pattern, with new columns after each step.
    Where the linear program of what is left becomes infeasible, the last choice is taken back and
    its pattern closed, a limited number of times."""

    def __init__(self, columns: Columns, capacity: int, rng: random.Random, spread: int) -> None:
        self.columns = columns
        self.capacity = capacity
        self.rng = rng
        self.spread = spread

    def run(self, solution: Solution, undos: int) -> tuple[list[Ints], Ints]:
        """Return chosen patterns and the counts of jobs that no pattern took (0 if it succeeds).
        ``solution``: a fractional packing at the capacity; ``undos``: how often a choice may be
        taken back."""
        stack = [_Level(self.columns.problem, solution, [])]
        deepest = stack[0]
        while stack and not self.columns.clock.out():
            after, pick = self._down(stack[-1])
            if after is None:
                undos -= 1
                if undos < 0:
                    break
                self._back(stack, pick)
                continue
            if len(after.chosen) > len(deepest.chosen):
                deepest = after
            if not after.left.counts.any():
                break
            stack.append(after)
        return deepest.chosen, deepest.left.counts

    def _down(self, level: _Level) -> tuple[_Level | None, int | None]:
        """Return the next level, None if what is left cannot be packed; and what was picked."""
        patterns, shares = self.columns.master.patterns, level.solution.shares
        order = np.argsort(-shares, kind="stable")
        step = _sure(patterns, shares, order, level.left) if level.sure else []
        level.sure, pick = False, None
        if not step:
            likely = [i for i in order[: self.spread].tolist() if shares[i] > _SEEN]
            if not likely:
                return None, None
            pick = self.rng.choice(likely)
            step = [patterns[pick]]
        left, chosen = level.left, list(level.chosen)
        for pattern in step:
            chosen.append(np.minimum(pattern, left.counts))
            left = left.less(pattern, 1)
        if not left.counts.any():
            return _Level(left, level.solution, chosen), pick
        if not left.clients or left.slack(self.capacity) < 0:
            return None, pick
        solution = self._solve(left, level.closed)
        if solution is None:
            return None, pick
        return _Level(left, solution, chosen, level.closed, pick), pick

    def _solve(self, left: Problem, closed: frozenset[int]) -> Solution | None:
        verdict = self.columns.solve(left, self.capacity, _ROUNDS, exact=False, closed=closed)
        return verdict.solution if verdict.feasible else None

    def _back(self, stack: list[_Level], pick: int | None) -> None:
        """Close what failed; go up to the first level that still has a fractional packing."""
        while stack:
            level = stack[-1]
            if pick is not None:
                level.closed |= {pick}
                solution = self._solve(level.left, level.closed)
                if solution is not None:
                    level.solution = solution
                    return
            elif (level.solution.shares > _SEEN).any():
                return
            pick = stack.pop().pick


def _sure(patterns: Ints, shares: Floats, order: Ints, left: Problem) -> list[Ints]:
    """Return the patterns of nearly whole share, each as often as it says."""
    counts = left.counts.copy()
    step: list[Ints] = []
    for index in order.tolist():
        share = float(shares[index])
        if share < _SURE:
            break
        for _ in range(max(1, int(share + _SEEN))):
            if (patterns[index] <= counts).all() and len(step) < left.clients:
                counts -= patterns[index]
                step.append(patterns[index])
    return step


_ROUNDS_AGAIN = 60
_GUIDED = 8  # guided attempts before a dive, once the first dives have led nowhere; more each time
_FIRST_DIVES = 3
_FIRST_TRIES = 3
"""Guided attempts at a capacity before any further dive: where they succeed, they do at once."""
_ABOVE = (0, 1, 2, 5)
"""Where guided attempts begin, above the bound, and how often they are tried before branching."""


@dataclass(frozen=True)
class Effort:
    """Most work without a time limit: rounds of pricing a capacity, dives, moves after a dive."""

    rounds: int = 60
    dives: int = 40
    moves: int = 400
    undos: int = 1


class Search:
    """The best packing, the best bound, and what proves it."""

    def __init__(
        self,
        problem: Problem,
        groups: Groups,
        certificate: dict[str, Any],
        clock: Clock,
        rng: random.Random,
        gap: float = 0.0,
    ) -> None:
        self.problem = problem
        self.gap = gap
        self.groups = groups  # lengths of the jobs of each client
        self.makespan = max(map(sum, groups))  # largest load
        self.certificate = certificate  # of the bound; its ``value`` is the bound
        self.clock = clock
        self.rng = rng
        self.numbers = np.random.default_rng(rng.randrange(2**32))
        self.columns = Columns(problem, clock)
        self._tried: set[tuple[int, int]] = set()
        self._guided: dict[int, Guided | None] = {}
        self._begun: set[int] = set()
        self._few_alike = few_alike(problem)
        if self._few_alike:
            compiled()  # begins to load
        self._row = {size: k for k, size in enumerate(problem.sizes.tolist())}

    @property
    def bound(self) -> int:
        """Proven lower bound."""
        return int(self.certificate["value"])

    def finished(self) -> bool:
        """Whether the packing is proven to be within the gap, or time is up."""
        return self.makespan <= most_within(self.gap, self.bound) or self.clock.out()

    def run(self, effort: Effort) -> None:
        """Raise the bound to the linear program's, then dive at it and above it."""
        if self.finished() or not self.columns.fits(self.makespan - 1):
            return
        self._learn(self.groups)
        self.columns.seed(self.bound, self.numbers)
        self.raise_bound(effort.rounds)
        for number in range(effort.dives):
            if self.finished():
                return
            if number:  # the first dive is quick, and often enough
                self.guide(_GUIDED * max(0, number - _FIRST_DIVES), effort)
            if not self.finished():
                self.attempt(self._capacity(number), number, effort)

    def guide(self, tries: int, effort: Effort) -> None:
        """Look for a packing among the patterns that the linear program prefers. At the bound; the
        first time also above it, as long as no packing turns up, for nearly as good is better than
        not so good. Then it is decided by branching, if that is within reach."""
        loops = compiled().get(not self.clock.limited) if self._few_alike else None
        while loops is not None and not self.finished():
            capacity = self.bound
            for above in _ABOVE if capacity not in self._begun else ():
                if self.bound == capacity and capacity + above < self.makespan:
                    self._guide_at(capacity + above, max(1, _FIRST_TRIES - above), loops, effort)
            self._begun.add(capacity)
            if self.bound == capacity:
                self._decide(self._guided.get(capacity), more=tries > 0)
            if self.bound == capacity:
                self._guide_at(capacity, tries, loops, effort)
            if self.bound == capacity:
                return

    def _guide_at(self, capacity: int, tries: int, loops: Any, effort: Effort) -> None:
        if capacity not in self._guided:
            pool = Pool.of(self.columns, capacity)
            guided = Guided(pool, loops, self.numbers, self.clock) if pool else None
            self._guided[capacity] = guided
        guided = self._guided[capacity]
        for _ in range(tries):
            if guided is None or self.finished():
                return
            chosen = guided.attempt()
            if chosen is not None:
                left = self.problem.counts - sum(chosen)
                self._complete(chosen, left, capacity, effort)
                return
            if guided.exhausted:
                self._prove(capacity, guided.pool.priced.duals, "cover")
                self.raise_bound(_ROUNDS_AGAIN)
                return

    def _decide(self, guided: Guided | None, more: bool) -> None:
        """Decide the capacity at the bound by branching, if few patterns are left. Once, and once
        more with more patterns and nodes where nothing else has helped."""
        pool = guided.pool if guided else None
        patterns, nodes = (MORE_PATTERNS, MORE_NODES) if more else (TREE_PATTERNS, NODES)
        if pool is None or not pool.whole or len(pool.patterns) > patterns:
            return
        if (pool.capacity, nodes) in self._tried or self.finished():
            return
        self._tried.add((pool.capacity, nodes))
        tree = Tree(pool, self.clock)
        if tree.run(nodes):
            self._prove(pool.capacity, pool.priced.duals, "tree")
            self.certificate["tree"] = tree.nodes
            self.raise_bound(_ROUNDS_AGAIN)
        elif tree.found is not None:
            self._keep(tree.found)

    def _keep(self, found: list[Ints]) -> None:
        """Take the packing that a search has found."""
        groups = [self._lengths(pattern) for pattern in found]
        groups += [[] for _ in range(self.problem.clients - len(groups))]
        self.groups, self.makespan = groups, max(map(sum, groups))

    def _capacity(self, number: int) -> int:
        """Return where to dive: mostly at the bound, at times halfway to the packing."""
        if number % 4 < 3:
            return self.bound
        return (self.bound + self.makespan - 1) // 2

    def raise_bound(self, rounds: int) -> None:
        """Find the smallest capacity without a proof against it: gallop upwards, then bisect. A
        capacity that stays undecided after some rounds counts as possible, and is tried again with
        more rounds once it is the bound."""
        top, step = self.makespan, 1
        capacity = self.bound
        while self.bound < top and not self.clock.out():
            verdict = self.columns.solve(self.problem, capacity, rounds)
            if verdict.duals is None and not verdict.feasible:  # perhaps it was close
                verdict = self.columns.solve(self.problem, capacity, rounds)
            if verdict.duals is not None:
                self._prove(capacity, verdict.duals)
                step *= 2
            else:
                top = capacity
            low = self.bound
            capacity = min(low + step - 1, top - 1) if top == self.makespan else (low + top) // 2

    def _prove(self, capacity: int, duals: Ints, kind: str = "dual") -> None:
        """Note that a capacity is too small."""
        self.certificate = self.problem.certificate(capacity, duals, kind)

    def _learn(self, groups: Groups) -> None:
        """Take the contents of clients as patterns."""
        patterns = np.zeros((len(groups), len(self._row)), dtype=np.int64)
        for row, group in zip(patterns, groups, strict=True):
            for size in group:
                row[self._row[size]] += 1
        self.columns.master.add(patterns)

    def attempt(self, capacity: int, number: int, effort: Effort) -> None:
        """Look for a packing at a capacity by a dive, unless a proof turns up."""
        verdict = self.columns.solve(self.problem, capacity, 4 * effort.rounds)
        if verdict.duals is not None:
            self._prove(capacity, verdict.duals)
            self.raise_bound(effort.rounds)
        elif verdict.solution is not None:
            spread = 1 if number == 0 else 2 + number % 3
            dive = Dive(self.columns, capacity, self.rng, spread)
            self._complete(*dive.run(verdict.solution, effort.undos), capacity, effort)

    def _complete(self, chosen: list[Ints], left: Ints, capacity: int, effort: Effort) -> None:
        """Give what no pattern took to the other clients; keep the packing if it is better."""
        groups = [self._lengths(pattern) for pattern in chosen]
        rest = longest_first(self._lengths(left), self.problem.clients - len(groups))
        if rest:
            repartition(rest, capacity, self.rng, effort.moves, self.clock)
        self._offer(groups + rest, capacity, effort)

    def _lengths(self, pattern: Ints) -> list[int]:
        lengths: list[int] = np.repeat(self.problem.sizes, pattern).tolist()
        return lengths

    def _offer(self, groups: Groups, capacity: int, effort: Effort) -> None:
        """Keep a packing if it is better, after some moves towards the capacity."""
        if sum(map(len, groups)) != int(self.problem.counts.sum()):
            return  # no client was left for the rest
        makespan = repartition(groups, capacity, self.rng, effort.moves, self.clock)
        if makespan < self.makespan:
            self.groups, self.makespan = groups, makespan
            self._learn(groups)


def few_alike(problem: Problem) -> bool:
    """Whether most jobs differ and clients hold few: else the linear program is small or slow."""
    jobs = int(problem.counts.sum())
    return 2 * len(problem.sizes) > jobs and jobs < 4 * problem.clients


@cache
def compiled() -> Kernels:
    """Return the compiled ``belief_loops``; the first call starts to load them."""
    return _kernels(_belief_propagation)


@cache
def compiled_exchanges() -> Kernels:
    """Return the compiled ``exchange_loops``; the first call starts to load them."""
    return _kernels(_exchanges)


def _kernels(compile_it: Callable[[], Any]) -> Kernels:
    missing = "packing proves more with numba: pip install orsched[fast]"
    return Kernels(compile_it, "loops of the packing", missing=missing)


def _belief_propagation() -> Any:
    module: Any = compiled_copies(belief_loops)
    none, zero = np.zeros(1, dtype=np.int64), np.zeros(1)
    module.pass_messages(np.zeros(2, np.int64), none, zero, zero, zero, 1)
    module.search(np.zeros(2, np.int64), none, none, none, none, none.copy(), 0, none, none)
    return module


def _exchanges() -> Any:
    module: Any = compiled_copies(exchange_loops)
    row, width = np.zeros(1, dtype=np.int64), exchange_loops.WIDTH
    table, jobs = (np.zeros((1, size), dtype=np.int64) for size in (1 << width, width))
    clients = exchange_loops.Clients(jobs, row, row.copy(), table, table.copy(), row.copy())
    module.subsets(clients, 0, np.zeros(1), 0)
    module.walk(clients, np.zeros(1), 0)
    return module
