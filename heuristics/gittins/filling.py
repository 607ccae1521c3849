"""A step with prompt tokens while it is being filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """

    __slots__ = ("blocks", "chunks", "clients", "reserved", "site", "tokens")

    def __init__(self, site: Site, tokens: int, blocks: int, growth: float) -> None:
        self.site = site
        self.chunks: dict[int, int] = {}
        self.tokens = min(tokens, site.prefill_limit)
        self.clients = site.clients - len(site.view.running)
        self.blocks = blocks
        self.reserved = site.promised() + site.growth(growth)

    def has_room(self, request: int, left: int) -> bool:
        """Whether the whole prefill of a request fits; alone, one may use all that there is."""
        site, size = self.site, self.site.size
        blocks = -(-left // size) if size else site.view.blocks_of(request)
        if blocks + self.reserved <= self.blocks:
            return True
        return not (self.chunks or site.view.running)

    def admit(self, request: int, left: int) -> None:
        """Let a request be new on the worker."""
        site = self.site
        new = site.blocks(request, left)
        site.partial[request] = left
        self.clients -= 1
        chunk = min(left, self.tokens)
        if site.size:
            chunk = min(chunk, self.blocks * site.size)
            taken = -(-chunk // site.size)
            self.reserved += new - taken
            self.blocks -= taken
        else:
            self.blocks -= new
        self.chunks[request] = chunk
        self.tokens -= chunk

    def go_on(self, request: int) -> None:
        """Give a begun prefill its next chunk, if there are blocks for one."""
        site = self.site
        chunk = min(site.partial[request], self.tokens)
        if site.size:
            held = site.view.cached(request)
            filled = -(-held // site.size)
            chunk = min(chunk, (filled + self.blocks) * site.size - held)
            taken = -(-(held + chunk) // site.size) - filled
            self.blocks -= taken
            self.reserved -= taken
        if chunk:
            self.chunks[request] = chunk
            self.tokens -= chunk
