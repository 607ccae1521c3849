"""What executes steps: a real worker on its device, or one that lets modelled time pass.

A device takes a step and goes on with it by itself; the host asks for its times later. So the next
decision is made while the step runs.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.runner.chunk import Chunk
    from orsched.runner.torch_worker import TorchWorker

_SPIN_NS = 200_000  # the last part of a wait is not left to the operating system


class Times(NamedTuple):
    """When a step ran, in nanoseconds since the start of the run."""

    start_ns: int
    end_ns: int


class Device(Protocol):
    """Executes steps, one after the other.

    Attributes:
        name: as the trace names it.
        clock: what its times are measured by, as the trace names it.
    """

    name: str
    clock: str

    def start(self) -> None:
        """Let time begin."""

    def now_ns(self) -> int:
        """Return the time on the host."""

    def sleep_until(self, moment_ns: int) -> None:
        """Let time pass while there is nothing to do."""

    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Begin a step: chunks beside one round, or some rounds over the active slots.

        ``planned_ns`` is what the instance's cost model says.
        """

    def end(self) -> Times:
        """Wait for the oldest step that was begun, and return its times."""

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Let a slot be free; return what its request yielded (``tolist`` waits for it)."""


class VirtualDevice:
    """Lets every step take the time of the cost model: a run on it is a simulation."""

    name, clock = "virtual", "cost model"

    def __init__(self) -> None:
        self.free_ns = 0
        self.ends: deque[Times] = deque()

    def start(self) -> None:
        """Let time begin at 0."""
        self.free_ns = 0

    def now_ns(self) -> int:
        """Return the end of the last step, or of the last wait."""
        return self.free_ns

    def sleep_until(self, moment_ns: int) -> None:
        """Let time pass."""
        self.free_ns = max(self.free_ns, moment_ns)

    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Take the time that was planned."""
        start, self.free_ns = self.free_ns, self.free_ns + planned_ns
        self.ends.append(Times(start, self.free_ns))

    def end(self) -> Times:
        """Return the times of the oldest step."""
        return self.ends.popleft()

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Nothing was yielded."""
        return None


class TorchDevice:
    """A torch worker, timed by the device's own events where it has them, else by the host."""

    def __init__(self, worker: TorchWorker) -> None:
        import torch

        self.worker = worker
        self.on_gpu = worker.device.type == "cuda"
        self.name = torch.cuda.get_device_name(worker.device) if self.on_gpu else "cpu"
        self.clock = "device events" if self.on_gpu else "perf_counter"
        self.begun: deque[Any] = deque()
        self.start()

    def start(self) -> None:
        """Let time begin now, on an idle device."""
        if self.on_gpu:
            import torch

            torch.cuda.synchronize(self.worker.device)
            self.zero = torch.cuda.Event(enable_timing=True)
            self.zero.record()
        self.zero_ns = perf_counter_ns()

    def now_ns(self) -> int:
        """Return the host's time."""
        return perf_counter_ns() - self.zero_ns

    def sleep_until(self, moment_ns: int) -> None:
        """Sleep, and spin at the end."""
        while (left := moment_ns - self.now_ns()) > 0:
            if left > _SPIN_NS:
                sleep((left - _SPIN_NS) / 1e9)

    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Execute a step; on a GPU it is only queued."""
        start = self._mark()
        if chunks:
            self.worker.step(chunks, active)
        else:
            self.worker.decode(active, rounds)
        self.begun.append((start, self._mark()))

    def _mark(self) -> Any:
        if not self.on_gpu:
            return self.now_ns()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def end(self) -> Times:
        """Wait for the oldest step and return its times."""
        start, end = self.begun.popleft()
        if not self.on_gpu:
            return Times(start, end)
        end.synchronize()
        return Times(self._since_zero(start), self._since_zero(end))

    def _since_zero(self, event: Any) -> int:
        milliseconds: float = self.zero.elapsed_time(event)
        return max(0, round(milliseconds * 1e6))

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Return a tensor with what the slot's request yielded."""
        tokens = self.worker.take(slot, prompt_tokens)
        self.worker.release(slot)
        return tokens
