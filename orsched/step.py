"""Steps: what a policy asks a worker to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

FINISH = 1
"""Event: a running request yields its last token."""

ARRIVAL = 2
"""Event: a request arrives."""

UNTIL_EVENT = FINISH | ARRIVAL

FOREVER = 2**62
"""Repeat count of a step that only an event ends."""


class Step(NamedTuple):
    """Work for a worker: request -> tokens, a repeat count, and the events that end it early.

    One type covers every batching mode; the page *Concepts* shows the values of each.

    Attributes:
        prefill: requests whose prompts are processed.
        tokens: prompt tokens for each of them; None: the whole (remaining) prompt.
        clients: the client that each new request gets; None: the lowest free ones.
        decode: requests that yield a token a round; None: all running ones; (): none.
        rounds: how often the step is repeated, at least 1.
        until: events (FINISH, ARRIVAL) after whose round the step ends early.
        preempt: running requests that are evicted first.
        worker: index of the worker.
    """

    prefill: Sequence[int] = ()
    tokens: Sequence[int] | None = None
    clients: Sequence[int] | None = None
    decode: Sequence[int] | None = None
    rounds: int = 1
    until: int = UNTIL_EVENT
    preempt: Sequence[int] = ()
    worker: int = 0


def prefill_stage(requests: Sequence[int], clients: Sequence[int] | None = None) -> Step:
    """Return a prefill stage over whole prompts (Pang's stage)."""
    return Step(prefill=requests, clients=clients, decode=())


def decode_rounds(rounds: int = FOREVER, until: int = UNTIL_EVENT) -> Step:
    """Return a decode stage over all running requests, ended early by the given events."""
    return Step(rounds=rounds, until=until)
