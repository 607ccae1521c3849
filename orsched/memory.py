"""Memory models: the KV-cache blocks that requests hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from orsched.columns import whole_number
from orsched.costs.parameters import read_parameters
from orsched.errors import InputError
from orsched.units import MAX_TOKENS

ALLOCATIONS = ("whole", "paged")


@dataclass(frozen=True)
class BlockMemory:
    """The blocks of a worker, and when a request takes them.

    ``whole``: a request holds ``ceil((N^p + N^d) / block_tokens)`` blocks from its prefill to its
    end. This is Pang's accounting (section V-A: 1,024 blocks of 128 tokens): room for the whole
    answer is set aside at admission. A policy that may not know N^d sets aside room for the
    instance's output limit instead, which is never less.

    ``paged``: a request holds ``ceil(tokens in its cache / block_tokens)`` blocks, which grow with
    its prefill and its rounds (vLLM). On a padding worker each counts as long as the longest.

    Attributes:
        blocks: blocks of the worker, at least 1.
        block_tokens: tokens a block, at least 1.
        allocation: ``whole`` or ``paged``.
    """

    blocks: int
    block_tokens: int
    allocation: str = "whole"

    def __post_init__(self) -> None:
        for name in ("blocks", "block_tokens"):
            value = whole_number(getattr(self, name), name, minimum=1, maximum=MAX_TOKENS)
            object.__setattr__(self, name, value)
        if self.allocation not in ALLOCATIONS:
            raise InputError(
                f"{self.allocation!r} is unknown", field="allocation", remedy="whole or paged"
            )

    @property
    def is_paged(self) -> bool:
        """Whether blocks are taken as the cache grows."""
        return self.allocation == "paged"

    def blocks_held(self, prompt_tokens: int, output_tokens: int) -> int:
        """Blocks that a request of these lengths holds while it is on a client."""
        return -(-(prompt_tokens + output_tokens) // self.block_tokens)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        values = asdict(self)
        if self.allocation == "whole":
            del values["allocation"]
        return values

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``."""
        return cls(
            **read_parameters(parameters, "memory", ["blocks", "block_tokens"], ["allocation"])
        )
