"""The simulator's loop in real time: durations, and whether a step completes, are the devices'."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NoReturn

from orsched.common.errors import PolicyError
from orsched.common.units import NEVER
from orsched.runner.devices.device import VirtualDevice, wait
from orsched.runner.loop.live_worker import CannotGoOnError, LiveWorker, live, restoring_step
from orsched.simulator.loop import Loop, Simulated
from orsched.simulator.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.data.step import Step, Wait
    from orsched.runner.devices.device import Device, WorkerLostError
    from orsched.runner.loop.live_worker import EndOfSequence
    from orsched.runner.loop.resume import Prompts
    from orsched.simulator.policy import View


MOST_DIFFERENCES = 3
"""Losses of a worker in a run, steps done in between or not, since its engine ``differs`` from what
it is asked to do: it will again, such as where it is short of blocks."""

_MOST_KEPT = 3
"""Interrupts held back while an interrupted run is put in order; one more ends even that."""


class Interrupts:
    """Keeps a first Ctrl-C until ``check``, or until it may be raised; a second one is raised.

    Once one was raised (``told``), further ones are kept, but where they may be raised: what was
    done until then must not be lost while it is put in order, checked and written. Outside the main
    thread signals stay as they are.
    """

    def __init__(self, told: bool = False) -> None:
        self.asked = 0
        self.may_raise = False
        self.told = told

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what comes in this block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._take)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise what comes in this block: nothing is amiss if it is left."""
        self.check()
        self.may_raise = True
        try:
            yield
        finally:
            self.may_raise = False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if it was asked for."""
        if self.asked:
            self._raise()

    def _take(self, *_: Any) -> None:
        self.asked += 1
        if self.may_raise or self.asked > (_MOST_KEPT if self.told else 1):
            self._raise()

    def _raise(self) -> NoReturn:
        self.told, self.may_raise = True, False
        raise KeyboardInterrupt


@contextmanager
def finishing(stopped: str) -> Iterator[None]:
    """Keep Ctrl-C while a run that was stopped is checked and written."""
    if not stopped:
        yield
        return
    with Interrupts(told=True).kept():
        yield


class LiveLoop(Loop):
    """The simulator's loop, where time passes by itself; ``events`` happened beside the steps."""

    def __init__(
        self,
        instance: Instance,
        policy: Policy,
        devices: Sequence[Device],
        prompts: Prompts,
        looks_ahead: bool,
        most_losses: int,
        ends: EndOfSequence | None,
        observer: Callable[[View, Step], None] | None,
    ) -> None:
        super().__init__(instance, policy, observer, None)
        self.hears = policy.hears_of_evictions()
        self.interrupts = Interrupts()
        self.policy = _Asking(policy, self)
        self.looks_ahead, self.most_losses = looks_ahead, most_losses
        if ends is not None:
            ends.watch(self.run_state)
        self.is_virtual = all(isinstance(device, VirtualDevice) for device in devices)
        self.workers = [
            LiveWorker(instance, self, index, device, prompts, looks_ahead, ends)
            for index, device in enumerate(devices)
        ]
        self.told, self.run_state.on_finish = self.run_state.on_finish, self._on_finish
        self.events_told: list[dict[str, Any]] = []
        self.stopped = ""  # why the run ended before all requests were done, or empty

    def run(self) -> Simulated:
        """Run until every request is done, or until the run is stopped."""
        with self.interrupts.kept():
            try:
                self.serve()
            except KeyboardInterrupt:
                self.stopped = "interrupted"
            except CannotGoOnError as error:
                self.stopped = str(error)
            for worker in live(self.workers):
                worker.settle()
            if self.stopped:
                self._wind_up()
            for each in self.workers:
                each.require_empty()
            return Simulated(self.schedule(), self.decision_ns)

    # -- one worker that looks ahead ------------------------------------------------------

    def _serve_alone(self) -> None:
        if not self.looks_ahead:
            self._serve_several()
            return
        super()._serve_alone()

    def _wait_alone(self, wait: Wait | None) -> None:
        super()._wait_alone(wait)
        worker, run_state = live(self.workers)[0], self.run_state
        with self.interrupts.raised():
            worker.device.sleep_until(run_state.now_ns)
        run_state.now_ns = worker.state.now_ns = max(run_state.now_ns, worker.device.now_ns())

    # -- events ---------------------------------------------------------------------------

    def _next_event(self) -> None:
        index, run_state = self._await_event(), self.run_state
        if index < 0:
            self._arrive()
            return
        worker = live(self.workers)[index]
        self.asked, now = worker, run_state.now_ns
        if worker.down:
            self._bring_back(worker)
        elif (loss := worker.loss()) is not None:
            self._lose(worker, loss)
        elif worker.busy:
            worker.losses, worker.until_ns = 0, now
            if not worker.complete():
                self._expect(index, now)
                return
            if not run_state.left:
                return
        else:
            worker.state.now_ns = now
        if run_state.next_arrival_ns <= now:
            self._tell_arrivals(worker.view)
        if not worker.down:
            self._ask(index)
        self._ask_all()

    def _await_event(self) -> int:
        """Wait for what happens next; return the worker that it happens to, -1 for an arrival."""
        run_state, events = self.run_state, self.events
        while True:
            self.interrupts.check()
            self._collect()
            while events and events[0][2] != self.numbers[events[0][1] % len(self.workers)]:
                heappop(events)  # the wait was ended by something else
            moment, place, _ = events[0] if events else (NEVER, 0, 0)
            arrival = run_state.next_arrival_ns if self.asleep or run_state.assigns else NEVER
            until = min(moment, arrival)
            now = until if self.is_virtual else max(run_state.now_ns, self._now_ns())
            awaited = [worker for worker in live(self.workers) if worker.awaited]
            if until == NEVER and not awaited:
                raise self._endless_wait()
            if until <= now:
                run_state.now_ns = now
                if arrival < moment or (arrival == moment and place >= len(self.workers)):
                    return -1
                heappop(events)
                return place % len(self.workers)
            if awaited or len(self.workers) > 1:
                devices = [worker.device for worker in awaited]
                wait(devices, until, now, self.interrupts.raised)
                continue
            with self.interrupts.raised():  # by the device's own clock
                live(self.workers)[0].device.sleep_until(until)

    def _collect(self) -> None:
        """Record all devices that are done or ready."""
        for index, worker in enumerate(live(self.workers)):
            if not worker.awaited:
                continue
            device = worker.device
            if worker.down:
                if not device.ready():
                    continue
                worker.awaited = False
            elif worker.reply is None and not device.done():
                continue
            else:
                worker.collect()
            worker.due_ns = device.now_ns() if self.is_virtual else self._now_ns()
            self._push(index, worker.due_ns, worker.busy and worker.inner_border)

    def _now_ns(self) -> int:
        return live(self.workers)[0].device.now_ns()

    def _expect(self, index: int, moment_ns: int) -> None:
        """Expect the end of a wait; that of a step is known when the device is done."""
        worker = live(self.workers)[index]
        if worker.awaited:
            self.numbers[index] += 1
        else:
            self._push(index, worker.due_ns if worker.busy else moment_ns)

    def _push(self, index: int, moment_ns: int, is_inner: bool = False) -> None:
        """Set the moment of a worker's next event.

        The borders inside a run of rounds that is begun in pieces are no events, unless an arrival
        makes them some: they come after all that happens at their moment.
        """
        self.numbers[index] = number = self.numbers[index] + 1
        heappush(self.events, (moment_ns, index + is_inner * len(self.workers), number))

    def _on_finish(self, view: View, request: int, client: int) -> None:
        live(self.workers)[view.index].release(request, client)
        if self.told is not None:
            self.told(view, request, client)

    # -- losses ---------------------------------------------------------------------------

    def _lose(self, worker: LiveWorker, loss: WorkerLostError) -> None:
        """Discard the step in progress, and begin to restart the worker.

        A policy that hears of evictions places the worker's requests again. For any other one they
        are where they were, and are brought back there: all that it sees is time passing.
        """
        worker.state.now_ns = self.run_state.now_ns
        if not self.hears:
            worker.restoring = worker.places()
        requests = worker.empty()
        self._tell(worker, "lost", reason=loss.reason, message=loss.message, requests=requests)
        self.to_ask |= self.asleep
        worker.losses += 1
        worker.differences += loss.reason == "differs"
        again = worker.differences >= MOST_DIFFERENCES
        if again or worker.losses > self.most_losses:
            times = worker.differences if again else worker.losses
            between = "" if again else " without a step done in between"
            raise CannotGoOnError(
                f"{worker.worker.name} was lost {times} times{between}; the last time it "
                f"{_VERBS.get(loss.reason, loss.reason)}: {loss.message}"
            )
        worker.down = worker.awaited = True
        worker.device.restart()

    def _bring_back(self, worker: LiveWorker) -> None:
        worker.down = False
        self._tell(worker, "restarted")

    def away(self) -> list[int]:
        """Return the workers that were lost and are not back."""
        return [worker.state.index for worker in live(self.workers) if worker.down]

    def _tell(self, worker: LiveWorker, what: str, **more: Any) -> None:
        entry = {"time_ns": self.run_state.now_ns, "worker": worker.state.index, "what": what}
        self.events_told.append({**entry, **more})

    # -- an early end ---------------------------------------------------------------------

    def _wind_up(self) -> None:
        """Wait for the steps that were begun, and release all requests as they are then.

        A further Ctrl-C ends the waiting: a step without an end never happened.
        """
        run_state = self.run_state
        run_state.on_preempt = run_state.on_first_token = self.told = None
        self.interrupts.asked = 0
        for worker in live(self.workers):
            worker.stopping = True
            if worker.busy and worker.awaited:
                try:
                    with self.interrupts.raised():
                        worker.collect()
                except KeyboardInterrupt:
                    worker.reply = None
            if worker.busy and worker.reply is not None and worker.loss() is None:
                worker.until_ns = max(run_state.now_ns, worker.device.now_ns())
                worker.complete()
            worker.empty()
        run_state.now_ns = max(
            [run_state.now_ns, *(worker.state.now_ns for worker in self.workers)]
        )
        self.events_told.append(
            {"time_ns": run_state.now_ns, "what": "stopped", "reason": self.stopped}
        )


