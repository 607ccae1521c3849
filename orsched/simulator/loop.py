"""The loop over the workers' events. Truth (output lengths) is here; policies see ``View`` only."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from heapq import heappop, heappush
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.errors import PolicyError
from orsched.common.units import NEVER
from orsched.data.schedule import Schedule
from orsched.data.step import Step, Wait, require_step
from orsched.simulator.following import FollowingState
from orsched.simulator.policy import Information, Policy, View, WorkerState
from orsched.simulator.recorder import WorkRecorder, timeline
from orsched.simulator.run_state import RunState, build_views
from orsched.simulator.worker import WorkerRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.links import Transfers


AFTER_ALL = 2**62
"""Comes after every worker."""


MOST_IDLE_DECISIONS = 1_000
"""Decisions in a row, beyond one a request, that let no time pass."""


class Simulated(NamedTuple):
    """What a simulation yields: the timeline, without results and bound, and the wall-clock time of
    each call of ``decide``."""

    schedule: Schedule
    decision_ns: array[int]


class Loop:
    """One run: asks the policy for each worker that is free, in order of time, then worker. The
    runner's loop is a subclass, in which a device says how long a step takes."""

    worker_type: type[WorkerRun] = WorkerRun

    def __init__(
        self,
        instance: Instance,
        policy: Policy,
        observer: Callable[[View, Step], None] | None,
        deadline: Callable[[], None] | None,
    ) -> None:
        self._refuse(instance, policy)
        self.instance = instance
        self.policy = policy
        self.observer = observer
        self.deadline = deadline
        self.information = _information_of(policy)  # read once: it is what the view grants
        if len(instance.workers) > 1 and not policy.many_workers:
            raise PolicyError(
                f"policy {policy.name} is for one worker, the instance has "
                f"{len(instance.workers)}: give its class, which gets a dispatcher"
            )
        made = FollowingState if instance.arrivals_follow else RunState
        self.run_state = run_state = made(instance, policy)
        run_state.deadline = deadline
        rule, limit = instance.first_token, instance.output_limit_tokens
        states = [
            WorkerState(worker, rule, limit, index, run_state.yielded)
            for index, worker in enumerate(instance.workers)
        ]
        self.views, run_state.hidden = build_views(
            instance, states, self.information, policy.chunks,
            run_state.arrivals if run_state.follows else None,
        )  # fmt: skip
        self.work = WorkRecorder(run_state.prompts)
        self.workers = [
            self.worker_type(instance, run_state, view, self.work) for view in self.views
        ]
        self.events: list[tuple[int, int, int]] = []  # time, worker, number of the worker's event
        self.numbers = [0] * len(self.workers)
        self.asleep = Asleep(run_state, states)
        self.indices = frozenset(range(len(self.workers)))
        self.to_ask = set(self.indices)
        self.decision_ns = array("q")
        self.idle_decisions = 0
        self.asked = self.workers[0]
        self.step: Step | Wait | None = None
        self._prepare()

    def _refuse(self, instance: Instance, policy: Policy) -> None:
        """Refuse, before anything else, a policy or workers that this loop does not know."""

    def _prepare(self) -> None:
        """Set up what a subclass adds."""

    def run(self) -> Simulated:
        """Run until every request is done."""
        self.serve()
        for worker in self.workers:
            worker.require_empty()
        return Simulated(self.schedule(), self.decision_ns)

    def serve(self) -> None:
        """Handle all events until every request is done."""
        try:
            self.policy.start(self.views[0])
            self.run_state.deliver_arrivals(self.views[0])
            self._concerned()
            if len(self.workers) == 1:
                self._serve_alone()
            else:
                self._serve_several()
        except PolicyError as error:
            raise PolicyError(f"{self._moment()}: {error}") from None
        except (TypeError, ValueError, AttributeError, OverflowError):
            self._blame()
            raise

    def _serve_alone(self) -> None:
        """Do the same for one worker, without a queue of events: about twice as fast."""
        worker, run_state = self.workers[0], self.run_state
        decide, take, complete = self.policy.decide, worker.take, worker.complete
        view, state = worker.view, worker.state
        clock, decision_ns = perf_counter_ns, self.decision_ns
        observer, deadline = self.observer, self.deadline
        while run_state.left:
            before = clock()
            step = self.step = decide(view)
            decision_ns.append(clock() - before)
            if deadline is not None and not len(decision_ns) & 255:
                deadline()
            if step is None or isinstance(step, Wait):
                self._wait_alone(step)
            else:
                if observer is not None:
                    observer(view, step)
                if take(step):
                    while not complete():
                        pass
                    run_state.now_ns = state.now_ns
                    self.idle_decisions = 0
                else:
                    self._count_idle()
            if run_state.next_arrival_ns <= run_state.now_ns:
                run_state.deliver_arrivals(view)

    def _serve_several(self) -> None:
        run_state, next_event = self.run_state, self._next_event
        self._ask_all()
        while run_state.left:
            next_event()

    def _wait_alone(self, wait: Wait | None) -> None:
        """Let the only worker sleep until the next arrival or the end of its wait."""
        worker, run_state = self.workers[0], self.run_state
        until = run_state.next_arrival_ns
        if wait is not None:
            self._require_future(wait)
            until = min(until, wait.until_ns)
        if until == NEVER:
            raise self._endless_wait()
        run_state.now_ns = worker.state.now_ns = until
        worker.steps.wait_until(until)

    def _next_event(self) -> None:
        """Handle the next step border or end of a wait, or the next arrival if it is told first."""
        run_state, events = self.run_state, self.events
        arrival = run_state.next_arrival_ns if self.asleep or run_state.assigns else NEVER
        if arrival < (events[0][0] if events else NEVER):
            run_state.now_ns = arrival
            self._arrive()
            return
        if not events:
            raise self._endless_wait()
        now, index, number = heappop(events)
        if number != self.numbers[index]:
            return  # the wait was ended by something else
        run_state.now_ns = now
        worker = self.asked = self.workers[index]
        if worker.busy:
            is_free = worker.complete()
            if run_state.follows:
                self._foresee(index)
            if not is_free:
                self._expect(index, worker.until_ns)
                return
            if not run_state.left:
                return
        else:
            worker.state.now_ns = now
        if run_state.next_arrival_ns <= now:
            self._tell_arrivals(worker.view)
        self._ask(index)
        self._ask_all()

    def _arrive(self) -> None:
        """Handle arrivals now, at no worker's step border."""
        herald = self.asleep.order[0] if self.asleep else 0
        self.workers[herald].state.now_ns = self.run_state.now_ns
        self._tell_arrivals(self.views[herald])
        self._ask_all()

    def _tell_arrivals(self, view: View) -> None:
        """Tell of the arrivals up to now: who sleeps is asked, whom they concern is interrupted."""
        run_state = self.run_state
        run_state.deliver_arrivals(view)
        self.asleep.wake()
        if run_state.concerned:
            for index in sorted(self._concerned()):
                if index in self.asleep:
                    self.to_ask.add(index)
                    continue
                worker = self.workers[index]
                if worker.interrupt(run_state.now_ns):
                    self._expect(index, worker.until_ns)

    def _foresee(self, index: int) -> None:
        """Let rounds of the other workers stop at an arrival that follows from a worker's ends."""
        moment = self.run_state.next_arrival_ns
        for other, worker in enumerate(self.workers):
            if other != index and worker.foresee(moment):
                self._expect(other, worker.until_ns)

    def _concerned(self) -> frozenset[int]:
        """Return the workers that the policy said the last arrivals are for."""
        said = frozenset(self.run_state.concerned)
        self.run_state.concerned.clear()
        if said <= self.indices:
            return self.indices & said
        for worker in said - self.indices:
            if worker is not None:
                raise PolicyError(
                    f"on_arrival said a request is for worker {worker!r}, but the workers are "
                    f"{len(self.workers)}, numbered from 0"
                )
        return self.indices

    def _expect(self, index: int, moment_ns: int) -> None:
        """Let a worker have its next event at a moment; an earlier one it had is void."""
        self.numbers[index] = number = self.numbers[index] + 1
        heappush(self.events, (moment_ns, index, number))

    def _ask_all(self) -> None:
        """Ask for those that are to be asked, the first first; an eviction may add some. Those
        woken are asked as long as the policy says that one of them may have something to do."""
        to_ask, asleep, run_state = self.to_ask, self.asleep, self.run_state
        listed: list[int] = []
        while run_state.left:
            if asleep.next != AFTER_ALL and not self.policy.idle_may_act():
                asleep.settle()
            woken = asleep.first_woken()
            if len(listed) != len(to_ask):
                listed = sorted(to_ask, reverse=True)
            if listed and (woken is None or listed[-1] < woken):
                self._ask(listed.pop())
            elif woken is not None:
                self._ask(woken)
            else:
                return

    def _ask(self, index: int) -> None:
        """Ask the policy for a worker that is free, until a step takes time or it waits."""
        self.to_ask.discard(index)
        worker = self.asked = self.workers[index]
        now = worker.state.now_ns = self.run_state.now_ns
        if index in self.asleep:
            self.asleep.remove(index)
            worker.steps.wait_until(now)
        decide, view, clock = self.policy.decide, worker.view, perf_counter_ns
        while True:
            before = clock()
            step = self.step = decide(view)
            self.decision_ns.append(clock() - before)
            if self.deadline is not None and not len(self.decision_ns) & 255:
                self.deadline()
            if step is None or isinstance(step, Wait):
                self._sleep(index, step)
                return
            if self.observer is not None:
                self.observer(view, step)
            takes_time = worker.take(step)
            if step.preempt:
                self.asleep.wake()
            if takes_time:
                self.idle_decisions = 0
                self._expect(index, worker.until_ns)
                return
            self._count_idle()

    def _sleep(self, index: int, wait: Wait | None) -> None:
        self.asleep.add(index)
        if wait is None:
            self.numbers[index] += 1
            return
        self._require_future(wait)
        self._expect(index, wait.until_ns)

    def _require_future(self, wait: Wait) -> None:
        if wait.until_ns <= self.run_state.now_ns:
            raise PolicyError(f"it waits until {wait.until_ns} ns, which is not in the future")

    def _endless_wait(self) -> PolicyError:
        left = self.run_state.left
        return PolicyError(f"it waits, but {left} requests are unfinished and none will arrive")

    def _count_idle(self) -> None:
        """Raise when evictions go on without end between two steps that take time."""
        self.idle_decisions += 1
        if self.idle_decisions > len(self.instance) + MOST_IDLE_DECISIONS:
            raise PolicyError(f"{self.idle_decisions} decisions in a row let no time pass")

    def _moment(self) -> str:
        """Say whose step failed, and when."""
        worker = self.asked
        where = f" of {worker.worker.name}" if len(self.workers) > 1 else ""
        step, now = len(worker.steps), worker.state.now_ns
        return f"policy {self.policy.name}, step {step}{where} at {now} ns"

    def _blame(self) -> None:
        """Raise ``PolicyError`` if a step was malformed: that is why taking it failed."""
        try:
            if self.step is not None:
                require_step(self.step)
        except PolicyError as error:
            raise PolicyError(f"{self._moment()}: {error}") from None

    def schedule(self) -> Schedule:
        """Return what was done so far, without the steps in progress."""
        steps, work = timeline([worker.steps for worker in self.workers], self.work)
        return Schedule(
            instance_sha256=self.instance.sha256,
            steps=steps,
            work=work,
            method=self.policy.name,
            information=self.information.value,
            instance_name=self.instance.name,
            eviction=self.run_state.eviction(),
            transfers=self.transfers(),
        )

    def transfers(self) -> Transfers | None:
        """Return the caches that went over links."""
        return None


