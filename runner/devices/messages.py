"""What a worker elsewhere is told and what it answers, and the pipe that carries it."""

from __future__ import annotations

import pickle
import select
import struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from orsched.errors import OrschedError
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


_SIZE = struct.Struct(">Q")
_AT_ONCE = 1 << 20


class Pipe:
    """Messages over a socket: each is its size, then the pickled value.

    Args:
        end: a connected socket; where it does not block, ``receive`` does not wait.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.buffer = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self.socket.fileno()

    def send(self, value: object, seconds: float = float("inf")) -> None:
        """Send a message.

        Raises:
            OSError: there is no other end.
            TimeoutError: the other end has not made room for it in time.
        """
        data = pickle.dumps(value, 5)
        left = memoryview(_SIZE.pack(len(data)) + data)
        while left:
            try:
                left = left[self.socket.send(left) :]
            except BlockingIOError:
                milliseconds = None if seconds == float("inf") else seconds * 1000
                poller = select.poll()
                poller.register(self.socket, select.POLLOUT)
                if not poller.poll(milliseconds):
                    raise TimeoutError("nobody reads") from None

    def receive(self) -> Any:
        """Return the next message, or None where it is not there yet.

        Raises:
            EOFError: there is no other end.
        """
        while (size := self._size()) is None or len(self.buffer) < size:
            try:
                data = self.socket.recv(_AT_ONCE)
            except BlockingIOError:
                return None
            except OSError:
                data = b""
            if not data:
                raise EOFError
            self.buffer += data
        message = pickle.loads(memoryview(self.buffer)[_SIZE.size : size])
        del self.buffer[:size]
        return message

    def _size(self) -> int | None:
        """Return what the first message takes of the buffer, as far as that is known."""
        if len(self.buffer) < _SIZE.size:
            return None
        found: int = _SIZE.unpack_from(self.buffer)[0]
        return _SIZE.size + found

    def close(self) -> None:
        """Close this end."""
        self.socket.close()
