"""Charts over time as data: clients, requests, memory and classes, as lines that others draw."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.data.schedule import Work
from orsched.metrics.cache_use import cache_use
from orsched.metrics.class_metrics import TenantService, class_limits, token_limits
from orsched.metrics.timeline import Timeline
from orsched.metrics.timeline_rows import covered_sum
from orsched.metrics.token_times import first_tokens_ns, judged_tokens, token_times
from orsched.views import style
from orsched.views.spans import tells_classes_apart
from orsched.views.style import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

    Values = NDArray[np.float64]

STRETCHES = 240
"""Stretches of time of a chart at most; with more changes each stretch shows its mean."""

LOAD_STRETCHES = 400
"""The same where several schedules are compared."""

CLASS_STRETCHES = 96
"""Stretches of equal time that what classes get is given for."""

MAX_WORKERS = 8
"""With more workers their blocks are added up."""


class Line(NamedTuple):
    """A line or an area of a chart: the mean of each stretch of time, nan where there is none.

    ``key`` is its name among the elements of a picture, ``dash`` is named as in Plotly, ``width``
    is in points. ``form`` is ``line``, ``area`` (stacked on those before) or ``sum``: what has come
    until the end of each stretch. ``told`` are the words where it is named alone; "": the same.
    """

    key: str
    words: str
    colour: str
    values: Values
    dash: str = "solid"
    width: float = 1.6
    form: str = "line"
    told: str = ""
    hatched: bool = False


class Limit(NamedTuple):
    """A level across a panel; the line alone without ``words``, in the text's colour by default."""

    key: str
    words: str
    value: int
    colour: str | None = None


class Panel(NamedTuple):
    """Lines on one axis of time, whose stretches end at ``borders_ns``, and levels across them.

    ``title`` is that of the other axis; ``unit`` is said below it where there is room.
    """

    title: str
    borders_ns: Values
    lines: list[Line]
    limits: Sequence[Limit] = ()
    unit: str = ""
    is_share: bool = False


class Curve(NamedTuple):
    """A step function of rising times: ``value[k]`` holds from ``time_ns[k]`` on, 0 before."""

    time_ns: IntColumn
    value: IntColumn


def curve_of(moments: IntColumn, changes: IntColumn) -> Curve:
    """Return the running sum of changes at moments, in any order."""
    times, place = np.unique(moments, return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, place, changes)
    kept = change != 0
    return Curve(times[kept], np.cumsum(change)[kept])


def interval_curve(start_ns: IntColumn, end_ns: IntColumn, weight: IntColumn | int = 1) -> Curve:
    """Return the weight of all intervals that hold each moment."""
    weights = np.broadcast_to(np.asarray(weight, np.int64), start_ns.shape)
    return curve_of(np.concatenate([start_ns, end_ns]), np.concatenate([weights, -weights]))


def sum_of(curves: Sequence[Curve]) -> Curve:
    """Return the sum of step functions."""
    empty = np.empty(0, np.int64)
    moments = np.concatenate([empty, *(curve.time_ns for curve in curves)])
    changes = np.concatenate([empty, *(np.diff(curve.value, prepend=0) for curve in curves)])
    return curve_of(moments, changes)


