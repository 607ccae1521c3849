"""Eviction rules: which free block of a prefix cache is taken first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from orsched.common.columns import shown
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.costs.parameters import read_parameters

RULES = ("lru", "task_aware", "least_future_use")
"""Names of the rules, as files have them."""


def require_rule(rule: object) -> None:
    """Raise ``InputError`` for what is no name of a rule."""
    if not isinstance(rule, str) or rule not in RULES:
        raise InputError(
            f"{shown(rule)} is not an eviction rule",
            field="eviction",
            remedy=known_names(rule, RULES, "one of "),
        )


@dataclass(frozen=True)
class Eviction:
    """The order in which a worker takes free blocks, whose content is then lost.

    Those without content come first (vLLM), then:

    * ``lru``: the block that became free first (vLLM).
    * ``task_aware``: the block that is least worth keeping (Echo). Worth is the number of waiting
      bulk requests with this block in what is due; where there are none, 0 if the last user was
      bulk, else 0.5. Ties go to the first that became free.
    * ``least_future_use``: as before, with the number of all unfinished requests without a client,
      of whatever class, arrived or not; 0 where there are none. It knows the future, and is there
      to compare with.

    Attributes:
        rule: one of ``RULES``.
    """

    rule: str = "lru"

    def __post_init__(self) -> None:
        require_rule(self.rule)

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as JSON values."""
        return {"rule": self.rule}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``."""
        return cls(**read_parameters(values, "eviction", ["rule"]))


LRU = Eviction("lru")
TASK_AWARE = Eviction("task_aware")
LEAST_FUTURE_USE = Eviction("least_future_use")
