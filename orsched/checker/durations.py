"""Checks of durations against the cost model's scalar formulas."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.checker.violations import ViolationKind
from orsched.common.errors import TimeLimitError
from orsched.costs import LinearCost, RooflineCost, knows_cached, mixed_ns
from orsched.costs.exact import numbers_of_equal
from orsched.data.schedule import DECODE, MIXED, PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.data.workers import Worker
    from orsched.metrics.timeline import Timeline


class Kind(NamedTuple):
    """Workers whose steps have the same prices: one of them, and the places of their steps.

    ``batches``: the numbers of their steps with prefill rows, among ``Timeline.batches``.
    """

    worker: Worker
    steps: IntColumn
    batches: IntColumn


def kinds_of_workers(line: Timeline) -> list[Kind]:
    """Return the kinds of an instance's workers with their places, by one sort for all workers."""
    workers, numbers = _kinds_of(line.instance.workers)
    kind_of = np.array([*numbers, len(workers)], np.int64)  # the last one: no such worker
    of_steps = kind_of[np.minimum(line.worker, len(numbers))]
    steps = _split(of_steps, len(workers))
    batches = _split(of_steps[line.batches.place], len(workers))
    return [Kind(*each) for each in zip(workers, steps, batches, strict=True)]


def _kinds_of(workers: Sequence[Worker]) -> tuple[list[Worker], list[int]]:
    """Return one worker of each kind (equal clients, limit, padding and cost), and each's kind."""
    found: dict[object, int] = {}
    first: list[Worker] = []
    numbers: list[int] = []
    costs = numbers_of_equal([worker.cost for worker in workers])
    for worker, cost in zip(workers, costs, strict=True):
        key = (cost, worker.clients, worker.prefill_limit, worker.padding)
        number = found.setdefault(key, len(found))
        if number == len(first):
            first.append(worker)
        numbers.append(number)
    return first, numbers


def _split(kind: IntColumn, count: int) -> list[IntColumn]:
    """Return the places of each of some kinds, in order."""
    order = np.argsort(kind, kind="stable")
    borders = np.searchsorted(kind[order], np.arange(count + 1)).tolist()
    return [order[begin:end] for begin, end in pairwise(borders)]


UNKNOWN = -1
"""Stands for a duration that the cost model could not give."""

_ARITHMETIC, _FEW, _MANY = (LinearCost, RooflineCost), 8, 1 << 16
"""Models whose formula of a round is arithmetic in contexts: arrays of them give arrays of times,
none negative. ``_FEW`` rounds are as fast one by one; ``_MANY`` are priced at one time."""

_NAMES = {PREFILL: "a prefill stage", DECODE: "a decode stage", MIXED: "a mixed step"}


