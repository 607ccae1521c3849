"""A schedule as a policy: what was planned, step by step, whatever time each step takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.errors import InputError
from orsched.policy import Information, Policy, View
from orsched.schedule import DECODE, PREFILL
from orsched.step import Step, Wait

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.schedule import Schedule


class PlannedStep(NamedTuple):
    """A step of a schedule.

    Attributes:
        step: what the worker is asked for.
        start_ns: when it was planned to start, if the worker idled before it; else 0.
    """

    step: Step
    start_ns: int


class FollowSchedule(Policy):
    """Take the steps of a schedule in their order.

    A step waits for the arrival of its requests and, where the plan idles before it, for its start
    in the plan. One that comes late delays the rest; the order stays.

    Args:
        instance: the schedule's, with one worker.
        schedule: planned or measured.

    Raises:
        InputError: the schedule is of another instance, or has several workers.
    """

    def __init__(self, instance: Instance, schedule: Schedule) -> None:
        if schedule.instance_sha256 != instance.sha256:
            raise InputError(
                "the schedule was made for another instance",
                field="instance_sha256",
                remedy="give the instance that it was made for",
            )
        if len(instance.workers) > 1:
            raise InputError("a schedule on several workers", field="workers")
        self.name = schedule.method
        self.information = Information(schedule.information)  # what it sets aside in memory
        self.planned = planned_steps(schedule)
        self.position = 0

    def decide(self, view: View) -> Step | Wait | None:
        """Return the next step of the plan."""
        if self.position == len(self.planned):
            return None
        step, start = self.planned[self.position]
        for request in step.prefill:
            start = max(start, view.arrival_ns[request])
        if start > view.now_ns:
            return Wait(start)
        self.position += 1
        return step


def planned_steps(schedule: Schedule) -> list[PlannedStep]:
    """Return the steps of a schedule on one worker as a policy would ask for them."""
    rows = _Rows(schedule)
    steps, found = schedule.steps, []
    phases, rounds = steps.phase.tolist(), steps.rounds.tolist()
    starts, ends = steps.start_ns.tolist(), steps.end_ns.tolist()
    active: dict[int, None] = {}
    index, before = 0, 0
    while index < len(phases):
        for request in rows.leave[index]:
            del active[request]
        for request in rows.enter[index]:
            active[request] = None
        start = starts[index] if starts[index] > before else 0
        evicted = rows.evicted[index]
        if index in rows.held:
            last = rows.held[index]
            step = Step(rounds=sum(rounds[index : last + 1]), until=0, preempt=evicted, hold=True)
            for later in range(index + 1, last + 1):
                for request in rows.leave[later]:
                    del active[request]
                assert not rows.enter[later]
            index = last
        else:
            prefill, tokens, clients = rows.prefill[index]
            step = Step(
                prefill=prefill,
                tokens=tokens or None,
                clients=clients,
                decode=() if phases[index] == PREFILL else list(active),
                rounds=rounds[index],
                until=0,
                preempt=evicted,
            )
        found.append(PlannedStep(step, start))
        before = ends[index]
        index += 1
    if rows.evicted[index]:
        found.append(PlannedStep(Step(preempt=rows.evicted[index], decode=()), 0))
    return found


class _Rows:
    """The work of a schedule by step.

    Attributes:
        prefill: requests, tokens, and the clients of those that are new, by step.
        enter, leave: who begins to decode with a step, and who has ended before it.
        evicted: whose stay has ended before a step with work left to do.
        held: first step of each static batch that holds requests -> its last step.
    """

    def __init__(self, schedule: Schedule) -> None:
        work, count = schedule.work, len(schedule.steps) + 1
        self.prefill: list[tuple[list[int], list[int], list[int]]]
        self.prefill = [([], [], []) for _ in range(count)]
        self.enter: list[list[int]] = [[] for _ in range(count)]
        self.leave: list[list[int]] = [[] for _ in range(count)]
        self.evicted: list[list[int]] = [[] for _ in range(count)]
        names = ("request", "client", "phase", "first_step", "last_step", "tokens", "stay")
        columns = (getattr(work, name).tolist() for name in names)
        held: list[tuple[int, int]] = []
        present: dict[int, tuple[int, int]] = {}  # stay and last step of each request so far
        for request, client, phase, first, last, tokens, stay in zip(*columns, strict=True):
            new = request not in present or present[request][0] < stay
            if request in present and new:
                self.evicted[present[request][1] + 1].append(request)
            present[request] = (stay, last)
            if phase == PREFILL:
                requests, chunks, clients = self.prefill[first]
                # those that are new come first: only they are given clients
                place = len(clients) if new else len(requests)
                requests.insert(place, request)
                chunks.insert(place, tokens)
                if new:
                    clients.append(client)
            elif phase == DECODE:
                self.enter[first].append(request)
                self.leave[last + 1].append(request)
            else:
                held.append((first - 1, last))
        self.held = _joined(held)


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
