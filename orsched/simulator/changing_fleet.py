"""The loops over workers that come and go: they start, fail and are repaired, or are scaled
(ordered, start, drain and are off). Of a worker that is lost in the middle of a step the step is
undone, all its caches are lost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush
from operator import index as whole
from typing import TYPE_CHECKING

from orsched.common.errors import InfeasibleError, InputError
from orsched.common.units import NEVER
from orsched.data.autoscaling import MOST_LOOKS, OnTime
from orsched.data.memory import refused_pair
from orsched.data.schedule import PREFILL
from orsched.simulator.loop import Loop
from orsched.simulator.run_state import WAITING, evicts_by_age
from orsched.simulator.worker import WorkerRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.data.autoscaling import Autoscaling
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.step import Step
    from orsched.simulator.policy import Policy


DOWN, UP = 0, 1


class LosingWorker(WorkerRun):
    """Cuts a run of rounds at the last border before its loss, of which no policy is told. The
    round
    that the loss falls into is a run of its own, which the loss undoes: what was yielded by then is
    kept, and the policy decides nothing that it would not have decided anyway."""

    lost_ns = NEVER  # when the worker is lost next
    began_ns = 0  # when the step in progress began

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
        """Undo the step in progress and evict all requests; the caches are gone. Returns the times
        between which a step was in progress that is lost, if one was."""
        lost, new = None, list[int]()
        if self.busy:
            if self.began_ns < self.lost_ns:
                lost = (self.began_ns, self.lost_ns)
            new = abort_step(self, self.before)
            if self.run_state.on_preempt is not None:
                for request in reversed(new):
                    self.run_state.on_preempt(self.view, request)
        evict_all(self)
        if self.shared is not None:
            self.shared.forget()
        return lost


def abort_step(worker: WorkerRun, before: Mapping[int, int]) -> list[int]:
    """Undo what a worker's step in progress did when it began; the worker is free then. Evictions
    and pauses that came with it stand. A request that was new leaves its client, and its stay never
    began: those are returned. ``before``: request -> tokens in the cache before the step, of those
    that it prefills."""
    running_set, steps = worker.running_set, worker.steps
    for column in (steps.end_ns, steps.rounds, steps.phase):
        column.pop()
    new: list[int] = []
    if worker.completed is not None:
        _take_back_rows(worker, before)
        for request, tokens in before.items():
            _take_back_prefill(worker, request, tokens)
            if not tokens:
                running_set.leave(request, WAITING)
                running_set.work.drop_stay(request, worker.run_state.stays.get(request, 0))
                new.append(request)
    worker.completed = None
    worker.busy = False
    return new


def _take_back_prefill(worker: WorkerRun, request: int, before: int) -> None:
    """Let a request have as many tokens in its cache as before its chunk."""
    partial, pages, run_state = worker.state.partial, worker.caches.pages, worker.run_state
    due = run_state.prompts[request] + run_state.yielded.get(request, 0)
    after = partial.pop(request, due)
    if before:
        partial[request] = before
    if pages is not None:
        pages.drop(after)
        if before:
            pages.put(before)


def _take_back_rows(worker: WorkerRun, requests: Mapping[int, int]) -> None:
    """Drop the rows of work of requests that were prefilled in the step that is undone."""
    index, work, stays = len(worker.steps), worker.running_set.work, worker.run_state.stays
    for request in requests:
        if request not in stays and work.prefill_step[request] == index:
            work.prefill_step[request] = -1
            work.prefill_tokens[request] = worker.run_state.prompts[request]
            work.worker[request] = 0
            work.client[request] = -1
    work.drop(worker.state.index, PREFILL, index)


def evict_all(worker: WorkerRun) -> list[int]:
    """Evict all requests of a free worker, the last admitted first; return them. Those that are
    done and held in a static batch finish."""
    worker.running_set.release_held()
    requests = list(reversed(worker.state.running))
    worker.running_set.evict(requests)
    return requests


class ChangingLoop(Loop):
    """The loop, with workers that are not there all the time.

    At one moment losses come first, then starts and repairs, then all that the other loop knows. A
    step that ends at its worker's loss has ended. No policy sees a change before it happens.

    Raises:
        InputError: the policy does not serve such workers, or a worker has a prefix cache that
            evicts by who will ask: a step that is lost never told who asked in it.
        InfeasibleError: no worker is left, and none comes back.
    """

    worker_type = LosingWorker
    workers: list[LosingWorker]  # type: ignore[assignment]

    def _refuse(self, instance: Instance, policy: Policy) -> None:
        if instance.caches_prefixes and not evicts_by_age(instance, policy):
            other = "failures" if instance.autoscaling is None else "autoscaling"
            raise refused_pair("prefix cache by users", other)
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
                f"policy {policy.name} lets requests wait for a lost worker, and {away[0]} stays "
                "away",
                field="available_ns",
                remedy="let the last interval have no end, or take vllm or gittins",
            )

    def _prepare(self) -> None:
        self.lost: list[tuple[int, int, int]] = []  # worker, start and end of the steps lost
        self.changes: list[tuple[int, int, int]] = []  # a heap: time, kind, worker of each to come
        self.ends: dict[tuple[int, int], int] = {}  # worker, start of an interval -> its end
        for index, worker in enumerate(self.instance.workers):
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
        """Ask a worker nothing until it is available."""
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
        """Let all decide again: those that sleep, and those whose rounds an arrival would end."""
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


START, LOOK = UP + 1, UP + 2


class ScaledLoop(ChangingLoop):
    """The loop, with looks at the load that order workers and let them drain. A look comes before
    all else that happens at its moment, starts of workers apart: it counts what arrived before, and
    is not done by then. Raises ``InputError`` if the policy gives draining workers new requests, or
    the first workers cannot hold every request. ``on`` has the present time of each worker that is
    on or starts, ``over`` those that are over. A worker that fails stays on, for no rule is told of
    failures, until its repair and beyond: ``started`` and ``up`` say what holds now."""

    def _refuse(self, instance: Instance, policy: Policy) -> None:
        if not policy.drains:
            raise InputError(
                f"policy {policy.name} gives workers that are to be off new requests",
                field="autoscaling",
                remedy="take one below a dispatcher, such as vllm, or gittins",
            )
        super()._refuse(instance, policy)

    def _prepare(self) -> None:
        super()._prepare()
        instance = self.instance
        assert instance.autoscaling is not None
        self.rule: Autoscaling = instance.autoscaling
        self.least, self.most = self.rule.limits(instance.workers)
        stay = instance.replace(workers=instance.workers[: self.least], autoscaling=None)
        stay.require_feasible(self.policy.chunks)
        self.counts = [self.rule.requests_of(worker) for worker in instance.workers]
        self.on = {index: OnTime(index, 0, 0) for index in range(self.rule.first)}
        self.over: list[OnTime] = []
        self.changed_ns = 0
        for index in range(self.rule.first, len(self.workers)):
            self._leave(index)
        self.starts = [[start for start, _ in w.available_ns] for w in instance.workers]
        self.started = set(range(self.rule.first))
        self.up = {i for i, starts in enumerate(self.starts) if not starts or not starts[0]}
        heappush(self.changes, (self.rule.interval_ns, LOOK, 0))

    # -- looks ----------------------------------------------------------------------------

    def _change(self, kind: int, index: int) -> bool:
        if kind == LOOK:
            return self._look()
        self.asked = self.workers[index]
        if kind == DOWN:
            self.up.discard(index)
            if not self.views[index].available:
                return False
            self._lose(index)
            if self.run_state.left and self.on[index].drained_ns is not None:
                self._end(index)
            return True
        (self.up if kind == UP else self.started).add(index)
        if index in self.up and index in self.started:
            self._bring(index)
            return True
        if kind == START and self.on[index].drained_ns is not None:
            self._end(index)
        return False

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
        elif self.rule.schedule:
            wanted = self.rule.scheduled(now)
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
        return bool(coming) or any(kind in (UP, START) for _, kind, _ in self.changes)

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
            heappush(self.changes, (start, START, index))
        return True

    def _drain(self, index: int) -> None:
        """Let a worker have no more requests, from its start on if it has not started."""
        now, view = self.run_state.now_ns, self.views[index]
        self.on[index] = self.on[index]._replace(drained_ns=now)
        if view.available:
            view._state.draining = True
            self.policy.on_draining(view)
        elif index in self.started:
            self._end(index)

    def _bring(self, index: int) -> None:
        super()._bring(index)
        starts, now = self.starts[index], self.run_state.now_ns
        if starts:
            since = starts[bisect_right(starts, now) - 1]
            self.workers[index].lost_ns = self.ends.get((index, since), NEVER)
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
        self._end(index)
        self._leave(index)
        if (shared := self.workers[index].shared) is not None:
            shared.forget()
        self.policy.on_unavailable(view)
        self._let_all_decide(now)

    def _end(self, index: int) -> None:
        """Let the present time of a worker be over, on which no request is."""
        self.over.append(self.on.pop(index)._replace(end_ns=self.run_state.now_ns))
        self.started.discard(index)
        self.views[index]._state.draining = False

    def schedule(self) -> Schedule:
        """Return what was done so far, and when which worker was on."""
        times = sorted([*self.over, *self.on.values()], key=lambda each: each[:2])
        return super().schedule().replace(on_times=tuple(times))