class Durations:
    """Durations by the model, from ``prefill_ns``, ``round_ns`` and ``mixed_ns`` alone."""

    def __init__(self, line: Timeline) -> None:
        self.line = line
        self.refusals: list[tuple[int, str]] = []  # (place, why the model gave no duration)

    @cached_property
    def kinds(self) -> list[Kind]:
        """The workers by what their steps cost: one sort, however many workers there are."""
        return kinds_of_workers(self.line)

    @cached_property
    def first_round(self) -> IntColumn:
        """Duration of the first round of each decode step, by place; UNKNOWN elsewhere."""
        line = self.line
        result = np.full(len(line.worker), UNKNOWN, np.int64)
        active = line.caches.active
        for worker, places, _ in self.kinds:
            places = places[(line.phase[places] == DECODE) & (active[places] > 0)]
            if worker.cost.context_matters:
                columns = (active, line.caches.context_padded, line.caches.context_max)
                loads = zip(*(column[places].tolist() for column in columns), strict=True)
                result[places] = [
                    self._round(worker, place, *load)
                    for place, load in zip(places.tolist(), loads, strict=True)
                ]
                continue
            counts, where, inverse = np.unique(
                active[places], return_index=True, return_inverse=True
            )
            rounds = [
                self._round(worker, place, count, 0, 0)
                for count, place in zip(counts.tolist(), places[where].tolist(), strict=True)
            ]
            result[places] = np.array(rounds, np.int64)[inverse]
        return result

    def _round(self, worker: Worker, place: int, active: int, total: int, most: int) -> int:
        if active > worker.clients:  # reported as an overlap; the model need not know the case
            return UNKNOWN
        try:
            return _fitting(worker.cost.round_ns(active, total, most))
        except TimeLimitError:  # the command's deadline, which may ring anywhere
            raise
        except Exception as error:
            self.refusals.append((place, str(error)))
            return UNKNOWN

    def later_rounds(self, worker: Worker, place: int, budget: int) -> int:
        """Duration of the whole decode step, round by round; UNKNOWN beyond the budget."""
        line = self.line
        rounds, active = int(line.rounds[place]), int(line.caches.active[place])
        if rounds > budget:  # reported as rounds that no request needs
            return UNKNOWN
        total, most = int(line.caches.context_padded[place]), int(line.caches.context_max[place])
        duration = int(self.first_round[place])
        if type(worker.cost) in _ARITHMETIC and rounds > _FEW and duration != UNKNOWN:
            formula: Any = worker.cost.round_ns
            for begin in range(1, rounds, _MANY):  # objects: whole numbers of any size
                more = np.arange(begin, min(rounds, begin + _MANY), dtype=object)
                duration += int(formula(active, total + active * more, most + more).sum())
            return duration
        for later in range(1, rounds):
            one = self._round(worker, place, active, total + active * later, most + later)
            if one == UNKNOWN or duration == UNKNOWN:
                return UNKNOWN
            duration += one
        return duration

    def stages(self, kind: Kind) -> tuple[IntColumn, IntColumn]:
        """Places of the steps with prefill rows on workers of a kind, and their durations."""
        line, batches, (worker, _, chosen) = self.line, self.line.batches, kind
        places = batches.place[chosen]
        result = np.full(len(places), UNKNOWN, np.int64)
        mixed = line.phase[places] == MIXED
        active = np.where(mixed, line.caches.active[places], 0)
        # Steps with one row are priced once for each length (and number of active requests), but
        # not those behind cached tokens where the model is told of them.
        single = batches.size[chosen] == 1
        if worker.cost.context_matters:
            single &= ~mixed
        if knows_cached(worker.cost):
            single &= batches.cached[batches.begin[chosen]] == 0
        alike = np.flatnonzero(single)
        longest = batches.longest[chosen[alike]].astype(np.int64)
        key = (longest << 31) + np.minimum(active[alike], 2**31 - 1)
        _, where, inverse = np.unique(key, return_index=True, return_inverse=True)
        first = alike[where]
        prices = self._stages(worker, chosen[first], active[first])
        result[alike] = prices[inverse]
        others = np.flatnonzero(~single)
        result[others] = self._stages(worker, chosen[others], active[others])
        return places, result

    def _stages(self, worker: Worker, chosen: IntColumn, active: IntColumn) -> IntColumn:
        """Durations of the steps of some batches; UNKNOWN for what was reported elsewhere."""
        line, batches = self.line, self.line.batches
        result = np.full(len(chosen), UNKNOWN, np.int64)
        size, places = batches.size[chosen], batches.place[chosen]
        fit = np.maximum(size, active) <= worker.clients
        if worker.prefill_limit is not None:
            fit &= batches.padded[chosen] <= worker.prefill_limit
        fit &= (line.phase[places] == PREFILL) | (active > 0)
        sound = np.flatnonzero(fit)
        chosen = chosen[sound]
        columns = (sound, batches.begin[chosen], size[sound], places[sound], active[sound])
        rows = zip(batches.longest[chosen].tolist(), *(c.tolist() for c in columns), strict=True)
        tokens, told, padding = batches.as_list, knows_cached(worker.cost), worker.padding
        for longest, i, start, many, place, count in rows:
            prompts = [longest] * many if padding else tokens[start : start + many]
            cached = batches.cached[start : start + many].tolist() if told else ()
            try:
                result[i] = _fitting(self._stage(worker, place, prompts, count, cached))
            except TimeLimitError:  # the command's deadline, which may ring anywhere
                raise
            except Exception as error:
                self.refusals.append((place, str(error)))
        return result

    def _stage(
        self, worker: Worker, place: int, prompts: list[int], active: int, cached: Sequence[int]
    ) -> int:
        total = most = 0
        if active and worker.cost.context_matters:
            caches = self.line.caches
            total, most = int(caches.context_padded[place]), int(caches.context_max[place])
        return mixed_ns(worker.cost, prompts, active, total, most, cached)


