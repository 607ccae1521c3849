"""The pool of bulk requests: buckets of similar length, each with its radix tree."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from orsched.heuristics.colocation.pools import PrefixGroups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.instance import Instance


class Buckets:
    """Bulk requests by quantiles of their prompt lengths, in each by the prefixes they share.

    The bounds are the quantiles of all bulk requests of the instance (they are submitted in
    advance; prompts only, no output length).
    """

    def __init__(self, instance: Instance, count: int) -> None:
        prompts = instance.requests.prompt_tokens
        self.prompts: list[int] = prompts.tolist()
        bulk = prompts[instance.bulk]
        shares = np.arange(1, count) / count
        self.bounds: list[float] = (
            np.unique(np.quantile(bulk, shares)).tolist() if len(bulk) else []
        )
        self.trees = [PrefixGroups(instance) for _ in range(len(self.bounds) + 1)]
        self.last_chain = [b""] * len(self.trees)
        self.waits = 0

    def __len__(self) -> int:
        return self.waits

    def bucket(self, request: int) -> int:
        """Return the place of the bucket of a request."""
        return bisect_left(self.bounds, self.prompts[request])

    def add(self, request: int) -> None:
        """Take a request that has arrived."""
        self.trees[self.bucket(request)].add(request)
        self.waits += 1

    def put_back(self, request: int) -> None:
        """Take a request that was preempted."""
        self.trees[self.bucket(request)].put_back(request)
        self.waits += 1

    def take(self, request: int) -> None:
        """Let go of a request; the walk of its bucket goes on from there."""
        place = self.bucket(request)
        self.trees[place].take(request)
        self.last_chain[place] = self.trees[place].chain(request)
        self.waits -= 1

    def last(self) -> int:
        """Return the last request of the fullest bucket."""
        return max(self.trees, key=len).last()

    def candidates(self, most: int) -> Iterator[int]:
        """Yield the first requests of the groups, bucket by bucket, each from where it was.

        At most so many in all; every bucket gives the same number as far as it has them.
        """
        trees = [each for each in range(len(self.trees)) if len(self.trees[each])]
        for place in trees:
            groups = self.trees[place]
            chains = groups.chains
            begin = bisect_left(chains, self.last_chain[place])
            for step in range(min(len(chains), -(-most // len(trees)))):
                yield groups.groups[chains[(begin + step) % len(chains)]][0]
