"""What executes steps: a real worker on its device, or one that lets modelled time pass.

A device executes a step by itself; the host reads the times later. So the next decision is made
while the step runs, and several devices run at one time. ``open_device`` makes one from settings,
of any engine that has an ``EngineDevice``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from contextlib import nullcontext
from multiprocessing.connection import wait as wait_for_any
from time import perf_counter, perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

from orsched.common.own_code import class_of
from orsched.common.units import NEVER
from orsched.runner.devices.clock import HostClock
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from orsched.runner.devices.settings import WorkerSettings
    from orsched.runner.worker.torch_worker import TorchWorker


Reason = Literal["died", "hung", "out_of_memory", "differs", "failed"]


class WorkerLostError(Exception):
    """A worker can take no more steps before it is restarted; ``message`` is what is known of it.

    ``reason``: ``died``: its process ended without a word; ``hung``: a step took far too long;
    ``out_of_memory``; ``differs``: its engine would have executed something else than it was asked
    to; ``failed``: anything else that it reported.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason
        self.message = message


_ASK_AGAIN_S = 0.0002  # where a device can only be asked whether it is done
LONGEST_SLEEP_S = 0.1  # then all are asked again: one may have hung
_MOVE_ZERO_MS = 1000.0  # torch gives times as float32: only short ones are exact


class Times(NamedTuple):
    """When a step ran, in nanoseconds since the start of the run."""

    start_ns: int
    end_ns: int


class Device(Protocol):
    """Executes steps, one after the other.

    A worker may be lost: then ``begin`` or ``end`` raises WorkerLostError, the steps without an
    ``end`` never happened, its slots are empty, and it takes steps again after a ``restart``.
    ``release`` still returns what the steps before have yielded.
    """

    name: str  # as the trace names it
    clock: str  # what its times are measured by, as the trace names it
    slots: int  # requests that are on it at one time; chunks and rounds name them from 0
    length: int  # tokens of the longest request, prompt and output
    facts: dict[str, Any]  # what else is known of it: plain values, once it is ready

    @property
    def vocabulary(self) -> int:
        """Tokens are below this; 0 for a device that yields none."""

    def start(self, zero_ns: int | None = None) -> None:
        """Let time begin, at a moment of ``perf_counter_ns``, or now, then on a clock of its own.

        Waits till the device is ready.
        """

    def now_ns(self) -> int:
        """Return the time on the host."""

    def sleep_until(self, moment_ns: int) -> None:
        """Let time pass while there is nothing to do."""

    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Begin a step: chunks beside one round, or rounds; the cost model says ``planned_ns``."""

    def done(self) -> bool:
        """Return whether a step was begun and ``end`` would return, or raise, at once."""

    def end(self) -> Times:
        """Wait for the oldest step that was begun, and return its times."""

    def yielded(self, slots: Sequence[int], tokens: int = 1) -> NDArray[np.int64]:
        """Return the last tokens that requests have yielded in steps that ended: [slots, tokens].

        Each has yielded as many since it is in its slot.
        """

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Free a slot; return what its request yielded (``tolist`` waits for it)."""

    def pretend(self, lengths: Sequence[int]) -> bool:
        """Give the first slots caches of some lengths, for a profile, if that needs no prefill.

        Returns False, and does nothing, where it does: then the caches are filled by steps.
        """

    def restart(self) -> None:
        """Begin to bring a lost worker back, with empty slots; return at once."""

    def ready(self) -> bool:
        """Return whether ``begin`` would take a step, or raise, at once."""

    def handles(self) -> Sequence[Any]:
        """Return what ``multiprocessing.connection.wait`` can wait on during a step or restart."""

    def close(self) -> None:
        """End the worker; what it yielded stays."""


def start_together(devices: Sequence[Device]) -> None:
    """Wait until all devices are ready, then let time begin for all of them at one moment; a single
    one has a clock of its own."""
    wait_until_ready(devices)
    zero_ns = perf_counter_ns() if len(devices) > 1 else None
    for device in devices:
        device.start(zero_ns)


def wait_until_ready(devices: Sequence[Device]) -> None:
    """Wait until all devices are ready (or would say at once why they never will be)."""
    while left := [device for device in devices if not device.ready()]:
        wait(left)


