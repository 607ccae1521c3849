"""Prompt tokens that a step processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Chunk(NamedTuple):
    """Tokens of a request that a step processes.

    Attributes:
        slot: where the request is.
        start: tokens of it that are in the slot's cache already.
        tokens: what to process.
        yields: whether a token follows from it: the prompt ends here, and the instance's first
            token comes from the prefill.
        feeds: the prompt's last token, where the first token comes from a round: that round
            processes it.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    yields: bool
    feeds: int | None = None
