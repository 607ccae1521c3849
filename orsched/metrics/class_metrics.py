"""Metrics by service class: latencies, attainment of limits, throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import exact_sum
from orsched.common.units import NS_PER_S
from orsched.metrics.distributions import distribution, ratio
from orsched.metrics.token_times import TokenLimits, tokens_in_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.slo import Limits as GivenLimits
    from orsched.metrics.timeline import Timeline

    Mask = NDArray[np.bool_]


class Limits(NamedTuple):
    """Limits on TTFT and TPOT in nanoseconds, None where there is none."""

    ttft_ns: int | None
    tpot_ns: int | None


def class_figures(
    line: Timeline,
    first: IntColumn,
    finish: IntColumn,
    slo_ns: GivenLimits | None = None,
) -> dict[str, Any]:
    """Return the numbers of each class by its name under ``classes``; nothing without classes.

    ``first`` and ``finish`` are when requests have their first and last tokens, ``slo_ns`` limits
    that take the place of those of the class ``interactive``.

    ``slo`` counts requests within the limits on TTFT and (mean) TPOT as ``attained``, those whose
    every token is in time as ``in_time``, and tokens in time (``token_times``); without a limit
    on TTFT the first token is in time and the others count from it. ``tokens_per_s`` are prompt and
    output tokens of the class until its last finish, ``recomputed_tokens`` those that a stay
    prefills though an earlier one of the request had them, ``hit_rate`` the share of what stays
    needed that prefix caches held.
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
    """Return the limits on TTFT and TPOT of each class.

    ``slo_ns`` takes the place of those of ``interactive``.
    """
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
    """Return until when the tokens of each request are in time, by the limits of its class.

    Requests of classes without limits are not judged.
    """
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