def wait(
    devices: Sequence[Device],  # those with a step or a restart under way
    until_ns: int | None = None,  # the moment; None: there is none
    now_ns: int = 0,  # the time now, on the same clock
    sleeping: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Sleep until a device is done, one of those that are not ready is, or a moment has come.

    An exception raised in ``sleeping`` does no harm, as one in the middle of an answer would.
    """
    end = float("inf") if until_ns is None else perf_counter() + (until_ns - now_ns) / 1e9
    waking = [device for device in devices if not device.ready()]
    while not any(device.done() for device in devices):
        left = min(end - perf_counter(), LONGEST_SLEEP_S)
        if left <= 0:
            return
        handles = [handle for device in devices for handle in device.handles()]
        with sleeping():
            if handles:
                wait_for_any(handles, left)
            else:
                sleep(min(left, _ASK_AGAIN_S) if devices else left)
        if any(device.ready() for device in waking):
            return


class AlwaysThere:
    """What a device does that no worker is lost on, and that answers when it is asked."""

    def restart(self) -> None:
        """Do nothing: it was not lost."""

    def ready(self) -> bool:
        """Return True."""
        return True

    def handles(self) -> Sequence[Any]:
        """Return nothing: it is asked again."""
        return ()

    def close(self) -> None:
        """Do nothing."""

    def pretend(self, lengths: Sequence[int]) -> bool:
        """Return False: caches are filled by steps."""
        return False


class EngineDevice(HostClock, AlwaysThere):
    """Base class for another engine, driven step by step in this process and timed by the host.

    A class derived from it is a worker that runs, processes and actors can open by its name
    (``--worker module:Class``). It says how many tokens it knows, executes a step, and returns what
    was yielded; times, slots and the rest are here. A class that can be lost and restarted
    overrides ``restart`` and ``ready`` and raises ``WorkerLostError``; any other error ends the
    run, or the worker where it has a process of its own.

    Args:
        settings: model, slots, length, device (maybe ``auto``), and the engine's own ``arguments``.
    """

    name = "engine"
    vocabulary = 0
    reuses_prefixes = False  # whether first chunks may begin behind tokens of the prefix cache
    looks_ahead = False  # whether ``begin`` returns before a step is over; a loss ends the run then

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings, self.slots, self.length = settings, settings.slots, settings.length
        self.facts: dict[str, Any] = {}
        self.begun: deque[Times] = deque()
        self.start()

    @classmethod
    def require(cls) -> None:
        """Raise ``MissingDependencyError`` where packages of the engine are missing."""

    @abstractmethod
    def compute(self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int) -> None:
        """Execute a step and wait for it: chunks beside one round of slots, or some rounds.

        A chunk with ``whole`` is the first of its request. After a chunk that ``yields``, and after
        each round of its slot, a request has one token more; ``feeds`` is a prompt's last token,
        which the next round of the slot is to process.
        """

    @abstractmethod
    def yielded(self, slots: Sequence[int], tokens: int = 1) -> NDArray[np.int64]:
        """Return the last tokens of requests, [slots, tokens]."""

    @abstractmethod
    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Free a slot, in use or not; return all that its request yielded."""

    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Execute a step."""
        start = self.now_ns()
        self.compute(chunks, active, rounds)
        self.begun.append(Times(start, self.now_ns()))

    def done(self) -> bool:
        """Return whether a step was begun."""
        return bool(self.begun)

    def end(self) -> Times:
        """Return the times of the oldest step."""
        return self.begun.popleft()


class VirtualDevice(AlwaysThere):
    """Lets every step take the time of the cost model: a run on it is a simulation."""

    name, clock = "virtual", "cost model"
    slots = length = NEVER  # any number
    vocabulary = 0

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.free_ns = 0
        self.ends: deque[Times] = deque()

    def start(self, zero_ns: int | None = None) -> None:
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

    def done(self) -> bool:
        """Return whether a step was begun."""
        return bool(self.ends)

    def end(self) -> Times:
        """Return the times of the oldest step."""
        return self.ends.popleft()

    def yielded(self, slots: Sequence[int], tokens: int = 1) -> NDArray[np.int64]:
        """Nothing was yielded: a run whose requests end at a token refuses this device."""
        raise NotImplementedError

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Nothing was yielded."""
        return None


class TorchDevice(HostClock, AlwaysThere):
    """A torch worker, timed by the device's own events where it has them, else by the host."""

    def __init__(self, worker: TorchWorker) -> None:
        import torch
        import transformers

        from orsched.runner.utilization import model_size

        self.worker = worker
        self.slots, self.length = worker.slots.count, worker.slots.length
        self.vocabulary = worker.shape.vocabulary
        self.facts = {
            "cache_bytes": worker.slots.bytes(),
            "threads": torch.get_num_threads(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "device": str(worker.device),
            "model_size": model_size(worker.model)._asdict(),
            "graphs": worker.graphs.sizes(),
        }
        self.on_gpu = worker.device.type == "cuda"
        self.on_cpu = not self.on_gpu
        self.name = torch.cuda.get_device_name(worker.device) if self.on_gpu else "cpu"
        self.begun: deque[Any] = deque()
        self.start()

    def start(self, zero_ns: int | None = None) -> None:
        """Let time begin, on an idle device."""
        if self.on_gpu:
            import torch

            torch.cuda.synchronize(self.worker.device)
            self.mark = torch.cuda.Event(enable_timing=True)
            self.mark.record()
        super().start(zero_ns)
        if self.on_gpu:
            self.clock, self.mark_ns = "device events", self.now_ns()

    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Execute a step; on a GPU it is only queued."""
        start = self._mark()
        leaving = [chunk for chunk in chunks if chunk.only_saves]
        if leaving:
            self.worker.save(leaving)
            chunks = [chunk for chunk in chunks if not chunk.only_saves]
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

    def done(self) -> bool:
        """Return whether the oldest step is over."""
        return bool(self.begun) and (not self.on_gpu or self.begun[0][1].query())

    def end(self) -> Times:
        """Wait for the oldest step and return its times."""
        start, end = self.begun.popleft()
        if not self.on_gpu:
            return Times(start, end)
        end.synchronize()
        return Times(self._since_zero(start), self._since_zero(end))

    def _since_zero(self, event: Any) -> int:
        """Return the time of an event, all before which have been asked for."""
        milliseconds: float = self.mark.elapsed_time(event)
        found = self.mark_ns + max(0, round(milliseconds * 1e6))
        if milliseconds > _MOVE_ZERO_MS:
            self.mark, self.mark_ns = event, found
        return found

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Return a tensor with what the slot's request yielded."""
        tokens = self.worker.take(slot, prompt_tokens)
        self.worker.release(slot)
        return tokens

    def yielded(self, slots: Sequence[int], tokens: int = 1) -> NDArray[np.int64]:
        """Return the last tokens of requests; the host waits for them."""
        return self.worker.last(slots, tokens)

    def pretend(self, lengths: Sequence[int]) -> bool:
        """Give the first slots caches of some lengths, with nothing in them."""
        self.worker.pretend(lengths)
        return True


REPEATS = 2
MOST_ROUNDS = 8


def warm_up(device: Device, slots: int, length: int, prompts: Sequence[int]) -> None:
    """Run stages over one prompt and over several, rounds, and a mixed step on an empty device.

    ``prompts`` are numbers of prompt tokens, such as an instance's shortest and longest.
    """
    sizes = sorted({min(tokens, length) for tokens in prompts})
    for _ in range(REPEATS):
        for size in sizes:
            _do(device, [_prompt(0, size)], [], 1)
            device.release(0, size)
        _rounds(device, slots, length, sizes[0])


def _rounds(device: Device, slots: int, length: int, size: int) -> None:
    """Fill all slots, then run rounds and a mixed step over them."""
    every = list(range(slots))
    _do(device, [_prompt(slot, size) for slot in every], [], 1)
    rounds = min(MOST_ROUNDS, length - size - 1)
    if rounds > 0:
        _do(device, [], every, rounds)
        if slots > 1:
            device.release(slots - 1, size)
            _do(device, [_prompt(slots - 1, size)], every[:-1], 1)
    for slot in every:
        device.release(slot, size)


def _prompt(slot: int, tokens: int) -> Chunk:
    prompt = [0] * tokens
    return Chunk(slot, 0, prompt, True, whole=prompt)


def _do(device: Device, chunks: Sequence[Chunk], active: Sequence[int], rounds: int) -> None:
    device.begin(chunks, active, rounds, 0)
    device.end()


ENGINES = {"vllm": "orsched.runner.vllm_worker.device:VllmDevice"}
"""Name of a worker -> its class; ``torch`` has the one above."""


def open_device(settings: WorkerSettings) -> Device:
    """Return a device of this process that is ready for its first step.

    Raises ``InputError`` for settings that the engine refuses, ``MissingDependencyError`` where its
    packages are missing.
    """
    if settings.worker != "torch":
        return cast("Device", require_engine(settings.worker)(settings))
    import torch

    from orsched.runner.worker.torch_worker import TorchWorker

    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    worker = TorchWorker(settings)
    worker.prepare()
    return TorchDevice(worker)


def require_engine(worker: str) -> type[EngineDevice]:
    """Return the class that a name or ``module:Class`` stands for.

    Raises ``InputError`` if it is none, ``MissingDependencyError`` if its packages are missing.
    """
    found: type[EngineDevice] = class_of(ENGINES.get(worker, worker), EngineDevice, "worker")
    found.require()
    return found
