"""Figures by class, tenant and worker, as values and rows of tables, and each request's limits."""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import exact_sum
from orsched.common.errors import InputError, known_names
from orsched.common.units import NEVER, NS_PER_S
from orsched.data.schedule import as_schedule, served_instance
from orsched.data.service_classes import ServiceClass
from orsched.metrics.flat_figures import distribution, ratio
from orsched.metrics.timeline import Timeline
from orsched.metrics.timeline_rows import changes, covered_sum
from orsched.metrics.token_times import TokenLimits, tokens_in_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Scheduled
    from orsched.data.service_classes import SLO
    from orsched.data.service_classes import Limits as GivenLimits

    Mask = NDArray[np.bool_]


PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 2  # of a token (Sheng et al., OSDI 2024, section 5.1)

MOST_TENANTS = 16  # tenants whose service is compared, two by two; those with most tokens

_MOST_CELLS = 1 << 26


class TenantService:
    """Weighted tokens that tenants have been served until each time. The prompt of a request counts
    as a whole when its first prefill step ends, each output token when the step that yields it
    does; what is prefilled again counts nothing. ``service`` and ``waits`` have a row for each of
    ``tenants`` (by number, those with most tokens first), a column for each of ``times_ns``."""

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
        """Return the largest difference between the service of two tenants, with the two, over all
        times t1 < t2 between which both wait throughout; None where no two wait at the same
        time."""
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


class RequestLimits(NamedTuple):
    """Limits by request in nanoseconds, -1 for none, and who is judged as in ``slo_attainment``."""

    judged: IntColumn  # the rows that count; all others may take as long as they like
    ttft_ns: IntColumn  # on the time to the first token
    decode_ns: IntColumn  # from the first token to the last: that of TPOT times tokens

    def attained(self, instance: Instance, first_ns: IntColumn, finish_ns: IntColumn) -> int:
        """Return how many of the judged requests are within their limits."""
        rows = self.judged
        ttft = (first_ns - instance.requests.arrival_ns)[rows]
        decode = (finish_ns - first_ns)[rows]
        met = (self.ttft_ns[rows] < 0) | (ttft <= self.ttft_ns[rows])
        met &= (self.decode_ns[rows] < 0) | (decode <= self.decode_ns[rows])
        return int(met.sum())


def request_limits(instance: Instance, slo: SLO | None) -> RequestLimits:
    """Return the limits of an SLO for all requests that are not bulk, or those of the classes. TPOT
    is the mean, rounded down to whole nanoseconds, over the tokens after the first: a request of d
    tokens keeps p if it decodes for at most (d - 1) (p + 1) - 1 ns; one of a token has none."""
    n, requests = len(instance), instance.requests
    ttft, tpot = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    if slo is not None:
        judged = ~instance.bulk if instance.names_classes else np.ones(n, bool)
        ttft[:] = -1 if slo.ttft_ns is None else slo.ttft_ns
        tpot[:] = -1 if slo.tpot_ns is None else slo.tpot_ns
    else:
        judged = np.zeros(n, bool)
        for code, kind in enumerate(instance.classes):
            rows = requests.service_class == code
            ttft[rows] = -1 if kind.ttft_ns is None else kind.ttft_ns
            tpot[rows] = -1 if kind.tpot_ns is None else kind.tpot_ns
            judged |= rows & ((ttft >= 0) | (tpot >= 0))
    further = requests.output_tokens - 1
    decode = np.full(n, -1, np.int64)
    for row in np.flatnonzero((tpot >= 0) & (further > 0)).tolist():
        longest = int(further[row]) * (int(tpot[row]) + 1) - 1
        decode[row] = min(longest, NEVER)
    return RequestLimits(np.flatnonzero(judged), ttft, decode)


def limited_by(instance: Instance, slo: SLO | None) -> Instance:
    """Return the instance with the limits of an SLO on the requests that it judges, as classes, and
    no others; itself without limits on requests."""
    if slo is None or slo.limits_ns == (None, None):
        return instance
    ttft_ns, tpot_ns = slo.limits_ns
    kinds = tuple(
        ServiceClass(kind.name, bulk=True)
        if instance.names_classes and kind.bulk
        else ServiceClass(kind.name, bulk=False, ttft_ns=ttft_ns, tpot_ns=tpot_ns)
        for kind in instance.classes
    )
    return instance.replace(classes=kinds)


def attainment_of(results: dict[str, Any], name: str) -> float:
    """Return the attainment of a class, as ``Result.attainment`` does."""
    classes = results.get("classes") or {}
    if name not in classes:
        raise InputError(
            f"{name!r} is not a class of the results",
            field="class",
            remedy=known_names(name, classes)
            if classes
            else "name classes with limits: instance.with_classes('interactive:ttft=1,tpot=0.05')",
        )
    slo = classes[name]["slo"]
    if slo is None:
        raise InputError(
            f"the class {name!r} has no limits, so nothing can be attained",
            field="class",
            remedy=f"give it some: instance.with_classes('{name}:ttft=1,tpot=0.05')",
        )
    if slo["attainment"] is None:
        raise InputError(
            f"no request is of the class {name!r}",
            field="class",
            remedy="name a class that has requests",
        )
    attained: float = slo["attainment"]
    return attained


