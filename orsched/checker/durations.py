"""Checks of durations against the cost model's scalar formulas."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.reading import DECODE, PREFILL
from orsched.checker.violations import ViolationKind as Kind

if TYPE_CHECKING:
    from orsched.checker.reading import Bools, Ints, Reading
    from orsched.checker.violations import Findings
    from orsched.workers import Worker

UNKNOWN = -1
"""Stands for a duration that the cost model could not give."""


class Durations:
    """Durations by the model, from ``prefill_ns`` and ``round_ns`` alone."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.refusals: list[tuple[int, str]] = []  # (position, why the model gave no duration)

    def workers(self) -> list[tuple[Worker, Bools]]:
        """Each worker with its positions."""
        r = self.reading
        return [(worker, r.worker == index) for index, worker in enumerate(r.instance.workers)]

    @cached_property
    def first_round(self) -> Ints:
        """Duration of the first round of each decode step, by position; UNKNOWN elsewhere."""
        r = self.reading
        result = np.full(len(r.worker), UNKNOWN, np.int64)
        for worker, here in self.workers():
            positions = np.flatnonzero(here & (r.phase == DECODE) & (r.active > 0))
            if worker.cost.context_matters:
                columns = (r.active, r.context_sum, r.context_max)
                for position in positions.tolist():
                    contexts = (int(column[position]) for column in columns)
                    result[position] = self._round(worker, position, *contexts)
                continue
            counts, inverse = np.unique(r.active[positions], return_inverse=True)
            firsts = np.zeros(len(counts), np.int64)
            firsts[inverse[::-1]] = positions[::-1]
            rounds = [
                self._round(worker, int(position), int(count), 0, 0)
                for count, position in zip(counts, firsts, strict=True)
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
        rounds, active = int(r.rounds[position]), int(r.active[position])
        if rounds > budget:  # reported as rounds that nobody needs
            return UNKNOWN
        total, most = int(r.context_sum[position]), int(r.context_max[position])
        duration = int(self.first_round[position])
        for later in range(1, rounds):
            one = self._round(worker, position, active, total + active * later, most + later)
            if one == UNKNOWN or duration == UNKNOWN:
                return UNKNOWN
            duration += one
        return duration

    def prefills(self, worker: Worker, here: Bools) -> tuple[Ints, Ints]:
        """Positions of the worker's prefill stages that serve somebody, and their durations."""
        r = self.reading
        rows = r.prefill_rows
        rows = rows[here[r.first[rows]]]
        rows = rows[np.argsort(r.first[rows], kind="stable")]
        prompts = r.instance.requests.prompt_tokens[r.schedule.work.request[rows]]
        positions, begins, sizes = np.unique(r.first[rows], return_index=True, return_counts=True)
        result = np.full(len(positions), UNKNOWN, np.int64)
        # Stages of one prompt are priced once for each length.
        single = np.flatnonzero(sizes == 1)
        lengths, inverse = np.unique(prompts[begins[single]], return_inverse=True)
        where = np.zeros(len(lengths), np.int64)
        where[inverse[::-1]] = positions[single][::-1]
        prices = [
            self._prefill(worker, position, [length])
            for position, length in zip(where.tolist(), lengths.tolist(), strict=True)
        ]
        result[single] = np.array(prices, np.int64)[inverse]
        flat: list[int] = prompts.tolist()
        for stage in np.flatnonzero(sizes > 1).tolist():
            begin, size = int(begins[stage]), int(sizes[stage])
            stage_prompts = flat[begin : begin + size]
            result[stage] = self._prefill(worker, int(positions[stage]), stage_prompts)
        return positions, result

    def _prefill(self, worker: Worker, position: int, prompts: list[int]) -> int:
        limit = worker.prefill_limit
        if len(prompts) > worker.clients or (limit is not None and sum(prompts) > limit):
            return UNKNOWN  # reported as an overlap or under the cap
        try:
            return _fitting(worker.cost.prefill_ns(prompts))
        except Exception as error:
            self.refusals.append((position, str(error)))
            return UNKNOWN


def _fitting(duration: int) -> int:
    """Return a duration that fits into the checker's columns; no valid one is larger."""
    if not 0 <= duration < 2**63:
        raise OverflowError(f"a duration of {duration} ns")
    return int(duration)


def check_durations(reading: Reading, durations: Durations, findings: Findings) -> None:
    """Every step takes the time of the cost model."""
    r = reading
    took = r.end - r.start
    for worker, here in durations.workers():
        positions, expected = durations.prefills(worker, here)
        wrong = (expected != UNKNOWN) & (took[positions] != expected)
        _report(reading, findings, positions[wrong], expected[wrong])
        if worker.cost.context_matters:
            _check_each_round(reading, durations, worker, here, findings)
            continue
        positions = np.flatnonzero(here & (durations.first_round != UNKNOWN))
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
    reading: Reading, durations: Durations, worker: Worker, here: Bools, findings: Findings
) -> None:
    r = reading
    budget = int(r.needed.sum())  # a valid schedule has no more rounds: each yields a token
    wrong, expected = [], []
    for position in np.flatnonzero(here & (durations.first_round != UNKNOWN)).tolist():
        duration = durations.later_rounds(worker, position, budget)
        budget -= min(budget, int(r.rounds[position]))
        if duration not in (UNKNOWN, int(r.end[position] - r.start[position])):
            wrong.append(position)
            expected.append(min(duration, 2**63 - 1))
    _report(reading, findings, np.array(wrong, np.int64), np.array(expected, np.int64))


def _report(
    r: Reading, findings: Findings, positions: Ints, one: Ints, times: Ints | None = None
) -> None:
    def describe(i: int) -> dict[str, object]:
        position = int(positions[i])
        step, found = int(r.order[position]), int(r.end[position]) - int(r.start[position])
        expected = int(one[i]) * (1 if times is None else int(times[i]))
        phase = "prefill stage" if r.phase[position] == PREFILL else "decode stage"
        return {
            "message": f"step {step}, a {phase}, takes {found} ns instead of {expected} ns",
            "worker": int(r.worker[position]),
            "step": step,
            "field": "steps.end_ns",
            "expected": expected,
            "found": found,
        }

    findings.add_rows(Kind.TIME, np.ones(len(positions), bool), describe)
