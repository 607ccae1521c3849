"""Times of each request in a schedule, by prefix sums over the steps of each worker."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.errors import InputError
from orsched.intervals import before, covered_max, covered_sum
from orsched.schedule import DECODE, PREFILL

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.schedule import Schedule

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Timeline:
    """The steps of a schedule worker by worker, and what each row of work takes part in.

    The *place* of a step is its number when the steps of worker 0 are counted first, then those of
    worker 1, and so on: the steps between two places of a worker are that worker's.

    Raises ``InputError`` where work names requests, workers, clients or steps that cannot be; all
    other faults are for the checker to find.

    Attributes:
        order: row of ``Steps`` at each place.
        worker, phase, start_ns, end_ns, rounds: columns of ``Steps`` by place.
        time_before, decode_time_before, rounds_before: durations of all steps, durations of the
            decode and mixed steps, and rounds of these, before each place.
        first, last: places of each row of ``Work``.
        is_prefill: whether a row of ``Work`` is a prefill row.
        row_rounds: decode rounds that a row takes part in; 0 for prefill rows.
        row_time_ns: durations of the steps that a row takes part in.
        stay_row, stay_end: first and last row of ``Work`` of each stay.
        stay_of: number of the stay of each row of ``Work``.
        cached: tokens in the request's cache before each row of ``Work``.
    """

    def __init__(self, instance: Instance, schedule: Schedule) -> None:
        steps, work = schedule.steps, schedule.work
        _require_references(instance, schedule)
        self.steps, self.work = steps, work
        self.order = np.argsort(steps.worker, kind="stable")
        place = np.empty(len(steps), np.int64)
        place[self.order] = np.arange(len(steps))
        self.worker, self.phase = steps.worker[self.order], steps.phase[self.order]
        self.start_ns, self.end_ns = steps.start_ns[self.order], steps.end_ns[self.order]
        self.rounds = steps.rounds[self.order]
        duration, decodes = self.end_ns - self.start_ns, self.phase != PREFILL
        self.time_before = before(duration)
        self.decode_time_before = before(duration * decodes)
        self.rounds_before = before(self.rounds * decodes)
        self.first, self.last = place[work.first_step], place[work.last_step]
        self.is_prefill: Mask = work.phase == PREFILL
        self.row_rounds = np.where(self.is_prefill, 0, self._within(self.rounds_before))
        self.row_time_ns = np.where(
            self.is_prefill, self._within(self.time_before), self._within(self.decode_time_before)
        )
        self._find_stays()

    def _within(self, sums: IntColumn) -> IntColumn:
        """Return what each row of work spans of some prefix sums."""
        spanned: IntColumn = sums[self.last + 1] - sums[self.first]
        return spanned

    def _find_stays(self) -> None:
        work = self.work
        head = np.ones(len(work), bool)
        head[1:] = (work.request[1:] != work.request[:-1]) | (work.stay[1:] != work.stay[:-1])
        self.stay_row = np.flatnonzero(head)
        next_row = np.append(self.stay_row[1:], len(work))
        self.stay_end: IntColumn = next_row[: len(self.stay_row)] - 1
        self.stay_of = np.cumsum(head) - 1
        grown = before(np.where(self.is_prefill, work.tokens, self.row_rounds))
        self.cached = grown[:-1] - grown[self.stay_row][self.stay_of]

    @cached_property
    def stay_first(self) -> IntColumn:
        """Place at which each stay begins."""
        return self.first[self.stay_row]

    @cached_property
    def stay_last(self) -> IntColumn:
        """Place of the last step of each stay."""
        return self.last[self.stay_end]

    @cached_property
    def stay_request(self) -> IntColumn:
        """Request of each stay."""
        return self.work.request[self.stay_row]

    @cached_property
    def stay_worker(self) -> IntColumn:
        """Worker of each stay."""
        return self.worker[self.stay_first]

    @cached_property
    def row_worker(self) -> IntColumn:
        """Worker of each row of work."""
        return self.worker[self.first]

    def heads(self, workers: int) -> IntColumn:
        """Return the first place of each worker, and the number of places at the end."""
        heads: IntColumn = np.searchsorted(self.worker, np.arange(workers + 1))
        return heads

    def first_round_contexts(self, places: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
        """Return active requests, sum and maximum of contexts in the first round of some steps.

        The places are those of decode and mixed steps. Requests that yield invalid tokens are
        active. A context counts as in ``orsched.costs.protocol``.
        """
        rows = np.flatnonzero(~self.is_prefill)
        first, last = self.first[rows], self.last[rows]
        base = self.cached[rows] - self.rounds_before[first]
        n = len(self.order)
        now = self.rounds_before[places] + 1
        active = covered_sum(n, first, last)[places]
        total = covered_sum(n, first, last, base)[places] + active * now
        return active, total, covered_max(n, first, last, base)[places] + now


def _require_references(instance: Instance, schedule: Schedule) -> None:
    """Raise ``InputError`` unless all rows point to something."""
    steps, work = schedule.steps, schedule.work
    first, last = work.first_step, work.last_step
    clients = np.array([worker.clients for worker in instance.workers])
    stray = steps.worker >= len(clients)
    _refuse(stray, "steps.worker", "the worker does not exist")
    worker, prefills = steps.worker[first], work.phase == PREFILL
    _refuse(work.request >= len(instance), "work.request", "the request does not exist")
    _refuse(work.client >= clients[worker], "work.client", "the worker has fewer clients")
    _refuse(last < first, "work.last_step", "the row ends before it begins")
    _refuse(steps.worker[last] != worker, "work.last_step", "the row changes workers")
    _refuse(prefills & (last != first), "work.last_step", "a prefill row has one step")
    wrong = np.where(prefills, DECODE, PREFILL)
    fits = (steps.phase[first] != wrong) & (steps.phase[last] != wrong)
    _refuse(~fits, "work.phase", "the step does not do that")
    stays = np.zeros(len(work), bool)
    stays[1:] = (work.request[1:] == work.request[:-1]) & (work.stay[1:] == work.stay[:-1])
    before = np.arange(len(work)) - stays
    _refuse(stays & (worker != worker[before]), "work.first_step", "the stay changes workers")
    _refuse(stays & (first <= last[before]), "work.first_step", "the rows overlap")


def _refuse(wrong: Mask, field: str, problem: str) -> None:
    if wrong.any():
        raise InputError(
            problem, row=int(np.argmax(wrong)), field=field, remedy="check the schedule"
        )


def request_times(
    instance: Instance, schedule: Schedule, timeline: Timeline | None = None
) -> dict[str, IntColumn]:
    """Return client, prefill start and end, first token and finish of every request, in ns.

    Columns ``client, prefill_start_ns, prefill_end_ns, first_token_ns, finish_ns``, one row a
    request; -1 where the schedule does not serve a request. Client and prefill start are those of
    the first stay; the prefill ends with the first one that is complete; the finish is the end of
    the last row, invalid tokens included. ``timeline`` is the schedule's, if it is at hand.
    """
    line = Timeline(instance, schedule) if timeline is None else timeline
    n, work = len(instance), schedule.work
    times = {
        name: np.full(n, -1, np.int64)
        for name in ("client", "prefill_start_ns", "prefill_end_ns", "first_token_ns", "finish_ns")
    }
    # Rows are in order of request, then step: reversed, the first write of a request wins.
    times["client"][work.request[::-1]] = work.client[::-1]
    prefill = np.flatnonzero(line.is_prefill)
    back = prefill[::-1]
    times["prefill_start_ns"][work.request[back]] = line.start_ns[line.first[back]]
    times["prefill_end_ns"][:] = _prefill_ends(instance, line)
    times["finish_ns"][work.request] = line.end_ns[line.last]
    if instance.first_token == "prefill":
        times["first_token_ns"][:] = times["prefill_end_ns"]
        return times
    back = np.flatnonzero(work.phase == DECODE)[::-1]
    first = np.full(n, -1, np.int64)
    first[work.request[back]] = line.first[back]
    served = np.flatnonzero(first >= 0)
    times["first_token_ns"][served] = _first_round_ends(instance, schedule, line, first[served])
    return times


def _prefill_ends(instance: Instance, line: Timeline) -> IntColumn:
    """End of each request's first complete prefill; of its last prefill row if none is complete."""
    work = line.work
    ends = np.full(len(instance), -1, np.int64)
    rows = np.flatnonzero(line.is_prefill)
    ends[work.request[rows]] = line.end_ns[line.last[rows]]
    final = np.ones(len(rows), bool)
    final[:-1] = line.stay_of[rows[1:]] != line.stay_of[rows[:-1]]
    # Until a prefill is complete nothing is yielded, so the prompt alone completes the first one.
    done = (
        line.cached[rows] + work.tokens[rows] >= instance.requests.prompt_tokens[work.request[rows]]
    )
    back = rows[final & done][::-1]
    ends[work.request[back]] = line.end_ns[line.last[back]]
    return ends


