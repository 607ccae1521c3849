"""What bounds derive of an instance and a class of schedules: requests, floors, kinds of workers.

Each part is worked out once, when it is first asked for. Who proposes bounds makes its own context,
and so does each check of a certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from orsched.certificates.scope import PLAIN, Scope
from orsched.costs import floor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.instance import Instance
    from orsched.data.memory import BlockMemory
    from orsched.data.workers import Worker

Found = TypeVar("Found")
Choices = ParamSpec("Choices")


@dataclass(frozen=True)
class Jobs:
    """The requests released at or after a moment: N^p, decode rounds D and memory blocks of each.

    ``blocks`` are 0 without a memory model; ``clients`` is the most requests, of the whole
    instance, that are on clients at one time.
    """

    prompts: IntColumn
    rounds: IntColumn
    blocks: IntColumn
    clients: int

    def __len__(self) -> int:
        return len(self.prompts)

    @cached_property
    def totals(self) -> dict[str, int]:
        """The sums that a certificate states; ``context_sum`` is over D N^p + D(D+1)/2."""
        prompts, rounds, blocks = self.prompts, self.rounds, self.blocks
        needed = int(rounds.sum())
        contexts = sum_of_products(rounds, prompts)
        contexts += (sum_of_products(rounds, rounds) + needed) // 2
        return {
            "requests": len(self),
            "clients": self.clients,
            "prompt_tokens": int(prompts.sum()),
            "rounds_needed": needed,
            "context_sum": contexts,
            "blocks": int(blocks.sum()),
            "block_rounds": sum_of_products(blocks, rounds),
        }


class Fit(NamedTuple):
    """The requests that fit onto a worker: their rows in the instance, and what they need."""

    rows: list[int]
    jobs: Jobs


class Context:
    """An instance and a class of schedules, and what bounds derive of both, each part once.

    Workers that are equal but for their names, and for their times, are of one kind: it has
    the number of the first of them.
    """

    def __init__(self, instance: Instance, scope: Scope = PLAIN) -> None:
        self.instance, self.scope = instance, scope
        self._known: dict[Any, Any] = {}

    @classmethod
    def allowing(cls, instance: Instance, names: Iterable[str]) -> Context:
        """Return that of the schedules with these allowances; ``InputError`` for others."""
        return cls(instance, Scope.allowing(names, instance))

    def once(
        self,
        derive: Callable[Concatenate[Context, Choices], Found],
        *choices: Choices.args,
        **named: Choices.kwargs,
    ) -> Found:
        """Return what follows from this context and some choices, worked out at the first call."""
        key = (derive, choices, *named.items())
        if key not in self._known:
            self._known[key] = derive(self, *choices, **named)
        found: Found = self._known[key]
        return found

    @cached_property
    def arrivals(self) -> list[int]:
        """When the requests arrive."""
        found: list[int] = self.instance.requests.arrival_ns.tolist()
        return found

    @property
    def arrive_over_time(self) -> bool:
        """Whether not all requests arrive at one moment."""
        return max(self.arrivals) > min(self.arrivals)

    @cached_property
    def kinds(self) -> list[int]:
        """The kind of each worker."""
        unnamed = [replace(worker.as_seen, name="any") for worker in self.instance.workers]
        found: list[int] = []
        for number, worker in enumerate(unnamed):
            known = (kind for kind in dict.fromkeys(found) if unnamed[kind] == worker)
            found.append(next(known, number))
        return found

    @property
    def equal(self) -> bool:
        """Whether all workers are of one kind."""
        return not any(self.kinds)

    @cached_property
    def one(self) -> Context:
        """The same requests on the first worker alone."""
        if len(self.instance.workers) == 1:
            return self
        found = Context(self.instance.replace(workers=self.instance.workers[0]), self.scope)
        stated = {0: self.stated[0]}
        vars(found).update(arrivals=self.arrivals, jobs=self.jobs, stated=stated)
        return found

    @cached_property
    def stated(self) -> dict[int, Floor | None]:
        """The floor that the cost model of each kind states, for as many requests as fit."""
        return {kind: self._stated(kind) for kind in dict.fromkeys(self.kinds)}

    def _stated(self, kind: int) -> Floor | None:
        worker, most = self.instance.workers[kind], self.fit(kind).jobs.clients
        if (memory := worker.memory) is not None and not worker.caches_prefixes:
            shortest = int(self.instance.requests.prompt_tokens.min(initial=1))
            most = min(most, memory.blocks // -(-shortest // memory.block_tokens))
        return floor_of(worker.cost, max(1, most), worker.prefill_limit)

    @cached_property
    def floors(self) -> dict[int, Floor | None]:
        """The floor under the steps of these schedules, by kind; None where none is known."""
        workers, scope = self.instance.workers, self.scope
        return {kind: scope.holding(floor, workers[kind]) for kind, floor in self.stated.items()}

    @property
    def has_floors(self) -> bool:
        """Whether there is a floor under the steps of each worker."""
        return None not in self.floors.values()

    def floor(self, worker: int) -> Floor:
        """Return the floor under a worker's steps; ``ValueError`` where none is."""
        floor = self.floors[self.kinds[worker]]
        if floor is None:
            raise ValueError("the cost model has no floor")
        return floor

    @cached_property
    def jobs(self) -> Jobs:
        """All requests; clients: J of the first worker, n, or as many as its memory holds."""
        return _jobs(self.instance, self.instance.workers[0], np.arange(len(self.instance)))

    def released(self, moment: int) -> Jobs:
        """Return the requests that arrive at or after a moment."""
        return self.once(_released, moment)

    def fit(self, worker: int) -> Fit:
        """Return the requests that fit onto a worker as far as it serves them.

        Where prompts are divided, or prefilled elsewhere, any prompt does.
        """
        return self.once(_fit, self.kinds[worker])

    @cached_property
    def able(self) -> list[int]:
        """The workers onto which a request fits."""
        return [k for k in range(len(self.instance.workers)) if self.fit(k).rows]


