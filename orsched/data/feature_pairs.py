"""The table of feature pairs that are refused: two names, field of the error, reason, remedy."""

from orsched.common.errors import InputError

_CACHE, _USERS, _LINK, _SCALED = "prefix cache", "prefix cache by users", "link", "autoscaling"
REFUSED_PAIRS = (
    (_CACHE, "whole memory", "prefix_cache", "a prefix cache needs blocks that are taken as "
     "caches grow", "set the allocation to paged"),
    (_CACHE, "padding", "prefix_cache", "a worker that pads has no prefix cache: its caches are "
     "as long as the longest", "leave padding or the prefix cache out"),
    (_USERS, "failures", "prefix_cache", "caches that count who will ask do not support failures: "
     "who asked in a lost step is not known", "set the eviction to lru, or leave the times out"),
    (_USERS, _SCALED, "prefix_cache", "caches that count who will ask do not support autoscaling: "
     "a worker that is off would still be counted", "set the eviction to lru"),
    (_LINK, _CACHE, "memory", "beside a link that takes time, workers of the role prefill alone "
     "have prefix caches, with the eviction lru", "leave the other prefix caches out"),
    (_LINK, "whole memory", "memory", "caches that go over a link need paged memory: the receiver "
     "takes blocks as they grow", "set the allocation to paged, or leave the memory out"),
    (_LINK, "padding", "padding", "caches that go over a link are not padded", "leave padding out"),
    (_LINK, "failures", "available_ns", "workers that come and go have no links: no schedule says "
     "what becomes of a transfer that is cut", "leave the times out, or the link"),
    (_LINK, _SCALED, "link", "autoscaling does not support links: its rule counts workers that do "
     "both stages", "leave one of both out"),
    ("failures for good", _SCALED, "available_ns", "autoscaling does not support a worker that "
     "fails for good: the rule counts it as kept", "let each last interval have no end"),
)  # fmt: skip


def refused_pair(one: str, other: str, owner: str = "") -> InputError:
    """Return the error for two features of the table; ``owner`` goes before its field."""
    (row,) = (row for row in REFUSED_PAIRS if {*row[:2]} == {one, other})
    return InputError(row[3], field=owner + row[2], remedy=row[4])
