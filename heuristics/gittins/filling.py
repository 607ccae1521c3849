"""A step with prompt tokens while it is being filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.gittins.site import UNLIMITED

if TYPE_CHECKING:
    from orsched.heuristics.gittins.site import Site


class Filling:
    """Prompt tokens and memory blocks that are given away one request after the other.

    Attributes:
        chunks: request -> prompt tokens of the step.
        tokens: what is left of the token budget.
        clients: free clients that are left.
        blocks: blocks that are left.
        reserved: blocks of those that begun prefills and running caches are still to take.
        room: prompts up to so many tokens fit; whether longer ones do as well says ``has_room``.
    """

    __slots__ = ("blocks", "chunks", "clients", "reserved", "room", "site", "tokens")

    def __init__(self, site: Site, tokens: int, blocks: int, growth: float) -> None:
        self.site = site
        self.chunks: dict[int, int] = {}
        site.cut = ()
        self.tokens = min(tokens, site.prefill_limit)
        self.clients = site.clients - len(site.view.running)
        self.blocks = blocks
        self.reserved = site.promised() + site.growth(growth)
        self.room = (blocks - self.reserved) * site.size if site.has_memory else UNLIMITED

    def has_room(self, request: int, left: int) -> bool:
        """Whether the whole prefill of a request fits; alone, one may use all that there is."""
        if self.site.blocks(request, left) + self.reserved <= self.blocks:
            return True
        return not (self.chunks or self.site.view.running)

    def admit(self, request: int, left: int) -> None:
        """Let a request be new on the worker."""
        site, size = self.site, self.site.size
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
        elif site.has_memory:
            self.blocks -= site.blocks(request, left)
        if chunk < left:
            site.cut = (*site.cut, request)
        self.chunks[request] = chunk
        self.tokens -= chunk

    def go_on(self, request: int) -> None:
        """Give a begun prefill its next chunk, if there are blocks for one."""
        site = self.site
        left = site.view.to_prefill(request)
        chunk = min(left, self.tokens)
        if site.size:
            held = site.view.cached(request)
            filled = -(-held // site.size)
            chunk = min(chunk, (filled + self.blocks) * site.size - held)
            taken = -(-(held + chunk) // site.size) - filled
            self.blocks -= taken
            self.reserved -= taken
        if chunk < left:
            site.cut = (*site.cut, request)
        if chunk:
            self.chunks[request] = chunk
            self.tokens -= chunk