class Limits(NamedTuple):
    """Limits on TTFT and TPOT in nanoseconds, None where there is none."""

    ttft_ns: int | None
    tpot_ns: int | None


def class_figures(
    line: Timeline, first: IntColumn, finish: IntColumn, slo_ns: GivenLimits | None = None
) -> dict[str, Any]:
    """Return the numbers of each class by its name under ``classes``; nothing without classes.

    ``first`` and ``finish`` are when requests have their first and last tokens, ``slo_ns`` limits
    in the place of those of the class ``interactive``. ``slo`` counts requests within the limits on
    TTFT and (mean) TPOT as ``attained``, those whose every token is in time as ``in_time``, and
    tokens in time (``token_times``); without a limit on TTFT the first token is in time and the
    others count from it. ``tokens_per_s`` are prompt and output tokens of the class until its last
    finish, ``recomputed_tokens`` those that a stay prefills though an earlier one of the request
    had them, ``hit_rate`` the share of what stays needed that prefix caches held.
    """
    instance = line.instance
    if not instance.names_classes:
        return {}
    limits = class_limits(instance, slo_ns)
    timely = _tokens_in_time(line, first, limits)
    hit, needed, recomputed = _reuse(line)
    figures = {}
    for code, kind in enumerate(instance.classes):
        rows = np.flatnonzero(instance.requests.service_class == code)
        refused = (*instance.refused, *[0] * len(instance.classes))[code]
        view = _Class(line, rows, first[rows], finish[rows], refused)
        figures[kind.name] = {
            **view.latencies(),
            "slo": view.attainment(limits[code], timely[rows]),
            "deadline": view.deadlines(),
            **view.throughput(),
            "recomputed_tokens": exact_sum(recomputed[rows]),
            "hit_tokens": exact_sum(hit[rows]),
            "hit_rate": ratio(exact_sum(hit[rows]), exact_sum(needed[rows])),
        }
    return {"classes": figures}


def class_limits(instance: Instance, slo_ns: GivenLimits | None = None) -> list[Limits]:
    """Return each class's limits on TTFT and TPOT; ``slo_ns`` replaces those of ``interactive``."""
    found = [Limits(kind.ttft_ns, kind.tpot_ns) for kind in instance.classes]
    for code, kind in enumerate(instance.classes):
        if slo_ns is not None and kind.name == "interactive":
            found[code] = Limits(*slo_ns)
    return found


class _Class(NamedTuple):
    """The requests of a class, by row, with their first and last tokens."""

    line: Timeline
    rows: IntColumn
    first: IntColumn
    finish: IntColumn
    refused: int

    def latencies(self) -> dict[str, Any]:
        requests = self.line.instance.requests
        arrival = requests.arrival_ns[self.rows]
        several = requests.output_tokens[self.rows] >= 2
        return {
            "requests": len(self.rows),
            **({"refused": self.refused} if self.refused else {}),
            "ttft_ns": distribution(self.first - arrival),
            "tpot_ns": distribution(self._pace()[several]),
            "jct_ns": distribution(self.finish - arrival),
        }

    def _pace(self) -> IntColumn:
        outputs = self.line.instance.requests.output_tokens[self.rows]
        pace: IntColumn = (self.finish - self.first) // np.maximum(outputs - 1, 1)
        return pace

    def attainment(self, limits: Limits, timely: IntColumn) -> dict[str, Any] | None:
        """Return the attainment of the limits on tokens; None without any."""
        if limits == (None, None):
            return None
        requests = self.line.instance.requests
        met = np.ones(len(self.rows), bool)
        if limits.ttft_ns is not None:
            met &= self.first - requests.arrival_ns[self.rows] <= limits.ttft_ns
        outputs = requests.output_tokens[self.rows]
        if limits.tpot_ns is not None:
            met &= (outputs < 2) | (self._pace() <= limits.tpot_ns)
        attained, in_time = int(met.sum()), int((timely == outputs).sum())
        asked = len(met) + self.refused
        return {
            **limits._asdict(),
            "attained": attained,
            "attainment": ratio(attained, asked),
            "in_time": in_time,
            "in_time_share": ratio(in_time, asked),
            "tokens_in_time": exact_sum(timely),
            "token_attainment": ratio(exact_sum(timely), exact_sum(outputs)),
        }

    def deadlines(self) -> dict[str, Any] | None:
        """Return how many requests with a deadline meet it; None where no request has one."""
        instance = self.line.instance
        if instance.deadlines_ns is None:
            return None
        limits = instance.deadlines_ns[self.rows]
        given = limits >= 0
        if not given.any():
            return None
        took = self.finish - instance.requests.arrival_ns[self.rows]
        met = int((given & (took <= limits)).sum())
        return {
            "requests": int(given.sum()),
            "met": met,
            "attainment": ratio(met, int(given.sum())),
        }

    def throughput(self) -> dict[str, Any]:
        requests = self.line.instance.requests
        prompt = exact_sum(requests.prompt_tokens[self.rows])
        output = exact_sum(requests.output_tokens[self.rows])
        end = int(self.finish.max(initial=0))
        return {
            "prompt_tokens": prompt,
            "output_tokens": output,
            "end_ns": end,
            "tokens_per_s": ratio((prompt + output) * NS_PER_S, end),
            "output_tokens_per_s": ratio(output * NS_PER_S, end),
        }


