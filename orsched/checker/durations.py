"""Checks of durations against the cost model's scalar formulas."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.reading import DECODE, MIXED, PREFILL
from orsched.checker.violations import ViolationKind as Kind
from orsched.costs import mixed_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.checker.intervals import Ints
    from orsched.checker.reading import Reading
    from orsched.checker.violations import Findings
    from orsched.workers import Worker

UNKNOWN = -1
"""Stands for a duration that the cost model could not give."""

_NAMES = {PREFILL: "a prefill stage", DECODE: "a decode stage", MIXED: "a mixed step"}


class Durations:
    """Durations by the model, from ``prefill_ns``, ``round_ns`` and ``mixed_ns`` alone."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.refusals: list[tuple[int, str]] = []  # (position, why the model gave no duration)

    def workers(self) -> Iterator[tuple[Worker, slice]]:
        """Each worker with its positions."""
        r = self.reading
        heads = r.heads().tolist()
        for index, worker in enumerate(r.instance.workers):
            yield worker, slice(heads[index], heads[index + 1])

    # -- rounds ---------------------------------------------------------------------------

    @cached_property
    def first_round(self) -> Ints:
        """Duration of the first round of each decode step, by position; UNKNOWN elsewhere."""
        r = self.reading
        result = np.full(len(r.worker), UNKNOWN, np.int64)
        active = r.caches.active
        for worker, here in self.workers():
            positions = here.start + np.flatnonzero((r.phase[here] == DECODE) & (active[here] > 0))
            if worker.cost.context_matters:
                columns = (active, r.caches.context_sum, r.caches.context_max)
                for position in positions.tolist():
                    contexts = (int(column[position]) for column in columns)
                    result[position] = self._round(worker, position, *contexts)
                continue
            counts, where, inverse = np.unique(
                active[positions], return_index=True, return_inverse=True
            )
            rounds = [
                self._round(worker, position, count, 0, 0)
                for count, position in zip(counts.tolist(), positions[where].tolist(), strict=True)
            ]
            result[positions] = np.array(rounds, np.int64)[inverse]
        return result

    def _round(self, worker: Worker, position: int, active: int, total: int, most: int) -> int:
        if active > worker.clients:  # reported as an overlap; the model need not know the case
            return UNKNOWN
        try:
            return _fitting(worker.cost.round_ns(active, total, most))
        except Exception as error:
            self.refusals.append((position, str(error)))
            return UNKNOWN

    def later_rounds(self, worker: Worker, position: int, budget: int) -> int:
        """Duration of the whole decode step, round by round; UNKNOWN beyond the budget."""
        r = self.reading
        rounds, active = int(r.rounds[position]), int(r.caches.active[position])
        if rounds > budget:  # reported as rounds that nobody needs
            return UNKNOWN
        total, most = int(r.caches.context_sum[position]), int(r.caches.context_max[position])
        duration = int(self.first_round[position])
        for later in range(1, rounds):
            one = self._round(worker, position, active, total + active * later, most + later)
            if one == UNKNOWN or duration == UNKNOWN:
                return UNKNOWN
            duration += one
        return duration

    # -- prefill and mixed steps ----------------------------------------------------------

    def stages(self, worker: Worker, here: slice) -> tuple[Ints, Ints]:
        """Positions of the worker's steps with prefill rows, and their durations."""
        r, loads = self.reading, self.reading.loads
        begin, end = np.searchsorted(loads.position, [here.start, here.stop]).tolist()
        positions = loads.position[begin:end]
        result = np.full(len(positions), UNKNOWN, np.int64)
        mixed = r.phase[positions] == MIXED
        active = np.where(mixed, r.caches.active[positions], 0)
        # Steps with one row are priced once for each length (and number of active requests).
        single = loads.size[begin:end] == 1
        if worker.cost.context_matters:
            single &= ~mixed
        alike = np.flatnonzero(single)
        key = (loads.longest[begin:end][alike] << 31) + np.minimum(active[alike], 2**31 - 1)
        _, where, inverse = np.unique(key, return_index=True, return_inverse=True)
        prices = self._stages(worker, begin + alike[where], active[alike[where]])
        result[alike] = prices[inverse]
        others = np.flatnonzero(~single)
        result[others] = self._stages(worker, begin + others, active[others])
        return positions, result

    def _stages(self, worker: Worker, chosen: Ints, active: Ints) -> Ints:
        """Durations of the steps of some loads; UNKNOWN for what was reported elsewhere."""
        r, loads = self.reading, self.reading.loads
        result = np.full(len(chosen), UNKNOWN, np.int64)
        size, position = loads.size[chosen], loads.position[chosen]
        fit = np.maximum(size, active) <= worker.clients
        if worker.prefill_limit is not None:
            fit &= loads.padded[chosen] <= worker.prefill_limit
        fit &= (r.phase[position] == PREFILL) | (active > 0)
        sound = np.flatnonzero(fit)
        columns = (chosen[sound], size[sound], position[sound], active[sound])
        rows = zip(sound.tolist(), *(column.tolist() for column in columns), strict=True)
        begins, tokens, longest = loads.begin.tolist(), loads.as_list, loads.longest
        prefill_ns, padding = worker.cost.prefill_ns, worker.padding
        for i, load, many, place, count in rows:
            start = begins[load]
            prompts = [int(longest[load])] * many if padding else tokens[start : start + many]
            try:
                result[i] = _fitting(
                    self._mixed(worker, place, prompts, count) if count else prefill_ns(prompts)
                )
            except Exception as error:
                self.refusals.append((place, str(error)))
        return result

    def _mixed(self, worker: Worker, position: int, prompts: list[int], active: int) -> int:
        total = most = 0
        if worker.cost.context_matters:
            caches = self.reading.caches
            total, most = int(caches.context_sum[position]), int(caches.context_max[position])
        return mixed_ns(worker.cost, prompts, active, total, most)