_VERBS = {
    "died": "died",
    "hung": "hung",
    "out_of_memory": "ran out of memory",
    "differs": "could not do as it was asked",
    "failed": "failed",
}


_SPLITTING = (
    "; this policy splits no prompts, and what was yielded is prefilled with them: a policy that "
    "does can go on with the run, such as gittins, or vllm without chunked_prefill=false"
)


class _Asking(Policy):
    """Asks the policy unless something comes first: Ctrl-C, or requests to be brought back.

    A worker for which it has nothing is given what waits for one that is away.
    """

    def __init__(self, policy: Policy, loop: LiveLoop) -> None:
        self.policy, self.loop = policy, loop
        self.name = policy.name
        self.start = policy.start  # type: ignore[method-assign]
        self._way = "" if policy.chunks else _SPLITTING

    def idle_may_act(self) -> bool:
        """Whether a worker that sleeps may have something to do: that of one that is away, too."""
        workers = live(self.loop.workers)
        lost = any(worker.down or worker.restoring for worker in workers)
        return lost or self.policy.idle_may_act()

    def decide(self, view: View) -> Step | Wait | None:
        loop = self.loop
        loop.interrupts.check()
        worker = live(loop.workers)[view.index]
        if worker.restoring:
            step: Step | Wait | None = restoring_step(view, worker.restoring)
            if step is not None:
                return step
        try:
            step = self.policy.decide(view)
            while step is None and self.policy.take_over(view, loop.away()):
                step = self.policy.decide(view)
        except PolicyError as error:
            if not loop.events_told:
                raise
            raise CannotGoOnError(f"policy {self.name}, after losses: {error}{self._way}") from None
        return step
