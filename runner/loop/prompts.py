"""Tokens of the requests in a run: their prompts, and what they have yielded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.data.requests import Prefixes

_OF_PREFIXES = 2**32  # streams of prefix blocks; those of requests are numbered from 0


def random_prompt(seed: int, request: int, tokens: int, vocabulary: int) -> list[int]:
    """Return the prompt of a request that is known by its length only."""
    stream = np.random.default_rng([seed, request])
    prompt: list[int] = stream.integers(vocabulary, size=tokens).tolist()
    return prompt


def with_prefix(
    prompt: list[int], prefixes: Prefixes, request: int, seed: int, vocabulary: int
) -> list[int]:
    """Return a drawn prompt in which the blocks of the request's prefix are drawn by their ids.

    Equal ids give equal tokens; a block that the prompt fills in part begins like the others.
    """
    size, found = prefixes.block_tokens, list(prompt)
    ids = prefixes.ids[prefixes.offsets[request] : prefixes.offsets[request + 1]]
    for block, name in enumerate(ids.tolist()):
        drawn = np.random.default_rng([seed, _OF_PREFIXES, name]).integers(vocabulary, size=size)
        place = slice(block * size, min((block + 1) * size, len(prompt)))
        found[place] = drawn[: place.stop - place.start].tolist()
    return found


class Prompts:
    """Tokens of the requests: their prompts, then what they yielded, stay by stay."""

    def __init__(
        self,
        instance: Instance,  # has the lengths of the prompts, and the prefixes that they share
        seed: int,
        vocabulary: int,
        given: Sequence[Sequence[int]] | None = None,  # the prompts, where they are known
    ) -> None:
        self.sizes: list[int] = instance.requests.prompt_tokens.tolist()
        self.prefixes = instance.requests.prefixes
        self.seed, self.vocabulary, self.given = seed, vocabulary, given
        self.parts: list[list[Any]] = [[] for _ in self.sizes]
        if given is not None and [len(prompt) for prompt in given] != self.sizes:
            raise InputError(
                "not as long as the instance says",
                field="prompts",
                remedy="give prompts of the instance's lengths",
            )

    def of(self, request: int) -> list[int]:
        """Return the prompt and all that was yielded in earlier stays."""
        if self.given is None:
            size = self.sizes[request]
            prompt = random_prompt(self.seed, request, size, self.vocabulary)
            if self.prefixes is not None:
                prompt = with_prefix(prompt, self.prefixes, request, self.seed, self.vocabulary)
        else:
            prompt = list(self.given[request])
        return prompt + self.yielded(request)

    def yielded(self, request: int) -> list[int]:
        """Return what was yielded in earlier stays."""
        return [token for part in self.parts[request] for token in _plain(part)]

    def length(self, request: int) -> int:
        """Return the number of tokens of prompt and earlier stays."""
        return self.sizes[request] + sum(len(part) for part in self.parts[request])

    def keep(self, request: int, part: Any) -> None:
        """Take what a stay has yielded: a list, or a tensor that is looked into later."""
        if len(part):
            self.parts[request].append(part)


def _plain(part: Any) -> list[int]:
    tokens: list[int] = part.tolist() if hasattr(part, "tolist") else part
    return tokens
