"""What policies see of a worker's prefix cache, and plans that are tried on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from orsched.common.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from orsched.simulator.block_cache import BlockCache, Log
    from orsched.simulator.shared_pages import SharedPages

_ROUNDS = -1
"""In trials: who takes the blocks of all rounds."""


class SeenWorker(Protocol):
    """What is read of the view of a worker with a prefix cache."""

    @property
    def now_ns(self) -> int:
        """The time."""
        ...

    @property
    def prompt_tokens(self) -> memoryview:
        """Prompt tokens of each request."""
        ...

    @property
    def prefilling(self) -> Mapping[int, int]:
        """Request -> tokens prefilled, while not complete."""
        ...

    def generated(self, request: int) -> int:
        """Tokens that a request has yielded."""
        ...

    def cached(self, request: int) -> int:
        """Tokens of a request in its cache."""
        ...


class PrefixView:
    """The prefix cache of a worker as a policy may see it."""

    def __init__(self, view: SeenWorker, pages: SharedPages) -> None:
        self._view = view
        self._pages = pages

    @property
    def block_tokens(self) -> int:
        """Tokens a block; hits are multiples of it."""
        return self._pages.size

    def hit_tokens(self, request: int) -> int:
        """Return the tokens that a waiting request would find now, 0 before it arrives.

        As it stands: a step may take the blocks before the request starts. With the prefill chunks
        of a step in progress, and without the tokens of its rounds. Closes a trial that is open.
        """
        self._pages.cache.undo()
        due = self._due(request)
        return len(self._pages.cache.lookup(request, due)) * self._pages.size if due else 0

    def trial(self) -> Trial:
        """Begin to try a step on the cache; one that was begun before is closed."""
        if self._pages.busy:
            raise PolicyError("a step is tried on a worker that is in the middle of one")
        self._pages.see(self._view.now_ns)
        return Trial(self._view, self._pages.cache)

    def _due(self, request: int) -> int:
        """Return the tokens to prefill before a request that waits can decode, hits included."""
        return due_tokens(self._view, request)


def due_tokens(view: SeenWorker, request: int) -> int:
    """Return the prompt and yielded tokens of a request, 0 before it arrives."""
    prompt = view.prompt_tokens[request]
    return prompt + view.generated(request) if prompt else 0


class Trial:
    """A step that is tried on a worker's prefix cache, and undone by ``close``.

    Do what the step will do, in its order: evictions, blocks for a round and for prefills that have
    begun, then new requests in the order of ``Step.prefill``. So hits are exact, those on blocks
    of the same step as well. The executor closes a trial that the policy did not.

    Raises:
        PolicyError: blocks are missing, or a request is not where it must be.
    """

    def __init__(self, view: SeenWorker, cache: BlockCache) -> None:
        self._log: Log = []
        cache.log = self._log
        self._view = view
        self._cache = cache
        self._new: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        return self._open().free

    def hit(self, request: int) -> tuple[int, int]:
        """Return the tokens that a waiting request would find, and how many blocks would leave.

        Blocks that it finds free are free no more once it has them.
        """
        cache, due = self._open(), due_tokens(self._view, request)
        blocks = cache.lookup(request, due) if due else []
        return len(blocks) * cache.size, cache.leaving(blocks)

    def admit(self, request: int, tokens: int | None = None) -> int:
        """Let a waiting request start with some tokens (None: all); return the tokens it finds."""
        cache, due = self._open(), due_tokens(self._view, request)
        if not due or request in cache.tables:
            raise PolicyError(f"request {request} does not wait, or has not arrived")
        hit = cache.admit(request, due)
        chunk = due - hit if tokens is None else tokens
        if not 1 <= chunk <= due - hit:
            raise PolicyError(
                f"{chunk} tokens of request {request}, which has {due - hit} left to prefill"
            )
        cache.extend(request, hit, chunk)
        self._new.add(request)
        return hit

    def extend(self, request: int, tokens: int) -> None:
        """Let a prefill that has begun go on with some tokens."""
        cache, begun = self._open(), self._view.prefilling
        if request not in begun or request not in cache.tables:
            raise PolicyError(f"request {request} is not in its prefill")
        cache.extend(request, begun[request], tokens)

    def grow(self, blocks: int) -> None:
        """Take some blocks for a round."""
        cache = self._open()
        cache.tables.setdefault(_ROUNDS, [])
        cache.grow(_ROUNDS, blocks)

    def release(self, request: int) -> None:
        """Evict a request that is on the worker."""
        cache = self._open()
        if request not in cache.tables or request in self._new:
            raise PolicyError(f"request {request} is not on the worker: it cannot be evicted")
        view = self._view
        due = view.prompt_tokens[request] + view.generated(request)
        cache.release(request, view.cached(request), due)

    def close(self) -> None:
        """Undo it all; a closed trial stays closed."""
        if self._cache.log is self._log:
            self._cache.undo()
            self._cache.tables.pop(_ROUNDS, None)

    def _open(self) -> BlockCache:
        if self._cache.log is not self._log:
            raise PolicyError("a trial is used that was closed")
        return self._cache
