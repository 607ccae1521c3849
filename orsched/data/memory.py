"""Memory models: the KV-cache blocks that requests hold, and who is evicted without room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from orsched.common.columns import shown, whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.scalars import require_bool
from orsched.common.units import MAX_TOKENS
from orsched.costs.protocol import read_parameters

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


RULES = ("lru", "task_aware", "least_future_use")
"""Names of the rules, as files have them."""


def require_rule(rule: object) -> None:
    """Raise ``InputError`` for anything but the name of a rule."""
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
      of whatever class, arrived or not; 0 where there are none. It knows the future, and serves as
      a comparison.

    Attributes:
        rule: one of ``RULES``.
        ahead: whether each step is planned while the one before runs (vLLM: async_scheduling; with
            ``lru`` only). Then the blocks of a finished request become free after those that the
            next step takes, if that one was planned before. That plan did not know the end, and
            may have evicted the request. The schedule says which (``rested``, ``exit``). The block
            that the last token of an evicted request fills has no content, since its step was not
            over.
    """

    rule: str = "lru"
    ahead: bool = False

    def __post_init__(self) -> None:
        require_rule(self.rule)
        require_bool(self.ahead, "ahead")
        if self.ahead and self.rule != "lru":
            raise InputError(
                f"steps are planned ahead with the rule lru, not {self.rule}",
                field="ahead",
                remedy="leave ahead out, or set the rule to lru",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as JSON values; ``ahead`` only where it is true."""
        return {"rule": self.rule, **({"ahead": True} if self.ahead else {})}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``."""
        return cls(**read_parameters(values, "eviction", ["rule"], ["ahead"]))


LRU = Eviction("lru")
AHEAD = Eviction("lru", ahead=True)
TASK_AWARE = Eviction("task_aware")
LEAST_FUTURE_USE = Eviction("least_future_use")


ALLOCATIONS = ("whole", "paged")

ALLOCATION = "paged"
"""When requests take their blocks, where it is not said: as their caches grow, as in vLLM."""


@dataclass(frozen=True)
class PrefixCache:
    """Keeps the contents of a worker's freed blocks for requests with the same prefix.

    ``eviction`` is the name of the rule by which free blocks are taken (``Eviction``).
    """

    eviction: str = "lru"

    def __post_init__(self) -> None:
        require_rule(self.eviction)

    @property
    def rule(self) -> Eviction:
        """The rule as a value."""
        return Eviction(self.eviction)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return {"eviction": self.eviction}

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``."""
        return cls(**read_parameters(parameters, "prefix_cache", [], ["eviction"]))


@dataclass(frozen=True)
class BlockMemory:
    """The blocks of a worker, and when a request takes them: ``paged`` unless ``whole`` is said.

    ``whole``: a request holds ``ceil((N^p + N^d) / block_tokens)`` blocks from its prefill to its
    end. This is Pang's accounting (section V-A: 1,024 blocks of 128 tokens): room for the whole
    answer is set aside at admission. A policy that may not know N^d sets aside room for the
    instance's output limit instead, which is never less. Where that is more than the worker has,
    it sets aside all blocks, and the request runs alone.

    ``paged``: a request holds ``ceil(tokens in its cache / block_tokens)`` blocks, which grow with
    its prefill and its rounds (vLLM). On a padding worker each counts as long as the longest.

    With a ``prefix_cache`` full blocks that requests share are held once, and freed ones keep what
    is in them until they are taken again; see the page on prefix caches.

    Attributes:
        blocks: blocks of the worker, at least 1.
        block_tokens: tokens a block, at least 1.
        allocation: ``paged`` (default) or ``whole``; a file that does not say it means ``whole``.
        prefix_cache: how freed blocks are kept, or None; only where allocation is paged.
    """

    blocks: int
    block_tokens: int
    allocation: str = ALLOCATION
    prefix_cache: PrefixCache | None = None

    def __post_init__(self) -> None:
        for name in ("blocks", "block_tokens"):
            value = whole_number(getattr(self, name), name, minimum=1, maximum=MAX_TOKENS)
            object.__setattr__(self, name, value)
        if self.allocation not in ALLOCATIONS:
            raise InputError(
                f"{self.allocation!r} is unknown", field="allocation", remedy="whole or paged"
            )
        if self.prefix_cache is None:
            return
        if not isinstance(self.prefix_cache, PrefixCache):
            raise InputError(
                f"{self.prefix_cache!r:.60} is not a PrefixCache",
                field="prefix_cache",
                remedy='PrefixCache("lru"), or None for none',
            )
        if not self.is_paged:
            raise refused_pair("prefix cache", "whole memory")

    @property
    def is_paged(self) -> bool:
        """Whether blocks are taken as the cache grows."""
        return self.allocation == "paged"

    @property
    def tokens(self) -> int:
        """How many tokens all blocks hold together."""
        return self.blocks * self.block_tokens

    @property
    def words(self) -> str:
        """The memory in words: ``2,000 blocks of 16 tokens (paged)``."""
        return f"{self.blocks:,} blocks of {self.block_tokens:,} tokens ({self.allocation})"

    def blocks_held(self, prompt_tokens: int, output_tokens: int) -> int:
        """Blocks that a request of these lengths holds while it is on a client."""
        return -(-(prompt_tokens + output_tokens) // self.block_tokens)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        values: dict[str, Any] = {"blocks": self.blocks, "block_tokens": self.block_tokens}
        if self.is_paged:
            values["allocation"] = self.allocation
        if self.prefix_cache is not None:
            values["prefix_cache"] = self.prefix_cache.to_dict()
        return values

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``."""
        values = read_parameters(
            parameters, "memory", ["blocks", "block_tokens"], ["allocation", "prefix_cache"]
        )
        values.setdefault("allocation", "whole")  # of files: they say paged where it is
        if "prefix_cache" in values:
            values["prefix_cache"] = PrefixCache.from_dict(values["prefix_cache"])
        return cls(**values)