def token_limits(line: Timeline, first: IntColumn, limits: list[Limits]) -> TokenLimits:
    """Return until when the tokens of each request are in time, by its class, if that has any."""
    codes = line.instance.requests.service_class
    judged = np.array([limit != (None, None) for limit in limits])[codes]
    from_arrival = np.array([limit.ttft_ns is not None for limit in limits])[codes]
    ttft = np.array([limit.ttft_ns or 0 for limit in limits], np.int64)[codes]
    start = np.where(from_arrival, line.instance.requests.arrival_ns + ttft, first)
    paces = [-1 if limit.tpot_ns is None else limit.tpot_ns for limit in limits]
    return TokenLimits(judged, start, np.array(paces, np.int64)[codes])


def _tokens_in_time(line: Timeline, first: IntColumn, limits: list[Limits]) -> IntColumn:
    """Tokens in time of each request; 0 where its class has no limits."""
    found = token_limits(line, first, limits)
    if not found.judged.any():
        return np.zeros(len(line.instance), np.int64)
    return tokens_in_time(line, found)


def _reuse(line: Timeline) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Tokens by request: found in prefix caches, needed in all stays, and prefilled once more."""
    sums = []
    for values in (line.stay_hit, line.stay_hit + line.prefilled, line.recomputed):
        column = np.zeros(len(line.instance), np.int64)
        np.add.at(column, line.stay_request, values)
        sums.append(column)
    return sums[0], sums[1], sums[2]


def worker_figures(instance: Instance, schedule: Scheduled) -> list[dict[str, Any]]:
    """Return a row for each worker, in order: its name, and six figures.

    ``requests``: those that it served for some time. ``busy``: the share of the makespan in which
    it runs steps. ``prefilled_tokens``: those that it computed. ``hit_rate``: the share of tokens
    that its stays found in its prefix cache, None without one. A request waits in the queue of the
    worker that serves it first, from its arrival to its first step: ``queue_mean`` is the number
    that wait, over the makespan, ``queue_max`` the largest.
    """
    schedule = as_schedule(schedule)
    line = Timeline(served_instance(instance, [schedule]), schedule)
    workers, makespan = line.instance.workers, int(line.end_ns.max(initial=0))
    busy = np.diff(line.time_before[line.heads()]).tolist()
    pairs = np.unique(np.stack([line.stay_worker, line.stay_request]), axis=1)[0]
    served = np.bincount(pairs, minlength=len(workers)).tolist()
    hit, computed = np.zeros((2, len(workers)), np.int64)
    np.add.at(hit, line.stay_worker, line.stay_hit)
    np.add.at(computed, line.stay_worker, line.prefilled)
    rows = np.flatnonzero(changes(line.request))
    arrival = line.instance.requests.arrival_ns[line.request[rows]]
    begin, first = line.start_ns[line.first[rows]], line.row_worker[rows]
    found = []
    for index, worker in enumerate(workers):
        own = (first == index) & (begin > arrival)
        came, left = np.sort(arrival[own]), np.sort(begin[own])
        waiting = np.searchsorted(came, came, "right") - np.searchsorted(left, came, "right")
        cached, made = int(hit[index]), int(computed[index])
        found.append({
            "worker": worker.name,
            "requests": served[index],
            "busy": ratio(busy[index], makespan),
            "prefilled_tokens": made,
            "hit_rate": ratio(cached, cached + made) if worker.caches_prefixes else None,
            "queue_mean": ratio(int((left - came).sum()), makespan),
            "queue_max": int(waiting.max(initial=0)),
        })  # fmt: skip
    return found


def imbalance(rows: list[dict[str, Any]]) -> float | None:
    """Return the busy time of the busiest worker over the mean: 1 where all are equally busy."""
    total = sum(row["busy"] or 0 for row in rows)
    return max(row["busy"] or 0 for row in rows) * len(rows) / total if total else None


def extremes(rows: list[dict[str, Any]], most: int = 16) -> list[dict[str, Any]]:
    """Return rows as they are, of more than ``most`` the busiest and then the least busy ones."""
    if len(rows) <= most:
        return rows
    ordered = sorted(rows, key=lambda row: -(row["busy"] or 0))
    return ordered[: most // 2] + ordered[-most // 2 :]
