"""Steps: what a policy asks a worker to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orsched.common.errors import PolicyError

FINISH = 1
"""Event: a running request yields its last token."""

ARRIVAL = 2
"""Event: a request arrives."""

UNTIL_EVENT = FINISH | ARRIVAL

FOREVER = 2**62
"""Repeat count of a step that only an event ends."""


class Step(NamedTuple):
    """Work for a worker: request -> tokens, a repeat count, and the events that end it early.

    One type covers every batching mode; the page on costs and batching shows each.
    Requests in ``prefill`` beside ``decode`` None or a list make a mixed step of one round.

    Attributes:
        prefill: requests whose prompts are processed.
        tokens: prompt tokens for each of them; None: the whole (remaining) prompt. A new request
            computes no more than the worker's prefix cache leaves it to.
        clients: the client that each new request gets; None: the lowest free ones.
        decode: requests that yield a token a round; None: all running ones; (): none.
        rounds: how often the step is repeated, at least 1.
        until: events (FINISH, ARRIVAL) after whose round the step ends early.
        preempt: running requests that are evicted first: they lose their cache, and are prefilled
            again, prompt and yielded tokens, if they start again. A step that only evicts takes no
            time.
        receive: requests handed to this worker whose caches it takes now: each gets the lowest free
            client, and blocks for its cache and next token. A step that only receives takes no
            time; they can decode once their transfers have ended.
        ahead: the step was planned while the last one ran, on a worker whose prefix cache knows of
            that (``Eviction.ahead``): what finished in the last step keeps its blocks until this
            one has taken its own, unless ``preempt`` has it, too.
        hold: requests that finish stay on their clients and yield invalid tokens until the step
            ends (static batching); it ends early when all are done.
    """

    prefill: Sequence[int] = ()
    tokens: Sequence[int] | None = None
    clients: Sequence[int] | None = None
    decode: Sequence[int] | None = None
    rounds: int = 1
    until: int = UNTIL_EVENT
    preempt: Sequence[int] = ()
    hold: bool = False
    receive: Sequence[int] = ()
    ahead: bool = False


class Wait(NamedTuple):
    """Wait until a time, the latest of the next decision; arrivals and evictions end it as well."""

    until_ns: int


def prefill_stage(requests: Sequence[int], clients: Sequence[int] | None = None) -> Step:
    """Return a prefill stage over whole prompts (Pang's stage).

    >>> orsched.prefill_stage([4, 7]).prefill
    [4, 7]
    """
    return Step(prefill=requests, clients=clients, decode=())


def decode_rounds(rounds: int = FOREVER, until: int = UNTIL_EVENT) -> Step:
    """Return a decode stage over all running requests, ended early by the given events.

    >>> orsched.decode_rounds(24).rounds
    24
    """
    return Step(rounds=rounds, until=until)


def mixed_step(requests: Sequence[int], tokens: Sequence[int]) -> Step:
    """Return a step that processes prompt tokens of requests beside a round of all that decode."""
    return Step(prefill=requests, tokens=tokens)


def batch_rounds(rounds: int = FOREVER) -> Step:
    """Return rounds of a static batch: no request leaves before all are done or the rounds end."""
    return Step(rounds=rounds, until=0, hold=True)


def evict(requests: Sequence[int]) -> Step:
    """Return a step that only evicts running requests, in no time."""
    return Step(preempt=requests, decode=())


def require_step(answer: object) -> None:
    """Raise ``PolicyError`` with the fault unless an answer is a step of whole numbers.

    Executors assume well-formed steps and call this only after one has failed.
    """
    if isinstance(answer, Wait):
        if type(answer.until_ns) is not int:
            raise PolicyError(f"until_ns is {_shown(answer.until_ns)}, not a whole number")
        return
    if not isinstance(answer, Step):
        raise PolicyError(
            f"decide returned {_shown(answer)}, which is not a Step: return "
            "prefill_stage(requests), decode_rounds() or, to wait for the next arrival, None"
        )
    for name in ("rounds", "until"):
        if type(getattr(answer, name)) is not int:
            raise PolicyError(f"{name} is {_shown(getattr(answer, name))}, not a whole number")
    for name in ("hold", "ahead"):
        if type(getattr(answer, name)) is not bool:
            raise PolicyError(f"{name} is {_shown(getattr(answer, name))}, neither True nor False")
    for name in ("prefill", "tokens", "clients", "decode", "preempt", "receive"):
        values = getattr(answer, name)
        if values is None and name in ("tokens", "clients", "decode"):
            continue
        if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
            raise PolicyError(f"{name} is {_shown(values)}, not a list of whole numbers")
        for value in values:
            if type(value) is not int:
                raise PolicyError(f"{name} holds {_shown(value)}, not a whole number")


def _shown(value: object) -> str:
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"{text} ({type(value).__name__})"