def _fitting(duration: int) -> int:
    """Return a duration that fits into the checker's columns; no valid one is larger."""
    if not 0 <= duration < 2**63:
        raise OverflowError(f"a duration of {duration} ns")
    return int(duration)


def check_durations(line: Timeline, durations: Durations, findings: Findings) -> None:
    """Every step takes the time of the cost model."""
    took = line.end_ns - line.start_ns
    # A valid schedule has no more rounds: each yields a token.
    budget = sum(line.instance.requests.output_tokens.tolist())
    for kind in durations.kinds:
        places, expected = durations.stages(kind)
        wrong = (expected != UNKNOWN) & (took[places] != expected)
        _report(line, findings, places[wrong], expected[wrong])
        places = kind.steps[durations.first_round[kind.steps] != UNKNOWN]
        if kind.worker.cost.context_matters:
            budget = _check_each_round(line, durations, kind.worker, places, findings, budget)
            continue
        one = durations.first_round[places]
        # By division, since the product of a wrong schedule's numbers may not fit.
        quotient, rest = np.divmod(took[places], np.maximum(one, 1))
        wrong = (rest != 0) | (quotient != np.where(one > 0, line.rounds[places], 0))
        _report(line, findings, places[wrong], one[wrong], line.rounds[places[wrong]])
    for place, reason in durations.refusals:
        step = int(line.order[place])
        message = f"the cost model refuses step {step}: {reason}"
        findings.add(ViolationKind.TIME, message, worker=int(line.worker[place]), step=step)


def _check_each_round(
    line: Timeline,
    durations: Durations,
    worker: Worker,
    places: IntColumn,
    findings: Findings,
    budget: int,
) -> int:
    """Price decode steps round by round, as many rounds as are left; return what is left then."""
    wrong, expected = [], []
    for place in places.tolist():
        duration = durations.later_rounds(worker, place, budget)
        budget -= min(budget, int(line.rounds[place]))
        if duration not in (UNKNOWN, int(line.end_ns[place] - line.start_ns[place])):
            wrong.append(place)
            expected.append(min(duration, 2**63 - 1))
    _report(line, findings, np.array(wrong, np.int64), np.array(expected, np.int64))
    return budget


def _report(
    line: Timeline,
    findings: Findings,
    places: IntColumn,
    one: IntColumn,
    times: IntColumn | None = None,
) -> None:
    def describe(i: int) -> dict[str, object]:
        place = int(places[i])
        step, found = int(line.order[place]), int(line.end_ns[place]) - int(line.start_ns[place])
        expected = int(one[i]) * (1 if times is None else int(times[i]))
        name = _NAMES[int(line.phase[place])]
        return {
            "message": f"step {step}, {name}, takes {found} ns instead of {expected} ns",
            "worker": int(line.worker[place]),
            "step": step,
            "field": "steps.end_ns",
            "expected": expected,
            "found": found,
        }

    findings.add_rows(ViolationKind.TIME, np.ones(len(places), bool), describe)
