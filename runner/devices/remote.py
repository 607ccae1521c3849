"""The host's side of a device in another process; answers tell all: none is lost with a worker."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from multiprocessing.connection import wait as wait_for_any
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from orsched.runner.devices.clock import HostClock
from orsched.runner.devices.device import LONGEST_SLEEP_S, Times, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from orsched.common.errors import OrschedError
    from orsched.runner.devices.device import Reason
    from orsched.runner.devices.settings import WorkerSettings
    from orsched.runner.worker.layout import Chunk


Fault = Literal["", "kill", "hang", "out_of_memory", "fail"]
"""What a test lets happen in a step: its worker kills itself, hangs, or an error occurs in it."""


class Start(NamedTuple):
    """Time begins."""

    zero_ns: int  # when, on the worker's own ``perf_counter_ns``


class Begin(NamedTuple):
    """A step, as ``Device.begin`` has it."""

    chunks: Sequence[Chunk]
    active: Sequence[int]
    rounds: int
    released: Sequence[int]  # slots that have become free since the last step
    fault: Fault  # what is to go wrong


class Ready(NamedTuple):
    """A worker can take steps."""

    name: str
    clock: str
    facts: dict[str, Any]  # what else is known of it


class Ended(NamedTuple):
    """A step is over."""

    start_ns: int
    end_ns: int
    tokens: bytes  # int32: one of each chunk that yields, then those of each active slot


class Lost(NamedTuple):
    """The worker's last words."""

    reason: Reason
    message: str


class Refused(NamedTuple):
    """There can be no such worker here: another attempt would end the same way."""

    error: OrschedError


HANG_S = 120.0
_MANY = 20
"""If no limit is given, a step has hung that takes more than ``HANG_S`` and this many times what
the slowest one took by token and round."""


class _Begun(NamedTuple):
    """A step that was begun."""

    slots: list[tuple[int, int]]  # slots that yield and how many tokens, in the order of the answer
    size: int  # tokens processed and rounds