def _information_of(policy: Policy) -> Information:
    """Return the information that a policy declares, as text or as a member."""
    try:
        return Information(policy.information)
    except ValueError:
        raise PolicyError(
            f"policy {policy.name} declares the information {policy.information!r}: "
            f"one of {', '.join(Information)} is needed"
        ) from None


class Asleep(set[int]):
    """The workers that sleep, and which of them are to be asked. All may be woken together. They
    are then asked one by one, and as a rule the first takes what there is: nothing is done for
    those that are not asked any more. The views of those that sleep show the time of the run."""

    def __init__(self, run_state: RunState, states: Sequence[WorkerState]) -> None:
        super().__init__()
        self.run_state, self.states = run_state, states
        self.order: list[int] = []
        self.since = [0] * len(states)  # which sleep it is, counted over all workers
        self.count = 0
        self.woken = 0  # those are woken whose sleep is not a later one
        self.next = AFTER_ALL  # the first that may have been woken

    def add(self, index: int) -> None:
        """Let a worker sleep."""
        if index not in self:
            super().add(index)
            insort(self.order, index)
            self.states[index].clock = self.run_state
        self.count += 1
        self.since[index] = self.count

    def remove(self, index: int) -> None:
        """Let a worker sleep no longer."""
        super().remove(index)
        del self.order[bisect_left(self.order, index)]
        self.states[index].clock = None

    def discard(self, index: object) -> None:
        """Let a worker sleep no longer, if it does."""
        if isinstance(index, int) and index in self:
            self.remove(index)

    def wake(self) -> None:
        """Let all be asked that sleep now."""
        self.woken, self.next = self.count, 0

    def settle(self) -> None:
        """Let those that were woken and not asked yet sleep on."""
        self.next = AFTER_ALL

    def first_woken(self) -> int | None:
        """Return the first that is to be asked; it stays the first until it is removed."""
        if self.next == AFTER_ALL:
            return None
        order, since, woken = self.order, self.since, self.woken
        for place in range(bisect_left(order, self.next), len(order)):
            index = order[place]
            if since[index] <= woken:
                self.next = index
                return index
        self.next = AFTER_ALL
        return None
