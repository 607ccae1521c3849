"""A worker of a run that may be lost: no step of it outlasts its availability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.units import NEVER
from orsched.simulator.worker import WorkerRun
from orsched.simulator.worker_failures import abort_step, evict_all

if TYPE_CHECKING:
    from orsched.data.step import Step


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
