"""The service that tenants receive over time, as weighted tokens."""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from orsched.metrics.intervals import covered_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline import Timeline

PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 2
"""What a prompt and an output token count (Sheng et al., OSDI 2024, section 5.1)."""

MOST_TENANTS = 16
"""Tenants whose service is compared, two by two; those with most tokens."""

_MOST_CELLS = 1 << 26


class TenantService:
    """Weighted tokens that tenants have been served until each time.

    The prompt of a request counts as a whole when its first prefill step ends, each output token
    when the step that yields it does; what is prefilled again counts nothing.

    Attributes:
        tenants: numbers of the tenants that are compared, those with most tokens first.
        times_ns: starts and ends of steps, growing.
        service: a row for each tenant, weighted tokens until each time.
        waits: a row for each tenant: whether a request of its waits from each time to the next.
    """

    def __init__(self, line: Timeline) -> None:
        self.line = line
        column = line.instance.requests.tenant
        assert column is not None
        self.column: IntColumn = column
        self.times_ns: IntColumn = np.unique(np.concatenate([line.start_ns, line.end_ns]))
        self.tenants = self._largest()

    def _largest(self) -> list[int]:
        requests = self.line.instance.requests
        weight = PROMPT_WEIGHT * requests.prompt_tokens + OUTPUT_WEIGHT * requests.output_tokens
        numbers, place = np.unique(self.column, return_inverse=True)
        total = np.zeros(len(numbers), np.int64)
        np.add.at(total, place, weight)
        most = max(2, min(MOST_TENANTS, _MOST_CELLS // max(len(self.times_ns), 1)))
        return [int(each) for each in numbers[np.argsort(-total, kind="stable")[:most]]]

    @cached_property
    def service(self) -> NDArray[np.int64]:
        """Weighted tokens of each tenant until each time."""
        line, rounds = self.line, np.where(self.line.has_rounds, self.line.rounds, 0)
        at = np.searchsorted(self.times_ns, line.end_ns)
        prompts = line.instance.requests.prompt_tokens
        begins = np.flatnonzero(line.ordinal == 0)
        yields = self._prefill_tokens()
        found = np.zeros((len(self.tenants), len(self.times_ns)), np.int64)
        for row, tenant in zip(found, self.tenants, strict=True):
            mine = self.column == tenant
            stays = begins[mine[line.stay_request[begins]]]
            amounts = PROMPT_WEIGHT * prompts[line.stay_request[stays]]
            np.add.at(row, at[line.stay_first[stays]], amounts)
            rows = line.decodes[mine[line.request[line.decodes]]]
            active = covered_sum(len(line.worker), line.first[rows], line.last[rows])
            np.add.at(row, at, OUTPUT_WEIGHT * active * rounds)
            ends = yields[mine[line.request[yields]]]
            np.add.at(row, at[line.last[ends]], OUTPUT_WEIGHT)
        return np.cumsum(found, axis=1)

    def _prefill_tokens(self) -> IntColumn:
        """The prefill rows that yield a token."""
        line = self.line
        if line.instance.first_token != "prefill":
            return np.zeros(0, np.int64)
        stays = np.flatnonzero(line.complete & (line.prefill_rows > 0))
        rows: IntColumn = line.stay_row[stays] + line.prefill_rows[stays] - 1
        return rows

    @cached_property
    def waits(self) -> NDArray[np.bool_]:
        """Whether a request of each tenant waits, from each time to the next one."""
        line, times = self.line, self.times_ns
        begin = np.where(
            line.ordinal == 0,
            line.instance.requests.arrival_ns[line.stay_request],
            np.concatenate([[0], line.end_ns[line.stay_last]])[: len(line.stay_last)],
        )
        until = line.start_ns[line.stay_first]
        found = np.zeros((len(self.tenants), max(len(times) - 1, 0)), bool)
        for row, tenant in zip(found, self.tenants, strict=True):
            mine = self.column[line.stay_request] == tenant
            low, high = _merged(begin[mine], until[mine])
            first = np.searchsorted(times, low)
            last = np.searchsorted(times, high, side="right") - 2
            some = first <= last
            row[:] = covered_sum(len(row), first[some], last[some]) > 0
        return found

    def largest_difference(self) -> tuple[int | None, tuple[int, int] | None]:
        """Return the largest difference between the service of two tenants that both wait.

        Over all times t1 < t2 between which both wait throughout, of what they get from t1 to t2;
        with the two tenants. None where no two wait at the same time.
        """
        best: int | None = None
        pair: tuple[int, int] | None = None
        for one, other in combinations(range(len(self.tenants)), 2):
            both = self.waits[one] & self.waits[other]
            if not both.any():
                continue
            edges = np.flatnonzero(np.diff(np.concatenate([[0], both.astype(np.int8), [0]])))
            edges[1::2] += 1  # the time at the end of a run belongs to it
            apart = np.append(self.service[one] - self.service[other], 0)
            most = np.maximum.reduceat(apart, edges)[::2] - np.minimum.reduceat(apart, edges)[::2]
            if best is None or int(most.max()) > best:
                best, pair = int(most.max()), (self.tenants[one], self.tenants[other])
        return best, pair


def _merged(begin: IntColumn, until: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the union of intervals as disjoint ones, in order; those that meet are one."""
    order = np.lexsort((until, begin))
    begin, until = begin[order], np.maximum.accumulate(until[order])
    if len(begin) == 0:
        return begin, until
    head = np.concatenate([[True], begin[1:] > until[:-1]])
    last = np.append(np.flatnonzero(head)[1:] - 1, len(begin) - 1)
    return begin[head], until[last]
