"""Pairs of features that no instance has together, with the reason: the one table of them."""

from __future__ import annotations

from typing import NamedTuple

from orsched.common.errors import InputError


class RefusedPair(NamedTuple):
    """Two features that are refused together.

    Attributes:
        one, other: their names, as the page on fleets has them.
        field: the field that the error names.
        why: the reason.
        remedy: what to do.
    """

    one: str
    other: str
    field: str
    why: str
    remedy: str


_PAGED = "set the allocation to paged"
REFUSED_PAIRS = (
    RefusedPair("prefix cache", "whole memory", "prefix_cache",
                "a prefix cache needs blocks that are taken as caches grow", _PAGED),
    RefusedPair("prefix cache", "padding", "prefix_cache",
                "a worker that pads has no prefix cache: its caches are as long as the longest",
                "leave padding or the prefix cache out"),
    RefusedPair("prefix cache by users", "failures", "prefix_cache",
                "caches that count who will ask do not support failures: who asked in a "
                "lost step is not known", "set the eviction to lru, or leave the times out"),
    RefusedPair("prefix cache by users", "autoscaling", "prefix_cache",
                "caches that count who will ask do not support autoscaling: a worker that is off "
                "would still be counted", "set the eviction to lru, or leave autoscaling out"),
    RefusedPair("link", "prefix cache", "memory",
                "caches that go over a link need paged memory without a prefix cache: who holds a "
                "shared block while it is sent is not defined", "leave the prefix cache out"),
    RefusedPair("link", "whole memory", "memory",
                "caches that go over a link need paged memory: the receiver takes blocks as they "
                "grow", f"{_PAGED}, or leave the memory out"),
    RefusedPair("link", "padding", "padding",
                "caches that go over a link are not padded", "leave padding out"),
    RefusedPair("link", "failures", "available_ns",
                "workers that come and go have no links: no schedule says what becomes of a "
                "transfer that is cut", "leave the times out, or the link"),
    RefusedPair("link", "autoscaling", "link",
                "autoscaling does not support links: its rule counts workers that do both stages",
                "leave one of both out"),
    RefusedPair("failures for good", "autoscaling", "available_ns",
                "autoscaling does not support a worker that fails for good: the rule counts it as "
                "kept", "let the last interval of each worker have no end"),
)  # fmt: skip


def refused_pair(one: str, other: str, owner: str = "") -> InputError:
    """Return the error for two features of the table; ``owner`` goes before its field."""
    (row,) = (row for row in REFUSED_PAIRS if {row.one, row.other} == {one, other})
    return InputError(row.why, field=owner + row.field, remedy=row.remedy)
