"""What classes and tenants get over time: attainment, memory, hits, bulk tokens, service."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.data.schedule import Work
from orsched.metrics.cache_use import cache_use
from orsched.metrics.class_metrics import class_limits, token_limits
from orsched.metrics.request_times import first_tokens_ns
from orsched.metrics.tenant_service import TenantService
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import judged_tokens, token_times
from orsched.views.curves import block_curves, curve_of, means, sum_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.curves import Curve

    Values = NDArray[np.float64]

STRETCHES = 96
"""Stretches of equal time that a figure is given for."""


class ClassCurves(NamedTuple):
    """Figures by stretch of time; nan where there is none.

    Attributes:
        borders_ns: ends of the stretches.
        attainment: share of the tokens of classes with limits that come in time; None without.
        owners: name and blocks held, on average, of each owner of memory; empty without memory.
        blocks: blocks that there are.
        hits: share of the tokens due at admissions that a prefix cache held; None without one.
        bulk: tokens of bulk requests per second, prefilled and decoded; None without such.
        service: name and weighted tokens until the end of each stretch of each tenant.
    """

    borders_ns: Values
    attainment: Values | None
    owners: list[tuple[str, Values]]
    blocks: int
    hits: Values | None
    bulk: Values | None
    service: list[tuple[str, Values]]


def tells_classes_apart(instance: Instance) -> bool:
    """Whether some requests are bulk and others are not."""
    return bool(instance.bulk.any() and not instance.bulk.all())


def has_class_curves(instance: Instance) -> bool:
    """Whether the instance names classes or tenants, so that there is something to show."""
    return instance.names_classes or instance.requests.tenant is not None


def class_curves(instance: Instance, schedule: Schedule) -> ClassCurves:
    """Return the figures of a complete schedule over time."""
    line = Timeline(instance, schedule)
    borders = np.linspace(0, max(schedule.makespan_ns, 1), STRETCHES + 1)
    owners, blocks = memory_by_owner(instance, schedule, line, borders)
    return ClassCurves(
        borders,
        _attainment(line, borders),
        owners,
        blocks,
        _hits(line, borders),
        _bulk(line, borders) if instance.bulk.any() else None,
        _service(line, borders),
    )


def _counts(times: IntColumn, borders: Values, weights: IntColumn | None = None) -> Values:
    """Sum of the weights (default 1) of what happens in each stretch, its end included."""
    place = np.clip(np.searchsorted(borders, times) - 1, 0, len(borders) - 2)
    return np.bincount(place, weights, len(borders) - 1).astype(np.float64)


def _share(part: Values, whole: Values) -> Values:
    found: Values = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return found


def _attainment(line: Timeline, borders: Values) -> Values | None:
    slo = line.schedule.results.get("slo") or {}
    given = (slo["ttft_ns"], slo["tpot_ns"]) if slo else None
    limits = token_limits(line, first_tokens_ns(line), class_limits(line.instance, given))
    if not limits.judged.any():
        return None
    met, every = np.zeros(len(borders) - 1), np.zeros(len(borders) - 1)
    for _, time, in_time in judged_tokens(line, limits):
        every += _counts(time, borders)
        met += _counts(time[in_time], borders)
    return _share(met, every)


def memory_by_owner(
    instance: Instance, schedule: Schedule, line: Timeline, borders: Values
) -> tuple[list[tuple[str, Values]], int]:
    """Blocks held by running requests that are not bulk, by bulk ones, and by nobody but cached.

    Shared blocks are those of the class that referred to them first.
    """
    limited = [worker.memory for worker in instance.workers if worker.memory is not None]
    blocks = sum(memory.blocks for memory in limited)
    if not limited:
        return [], 0
    parts = {"running": line}
    if tells_classes_apart(instance):
        parts = {"interactive": _only(line, ~instance.bulk), "bulk": _only(line, instance.bulk)}
    shares = [worker.caches_prefixes for worker in instance.workers]
    owners: dict[str, list[Curve]] = {name: [] for name in (*parts, "cached")}
    if not all(shares):
        for name, part in parts.items():
            curves = zip(block_curves(instance, part), shares, strict=True)
            owners[name] += [curve for curve, sharing in curves if curve and not sharing]
    if instance.caches_prefixes:
        for name, more in _of_caches(instance, schedule, line).items():
            owners[name] += more
    found = {name: means(sum_of(curves), borders) for name, curves in owners.items() if curves}
    return [(name, values) for name, values in found.items() if values.any()], blocks


def _only(line: Timeline, mine: NDArray[np.bool_]) -> Timeline:
    """Return the timeline of some requests alone, in the steps of all."""
    work = line.schedule.work
    kept = mine[work.request]
    columns = {each.name: getattr(work, each.name)[kept] for each in fields(work)}
    return Timeline(line.instance, line.schedule.replace(work=Work(**columns)))


def _of_caches(instance: Instance, schedule: Schedule, line: Timeline) -> dict[str, list[Curve]]:
    """Return blocks of the workers with prefix caches by owner, a curve a worker."""
    bulk = np.array([kind.bulk for kind in instance.classes])
    apart = tells_classes_apart(instance)
    found: dict[str, list[Curve]] = {}
    for use in cache_use(instance, schedule, line):
        parts = {"cached": use.cached.sum(axis=0)}
        if apart:
            parts["interactive"] = use.running[~bulk].sum(axis=0)
            parts["bulk"] = use.running[bulk].sum(axis=0)
        else:
            parts["running"] = use.running.sum(axis=0)
        for name, values in parts.items():
            found.setdefault(name, []).append(curve_of(use.time_ns, np.diff(values, prepend=0)))
    return found


def _hits(line: Timeline, borders: Values) -> Values | None:
    if not line.instance.caches_prefixes:
        return None
    hit, start = line.stay_hit, line.start_ns[line.stay_first]
    needed = hit + line.prefilled
    return _share(_counts(start, borders, hit), _counts(start, borders, needed))


def _bulk(line: Timeline, borders: Values) -> Values:
    bulk = line.instance.bulk
    rows = line.prefills[bulk[line.request[line.prefills]]]
    total = _counts(line.end_ns[line.last[rows]], borders, line.tokens[rows])
    for _, _, time in token_times(line, bulk):
        total += _counts(time, borders)
    return total * NS_PER_S / np.diff(borders)


def _service(line: Timeline, borders: Values) -> list[tuple[str, Values]]:
    requests = line.instance.requests
    if requests.tenant is None or len(requests) == 0:
        return []
    found = TenantService(line)
    place = np.searchsorted(found.times_ns, borders[1:], side="right") - 1
    return [
        (requests.tenant_name(tenant), row[place].astype(np.float64))
        for tenant, row in zip(found.tenants, found.service, strict=True)
    ]