def _first_round_ends(
    instance: Instance, schedule: Schedule, line: Timeline, places: IntColumn
) -> IntColumn:
    """End of the first round of some steps.

    Exact where all rounds of a step last equally long; where contexts matter, the cost model is
    asked for the first round, unless the run was measured (its steps then have equal rounds).
    """
    duration = (line.end_ns - line.start_ns)[places] // line.rounds[places]
    matters = np.array([w.cost.context_matters for w in instance.workers])
    if matters.any() and not schedule.is_measured:
        asked = np.flatnonzero(matters[line.worker[places]] & (line.rounds[places] > 1))
        several, which = np.unique(places[asked], return_inverse=True)
        columns = (line.worker[several], *line.first_round_contexts(several))
        found = np.empty(len(several), np.int64)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for k, (index, active, total, longest) in enumerate(rows):
            worker = instance.workers[index]
            padded = active * longest if worker.padding else total
            found[k] = worker.cost.round_ns(active, padded, longest)
        duration[asked] = found[which]
    return line.start_ns[places] + duration


def yielded_tokens(instance: Instance, trace: Schedule) -> IntColumn:
    """Return how many tokens each request has yielded in a schedule, complete or not."""
    line, work, n = Timeline(instance, trace), trace.work, len(instance)
    decoded = np.where(work.phase == DECODE, line.row_rounds, 0)
    yielded = np.zeros(n, np.int64)
    if instance.first_token == "decode":
        np.add.at(yielded, work.request, decoded)
        return yielded
    prompts = instance.requests.prompt_tokens.tolist()
    requests = line.stay_request.tolist()
    for stay, (begin, end) in enumerate(zip(line.stay_row, line.stay_end, strict=True)):
        request = requests[stay]
        rows = slice(begin, end + 1)
        prefilled = int(work.tokens[rows][line.is_prefill[rows]].sum())
        due = prompts[request] + int(yielded[request])
        yielded[request] += int(decoded[rows].sum()) + (prefilled == due)
    return yielded


def finished_requests(instance: Instance, schedule: Schedule) -> int:
    """Return how many requests have yielded all their tokens in a schedule, complete or not."""
    return int((yielded_tokens(instance, schedule) >= instance.requests.output_tokens).sum())
