"""The loop over the events of workers that start, fail and are repaired."""

from __future__ import annotations

from heapq import heapify, heappop
from typing import TYPE_CHECKING

from orsched.common.errors import InfeasibleError, InputError
from orsched.common.units import NEVER
from orsched.simulator.loop import Loop
from orsched.simulator.worker import WorkerRun
from orsched.simulator.worker_failures import abort_step, evict_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.step import Step
    from orsched.simulator.policy import Policy, View


class LosingWorker(WorkerRun):
    """Cuts a run of rounds at the last border before its loss, which nobody is told of.

    The round that the loss falls into is a run of its own, which the loss undoes: what was yielded
    by then is kept, and the policy decides nothing that it would not have decided anyway.

    Attributes:
        lost_ns: when the worker is lost next, NEVER if it is not.
        began_ns: when the step in progress began.
    """

    lost_ns = NEVER
    began_ns = 0

    def take(self, step: Step) -> bool:
        """Begin a step, and note what its undoing needs."""
        partial = self.state.partial
        self.before = {request: partial.get(request, 0) for request in step.prefill}
        return super().take(step)

    def _advance(self, duration: int, rounds: int, phase: int) -> None:
        self.began_ns = self.state.now_ns
        super()._advance(duration, rounds, phase)

    def _plan_rounds(self) -> bool:
        """Begin a run that the loss does not fall into, or one round that it falls into."""
        if not super()._plan_rounds():
            return False
        if self.until_ns > self.lost_ns and self.count > 1:
            self._cut(self.lost_ns)
        return True

    def stop_rounds(self, moment_ns: int) -> bool:
        """Let rounds that arrivals end stop at the first border from now; say if that is sooner."""
        if not self.busy or self.arrival <= moment_ns:
            return False
        self.arrival = NEVER
        return self.interrupt(moment_ns)

    def _cut(self, moment_ns: int) -> None:
        """Shorten the run in progress to the last border at a moment or before it, one at least."""
        active = len(self.state.origin) + len(self.state.held)
        contexts = self.caches.contexts(active)
        count = self._rounds_to(moment_ns - self.began_ns, self.count, active, *contexts)
        if count > 1 and self.began_ns + self.cost.rounds_ns(count, active, *contexts) > moment_ns:
            count -= 1
        self.count = count
        self.until_ns = self.began_ns + self.cost.rounds_ns(count, active, *contexts)
        self.steps.end_ns[-1], self.steps.rounds[-1] = self.until_ns, count

    def lose(self) -> tuple[int, int] | None:
        """Undo the step in progress and evict all requests; the caches are gone.

        Returns the times between which a step was in progress that is lost, if one was.
        """
        lost, new = None, list[int]()
        if self.busy:
            if self.began_ns < self.lost_ns:
                lost = (self.began_ns, self.lost_ns)
            new = abort_step(self, self.before)
            if self.run_state.on_preempt is not None:
                for request in reversed(new):
                    self.run_state.on_preempt(self.view, request)
        evict_all(self)
        return lost


DOWN, UP = 0, 1


