"""A step with prompt tokens while it is being filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.gittins.worker_model import UNLIMITED

if TYPE_CHECKING:
    from orsched.heuristics.gittins.worker_model import WorkerModel


class GittinsBatch:
    """Prompt tokens and memory blocks that are given away one request after the other.

    Attributes:
        chunks: request -> prompt tokens of the step.
        tokens: what is left of the token budget.
        clients: free clients that are left.
        blocks: blocks that are left.
        reserved: blocks of those that begun prefills and running caches are still to take.
        room: prompts up to so many tokens fit; whether longer ones do as well says ``has_room``.
    """

    __slots__ = ("blocks", "chunks", "clients", "reserved", "room", "tokens", "worker")

    def __init__(self, worker: WorkerModel, tokens: int, blocks: int, growth: float) -> None:
        self.worker = worker
        self.chunks: dict[int, int] = {}
        worker.cut = ()
        self.tokens = min(tokens, worker.prefill_limit)
        self.clients = worker.clients - len(worker.view.running)
        self.blocks = blocks
        self.reserved = worker.promised() + worker.growth(growth)
        self.room = (blocks - self.reserved) * worker.size if worker.has_memory else UNLIMITED

    def has_room(self, request: int, left: int) -> bool:
        """Whether the whole prefill of a request fits; alone, one may use all that there is."""
        if self.worker.blocks(request, left) + self.reserved <= self.blocks:
            return True
        return not (self.chunks or self.worker.view.running)

    def admit(self, request: int, left: int) -> None:
        """Admit a new request to the worker."""
        worker, size = self.worker, self.worker.size
        self.clients -= 1
        chunk = left if left < self.tokens else self.tokens
        if size:
            if chunk > self.blocks * size:
                chunk = self.blocks * size
            taken = -(-chunk // size)
            if chunk < left:
                self.reserved += -(-left // size) - taken
            self.blocks -= taken
            self.room = (self.blocks - self.reserved) * size
        elif worker.has_memory:
            self.blocks -= worker.blocks(request, left)
        if chunk < left:
            worker.cut = (*worker.cut, request)
        self.chunks[request] = chunk
        self.tokens -= chunk

    def go_on(self, request: int) -> None:
        """Give a begun prefill its next chunk, if there are blocks for one."""
        worker = self.worker
        left = worker.view.to_prefill(request)
        chunk = min(left, self.tokens)
        if worker.size:
            held = worker.view.cached(request)
            filled = -(-held // worker.size)
            chunk = min(chunk, (filled + self.blocks) * worker.size - held)
            taken = -(-(held + chunk) // worker.size) - filled
            self.blocks -= taken
            self.reserved -= taken
        if chunk < left:
            worker.cut = (*worker.cut, request)
        if chunk:
            self.chunks[request] = chunk
            self.tokens -= chunk
