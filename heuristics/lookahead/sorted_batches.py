"""Batches by the least output tokens over size squared: the policy Sorted-F."""

from __future__ import annotations

from bisect import insort
from itertools import islice
from typing import TYPE_CHECKING

from orsched.heuristics.lookahead.future_memory import FutureMemory
from orsched.heuristics.lookahead.lengths import expected_tokens, volume
from orsched.heuristics.lookahead.policy import LookAhead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.heuristics.lookahead.params import BatchParams
    from orsched.policy import Information, View

Entry = tuple[int, int, int]
"""Output tokens, arrival, request."""


class SortedBatches(LookAhead):
    """Sorted-F: the feasible batch X with the least F(X) first (Wang et al., arXiv 2508.06133).

    F(X) is the sum of the output tokens of X over the square of its size. A batch is feasible if
    its requests, started together in an empty memory, fit to the end. Batches are chosen one after
    the other; within a batch the shortest goes first, and requests are admitted in that order as
    by MC-SF, so that the next batch starts while the last one still runs.

    Our choices: a batch is chosen when the last one has been admitted, from those that wait then;
    among few all batches are compared (ties: the larger, then the one with earlier entries), among
    many the best prefix of three greedy orders (output tokens, tokens in the end, volume) is, which
    exchanges then improve. The paper's program and local search are others. An evicted request
    goes back to the pool with its whole length.
    """

    def __init__(self, params: BatchParams, information: Information) -> None:
        super().__init__("sorted_f", information)
        self.params = params
        self.pool: list[Entry] = []
        self.batch: list[Entry] = []  # what is left of the chosen batch, the next one last

    def length(self, view: View, request: int) -> int:
        """Return the true or predicted tokens."""
        return expected_tokens(view, request, 0.0)

    def key(self, view: View, request: int) -> int:
        """Return the same: the order within a batch."""
        return self.length(view, request)

    def on_arrival(self, view: View, request: int) -> None:
        """Put the request into the pool."""
        insort(self.pool, (self.key(view, request), view.arrival_ns[request], request))

    def waiting(self) -> int:
        """Return how many wait, chosen or not."""
        return len(self.pool) + len(self.batch)

    def surrender(self) -> int:
        """Give up the request with the most tokens."""
        return self.pool.pop()[2] if self.pool else self.batch.pop(0)[2]

    def peek(self, view: View) -> int | None:
        """Return the next of the batch; a new one is chosen where there is none."""
        if not self.batch:
            if not self.pool:
                return None
            self.batch = sorted(self._choose(view), reverse=True)
            chosen = set(self.batch)
            self.pool = [each for each in self.pool if each not in chosen]
        return self.batch[-1][2]

    def take(self) -> None:
        """Admit the next of the batch."""
        self.batch.pop()

    def _choose(self, view: View) -> list[Entry]:
        candidates = self.pool[: self.params.pool]
        room = _Room(view, self.params.swaps)
        if len(candidates) <= self.params.exact:
            return room.best_of_all(candidates)
        return room.improved(room.best_prefix(candidates), candidates)


class _Room:
    """An empty worker, into which batches are put on trial."""

    def __init__(self, view: View, swaps: int) -> None:
        self.view, self.swaps = view, swaps
        memory = view.worker.memory
        self.clients = view.worker.clients
        self.whole = None if memory is None else memory.blocks
        self.paged = None if memory is None or not memory.is_paged else memory

    def best_of_all(self, candidates: Sequence[Entry]) -> list[Entry]:
        """Return the best batch by trying all that are feasible."""
        best: list[Entry] = [candidates[0]]
        trial = _Trial(self)

        def extend(first: int) -> None:
            nonlocal best
            for i in range(first, len(candidates)):
                if trial.add(candidates[i]):
                    if better(trial.members, best):
                        best = list(trial.members)
                    extend(i + 1)
                    trial.drop(candidates[i])

        extend(0)
        return best

    def best_prefix(self, candidates: Sequence[Entry]) -> list[Entry]:
        """Return the best prefix of the greedy batches of three orders."""
        prompts, best = self.view.prompt_tokens, [candidates[0]]
        orders = (
            candidates,
            sorted(candidates, key=lambda each: (each[0] + prompts[each[2]], each)),
            sorted(candidates, key=lambda each: (volume(prompts[each[2]], each[0]), each)),
        )
        for order in orders:
            trial = _Trial(self)
            for each in order:
                if trial.add(each) and better(trial.members, best):
                    best = list(trial.members)
        return best

    def improved(self, batch: Sequence[Entry], candidates: Sequence[Entry]) -> list[Entry]:
        """Return the batch after exchanges for shorter requests, the longest members first."""
        trial = _Trial(self)
        for each in batch:
            trial.add(each)
        for member in sorted(batch, reverse=True):
            trial.drop(member)
            shorter = (each for each in candidates if each < member and each not in trial.members)
            if not any(trial.add(each) for each in islice(shorter, self.swaps)):
                trial.add(member)
        return trial.members


class _Trial:
    """A batch that is put together request by request."""

    def __init__(self, room: _Room) -> None:
        self.room, self.set_aside, memory = room, 0, room.paged
        self.members: list[Entry] = []
        self.future = None
        if memory is not None:
            self.future = FutureMemory(memory.blocks, memory.block_tokens)

    def add(self, entry: Entry) -> bool:
        """Put a request in if it fits; say if it does."""
        room, request = self.room, entry[2]
        if len(self.members) == room.clients:
            return False
        if self.future is not None:
            tokens = entry[0] - (room.view.first_token == "prefill")
            if not self.future.add(request, room.view.prompt_tokens[request], tokens, False):
                return False
        elif room.whole is not None:
            blocks = room.view.blocks_of(request)
            if self.set_aside + blocks > room.whole:
                return False
            self.set_aside += blocks
        self.members.append(entry)
        return True

    def drop(self, entry: Entry) -> None:
        """Take a request out."""
        self.members.remove(entry)
        if self.future is not None:
            self.future.drop(entry[2])
        elif self.room.whole is not None:
            self.set_aside -= self.room.view.blocks_of(entry[2])


def better(batch: Sequence[Entry], other: Sequence[Entry]) -> bool:
    """Whether a batch has less output over size squared; else is larger; else begins earlier."""
    mine = sum(each[0] for each in batch) * len(other) ** 2
    theirs = sum(each[0] for each in other) * len(batch) ** 2
    if mine != theirs:
        return mine < theirs
    if len(batch) != len(other):
        return len(batch) > len(other)
    return sorted(batch) < sorted(other)
