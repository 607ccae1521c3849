"""Decimation: an exact cover of the jobs by patterns, where there are many covers. Belief
propagation (the sum-product algorithm; Mezard and Montanari 2009, chapter 14) estimates in what
share of all covers each pattern is. The likeliest is fixed, and the estimates are updated. It needs
no linear program, and keeps to the middle of what is possible where a dive goes to a corner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.models.pcmax.patterns import items_of, patterns_worth, table_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.stop import Clock
    from orsched.models.pcmax.patterns import Ints, Pricer, Problem


Patterns = np.ndarray[Any, np.dtype[np.int16]]

LARGEST_TABLE = 8_000_000  # most cells of the table of partial sums (8 bytes each)

_SCALINGS = 12
_DAMPING = 0.7
_LEAST = 1e-30


class Entropy:
    """Patterns of one capacity drawn at random, each job as often in them as it must be. Each job j
    gets a weight u_j, a pattern the product of its jobs' weights. Iterated scaling makes J times
    the share of the patterns with j equal to 1 (the distribution of greatest entropy that covers
    the jobs on average); exact, by dynamic programming over loads as in the pricing."""

    def __init__(self, problem: Problem, capacity: int) -> None:
        self.problem, self.capacity = problem, capacity
        items = items_of(problem.sizes, problem.counts, capacity)
        self._kind, self._size = items.kind, items.size.tolist()
        self._log = np.zeros(len(problem.sizes))
        mean = problem.slack(capacity) / problem.clients
        low = max(0, problem.window(capacity).low, capacity - int(8 * mean) - 3)
        self._low = low
        # Waste is drawn as if geometric, with the mean that there must be.
        waste = capacity - np.arange(low, capacity + 1)
        self._last = np.exp(-np.log1p(1 / (mean + 0.05)) * waste)
        self._table = np.empty((len(self._size) + 1, capacity + 1))

    @staticmethod
    def fits(problem: Problem, capacity: int) -> bool:
        """Whether the table is small enough."""
        return table_cells(problem.sizes, problem.counts, capacity) <= LARGEST_TABLE

    def fit(self, scalings: int = _SCALINGS) -> bool:
        """Scale the weights; False if no pattern holds some job."""
        counts, clients = self.problem.counts, self.problem.clients
        there = counts > 0
        for _ in range(scalings):
            self._forward()
            share = np.bincount(self._kind, self._shares(), minlength=len(counts))[there]
            if not (share > 0).all() or not np.isfinite(share).all():
                return False
            expected = np.maximum(share * clients, _LEAST)
            self._log[there] -= _DAMPING * np.log(expected / counts[there])
        return True

    def draw(self, number: int, rng: np.random.Generator) -> Patterns:
        """Return the different ones of a number of patterns drawn, as counts of each size."""
        self._forward()
        table, low, weights = self._table, self._low, self._weights()
        sums = np.cumsum(table[-1, low:] * self._last)
        load = low + np.searchsorted(sums, rng.random(number) * sums[-1])
        load = np.minimum(load, self.capacity)
        patterns = np.zeros((number, len(self._log)), dtype=np.int16)
        for k in range(len(self._size) - 1, -1, -1):
            before = load - self._size[k]
            with_item = np.where(before >= 0, weights[k] * table[k, np.maximum(before, 0)], 0.0)
            take = rng.random(number) * table[k + 1, load] < with_item
            patterns[take, self._kind[k]] += 1
            load = np.where(take, before, load)
        # Equal patterns have equal keys; different ones have not, but for a vanishing chance.
        _, first = np.unique(patterns @ rng.random(patterns.shape[1]), return_index=True)
        different: Patterns = patterns[first]
        return different

    def _weights(self) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = np.exp(self._log)[self._kind]
        return weights

    def _forward(self) -> None:
        """Fill row k with the weight of each load out of the first k items."""
        table = self._table
        table[0] = 0.0
        table[0, 0] = 1.0
        for k, (size, weight) in enumerate(zip(self._size, self._weights().tolist(), strict=True)):
            old, row = table[k], table[k + 1]
            row[:size] = old[:size]
            np.multiply(old[:-size], weight, out=row[size:])
            row[size:] += old[size:]

    def _shares(self) -> NDArray[np.float64]:
        """Return the share of the patterns that hold each item."""
        table, capacity = self._table, self.capacity
        after, with_item = np.zeros(capacity + 1), np.empty(capacity + 1)
        after[self._low :] = self._last
        total = float((table[-1] * after).sum())  # no @: its threads wait for one another
        shares, weights = np.zeros(len(self._size)), self._weights().tolist()
        for k in range(len(self._size) - 1 if total > 0 else -1, -1, -1):
            size, row = self._size[k], with_item[: capacity + 1 - self._size[k]]
            np.multiply(after[size:], weights[k], out=row)
            after[:-size] += row
            row *= table[k, :-size]
            shares[k] = float(row.sum()) / total
        return shares


class Cover:
    """Depth first over the exact covers of the jobs by patterns. ``complete``: whether the search
    came to its end."""

    def __init__(self, patterns: Ints, worth: Ints, most: int, clock: Clock) -> None:
        self.patterns = patterns
        self.holds = patterns > 0
        self.worth = worth
        self.most = most
        self.clock = clock
        self.nodes = 0
        self.found: list[Ints] | None = None  # the patterns of a packing, if there is one
        self._seen: set[bytes] = set()

    def run(self, counts: Ints, clients: int, nodes: int) -> bool:
        """Search; return whether every possibility was tried (or a packing found)."""
        every = np.flatnonzero((self.patterns <= counts).all(axis=1))
        stack: list[tuple[Ints, int, list[int], Ints]] = [(counts, clients, [], every)]
        while stack:
            left, free, chosen, usable = stack.pop()
            if not left.any():
                self.found = [self.patterns[index] for index in chosen]
                return True
            key = left.tobytes()
            if key in self._seen or int(self.worth @ left) > free * self.most:
                continue
            self._seen.add(key)
            self.nodes += 1
            if self.nodes > nodes or self.clock.out():
                return False
            if chosen:  # what the parent could use, less what the last choice took
                took = np.flatnonzero(self.holds[chosen[-1]])
                fits = (self.patterns[usable[:, None], took] <= left[took]).all(axis=1)
                usable = usable[fits]
            stack += [
                (left - self.patterns[index], free - 1, [*chosen, index], usable)
                for index in self._options(left, usable).tolist()
            ]
        return True

    def _options(self, left: Ints, usable: Ints) -> Ints:
        """Return the usable patterns that hold the size that fewest of them hold."""
        holding = self.holds[usable].sum(axis=0)
        size = int(np.where(left > 0, holding, len(self.patterns) + 1).argmin())
        options: Ints = usable[self.holds[usable, size]]
        return options


PATTERNS = 10_000
_FIRST_ROUNDS = 40
_ROUNDS = 4
_LARGEST_LOG = 40.0
_NOISE = 0.3
_TRIES = 3
_TRIES_OF_FEW = 30
_FEW = 2_000
_NODES = 1_000


class Partial(NamedTuple):
    """Patterns fixed, and what is left of the problem."""

    chosen: list[Ints]
    left: Problem


class Decimation:
    """Attempts at one capacity."""

    def __init__(
        self, pricer: Pricer, capacity: int, rng: np.random.Generator, clock: Clock
    ) -> None:
        self.pricer, self.capacity, self.rng, self.clock = pricer, capacity, rng, clock

    def run(self, problem: Problem) -> Partial:
        """Return the best of some attempts: no jobs are left if it succeeds. With too many patterns
        for a table, it goes on from a sample to half of the clients, and from there with a new
        sample."""
        best, half = Partial([], problem), problem.clients // 2
        patterns, whole = self._patterns(problem)
        if patterns is None or not len(patterns):
            return best
        for attempt in range(_TRIES_OF_FEW if whole and len(patterns) <= _FEW else _TRIES):
            if self.clock.out():
                break
            noise = _NOISE * self.rng.standard_normal(len(patterns)) * (attempt > 0)
            messages = Messages(problem, self.capacity, patterns, noise)
            done = self._to_the_end(messages) if whole else messages.fix(half, self.clock)
            if not whole and done.left.counts.any() and done.left.clients <= half:
                rest = self.run(done.left)
                done = Partial(done.chosen + rest.chosen, rest.left)
            if done.left.clients < best.left.clients:
                best = done
            if not best.left.counts.any() or best.left.clients > half:
                break  # done; or too far from it for this way to lead there
        return best

    def _to_the_end(self, messages: Messages) -> Partial:
        """Fix patterns to a third of the clients, then search; go on fixing if that fails."""
        done = messages.fix(messages.problem.clients // 3, self.clock)
        patterns = messages.patterns[messages.alive].astype(np.int64)
        sizes = messages.problem.sizes
        cover = Cover(patterns, sizes, self.capacity, self.clock)
        if cover.run(done.left.counts, done.left.clients, _NODES) and cover.found is not None:
            left = done.left.counts - sum(cover.found, np.zeros_like(sizes))
            clients = done.left.clients - len(cover.found)
            return Partial(done.chosen + cover.found, type(done.left)(sizes, left, clients))
        rest = messages.fix(0, self.clock)
        return Partial(done.chosen + rest.chosen, rest.left)

    def _patterns(self, problem: Problem) -> tuple[Patterns | None, bool]:
        """Return all patterns of the problem, or a sample; and whether it is all."""
        items = items_of(problem.sizes, problem.counts, self.capacity)
        kinds, window = len(problem.sizes), problem.window(self.capacity)
        nothing = np.zeros(kinds, dtype=np.int64)
        all_ = patterns_worth(self.pricer, items, nothing, window, kinds, 0, PATTERNS)
        if all_ is not None:
            return all_.astype(np.int16), True
        entropy = Entropy(problem, self.capacity)
        return (entropy.draw(PATTERNS, self.rng) if entropy.fit() else None), False


class Messages:
    """Belief propagation on patterns and jobs, with the clients as one job that all patterns hold.
    An edge is a pattern with a size that it holds. The message along it is the logarithm of the
    odds by which that size asks for the pattern, given what the others ask for."""

    def __init__(
        self, problem: Problem, capacity: int, patterns: Patterns, noise: NDArray[np.float64]
    ) -> None:
        self.problem, self.patterns, self.noise = problem, patterns, noise
        self.slack = problem.slack(capacity)
        self.waste = capacity - patterns @ problem.sizes
        self.left = np.append(problem.counts, problem.clients)
        row, size = np.nonzero(patterns)
        every = np.arange(len(patterns))
        self.row = np.concatenate([row, every])
        self.size = np.concatenate([size, np.full(len(patterns), len(problem.sizes))])
        self.times = np.concatenate([patterns[row, size], np.ones(len(patterns), np.int16)])
        self.message = np.zeros(len(self.row))
        self.alive = np.ones(len(patterns), dtype=bool)

    def fix(self, clients: int, clock: Clock) -> Partial:
        """Fix patterns one by one until this many clients are left, or no pattern helps."""
        chosen: list[Ints] = []
        self._close()
        rounds = _FIRST_ROUNDS
        while self.left[-1] > clients and self.left[:-1].any() and not clock.out():
            if not self._possible():
                break
            odds = np.where(self.alive, self._odds(rounds), -np.inf)
            best = int(odds.argmax())
            chosen.append(self.patterns[best].astype(np.int64))
            self.left[:-1] -= chosen[-1]
            self.left[-1] -= 1
            self.slack -= int(self.waste[best])
            self._close()
            rounds = _ROUNDS
        left = type(self.problem)(self.problem.sizes, self.left[:-1].copy(), int(self.left[-1]))
        return Partial(chosen, left)

    def _possible(self) -> bool:
        """Whether each job that is left is in a pattern."""
        held = np.bincount(self.size, minlength=len(self.left)) > 0
        return bool(held[self.left > 0].all())

    def _odds(self, rounds: int) -> NDArray[np.float64]:
        """Return the logarithm of the odds of each pattern after some rounds of messages."""
        row, size, message = self.row, self.size, self.message
        due, patterns = np.log(np.maximum(self.left, 1))[size], len(self.patterns)
        for _ in range(rounds):
            odds = np.bincount(row, message * self.times, minlength=patterns) + self.noise
            others = np.exp(np.clip(odds[row] - message, -_LARGEST_LOG, _LARGEST_LOG))
            total = np.bincount(size, self.times * others, minlength=len(self.left))
            asked = due - np.log(np.maximum(total[size] - others, 1e-12))
            message = (message + np.clip(asked, -_LARGEST_LOG, _LARGEST_LOG)) / 2
        self.message = message
        result: NDArray[np.float64] = (
            np.bincount(row, message * self.times, minlength=patterns) + self.noise
        )
        return result

    def _close(self) -> None:
        """Drop the patterns that what is left does not allow."""
        self.alive &= self.waste <= self.slack
        self.alive[self.row[self.times > self.left[self.size]]] = False
        keep = self.alive[self.row]
        self.row, self.size = self.row[keep], self.size[keep]
        self.times, self.message = self.times[keep], self.message[keep]
