"""Future memory: the blocks that caches will fill at every expected end."""

from __future__ import annotations

from bisect import bisect_left, insort


class FutureMemory:
    """Blocks that growing caches fill, at the rounds in which requests are expected to end.

    Rounds are counted from the start of the run. A cache has ``base + t`` tokens in round t, up to
    and including the round of its end, and is freed then. What all of them fill grows from one end
    to the next, so it is within the memory in every round if it is at every end. An operation
    takes time in proportion to the requests that are there.

    Args:
        blocks: blocks of the worker.
        block_tokens: tokens of a block.
    """

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks, self.size = blocks, block_tokens
        self._caches: dict[int, tuple[int, int]] = {}  # request -> base, end
        self._ends: list[int] = []  # in order, one for each request
        self._filled: dict[int, int] = {}  # end -> blocks

    def __contains__(self, request: int) -> bool:
        return request in self._caches

    @property
    def first_end(self) -> int:
        """The first expected end; there is one."""
        return self._ends[0]

    def end_of(self, request: int) -> int:
        """Return the expected end of a request."""
        return self._caches[request][1]

    def fits(self, base: int, end: int) -> bool:
        """Whether one more cache fits at every end until its own, and at its own."""
        filled, size, blocks = self._filled, self.size, self.blocks
        before = self._ends[: bisect_left(self._ends, end)]
        if any(filled[each] - (base + each) // -size > blocks for each in before):
            return False
        own = filled.get(end)
        return (self._at(end) if own is None else own) - (base + end) // -size <= blocks

    def add(self, request: int, base: int, end: int) -> None:
        """Count a cache in, whether or not it fits."""
        if end not in self._filled:
            self._filled[end] = self._at(end)
        self._caches[request] = (base, end)
        insort(self._ends, end)
        self._change(base, end, 1)

    def drop(self, request: int) -> None:
        """Count a cache out."""
        base, end = self._caches.pop(request)
        self._change(base, end, -1)
        place = bisect_left(self._ends, end)
        del self._ends[place]
        if place == len(self._ends) or self._ends[place] != end:
            del self._filled[end]

    def extend(self, moment: int) -> None:
        """Let those that were expected to end by a round, and have not, end in the next one."""
        late = [request for request, (_, end) in self._caches.items() if end <= moment]
        for request in late:
            base = self._caches[request][0]
            self.drop(request)
            self.add(request, base, moment + 1)

    def _at(self, moment: int) -> int:
        """Return the blocks that are filled in a round, counted one by one."""
        caches, size = self._caches.values(), self.size
        return sum(-((base + moment) // -size) for base, end in caches if end >= moment)

    def _change(self, base: int, end: int, sign: int) -> None:
        filled, size = self._filled, self.size
        for each in filled:
            if each <= end:
                filled[each] -= sign * ((base + each) // -size)
