"""Choices that are drawn more often the more they have succeeded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

T = TypeVar("T")

SUCCESS, FAILURE = 1.6, 0.94
LEAST, MOST = 0.25, 4.0


class AdaptiveWeights(Generic[T]):
    """Named choices with a weight each."""

    def __init__(self, choices: Mapping[str, T]) -> None:
        self.choices = dict(choices)
        self.weights = dict.fromkeys(choices, 1.0)

    def draw(self, rng: Random) -> tuple[str, T]:
        """Return a name and its choice, by the weights."""
        (name,) = rng.choices(list(self.weights), list(self.weights.values()))
        return name, self.choices[name]

    def learn(self, name: str, success: bool) -> None:
        """Raise the weight of what succeeded, lower that of what failed, within limits."""
        weight = self.weights[name] * (SUCCESS if success else FAILURE)
        self.weights[name] = min(MOST, max(LEAST, weight))
