"""One worker of a run: takes steps, and lets their effects happen at their end. Between two events
every decoding request yields one token a round: a whole run of rounds is one entry of the
timeline."""

from __future__ import annotations

from operator import index as whole
from typing import TYPE_CHECKING

from orsched.common.errors import PolicyError
from orsched.common.units import NEVER
from orsched.costs import mixed_ns, prefill_ns
from orsched.costs.exact import not_whole
from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.data.step import ARRIVAL, FINISH, require_step
from orsched.simulator.caches import Caches
from orsched.simulator.paging import PrefixView
from orsched.simulator.running_set import RunningSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.simulator.policy import View
    from orsched.simulator.recorder import WorkRecorder
    from orsched.simulator.run_state import RunState


class WorkerRun:
    """The executor's side of one worker."""

    running_set_type: type[RunningSet] = RunningSet

    def __init__(
        self, instance: Instance, run_state: RunState, view: View, work: WorkRecorder
    ) -> None:
        self.run_state = run_state
        self.view = view
        self.state = view._state  # the executor writes what views show
        self.worker = self.state.worker
        self.cost = self.worker.cost
        self.prefill_limit = self.worker.prefill_limit
        self.context_matters = self.cost.context_matters
        self.round_times: dict[int, int] = {}  # by active requests, where contexts do not matter
        made = run_state.prefix_caches
        self.caches = Caches(self.state, None if made is None else made.of(self.state))
        self.shared = self.caches.shared
        if self.shared is not None:
            self.state.prefixes = PrefixView(view, self.shared)
        self.pages = self.caches.pages
        self.running_set = self.running_set_type(instance, run_state, view, self.caches, work)
        self.steps = self.running_set.steps
        self.first_from_prefill = run_state.first_from_prefill
        self.busy = False  # whether a step is in progress
        self.until_ns = 0  # when that one ends
        self.started_ns = 0  # when it, or the last one, started
        self.completed: list[int] | None = None  # of a prefill or mixed step in progress
        self.foreseen = 0 if run_state.assigns else ARRIVAL  # events that are known beforehand
        self.count = self.target = self.until = 0
        self.hold = False
        self.arrival = NEVER

    def take(self, step: Step) -> bool:
        """Begin a step; say if it takes time (an eviction alone takes none)."""
        stays = self.running_set.prefix_stays
        if stays is not None:
            stays.begin_step(self.state.now_ns, step)
        if step.preempt:
            self.running_set.evict(step.preempt)
        if step.prefill:
            self._begin_prefill(step)
        elif step.decode is None or len(step.decode):
            self._begin_rounds(step)
        elif step.preempt:
            if stays is not None:
                stays.evict_all_left()
            return False
        else:
            require_step(step)
            raise PolicyError("a prefill stage without a request")
        self.busy = True
        return True

    def _begin_prefill(self, step: Step) -> None:
        if step.hold:
            raise PolicyError("a step that holds has rounds alone")
        mixed = False
        if step.decode is None or len(step.decode):
            self.running_set.choose(step.decode)
            mixed = bool(self.state.origin)
        if step.rounds != 1:
            raise PolicyError(f"{step.rounds} rounds of a step that prefills: it has one")
        if mixed and self.shared is not None:
            self.shared.begin_round()
        chunks, self.completed = self.running_set.admit(step, len(self.steps.end_ns))
        if self.worker.padding:
            chunks = [max(chunks)] * len(chunks)
        if self.prefill_limit is not None and sum(chunks) > self.prefill_limit:
            raise PolicyError(
                f"a prefill stage of {sum(chunks)} tokens exceeds the cap {self.prefill_limit}"
            )
        if self.caches.blocks and self.shared is None:  # shared blocks are taken one by one
            self.caches.require_room(1 if mixed else 0)
        if mixed:
            active = len(self.state.origin)
            contexts = self.caches.contexts(active) if self.context_matters else (0, 0)
            cached = self.running_set.cached
            duration = mixed_ns(self.cost, chunks, active, *contexts, cached)
            try:
                self._advance(duration, 1, MIXED)
            except TypeError:
                load = (chunks, active, *contexts)
                raise not_whole(self.cost, "mixed_ns", load, duration) from None
        else:
            duration = prefill_ns(self.cost, chunks, self.running_set.cached)
            try:
                self._advance(duration, 1, PREFILL)
            except TypeError:
                raise not_whole(self.cost, "prefill_ns", (chunks,), duration) from None
        self.count = 1 if mixed else 0
        if self.shared is not None:
            self.shared.free_left()
            self.shared.start(self.state.now_ns)

    def _begin_rounds(self, step: Step) -> None:
        if step.hold and step.decode is not None:
            raise PolicyError("a static batch decodes all requests of the worker: decode=None")
        if step.decode is not None or self.running_set.paused:
            self.running_set.choose(step.decode)
        if not self.state.origin:
            raise PolicyError("a decode stage without a running request")
        if step.rounds < 1:
            raise PolicyError(f"a decode stage of {step.rounds} rounds")
        self.target = self.state.rounds + whole(step.rounds)
        self.until, self.hold = step.until, step.hold
        self.arrival = self.run_state.next_arrival_ns if self.until & self.foreseen else NEVER
        if not self._plan_rounds():
            raise PolicyError(
                f"the caches of the next round do not fit into {self.caches.blocks} memory blocks: "
                "evict requests first"
            )

    def _plan_rounds(self) -> bool:
        """Begin a run until the target, the next finish or the arrival; say if memory allows it."""
        state = self.state
        count = self.running_set.next_finish()
        if count > self.target:
            count = self.target
        count -= state.rounds
        active = len(state.origin) + len(state.held)
        if self.pages is not None:
            count = self.pages.most_rounds(count)
            if count == 0:
                return False
        if self.context_matters:
            contexts = self.caches.contexts(active)
            duration = self.cost.rounds_ns(count, active, *contexts)
            if self.arrival < NEVER and state.now_ns + duration > self.arrival:
                count = self._rounds_to(self.arrival - state.now_ns, count, active, *contexts)
                duration = self.cost.rounds_ns(count, active, *contexts)
        else:
            one = self.round_times.get(active) or self._round_ns(active)
            duration = count * one
            if self.arrival < NEVER and state.now_ns + duration > self.arrival:
                count = _equal_rounds_to(self.arrival - state.now_ns, count, one)
                duration = count * one
        self.count = count
        if self.shared is not None:
            self.shared.start(state.now_ns)
        try:
            self._advance(duration, count, DECODE)
        except TypeError:
            load = (count, active, *(contexts if self.context_matters else (0, 0)))
            raise not_whole(self.cost, "rounds_ns", load, duration) from None
        return True

    def _round_ns(self, active: int) -> int:
        """Return the time of a round, and keep it, where contexts do not matter."""
        one = self.round_times[active] = self.cost.rounds_ns(1, active, 0, 0)
        return one

    def _rounds_to(
        self, time_left: int, most: int, active: int, context_sum: int, context_max: int
    ) -> int:
        """Fewest rounds, at least 1, whose run ends at the arrival or after it."""
        rounds_ns = self.cost.rounds_ns
        if not self.context_matters:
            return _equal_rounds_to(time_left, most, rounds_ns(1, active, 0, 0))
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            if rounds_ns(middle, active, context_sum, context_max) >= time_left:
                high = middle
            else:
                low = middle + 1
        return low

    def _advance(self, duration: int, rounds: int, phase: int) -> None:
        """Let a step last, and record it; it starts now."""
        self.started_ns = self.state.now_ns
        end = self.until_ns = self.started_ns + duration
        if end >= NEVER:
            raise PolicyError("the schedule runs past 2**62 ns")
        steps = self.steps
        steps.end_ns.append(end)
        steps.rounds.append(rounds)
        steps.phase.append(phase)

    def interrupt(self, moment_ns: int) -> bool:
        """Let rounds that arrivals end stop at the first border from a moment on, which is not
        before the run in progress began; say if that run ends earlier than it would have."""
        rounds_alone = self.busy and self.completed is None
        if not rounds_alone or not self.until & ARRIVAL or self.arrival < NEVER:
            return False
        self.arrival = moment_ns
        before = self.count
        if before == 1:
            return False
        state, rounds_ns = self.state, self.cost.rounds_ns
        active = len(state.origin) + len(state.held)
        contexts = self.caches.contexts(active)
        begin = self.until_ns - rounds_ns(before, active, *contexts)
        self.count = self._rounds_to(moment_ns - begin, before, active, *contexts)
        if self.count == before:
            return False
        self.until_ns = begin + rounds_ns(self.count, active, *contexts)
        self.steps.end_ns[-1], self.steps.rounds[-1] = self.until_ns, self.count
        return True

    def foresee(self, moment_ns: int) -> bool:
        """Let foreseen arrivals end rounds in progress at a moment; say if they end earlier."""
        if not self.busy or not self.until & self.foreseen or self.arrival <= moment_ns:
            return False
        self.arrival = NEVER
        return self.interrupt(moment_ns)

    def complete(self) -> bool:
        """Let the step in progress end; say if the worker is free, or in the step's next run."""
        self.state.now_ns = self.until_ns
        if self.shared is not None:
            self.shared.end(self.until_ns)
        if self.running_set.prefix_stays is not None:
            self.running_set.prefix_stays.end_step()
        if self.completed is None:
            is_free = self._end_rounds()
            self.busy = not is_free
            return is_free
        self._end_prefill(self.completed)
        self.completed = None
        self.busy = False
        return True

    def _end_prefill(self, completed: Sequence[int]) -> None:
        running_set = self.running_set
        if self.count:
            self._pass_round()
        done = running_set.activate(completed)
        if self.shared is not None:
            running_set.free_blocks(done, decoding=bool(self.count))
        if self.count:
            running_set.take_finishes(False, done)
        if done:
            running_set.finish_at_once(done)

    def _pass_round(self) -> None:
        """Let all that decode yield a token beside a prefill, and tell the first ones."""
        self.state.rounds += 1
        if self.pages is not None:
            self.pages.advance(1)
        self.running_set.open_rows()

    def _end_rounds(self) -> bool:
        state, running_set = self.state, self.running_set
        state.rounds = rounds = state.rounds + self.count
        if self.pages is not None:
            self.pages.advance(self.count)
        running_set.open_rows()
        if self.shared is not None and not self.hold:
            running_set.free_blocks((), decoding=True)
        finished = running_set.take_finishes(self.hold)
        if finished and self.run_state.follows and self.until & self.foreseen:
            self.arrival = self.run_state.next_arrival_ns
        if (
            rounds >= self.target
            or (finished and self.until & FINISH)
            or self.until_ns >= self.arrival
            or not state.origin
            or not self._plan_rounds()
        ):
            if state.held:
                running_set.release_held()
            return True
        return False

    def require_empty(self) -> None:
        """Raise unless nothing is left over in the end."""
        state = self.state
        left = state.running or state.origin or state.held or state.partial
        if (
            left
            or state.blocks_set_aside
            or self.caches.held
            or state.free_clients != (self.worker.clients)
        ):
            raise PolicyError("requests, clients or memory blocks are left over: a bug in orsched")


def _equal_rounds_to(time_left: int, most: int, one: int) -> int:
    """Fewest rounds of the same time, at least 1, that last so long; not more than the most."""
    count = -(-time_left // one) if one else most
    return most if count > most else max(count, 1)
