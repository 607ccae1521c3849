"""Tokens of the requests in a run: their prompts, and what they have yielded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance


def random_prompt(seed: int, request: int, tokens: int, vocabulary: int) -> list[int]:
    """Return the prompt of a request that is known by its length only."""
    stream = np.random.default_rng([seed, request])
    prompt: list[int] = stream.integers(vocabulary, size=tokens).tolist()
    return prompt


class Prompts:
    """Tokens of the requests: their prompts, then what they yielded, stay by stay.

    Args:
        instance: has the lengths of the prompts.
        seed, vocabulary: of prompts that are drawn at random.
        given: the prompts, where they are known.

    Raises:
        InputError: a given prompt is not as long as the instance says.
    """

    def __init__(
        self,
        instance: Instance,
        seed: int,
        vocabulary: int,
        given: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.sizes: list[int] = instance.requests.prompt_tokens.tolist()
        self.seed, self.vocabulary, self.given = seed, vocabulary, given
        self.parts: list[list[Any]] = [[] for _ in self.sizes]
        if given is not None and [len(prompt) for prompt in given] != self.sizes:
            raise InputError("not as long as the instance says", field="prompts")

    def of(self, request: int) -> list[int]:
        """Return the prompt and all that was yielded in earlier stays."""
        if self.given is None:
            size = self.sizes[request]
            prompt = random_prompt(self.seed, request, size, self.vocabulary)
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