def _released(context: Context, moment: int) -> Jobs:
    jobs, later = context.jobs, context.instance.requests.arrival_ns >= moment
    return Jobs(jobs.prompts[later], jobs.rounds[later], jobs.blocks[later], jobs.clients)


def _fit(context: Context, kind: int) -> Fit:
    instance, worker = context.instance, context.instance.workers[kind]
    fits, limit = np.ones(len(instance), bool), worker.prefill_limit
    if limit is not None and worker.prefills and not context.scope.chunks:
        fits &= instance.requests.prompt_tokens <= limit
    if memory := whole_memory(worker):
        fits &= _blocks(instance, worker) <= memory.blocks
    rows = np.flatnonzero(fits)
    if kind == 0 and len(rows) == len(instance):
        return Fit(rows.tolist(), context.jobs)
    return Fit(rows.tolist(), _jobs(instance, worker, rows))


def whole_memory(worker: Worker) -> BlockMemory | None:
    """Return the memory model if each request holds its blocks from its prefill to its end.

    Paged blocks grow as a request does, so that more requests than fit with all their tokens can
    be on clients at one time: bounds do without the memory then.
    """
    memory = worker.memory
    return None if memory is None or memory.is_paged else memory


def _jobs(instance: Instance, worker: Worker, rows: IntColumn) -> Jobs:
    blocks = _blocks(instance, worker)[rows]
    clients = min(worker.clients, len(rows))
    if memory := whole_memory(worker):
        together = int((np.cumsum(np.sort(blocks)) <= memory.blocks).sum())
        clients = min(clients, together)
    return Jobs(
        instance.requests.prompt_tokens[rows], instance.rounds_needed[rows], blocks, clients
    )


def _blocks(instance: Instance, worker: Worker) -> IntColumn:
    req, memory = instance.requests, whole_memory(worker)
    if memory is None:
        return np.zeros(len(req), np.int64)
    held: IntColumn = -(-(req.prompt_tokens + req.output_tokens) // memory.block_tokens)
    return held


def sum_of_products(a: IntColumn, b: IntColumn) -> int:
    """Exact sum of a * b, in Python integers where 64 bits could overflow."""
    if len(a) == 0:
        return 0
    if int(a.max()) * int(b.max()) * len(a) < 2**62:
        return int((a * b).sum())
    return int((a.astype(object) * b.astype(object)).sum())