def means(curve: Curve, borders_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean between each two of some rising moments, from 0 on."""
    if len(curve.time_ns) == 0:
        return np.zeros(len(borders_ns) - 1)
    times = np.concatenate([[0], curve.time_ns, [max(borders_ns[-1], curve.time_ns[-1])]])
    values = np.concatenate([[0], curve.value]).astype(np.float64)
    areas = np.concatenate([[0.0], np.cumsum(np.diff(times) * values)])
    until = np.interp(borders_ns, times.astype(np.float64), areas)
    found: NDArray[np.float64] = np.diff(until) / np.maximum(np.diff(borders_ns), 1e-9)
    return found


def client_curves(line: Timeline) -> dict[str, Curve]:
    """Return how many clients are in each of ``style.USES``, over all workers.

    ``paused`` ones hold a request that the worker's step, if there is one, does not serve.
    """
    caches = line.caches
    counts = {
        "prefill": line.by_place(line.batches.size),
        "decode": caches.decoding,
        "invalid": caches.active - caches.decoding,
    }
    curves = {
        name: interval_curve(line.start_ns, line.end_ns, count) for name, count in counts.items()
    }
    served = sum_of(list(curves.values()))
    held = interval_curve(line.start_ns[line.stay_first], line.end_ns[line.stay_last])
    curves["paused"] = sum_of([held, Curve(served.time_ns, -served.value)])
    return curves


def block_curves(line: Timeline) -> list[Curve | None]:
    """Return the KV blocks held on each worker; None for those without a memory model.

    Blocks that are set aside are held from the prefill's start to the end of the stay; paged ones
    are those after a step's last round, and stay while the worker has a request and no step.
    """
    instance, request = line.instance, line.stay_request
    table = instance.requests
    tokens = table.prompt_tokens[request] + table.output_tokens[request]
    paged = any(w.memory is not None and w.memory.is_paged for w in instance.workers)
    blocks = line.caches.blocks if paged else np.empty(0, np.int64)
    curves: list[Curve | None] = []
    for index, worker in enumerate(instance.workers):
        if worker.memory is None:
            curves.append(None)
        elif worker.memory.is_paged:
            curves.append(_paged_curve(line, blocks, index))
        else:
            mine = np.flatnonzero(line.stay_worker == index)
            start, end = line.start_ns[line.stay_first[mine]], line.end_ns[line.stay_last[mine]]
            held = -(-tokens[mine] // worker.memory.block_tokens)
            curves.append(interval_curve(start, end, held))
    return curves


def _paged_curve(line: Timeline, blocks: IntColumn, worker: int) -> Curve:
    """Blocks in each step of a worker; none from the end of a step after which no request stays."""
    low, high = np.searchsorted(line.worker, [worker, worker + 1])
    places = np.arange(low, high)
    stays = np.flatnonzero(line.stay_worker == worker)
    first, last = line.stay_first[stays] - low, line.stay_last[stays] - low
    empty = places[covered_sum(len(places), first, last - 1) == 0]
    moments = np.concatenate([line.start_ns[places], line.end_ns[empty]])
    value = np.concatenate([blocks[places], np.zeros_like(empty)])
    # At one moment the later step counts; a step follows the end of the one before.
    order = np.lexsort((np.concatenate([2 * places, 2 * empty + 1]), moments))
    return curve_of(moments[order], np.diff(value[order], prepend=0))


def load_curves(line: Timeline) -> dict[str, Curve]:
    """Return how many requests are ``running``, on a client, and ``waiting`` for one, at each time.

    A request waits from its arrival, and after a stay that it does not finish in, until the next.
    """
    begin, end = line.start_ns[line.stay_first], line.end_ns[line.stay_last]
    follows = line.stay_request[1:] == line.stay_request[:-1]
    # A cache may be on its way already while the first worker still holds the request.
    again = np.minimum(end[:-1], begin[1:])[follows]
    last = np.append(~follows, True)[: len(end)]
    left = end[last & line.stay_evicted & (end < line.schedule.makespan_ns)]  # of a stopped run
    joins = np.concatenate([line.instance.requests.arrival_ns, again, left])
    changes = np.repeat([1, -1], [len(joins), len(begin)])
    return {
        "running": interval_curve(begin, end),
        "waiting": curve_of(np.concatenate([joins, begin]), changes),
    }


class ClassCurves(NamedTuple):
    """Figures by stretch of time; nan where there is none.

    Shares of the tokens of classes with limits that come in time (``attainment``), and of those due
    at admissions that a prefix cache held (``hits``); name and mean blocks of each owner of memory,
    of ``blocks``; tokens of bulk requests per second, prefilled and decoded; name and weighted
    tokens so far of each tenant. None or empty without such.
    """

    borders_ns: Values
    attainment: Values | None
    owners: list[tuple[str, Values]]
    blocks: int
    hits: Values | None
    bulk: Values | None
    service: list[tuple[str, Values]]


def has_class_curves(instance: Instance) -> bool:
    """Whether the instance names classes or tenants, so that there is something to show."""
    return instance.names_classes or instance.requests.tenant is not None


def class_curves(line: Timeline) -> ClassCurves:
    """Return the figures of a complete schedule over time."""
    borders = np.linspace(0, max(line.schedule.makespan_ns, 1), CLASS_STRETCHES + 1)
    owners, blocks = memory_by_owner(line, borders)
    return ClassCurves(
        borders,
        _attainment(line, borders),
        owners,
        blocks,
        _hits(line, borders),
        _bulk(line, borders) if line.instance.bulk.any() else None,
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
    given = (slo["ttft_ns"], slo["tpot_ns"]) if slo.get("attained") is not None else None
    limits = token_limits(line, first_tokens_ns(line), class_limits(line.instance, given))
    if not limits.judged.any():
        return None
    met, every = np.zeros(len(borders) - 1), np.zeros(len(borders) - 1)
    for _, time, in_time in judged_tokens(line, limits):
        every += _counts(time, borders)
        met += _counts(time[in_time], borders)
    return _share(met, every)


def memory_by_owner(line: Timeline, borders: Values) -> tuple[list[tuple[str, Values]], int]:
    """Blocks held by running requests that are not bulk, by bulk ones, and in the cache alone.

    Shared blocks are those of the class that referred to them first.
    """
    instance = line.instance
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
            curves = zip(block_curves(part), shares, strict=True)
            owners[name] += [curve for curve, sharing in curves if curve and not sharing]
    if instance.caches_prefixes:
        for name, more in _of_caches(line).items():
            owners[name] += more
    found = {name: means(sum_of(curves), borders) for name, curves in owners.items() if curves}
    return [(name, values) for name, values in found.items() if values.any()], blocks


def _only(line: Timeline, mine: NDArray[np.bool_]) -> Timeline:
    """Return the timeline of some requests alone, in the steps of all."""
    work = line.schedule.work
    kept = mine[work.request]
    columns = {each.name: getattr(work, each.name)[kept] for each in fields(work)}
    return Timeline(line.instance, line.schedule.replace(work=Work(**columns)))


def _of_caches(line: Timeline) -> dict[str, list[Curve]]:
    """Return blocks of the workers with prefix caches by owner, a curve a worker."""
    instance = line.instance
    bulk = np.array([kind.bulk for kind in instance.classes])
    apart = tells_classes_apart(instance)
    found: dict[str, list[Curve]] = {}
    for use in cache_use(instance, line.schedule, line):
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


def borders_of(curves: Sequence[Curve], end_ns: int, most: int) -> Values:
    """Return the moments at which any curve changes; equal stretches if there are too many."""
    moments = np.unique(np.concatenate([[0, end_ns], *(curve.time_ns for curve in curves)]))
    if len(moments) - 1 > most or len(moments) < 2:
        return np.linspace(0, max(end_ns, 1), most + 1)
    return moments.astype(np.float64)


def named_blocks(line: Timeline) -> list[tuple[str, Curve, int]]:
    """Return name, held and all blocks by worker, or of all if many; empty without memory."""
    known = [
        (worker.name, curve, worker.memory.blocks)
        for worker, curve in zip(line.instance.workers, block_curves(line), strict=True)
        if curve is not None and worker.memory is not None
    ]
    if len(known) <= MAX_WORKERS:
        return known
    total = sum_of([curve for _, curve, _ in known])
    return [(f"{len(known)} workers", total, sum(blocks for *_, blocks in known))]


def client_limit(instance: Instance) -> Limit:
    """Return the number of clients as a level."""
    clients = sum(worker.clients for worker in instance.workers)
    return Limit("clients", f"{clients:,} clients", clients)


def usage_panels(line: Timeline, *, is_page: bool = False) -> list[Panel]:
    """Return clients by use, stacked, and KV blocks of each worker if any has a memory model.

    On a page, where all panels have the same stretches, requests that wait and run are between.
    """
    clients, blocks = client_curves(line), named_blocks(line)
    requests = load_curves(line) if is_page else {}
    held = [curve for _, curve, _ in blocks]
    every = [*clients.values(), *requests.values(), *held]

    of_clients, of_blocks = (
        borders_of(every if is_page else own, line.schedule.makespan_ns, STRETCHES)
        for own in (list(clients.values()), held)
    )
    panels = [
        Panel(
            "clients", of_clients,
            [
                Line(use, word, colour, means(clients[use], of_clients), form="area")
                for use, (word, colour) in style.USES.items() if len(clients[use].time_ns)
            ],
            [client_limit(line.instance)],
        )
    ]  # fmt: skip
    if is_page:
        waits, runs = (means(requests[name], of_clients) for name in ("waiting", "running"))
        lines = [
            Line("waiting", "waiting", style.RESTART_COLOUR, waits),
            Line("running", "running", style.DECODE_COLOURS[0], runs, "dash"),
        ]
        panels.append(Panel("requests", of_clients, lines))
    if blocks:
        panels.append(Panel("KV blocks", of_blocks, *_block_lines(blocks, of_blocks)))
    return panels


def _block_lines(
    blocks: Sequence[tuple[str, Curve, int]], borders: Values
) -> tuple[list[Line], list[Limit]]:
    """Return a line for each worker, and its limit: equal ones are named once."""
    lines: list[Line] = []
    limits: list[Limit] = []
    for k, (name, curve, most) in enumerate(blocks):
        colour, told = style.WORKER_COLOURS[k % len(style.WORKER_COLOURS)], f"{name}: blocks"
        held = means(curve, borders)
        lines.append(Line(f"blocks-{k}", shortened(name, 24), colour, held, width=1.2, told=told))
        word = "" if most in {limit.value for limit in limits} else f"{most:,} blocks"
        limits.append(Limit(f"limit-{k}", word, most, colour))
    return lines, limits


def load_panels(line: Timeline) -> list[Panel]:
    """Return running and waiting requests and, if any worker has a memory model, the blocks held.

    Blocks are per cent of those of all workers; cached ones that no running request refers to are
    not among them.
    """
    curves = load_curves(line)
    borders = borders_of(list(curves.values()), line.schedule.makespan_ns, LOAD_STRETCHES)
    colours = {"running": style.DECODE_COLOURS[0], "waiting": style.STAGE_COLOUR}
    panels = [
        Panel(f"{name} requests", borders, [Line(name, "", colours[name], means(curve, borders))])
        for name, curve in curves.items()
    ]
    owners, blocks = memory_by_owner(line, borders)
    if blocks:
        held = [found for name, found in owners if name != "cached"]
        share = 100 * np.sum([np.zeros(len(borders) - 1), *held], axis=0) / blocks
        panels.append(
            Panel("KV blocks (%)", borders, [Line("blocks", "", style.BULK_COLOURS[0], share)])
        )
    return panels


def class_panels(line: Timeline) -> list[Panel]:
    """Return what classes and tenants get: those panels in which there is something to show."""
    curves = class_curves(line)
    shares = [
        Line(key, words, colour, 100 * values, dash)
        for key, words, values, colour, dash in (
            ("attainment", "tokens in time", curves.attainment, style.DECODE_COLOURS[0], "solid"),
            ("hits", "prompt tokens found in the cache", curves.hits, style.STAGE_COLOUR, "dash"),
        )
        if values is not None
    ]
    owners = [
        Line(f"owner-{name}", *style.OWNERS[name], held, form="area", hatched=name == "bulk")
        for name, held in curves.owners
    ]
    bulk_words, colour = "bulk tokens, prefilled and decoded", style.BULK_COLOURS[0]
    bulk = [] if curves.bulk is None else [Line("bulk", bulk_words, colour, curves.bulk)]
    service = [
        Line(
            f"tenant-{k}", f"tenant {shortened(name, 24)}", style.WORKER_COLOURS[k], values,
            style.DASHES[k % len(style.DASHES)], 1.4, "sum", f"tenant {name}",
        )
        for k, (name, values) in enumerate(curves.service[: len(style.WORKER_COLOURS)])
    ]  # fmt: skip
    limit = Limit("blocks", f"{curves.blocks:,} blocks", curves.blocks)
    panels = [
        Panel("share (%)", curves.borders_ns, shares, is_share=True),
        Panel("KV blocks", curves.borders_ns, owners, [limit]),
        Panel("tokens/s", curves.borders_ns, bulk),
        Panel("service", curves.borders_ns, service, unit="weighted tokens"),
    ]
    return [panel for panel in panels if panel.lines]
