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
        loads: blocks of the slot that are in the prefix store, and their rows there: they are
            copied into the slot before the step.
        saves: blocks of the slot, and the rows of the prefix store into which they are copied
            after the step; before any other chunk where there are no tokens.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    yields: bool
    feeds: int | None = None
    loads: Sequence[tuple[int, int]] = ()
    saves: Sequence[tuple[int, int]] = ()

    @property
    def only_saves(self) -> bool:
        """Whether nothing is processed: blocks are stored of a request that leaves."""
        return not self.tokens and self.feeds is None