def _fitting(duration: int) -> int:
    """Return a duration that fits into the checker's columns; no valid one is larger."""
    if not 0 <= duration < 2**63:
        raise OverflowError(f"a duration of {duration} ns")
    return int(duration)


def check_durations(reading: Reading, durations: Durations, findings: Findings) -> None:
    """Every step takes the time of the cost model."""
    r = reading
    took = r.end - r.start
    # A valid schedule has no more rounds: each yields a token.
    budget = sum(r.instance.requests.output_tokens.tolist())
    for worker, here in durations.workers():
        positions, expected = durations.stages(worker, here)
        wrong = (expected != UNKNOWN) & (took[positions] != expected)
        _report(reading, findings, positions[wrong], expected[wrong])
        if worker.cost.context_matters:
            budget = _check_each_round(reading, durations, worker, here, findings, budget)
            continue
        positions = here.start + np.flatnonzero(durations.first_round[here] != UNKNOWN)
        one = durations.first_round[positions]
        # By division, since the product of a wrong schedule's numbers may not fit.
        quotient, rest = np.divmod(took[positions], np.maximum(one, 1))
        wrong = (rest != 0) | (quotient != np.where(one > 0, r.rounds[positions], 0))
        _report(reading, findings, positions[wrong], one[wrong], r.rounds[positions[wrong]])
    for position, reason in durations.refusals:
        step = int(r.order[position])
        message = f"the cost model refuses step {step}: {reason}"
        findings.add(Kind.TIME, message, worker=int(r.worker[position]), step=step)


def _check_each_round(
    reading: Reading,
    durations: Durations,
    worker: Worker,
    here: slice,
    findings: Findings,
    budget: int,
) -> int:
    """Price decode steps round by round, as many rounds as are left; return what is left then."""
    r = reading
    wrong, expected = [], []
    known = here.start + np.flatnonzero(durations.first_round[here] != UNKNOWN)
    for position in known.tolist():
        duration = durations.later_rounds(worker, position, budget)
        budget -= min(budget, int(r.rounds[position]))
        if duration not in (UNKNOWN, int(r.end[position] - r.start[position])):
            wrong.append(position)
            expected.append(min(duration, 2**63 - 1))
    _report(reading, findings, np.array(wrong, np.int64), np.array(expected, np.int64))
    return budget


def _report(
    r: Reading, findings: Findings, positions: Ints, one: Ints, times: Ints | None = None
) -> None:
    def describe(i: int) -> dict[str, object]:
        position = int(positions[i])
        step, found = int(r.order[position]), int(r.end[position]) - int(r.start[position])
        expected = int(one[i]) * (1 if times is None else int(times[i]))
        name = _NAMES[int(r.phase[position])]
        return {
            "message": f"step {step}, {name}, takes {found} ns instead of {expected} ns",
            "worker": int(r.worker[position]),
            "step": step,
            "field": "steps.end_ns",
            "expected": expected,
            "found": found,
        }

    findings.add_rows(Kind.TIME, np.ones(len(positions), bool), describe)
