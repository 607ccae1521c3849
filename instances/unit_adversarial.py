"""Unit rounds on which simple orders fail: families whose loss grows with the memory."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

from orsched.columns import whole_number
from orsched.errors import InputError
from orsched.instances.unit_rounds import unit_instance
from orsched.near_names import known_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.instance import Instance

Case = tuple[list[int], list[int], list[int]]
"""Prompts, outputs, arrivals."""


def unit_adversarial(family: str = "long-prompts", memory_tokens: int = 64) -> Instance:
    """Return the instance of a family of unit rounds for a memory of M tokens.

    With r the root of M, rounded down:

    ``long-prompts``: r requests (s = M - 1, o = 1), of which memory holds one, and M of
    (s = 1, o = 2), of which it holds a third. Shortest first starts the former, one after the
    other, and all the latter wait for them (the failure that Wang et al., arXiv 2508.06133, prove
    for unequal prompts).

    ``long-first``: r requests (s = 1, o = M - 1) in the first rows, then M of (1, 1). First come
    lets the short ones wait for the long ones.

    ``late-burst``: one request (s = 1, o = M - 1), and M of (1, 1) that arrive when it holds all
    but r tokens. Who starts at once what fits has to let the burst wait (the idea by which Jaillet
    et al., arXiv 2502.07115, bound every deterministic policy, for whom the burst would come in
    time).

    The families are ours after the texts; sizes are chosen so that the loss is of the order of r.

    Args:
        family: its name.
        memory_tokens: M, at least 16.

    Raises:
        InputError: an argument is wrong.
    """
    if not isinstance(family, str) or family not in FAMILIES:
        raise InputError(
            f"there is no family {family!r}",
            field="family",
            remedy=known_names(str(family), FAMILIES),
        )
    memory = whole_number(memory_tokens, "memory_tokens", minimum=16, maximum=100_000)
    return unit_instance(
        *FAMILIES[family](memory, isqrt(memory)),
        memory,
        f"unit-adversarial-{family}-{memory}",
        f"The unit-round model: the family {family}, on which simple orders fail.",
    )


def _long_prompts(memory: int, root: int) -> Case:
    n = root + memory
    return [memory - 1] * root + [1] * memory, [1] * root + [2] * memory, [0] * n


def _long_first(memory: int, root: int) -> Case:
    n = root + memory
    return [1] * n, [memory - 1] * root + [1] * memory, [0] * n


def _late_burst(memory: int, root: int) -> Case:
    late = memory - root
    return [1] * (memory + 1), [memory - 1] + [1] * memory, [0] + [late] * memory


FAMILIES: dict[str, Callable[[int, int], Case]] = {
    "long-prompts": _long_prompts,
    "long-first": _long_first,
    "late-burst": _late_burst,
}
"""What makes a case of M and its root, by family."""
