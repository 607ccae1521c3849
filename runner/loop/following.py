"""A schedule as a policy: what was planned, step by step, whatever time each step takes."""

from __future__ import annotations

from bisect import insort
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.errors import InputError, PolicyError
from orsched.data.memory import Eviction
from orsched.data.schedule import DECODE, PREFILL, require_same_instance
from orsched.data.step import FINISH, Step, Wait, decode_rounds, evict
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.loop.resume import Rest
    from orsched.simulator.policy import View


_UNLIMITED = 2**62
_UNTIL_EVENT = decode_rounds()
_UNTIL_FINISH = decode_rounds(until=FINISH)


class InOrder:
    """One worker's requests: prefill first, in the order of a plan, else decode.

    Memory is set aside as the view says, under paged memory as well; what is longer than a stage
    may hold is prefilled in chunks. Where caches fill the memory nevertheless, the last admitted
    request is evicted. ``stages``: the plan's step in which each request starts; below 0 for those
    on the worker before. ``whole``: whether a stage waits until there are clients for all of it.
    """

    def __init__(self, stages: Sequence[int], whole: bool = False) -> None:
        self.stages, self.whole = stages, whole
        self.waiting: dict[int, list[int]] = {}

    def put(self, request: int) -> None:
        """Queue a request that has arrived; one that waits already stays where it is."""
        group = self.waiting.setdefault(self.stages[request], [])
        if request not in group:
            insort(group, request)

    def _remove(self, request: int) -> None:
        stage = self.stages[request]
        self.waiting[stage].remove(request)
        if not self.waiting[stage]:
            del self.waiting[stage]

    def surrender(self, view: View, most: int) -> list[int]:
        """Give up the first that wait and that another worker can hold, at most that many."""
        memory = view.worker.memory
        given: list[int] = []
        for request in [each for stage in sorted(self.waiting) for each in self.waiting[stage]]:
            too_long = memory is not None and view.blocks_of(request) > memory.blocks
            if too_long or len(given) >= most:
                break
            self._remove(request)
            given.append(request)
        return given

    def decide(self, view: View) -> Step | None:
        """Return the next step, None if there is no request."""
        begun = [request for request in view.running if view.to_prefill(request)]
        chunks = self._chunks(view, begun)
        if chunks:
            return Step(prefill=list(chunks), tokens=list(chunks.values()), decode=())
        if not view.running:
            return None
        if not begun and self._holds(view, dict.fromkeys(view.running, 1)):
            return _UNTIL_FINISH if self.waiting and not view.free_clients else _UNTIL_EVENT
        if len(view.running) == 1:
            raise PolicyError(f"request {next(iter(view.running))} does not fit into memory")
        return evict([next(reversed(view.running))])

    def _next(self, view: View) -> list[int]:
        """Return who may be admitted as far as there is memory."""
        free, found = view.free_clients, list[int]()
        for stage in sorted(self.waiting):
            if len(found) == free:
                break
            more = [*found, *self.waiting[stage]]
            if self.whole and len(more) > free and stage >= 0 and (found or view.running):
                break
            found = more[:free]
        return found

    def _chunks(self, view: View, begun: list[int]) -> dict[int, int]:
        """Return request -> tokens of the next prefill stage: what was begun, then what waits."""
        cap, padding = view.worker.prefill_limit, view.worker.padding
        left = _UNLIMITED if cap is None else cap
        chunks: dict[int, int] = {}
        longest = 0
        admitted: list[int] = []
        for request in [*begun, *self._next(view)]:
            due = view.to_prefill(request)
            longest = max(longest, due)
            used = longest * (len(chunks) + 1) if padding else sum(chunks.values()) + due
            if used > left and chunks:
                break
            if not self._holds(view, {**chunks, request: min(due, left)}):
                break
            if request not in view.running:
                if not self._has_room(view, [*admitted, request]):
                    break
                self._remove(request)
                admitted.append(request)
            chunks[request] = min(due, left)
            if used > left:
                break
        return chunks

    def _has_room(self, view: View, admitted: list[int]) -> bool:
        """Whether what is set aside for these fits beside what is; one alone may try."""
        free, memory = view.blocks_free, view.worker.memory
        if memory is None or free is None or (len(admitted) == 1 and not view.running):
            return True
        needed = [view.blocks_of(request) for request in admitted]
        if view.worker.padding and memory.is_paged:
            needed += [view.blocks_of(request) for request in view.running]
            return max(needed) * len(needed) <= memory.blocks
        return sum(needed) <= free

    def _holds(self, view: View, more: dict[int, int]) -> bool:
        """Whether paged memory holds all caches when some have grown by this many tokens."""
        memory = view.worker.memory
        if memory is None or not memory.is_paged:
            return True
        requests = view.running.keys() | more
        tokens = [view.cached(request) + more.get(request, 0) for request in requests]
        if view.worker.padding:
            tokens = [max(tokens)] * len(tokens)
        return sum(-(-each // memory.block_tokens) for each in tokens) <= memory.blocks


class PlannedStep(NamedTuple):
    """A step of a schedule."""

    step: Step  # what the worker is asked for
    start_ns: int  # when it was planned to start, if the worker idled before it; else 0
    begins: dict[int, int]  # request -> stay that begins with it


def planned_steps(schedule: Schedule, worker: int = 0) -> list[PlannedStep]:
    """Return the steps of a schedule on one worker; evictions are steps of their own."""
    rows = _Rows(schedule, worker)
    steps, found = schedule.steps, []
    own = np.flatnonzero(steps.worker == worker)
    phases, rounds = steps.phase[own].tolist(), steps.rounds[own].tolist()
    starts, ends = steps.start_ns[own].tolist(), steps.end_ns[own].tolist()
    active: dict[int, None] = {}
    index, before = 0, 0
    while index < len(phases):
        for request in rows.leave[index]:
            del active[request]
        for request in rows.enter[index]:
            active[request] = None
        ahead = index in rows.ahead
        if rows.evicted[index] and not ahead:
            found.append(_eviction(rows.evicted[index]))
        start = starts[index] if starts[index] > before else 0
        if index in rows.held:
            last = rows.held[index]
            step = Step(rounds=sum(rounds[index : last + 1]), until=0, hold=True)
            for later in range(index + 1, last + 1):
                for request in rows.leave[later]:
                    del active[request]
                assert not rows.enter[later]
            found.append(PlannedStep(step, start, {}))
            index = last
        else:
            prefill, tokens, clients, stays = rows.prefill[index]
            step = Step(
                prefill=prefill,
                tokens=tokens or None,
                clients=clients,
                decode=() if phases[index] == PREFILL else list(active),
                rounds=rounds[index],
                until=0,
                preempt=rows.evicted[index] if ahead else (),
                ahead=ahead,
            )
            found.append(PlannedStep(step, start, dict(zip(prefill, stays, strict=False))))
        before = ends[index]
        index += 1
    if rows.evicted[index]:
        found.append(_eviction(rows.evicted[index]))
    return found


def _eviction(requests: list[int]) -> PlannedStep:
    return PlannedStep(Step(preempt=requests, decode=()), 0, {})


class _Rows:
    """The work of a worker in a schedule by its steps.

    Attributes:
        prefill: requests, tokens, and of those that are new, who come first, clients and stays.
        enter, leave: requests that begin to decode with a step, and those ended before it.
        evicted: whose stay has ended before a step with work left to do.
        ahead: steps before which requests that had finished were still on the worker.
        held: first step of each static batch that holds requests -> its last step.
    """

    def __init__(self, schedule: Schedule, worker: int) -> None:
        steps, work = schedule.steps, schedule.work
        own = steps.worker == worker
        place = np.cumsum(own) - 1
        count = int(own.sum()) + 1
        self.prefill: list[tuple[list[int], list[int], list[int], list[int]]]
        self.prefill = [([], [], [], []) for _ in range(count)]
        self.enter: list[list[int]] = [[] for _ in range(count)]
        self.leave: list[list[int]] = [[] for _ in range(count)]
        self.evicted: list[list[int]] = [[] for _ in range(count)]
        self.ahead: set[int] = set()
        opens, evicted = _stays(schedule)
        here = own[work.first_step]
        columns = (
            column[here].tolist()
            for column in (
                *(work.request, work.client, work.phase),
                *(place[work.first_step], place[work.last_step]),
                *(work.tokens, work.stay, opens, evicted, work.rested, work.exit),
            )
        )
        rows = sorted(zip(work.turn[here].tolist(), *columns, strict=True), key=itemgetter(0))
        held: list[tuple[int, int]] = []
        for _, *row in rows:
            request, client, phase, first, last, tokens, stay, new, cut, rested, turn = row
            if cut or turn:
                self.evicted[last + 1].append(request)
            if not cut and (rested or turn):
                self.ahead.add(last + 1)
            if phase == PREFILL:
                requests, chunks, clients, stays = self.prefill[first]
                # those that are new come first: only they are given clients
                where = len(clients) if new else len(requests)
                requests.insert(where, request)
                chunks.insert(where, tokens)
                if new:
                    clients.append(client)
                    stays.append(stay)
            elif phase == DECODE:
                self.enter[first].append(request)
                self.leave[last + 1].append(request)
            else:
                held.append((first - 1, last))
        self.held = _joined(held)


def _stays(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Say of each row of work if a stay begins with it, and if one ends that another follows."""
    work = schedule.work
    same = work.request[1:] == work.request[:-1]
    later = same & (work.stay[1:] != work.stay[:-1])
    opens, evicted = np.ones(len(work), bool), np.zeros(len(work), bool)
    opens[1:] = ~same | later
    evicted[:-1] = later
    return opens, evicted


def _joined(spans: list[tuple[int, int]]) -> dict[int, int]:
    """Return spans that share a step as one."""
    found: dict[int, int] = {}
    first = last = -2
    for start, end in sorted(spans):
        if start > last:
            first = start
        last = max(last, end) if start <= last else end
        found[first] = last
    return found


class FollowSchedule(Policy):
    """Take the steps of a schedule, planned or measured, in their order, worker by worker.

    A step waits for the arrival of its requests, for the end of their stays elsewhere and, where
    the plan idles before it, for its start in the plan. One that comes late delays the rest; the
    order stays.

    A worker that was lost cannot go on as planned. It then serves the requests that the plan gave
    it in the order of their planned starts (``InOrder``); and so do all workers, if requests move
    between them or are evicted in the plan. While it is away, others that have done their part of
    the plan serve what waits for it.

    Raises ``InputError`` for a schedule of another instance.
    """

    many_workers = True
    chunks = True  # as in the plan; and in order what is longer than a stage

    def __init__(self, instance: Instance, schedule: Schedule) -> None:
        require_same_instance(instance, schedule)
        self.name = schedule.method
        self.information = Information(schedule.information)  # what it sets aside in memory
        rule = schedule.eviction
        self.eviction = None if rule is None else Eviction.from_dict(rule)
        workers = range(len(instance.workers))
        self.planned = [planned_steps(schedule, worker) for worker in workers]
        self.position = [0 for _ in workers]
        self.moves = bool(schedule.work.stay.any())
        self.homes, stages = first_places(instance, schedule)
        self.in_order = [InOrder(stages) for _ in workers]
        self.left_plan = [False for _ in workers]
        self.stays = [0] * len(instance)  # how many have ended by an eviction
        self.leaving: set[int] = set()  # whom the plan evicts now
        self.open: set[int] = set()  # arrived, not finished

    def on_arrival(self, view: View, request: int) -> None:
        """Record the event."""
        self.open.add(request)
        home = self.homes[request]
        if self.left_plan[home]:
            self.in_order[home].put(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Record the event."""
        self.open.discard(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Record the end of a stay: if it was not planned, the worker was lost."""
        self.stays[request] += 1
        if request in self.leaving:
            self.leaving.remove(request)
            return
        if not self.left_plan[view.index]:
            self._leave_plan(view)
        self.in_order[self.homes[request]].put(request)

    def _leave_plan(self, view: View) -> None:
        """Continue in the order of the plan, for the worker or for all."""
        leaving = range(len(self.planned)) if self.moves else [view.index]
        running = {request for each in view.workers for request in each.running}
        for index in leaving:
            self.left_plan[index] = True
        for request in self.open - running:
            if self.left_plan[self.homes[request]]:
                self.in_order[self.homes[request]].put(request)

    def take_over(self, view: View, away: Iterable[int]) -> bool:
        """Give a worker with nothing to do requests that wait for one that is away."""
        index, taken = view.index, 0
        if not self.left_plan[index] and self.position[index] < len(self.planned[index]):
            return False  # it is to do something later
        for source in away:
            for request in self.in_order[source].surrender(view, view.free_clients - taken):
                self.left_plan[index] = True
                self.homes[request] = index
                self.in_order[index].put(request)
                taken += 1
        return taken > 0

    def decide(self, view: View) -> Step | Wait | None:
        """Return the next step of the plan, or what follows it in order."""
        index = view.index
        if self.left_plan[index]:
            return self.in_order[index].decide(view)
        if self.position[index] == len(self.planned[index]):
            return None
        step, start, begins = self.planned[index][self.position[index]]
        ready = all(
            request in self.open and self.stays[request] == stay for request, stay in begins.items()
        )
        if start > view.now_ns:
            return Wait(start)
        if not ready:
            return None
        self.position[index] += 1
        self.leaving.update(step.preempt)
        return step


def first_places(instance: Instance, schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return the worker of each request's first stay, and the step in which it begins."""
    steps, work = schedule.steps, schedule.work
    first = np.full(len(instance), len(steps), np.int64)
    np.minimum.at(first, work.request, work.first_step)
    return np.append(steps.worker, 0)[first].tolist(), first.tolist()


def plan_of_rest(instance: Instance, plan: Schedule, rest: Rest) -> Schedule:
    """Return the schedule of a rest that continues a plan, by the times of the cost model.

    Each worker serves what the plan gave it in the order of the plan: first the requests on it,
    then the next stage as soon as there are clients for all of it (for the next request of it where
    the plan moves requests or evicts them).

    Args:
        instance: the whole.
        plan: of it.
        rest: what a run of the plan has left.

    Raises:
        InputError: the memory does not hold what is brought back.
    """
    try:
        found = simulate_policy(rest.instance, _Rest(instance, plan, rest)).schedule
    except PolicyError:
        raise InputError(
            "the rest of this schedule cannot be done in its order",
            field="resume",
            remedy="give the instance and a policy",
        ) from None
    return found.replace(seed=plan.seed, parameters=plan.parameters)


class _Rest(Policy):
    """Serves what is left in the plan's order."""

    many_workers = True
    chunks = True

    def __init__(self, instance: Instance, plan: Schedule, rest: Rest) -> None:
        self.name, self.information = plan.method, Information(plan.information)
        homes, stages = first_places(instance, plan)
        self.homes = [homes[row] for row in rest.rows.tolist()]
        begun = rest.yielded > 0
        own = [
            -1 if was else stages[row]
            for row, was in zip(rest.rows.tolist(), begun.tolist(), strict=True)
        ]
        whole = not plan.work.stay.any()
        self.in_order = [InOrder(own, whole) for _ in instance.workers]

    def on_arrival(self, view: View, request: int) -> None:
        """Queue it."""
        self.in_order[self.homes[request]].put(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Queue it again."""
        self.in_order[self.homes[request]].put(request)

    def decide(self, view: View) -> Step | None:
        """Return the next step in the order of the plan."""
        return self.in_order[view.index].decide(view)