class ChangingLoop(Loop):
    """The loop, with workers that are not there all the time.

    At one moment losses come first, then starts and repairs, then all that the other loop knows. A
    step that ends at its worker's loss has ended. Nobody knows of a change before it happens.

    Attributes:
        changes: time, kind, worker of the losses and starts to come, a heap.
        ends: when a worker's interval that starts at a moment ends, by worker and that moment.
        lost: worker, start and end of the steps that losses cut.

    Raises:
        InputError: the policy does not serve such workers, or a worker has a prefix cache.
        InfeasibleError: no worker is left, and none comes back.
    """

    worker_type = LosingWorker
    workers: list[LosingWorker]  # type: ignore[assignment]

    def __init__(
        self,
        instance: Instance,
        policy: Policy,
        observer: Callable[[View, Step], None] | None,
        deadline: Callable[[], None] | None,
    ) -> None:
        _require_survival(instance, policy)
        super().__init__(instance, policy, observer, deadline)
        self.lost: list[tuple[int, int, int]] = []
        self.changes: list[tuple[int, int, int]] = []
        self.ends: dict[tuple[int, int], int] = {}
        for index, worker in enumerate(instance.workers):
            intervals = worker.available_ns
            if intervals and intervals[0][0]:
                self._leave(index)
            for start, end in intervals:
                if start:
                    self.changes.append((start, UP, index))
                if end is not None:
                    self.changes.append((end, DOWN, index))
                    self.ends[index, start] = end
            if intervals and not intervals[0][0] and intervals[0][1] is not None:
                self.workers[index].lost_ns = intervals[0][1]
        heapify(self.changes)

    def _serve_alone(self) -> None:
        self._serve_several()

    def _next_event(self) -> None:
        """Handle the next change of the fleet if nothing comes before it."""
        if not self.changes:
            if len(self.asleep) < len(self.workers) and not self.events:
                self._require_some_worker()
            super()._next_event()
            return
        told = self.asleep or self.run_state.assigns
        moment = min(
            self.events[0][0] if self.events else NEVER,
            self.run_state.next_arrival_ns if told else NEVER,
        )
        if self.changes[0][0] > moment:
            super()._next_event()
            return
        self.run_state.now_ns = now = self.changes[0][0]
        changed = False
        while self.changes and self.changes[0][0] == now and self.run_state.left:
            _, kind, index = heappop(self.changes)
            changed |= self._change(kind, index)
        if changed and self.run_state.left:
            self._after_changes(now)

    def _change(self, kind: int, index: int) -> bool:
        """Let a change happen now; say if it changed anything."""
        self.asked = self.workers[index]
        if kind == DOWN:
            self._lose(index)
        else:
            self._bring(index)
        return True

    def _require_some_worker(self) -> None:
        if any(view.available for view in self.views):
            return
        raise InfeasibleError(
            f"all workers have failed for good by {self.run_state.now_ns} ns, and "
            f"{self.run_state.left} requests are unfinished: let one be repaired (available_ns)"
        )

    def _leave(self, index: int) -> None:
        """Ask a worker nothing until it is there."""
        self.views[index]._state.available = False
        self.to_ask.discard(index)
        self.asleep.discard(index)
        self.numbers[index] += 1

    def _lose(self, index: int) -> None:
        """Let a worker be lost now: steps that end now have ended, the one in progress has not."""
        worker, now = self.workers[index], self.run_state.now_ns
        while worker.busy and worker.until_ns <= now:
            worker.complete()
        if not self.run_state.left:
            return
        worker.state.now_ns = now
        self._leave(index)
        cut = worker.lose()
        if cut is not None:
            self.lost.append((index, *cut))
        self.policy.on_unavailable(worker.view)

    def _bring(self, index: int) -> None:
        """Let a worker be there from now on."""
        worker, now = self.workers[index], self.run_state.now_ns
        worker.lost_ns = self.ends.get((index, now), NEVER)
        worker.state.now_ns = now
        worker.state.available = True
        worker.steps.wait_until(now)
        self.to_ask.add(index)
        self.policy.on_available(worker.view)

    def _after_changes(self, now: int) -> None:
        """Let all decide anew: those that sleep, and those whose rounds an arrival would end."""
        if self.run_state.next_arrival_ns <= now:
            self._tell_arrivals(self.asked.view)
        self._let_all_decide(now)
        self._ask_all()

    def _let_all_decide(self, now: int) -> None:
        """Let those that sleep be asked, and rounds that an arrival would end stop."""
        self.to_ask |= self.asleep
        for index, worker in enumerate(self.workers):
            if worker.stop_rounds(now):
                self._expect(index, worker.until_ns)

    def schedule(self) -> Schedule:
        """Return what was done so far, and which steps were lost."""
        return super().schedule().replace(lost_steps=tuple(sorted(self.lost)))


def _require_survival(instance: Instance, policy: Policy) -> None:
    """Raise ``InputError`` for a policy, or a worker, that losses cannot be simulated with."""
    if instance.caches_prefixes:
        raise InputError(
            "prefix caches of workers that come and go are not simulated",
            field="prefix_cache",
            remedy="leave the prefix caches out, or the times or the autoscaling",
        )
    if not policy.survives_losses():
        raise InputError(
            f"policy {policy.name} does not place requests again that a lost worker had",
            field="available_ns",
            remedy="take one that does, such as vllm or gittins; your own has on_preempt",
        )
    limited = [worker for worker in instance.workers if worker.available_ns]
    away = [worker.name for worker in limited if worker.available_ns[-1][1] is not None]
    if policy.waits_for_workers and away:
        raise InputError(
            f"policy {policy.name} lets requests wait for a lost worker, and {away[0]} stays away",
            field="available_ns",
            remedy="let the last interval have no end, or take vllm or gittins",
        )