class RemoteDevice(HostClock):
    """A worker elsewhere, behind messages."""

    def __init__(
        self,
        settings: WorkerSettings,
        name: str | None = None,  # as the trace names the device; None: as the worker says
        hang_s: float | None = None,  # most of a step; None: see ``_MANY``
        boot_s: float = 900.0,  # until a worker is ready, at most
        faults: Mapping[int, Fault] | None = None,  # what fails, by step, from 0 over all lives
    ) -> None:
        self.settings, self.faults = settings, dict(faults or {})
        self.name = name or settings.device
        self.named = name is not None
        self.hang_ns = int((HANG_S if hang_s is None else hang_s) * 1e9)
        self.many = _MANY if hang_s is None else 0
        self.boot_ns = int(boot_s * 1e9)
        self.facts: dict[str, Any] = {}  # what a worker that was ready has said of itself
        self.zero_ns = perf_counter_ns()
        self.steps = self.slowest_ns = 0
        self.slots, self.length = settings.slots, settings.length
        self.yields: list[list[int]] = [[] for _ in range(settings.slots)]
        self._boot()

    # -- the way there: what a subclass has -----------------------------------------------

    @abstractmethod
    def _launch(self) -> None:
        """Start a worker; its first message is a greeting."""

    @abstractmethod
    def _send(self, message: Start | Begin) -> None:
        """Send a message (OSError: the worker is gone)."""

    @abstractmethod
    def _receive(self) -> Ready | Refused | Ended | Lost | None:
        """Return the next answer, None where there is none yet (EOFError: there will be none)."""

    @abstractmethod
    def _kill(self) -> str:
        """End the worker now and return what is known of its end; do not wait long."""

    @abstractmethod
    def _channel(self) -> Any:
        """Return what to wait on for an answer."""

    def _far_ns(self, moment_ns: int) -> int:
        """Return a moment on the worker's clock; on one machine it is the same."""
        return moment_ns

    # -- a worker's life ------------------------------------------------------------------

    def _boot(self) -> None:
        self.begun: deque[_Begun] = deque()
        self.ended: deque[Ended] = deque()
        self.released: list[int] = []
        self.loss: WorkerLostError | OrschedError | None = None
        self.booting = True
        self.deadline_ns = perf_counter_ns() + self.boot_ns
        try:
            self._launch()
        except OSError as error:
            self._lose("failed", f"no worker can be started: {error}")

    def start(self, zero_ns: int | None = None) -> None:
        """Let time begin when the worker is ready.

        Raises ``WorkerLostError`` if it does not get ready, ``InputError`` for its settings, and
        ``MissingDependencyError`` where torch or transformers are missing.
        """
        while not self.ready():
            self._pause()
        self.zero_ns = perf_counter_ns() if zero_ns is None else zero_ns
        self._require_worker()
        self._deliver(Start(self._far_ns(self.zero_ns)))
        self._require_worker()

    def restart(self) -> None:
        """Begin to bring the worker back, with empty slots; return at once."""
        self._kill()
        self._boot()

    def ready(self) -> bool:
        """Return whether ``begin`` would take a step, or raise, at once."""
        if self.booting:
            self._listen()
        return not self.booting

    def close(self) -> None:
        """End the worker; what it yielded stays."""
        self._kill()
        self.booting = False
        self.loss = self.loss or WorkerLostError("died", "the device was closed")

    def _lose(self, reason: Reason, message: str) -> None:
        """Have no worker any more."""
        end = self._kill()
        self.loss = WorkerLostError(reason, message or end)
        self.booting = False

    def _require_worker(self) -> None:
        if self.loss is None:
            return
        self.begun.clear()
        if isinstance(self.loss, WorkerLostError):
            raise WorkerLostError(self.loss.reason, self.loss.message)
        raise self.loss

    def handles(self) -> Sequence[Any]:
        """Return what to wait on while a step or a restart is under way."""
        waiting = self.booting or len(self.begun) > len(self.ended)
        return [self._channel()] if waiting and self.loss is None else []

    # -- steps ----------------------------------------------------------------------------

    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Send a step to the worker; raises ``WorkerLostError`` where there is none."""
        if self.booting:
            raise RuntimeError("a step for a worker that is not ready")
        self._require_worker()
        for chunk in chunks:
            if not chunk.start:
                self.yields[chunk.slot].clear()
        slots = [(chunk.slot, 1) for chunk in chunks if chunk.yields]
        slots += [(slot, rounds) for slot in active]
        step = _Begun(slots, rounds + sum(len(chunk.tokens) for chunk in chunks))
        message = Begin(chunks, active, rounds, self.released, self.faults.get(self.steps, ""))
        self.released = []
        self.steps += 1
        if len(self.begun) == len(self.ended):
            self._allow(step)
        self._deliver(message)
        self._require_worker()
        self.begun.append(step)

    def _allow(self, step: _Begun) -> None:
        """Say until when a step may take that is next to run."""
        self.limit_ns = max(self.hang_ns, self.many * self.slowest_ns * step.size)
        self.deadline_ns = perf_counter_ns() + self.limit_ns

    def _deliver(self, message: Start | Begin) -> None:
        try:
            self._send(message)
        except TimeoutError:
            self._lose("hung", "the worker reads no messages")
        except OSError:
            self._listen()  # its last words may be there
            if self.loss is None:
                self._lose("died", "")

    def done(self) -> bool:
        """Return whether a step was begun and ``end`` would return, or raise, at once."""
        if not self.begun:
            return False
        if not self.ended:
            self._listen()
        return bool(self.ended) or self.loss is not None

    def end(self) -> Times:
        """Wait for the oldest step and return its times; ``WorkerLostError``: it never happened."""
        if not self.begun:
            raise RuntimeError("no step was begun")
        while not self.done():
            self._pause()
        if not self.ended:
            self._require_worker()
        step, answer = self.begun.popleft(), self.ended.popleft()
        tokens, place = np.frombuffer(answer.tokens, np.int32).tolist(), 0
        for slot, count in step.slots:
            self.yields[slot] += tokens[place : place + count]
            place += count
        return Times(answer.start_ns, answer.end_ns)

    def _pause(self) -> None:
        wait_for_any(self.handles(), LONGEST_SLEEP_S)

    def _listen(self) -> None:
        """Take the answers that are there, and see whether the worker still is."""
        try:
            while self.loss is None and (answer := self._receive()) is not None:
                self._take(answer)
        except EOFError:
            self._lose("died", "")
        if self.loss is None and perf_counter_ns() > self.deadline_ns:
            if self.booting:
                self._lose("hung", f"not ready after {self.boot_ns / 1e9:g} s")
            elif len(self.begun) > len(self.ended):
                self._lose("hung", f"a step took far too long (limit: {self.limit_ns / 1e9:g} s)")

    def _take(self, answer: Ready | Refused | Ended | Lost) -> None:
        if isinstance(answer, Ended):
            self._take_step(answer)
        elif isinstance(answer, Ready):
            self.booting = False
            self.clock, self.facts = answer.clock, answer.facts
            self.name = self.name if self.named else answer.name
            self._deliver(Start(self._far_ns(self.zero_ns)))
        elif isinstance(answer, Lost):
            self._lose(answer.reason, answer.message)
        else:
            self._lose("failed", "")
            self.loss = answer.error

    def _take_step(self, answer: Ended) -> None:
        step = self.begun[len(self.ended)]
        self.ended.append(answer)
        taken = (answer.end_ns - answer.start_ns) // max(1, step.size)
        self.slowest_ns = max(self.slowest_ns, taken)
        if len(self.begun) > len(self.ended):
            self._allow(self.begun[len(self.ended)])

    # -- what came of it ------------------------------------------------------------------

    @property
    def vocabulary(self) -> int:
        """Tokens are below this; waits until the worker was ready once, raises as ``start``."""
        while "vocabulary" not in self.facts:
            if self.ready():
                self._require_worker()
            else:
                self._pause()
        found: int = self.facts["vocabulary"]
        return found

    def yielded(self, slots: Sequence[int], tokens: int = 1) -> NDArray[np.int64]:
        """Return the last tokens of requests, in steps whose ``end`` was told."""
        return np.array([self.yields[slot][-tokens:] for slot in slots], np.int64)

    def pretend(self, lengths: Sequence[int]) -> bool:
        """Return False: caches are filled by steps."""
        return False

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Free a slot; return what its request yielded on it."""
        found = np.array(self.yields[slot], np.int64)
        self.yields[slot].clear()
        self.released.append(slot)
        return found
