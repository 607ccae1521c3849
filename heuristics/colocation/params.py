"""Parameters that all policies of the family have."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS
from orsched.heuristics.colocation.deadlines import require_seconds


@dataclass(frozen=True)
class ColocationParams:
    """What is common to the policies that serve bulk work beside interactive requests.

    Attributes:
        ttft_s, tpot_s: limits of the interactive requests; None: those of their service classes.
        max_num_batched_tokens: the token budget of a step, as in vLLM: one for each request that
            decodes, and the prompt tokens.
        least_chunk: an interactive prefill gets at least so many tokens in a step, even if a token
            of another request is late by that.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    max_num_batched_tokens: int = 2048
    least_chunk: int = 256

    def __post_init__(self) -> None:
        require_seconds(self.ttft_s, "ttft_s")
        require_seconds(self.tpot_s, "tpot_s")
        for name in ("max_num_batched_tokens", "least_chunk"):
            whole_number(getattr(self, name), name, minimum=1, maximum=MAX_TOKENS)


def require_share(value: float, field: str, most: float = 1.0) -> None:
    """Raise ``InputError`` unless a parameter is a number from 0 to the most."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise InputError(
            f"{value!r} is not a number from 0 to {most:g}",
            field=field,
            remedy="give a number in this range",
        )
