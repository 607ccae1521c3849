"""Messages to a worker in another process, and its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.errors import OrschedError
    from orsched.runner.devices.lost import Reason
    from orsched.runner.worker.chunk import Chunk

Fault = Literal["", "kill", "hang", "out_of_memory", "fail"]
"""What a test lets happen in a step: its worker kills itself, hangs, or an error occurs in it."""


class Start(NamedTuple):
    """Time begins.

    Attributes:
        zero_ns: when, on the worker's own ``perf_counter_ns``.
    """

    zero_ns: int


class Begin(NamedTuple):
    """A step.

    Attributes:
        chunks, active, rounds: as ``Device.begin`` has them.
        released: slots that have become free since the last step.
        fault: what is to go wrong.
    """

    chunks: Sequence[Chunk]
    active: Sequence[int]
    rounds: int
    released: Sequence[int]
    fault: Fault


class Ready(NamedTuple):
    """A worker can take steps.

    Attributes:
        name, clock: as a device has them.
        facts: what else is known of it.
    """

    name: str
    clock: str
    facts: dict[str, Any]


class Ended(NamedTuple):
    """A step is over.

    Attributes:
        start_ns, end_ns: when it ran.
        tokens: what it yielded, as int32: one of each chunk that yields, then those of each active
            slot.
    """

    start_ns: int
    end_ns: int
    tokens: bytes


class Lost(NamedTuple):
    """The worker's last words."""

    reason: Reason
    message: str


class Refused(NamedTuple):
    """There can be no such worker here: another attempt would end the same way."""

    error: OrschedError
