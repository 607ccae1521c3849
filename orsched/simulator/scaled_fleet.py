"""The loop with autoscaling: workers that are ordered, start, drain and are off."""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappush
from operator import index as whole
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.common.units import NEVER
from orsched.data.autoscaling import MOST_LOOKS, OnTime
from orsched.simulator.changing_fleet import UP, ChangingLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.autoscaling import Autoscaling
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.step import Step
    from orsched.simulator.policy import Policy, View

LOOK = UP + 1


class ScaledLoop(ChangingLoop):
    """The loop, with looks at the load that order workers and let them drain.

    A look comes before all else that happens at its moment, starts of workers apart: it counts what
    arrived before, and is not done by then.

    Attributes:
        on: the present time of each worker that is on or starts.
        over: those that are over.

    Raises:
        InputError: the policy gives draining workers new requests, or the first workers cannot hold
            every request.
    """

    def __init__(
        self,
        instance: Instance,
        policy: Policy,
        observer: Callable[[View, Step], None] | None,
        deadline: Callable[[], None] | None,
    ) -> None:
        assert instance.autoscaling is not None
        self.rule: Autoscaling = instance.autoscaling
        if not policy.drains:
            raise InputError(
                f"policy {policy.name} gives workers that are to be off new requests",
                field="autoscaling",
                remedy="take one below a dispatcher, such as vllm, or gittins",
            )
        super().__init__(instance, policy, observer, deadline)
        self.least, self.most = self.rule.limits(instance.workers)
        stay = instance.replace(workers=instance.workers[: self.least], autoscaling=None)
        stay.require_feasible(policy.chunks)
        self.counts = [self.rule.requests_of(worker) for worker in instance.workers]
        self.on = {index: OnTime(index, 0, 0) for index in range(self.least)}
        self.over: list[OnTime] = []
        self.changed_ns = 0
        for index in range(self.least, len(self.workers)):
            self._leave(index)
        heappush(self.changes, (self.rule.interval_ns, LOOK, 0))

    # -- looks ----------------------------------------------------------------------------

    def _change(self, kind: int, index: int) -> bool:
        if kind == LOOK:
            return self._look()
        self.asked = self.workers[index]
        self._bring(index)
        return True

    def _look(self) -> bool:
        """Order or drain workers; say if that changed anything."""
        now, run_state = self.run_state.now_ns, self.run_state
        if now // self.rule.interval_ns > MOST_LOOKS:
            raise InputError(
                f"more than {MOST_LOOKS} looks at the load",
                field="autoscaling.interval_ns",
                remedy="look less often",
            )
        heappush(self.changes, (now + self.rule.interval_ns, LOOK, 0))
        done = len(self.instance) - run_state.left
        open_requests = bisect_left(run_state.arrival_times, now) - done
        wanted = self._wanted(open_requests)
        if self.rule.rule == "policy":
            said = self.policy.workers_wanted(now, open_requests, wanted)
            wanted = min(max(whole(said), self.least), self.most)
        kept = self._kept()
        changed = False
        if len(kept) < wanted:
            changed = self._add(wanted - len(kept))
        elif len(kept) > wanted and now - self.changed_ns >= self.rule.cooldown_ns:
            for index in kept[wanted:]:
                self._drain(index)
            changed = True
        if changed:
            self.changed_ns = now
        elif not self._goes_on():
            raise self._endless_wait()
        return changed

    def _wanted(self, open_requests: int) -> int:
        """Return how many workers the reactive rule wants: those kept, and others by index."""
        order = [*self._kept(), *self._next()]
        total, wanted = 0, 0
        while wanted < self.least or (wanted < self.most and total < open_requests):
            total += self.counts[order[wanted]]
            wanted += 1
        return wanted

    def _kept(self) -> list[int]:
        """Return the workers that are on or start and do not drain."""
        return [index for index in sorted(self.on) if self.on[index].drained_ns is None]

    def _next(self) -> list[int]:
        """Return the workers in the order in which they would be added."""
        draining = [index for index in sorted(self.on) if self.on[index].drained_ns is not None]
        return draining + [index for index in range(len(self.workers)) if index not in self.on]

    def _goes_on(self) -> bool:
        """Whether anything but looks is still to happen."""
        coming = self.run_state.next_arrival_ns < NEVER or self.events
        return bool(coming) or any(kind == UP for _, kind, _ in self.changes)

    def _add(self, many: int) -> bool:
        """Keep workers that drain, then order others."""
        now = self.run_state.now_ns
        for index in self._next()[:many]:
            if index in self.on:
                self.on[index] = self.on[index]._replace(drained_ns=None)
                if self.views[index].available:
                    self.views[index]._state.draining = False
                    self.policy.on_available(self.views[index])
                continue
            start = now + self.rule.startup_ns
            self.on[index] = OnTime(index, now, start)
            heappush(self.changes, (start, UP, index))
        return True

    def _drain(self, index: int) -> None:
        """Let a worker have no more requests, from its start on if it has not started."""
        now, view = self.run_state.now_ns, self.views[index]
        self.on[index] = self.on[index]._replace(drained_ns=now)
        if view.available:
            view._state.draining = True
            self.policy.on_draining(view)

    def _bring(self, index: int) -> None:
        super()._bring(index)
        if self.on[index].drained_ns is not None:  # drained before it was there
            self.views[index]._state.draining = True
            self.policy.on_draining(self.views[index])

    # -- draining workers -----------------------------------------------------------------

    def _ask(self, index: int) -> None:
        super()._ask(index)
        view = self.views[index]
        if view.draining and index in self.asleep and not view.running:
            self._switch_off(index)

    def _switch_off(self, index: int) -> None:
        """Let a worker be off that has nothing to do, unless it waits for a moment."""
        if any(event[1] == index and event[2] == self.numbers[index] for event in self.events):
            return
        now, view = self.run_state.now_ns, self.views[index]
        self.over.append(self.on.pop(index)._replace(end_ns=now))
        self._leave(index)
        view._state.draining = False
        self.policy.on_unavailable(view)
        self._let_all_decide(now)

    def schedule(self) -> Schedule:
        """Return what was done so far, and when which worker was on."""
        times = sorted([*self.over, *self.on.values()], key=lambda each: each[:2])
        return super().schedule().replace(on_times=tuple(times))
