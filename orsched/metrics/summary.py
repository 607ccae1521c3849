"""Metrics: the reported numbers of a schedule, exact in integers until the last division."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import exact_sum
from orsched.common.units import NS_PER_S
from orsched.data.links import Transfers
from orsched.data.schedule import MIXED, PREFILL, as_schedule, served_instance
from orsched.data.service_classes import SLO as SLO  # noqa: TC001
from orsched.data.workers import time_within
from orsched.metrics.class_metrics import OUTPUT_WEIGHT, PROMPT_WEIGHT, TenantService, class_figures
from orsched.metrics.flat_figures import PERCENTILES as PERCENTILES
from orsched.metrics.flat_figures import distribution as distribution
from orsched.metrics.flat_figures import ratio
from orsched.metrics.objective_values import due_figures
from orsched.metrics.run_limits import Latencies, overloaded
from orsched.metrics.timeline import Timeline
from orsched.metrics.timeline_rows import exact_product
from orsched.metrics.token_times import (
    TokenGaps,
    begins_ns,
    finishes_ns,
    first_rounds_ns,
    first_tokens_ns,
)

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Scheduled


def client_time(line: Timeline) -> tuple[int, dict[str, int]]:
    """Split clients x makespan into busy time and bubbles by cause, in client-nanoseconds.

    Returns (busy, {waiting_for_prefill, other_prefill, no_request, tail, invalid}); they add up to
    clients x makespan exactly. A client that holds a request is busy in the steps that prefill it
    or yield one of its tokens; rounds after its last token are ``invalid``; the other steps of the
    worker, prefills of others and rounds without it, are ``other_prefill``. A free client waits for
    prefill while the worker is at work; while it is not, a client has no request to serve. After
    its last request a client is in the tail.
    """
    total = sum(w.clients for w in line.instance.workers) * int(line.end_ns.max(initial=0))
    invalid = exact_sum(line.row_time_ns[line.invalids])
    busy = exact_sum(line.row_time_ns) - invalid
    begin, end = line.visits
    first, last = line.first[begin], line.last[end]
    held = exact_sum(line.end_ns[last] - line.start_ns[first])
    steps = exact_sum(line.time_before[last + 1] - line.time_before[first])
    # Before each visit: the time since its client's last one, or since the start.
    client, worker = line.client[begin], line.row_worker[begin]
    follows = np.zeros(len(begin), bool)
    follows[1:] = (client[1:] == client[:-1]) & (worker[1:] == worker[:-1])
    later = np.flatnonzero(follows)
    free_from, ran_before = np.zeros(len(begin), np.int64), line.time_before[line.heads()[worker]]
    free_from[later] = line.end_ns[last[later - 1]]
    ran_before[later] = line.time_before[last[later - 1] + 1]
    gaps = exact_sum(line.start_ns[first] - free_from)
    waiting = exact_sum(line.time_before[first] - ran_before)
    return busy, {
        "waiting_for_prefill": waiting,
        "other_prefill": steps - busy - invalid,
        "no_request": (held - steps) + (gaps - waiting),
        "tail": total - held - gaps,
        "invalid": invalid,
    }


def tenant_figures(line: Timeline, first: IntColumn, finish: IntColumn) -> dict[str, Any]:
    """Return the numbers of each tenant under ``tenants``, and ``fairness``; nothing without them.
    ``service_difference`` is the largest difference between the service that two tenants get while
    requests of both wait (Sheng et al., OSDI 2024, definition 1): prompt tokens count
    ``prompt_weight``, output tokens ``output_weight``. ``between`` names the two, ``compared`` is
    how many tenants, those with most tokens, were compared."""
    requests = line.instance.requests
    if requests.tenant is None:
        return {}
    numbers, place, count = np.unique(requests.tenant, return_inverse=True, return_counts=True)
    columns = {
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": requests.output_tokens,
        "ttft": first - requests.arrival_ns,
        "jct": finish - requests.arrival_ns,
    }
    sums = {name: _by_tenant(place, column, len(numbers)) for name, column in columns.items()}
    tenants = {}
    for i, number in enumerate(numbers.tolist()):
        many = int(count[i])
        tenants[requests.tenant_name(number)] = {
            "requests": many,
            "prompt_tokens": sums["prompt_tokens"][i],
            "output_tokens": sums["output_tokens"][i],
            "ttft_mean_ns": ratio(sums["ttft"][i], many),
            "jct_mean_ns": ratio(sums["jct"][i], many),
        }
    return {"tenants": tenants, "fairness": _fairness(line)}


def _by_tenant(place: IntColumn, column: IntColumn, tenants: int) -> list[int]:
    """Exact sums by tenant: halves of the numbers are added apart."""
    high, low = np.zeros(tenants, np.int64), np.zeros(tenants, np.int64)
    np.add.at(high, place, column >> 32)
    np.add.at(low, place, column & 0xFFFFFFFF)
    return [(h << 32) + rest for h, rest in zip(high.tolist(), low.tolist(), strict=True)]


def _fairness(line: Timeline) -> dict[str, Any]:
    service = TenantService(line)
    difference, pair = service.largest_difference()
    name = line.instance.requests.tenant_name
    return {
        "prompt_weight": PROMPT_WEIGHT,
        "output_weight": OUTPUT_WEIGHT,
        "compared": len(service.tenants),
        "service_difference": difference,
        "between": None if pair is None else [name(each) for each in pair],
    }


def fleet_figures(line: Timeline, makespan_ns: int) -> dict[str, Any]:
    """Return ``fleet`` for an instance with workers that come and go, else nothing.
    ``available_ns`` is the time that workers are available until the makespan, all together;
    ``busy_ns`` that of their steps, and ``utilization`` its share. ``lost_steps`` were in progress
    when their worker failed, for ``lost_ns`` in all, which are not busy; ``recomputed_tokens`` were
    prefilled although an earlier stay of the request had them. With autoscaling there are
    ``ordered_ns`` beside, the time from the orders of workers to their ends, and ``starts``."""
    if not line.instance.fleet_changes:
        return {}
    workers, rows = line.instance.workers, line.schedule.on_times
    if line.instance.autoscaling is None:
        available = sum(time_within(worker.available_ns, makespan_ns) for worker in workers)
        paid = {}
    else:
        available = sum(time_within(own, makespan_ns) for own in line.presence.values())
        ordered = sum(time_within([(row.ordered_ns, row.end_ns)], makespan_ns) for row in rows)
        paid = {"ordered_ns": ordered, "starts": sum(row.ordered_ns > 0 for row in rows)}
    busy, lost = exact_sum(line.end_ns - line.start_ns), line.schedule.lost_steps
    return {
        "fleet": {
            "available_ns": available,
            "busy_ns": busy,
            "utilization": ratio(busy, available),
            "lost_steps": len(lost),
            "lost_ns": sum(end - start for _, start, end in lost),
            "recomputed_tokens": exact_sum(line.recomputed),
            **paid,
        }
    }


_OF_WHOLE_RUNS = (
    "tokens_per_s",
    "ttft_ns",
    "tpot_ns",
    "itl_ns",
    "stall_ns",
    "jct_ns",
    "slo",
    "gap",
)
"""Numbers that a run has only if it was not stopped."""

OF_CLASSES = ("classes", "tenants", "fairness", "weighted_jct_ns", "tail_ns", "due")
"""Numbers that only instances with classes, tenants, weights, groups or deadlines have."""


def summarise(instance: Instance, schedule: Scheduled, slo: SLO | None = None) -> dict[str, Any]:
    """Return all reported numbers of a schedule as plain JSON values.

    Times are integer nanoseconds, means and ratios floats (one correctly rounded division of
    integers), percentiles nearest rank. A number that is not defined is None.

    ``prefill_stages`` counts steps that prefill only, ``mixed_steps`` those that also decode;
    ``decode_rounds`` are the rounds of decode and mixed steps. A request finishes when its batch
    returns it, after ``invalid_tokens`` if it was held that long. ``restarts`` are stays after a
    request's first, ``pad_tokens`` what padding adds to prefills. ``batch_size`` has the mean
    number of requests prefilled in a step that prefills any, and of those that take part in a
    round. ``kv_blocks`` has the most that a worker holds in a step, ``block_ns``, blocks
    times the durations of the steps, and the mean of that over workers with memory and makespan.
    Where a worker has a prefix cache, ``hit_tokens`` are those that stays found in it, and
    ``hit_rate`` is their share of all that stays needed before they decoded. ``recomputed_tokens``
    were prefilled although an earlier stay of the request had them.
    ``itl_ns`` is the distribution of all times between two successive tokens of a request
    (``TokenGaps``), ``stall_ns`` that of the largest of each request of two tokens or more.
    ``overloaded`` says whether the queue grows as long as requests arrive (``overloaded``).
    With weights there is ``weighted_jct_ns``: the mean JCT by weight, and the sum of weights. With
    deadlines there is ``due``: the mean tardiness by weight and the largest lateness.
    With groups there is ``tail_ns``: from the finish of nine tenths of the requests to the end.
    Where workers come and go there is ``fleet`` beside (``fleet_figures``).
    An instance with a link has ``transfers``: how many, their tokens, and the time that links were
    busy. It also has that time's share of the makespan for each worker that prefills, and the
    distribution of the times from the end of a prefill to that of its transfer.
    Where requests were refused (``Instance.refused``) there is ``refused``, and each attainment
    counts them as not attained.
    An instance that names classes has ``classes`` beside (``class_figures``), and ``slo`` counts
    its requests that are not bulk; one with tenants has ``tenants`` and ``fairness``.

    A run that ends below the bound has no gap: its worker was faster than the cost model. A run
    that was stopped has no gap, no rate and no latencies either: most requests are not done.

    >>> case = orsched.load("gate")
    >>> orsched.summarise(case, orsched.solve(case, "fcfs"))["makespan_ns"]
    357000000
    """
    schedule = as_schedule(schedule)
    instance = served_instance(instance, [schedule])
    line = Timeline(instance, schedule)
    bound_ns = None if schedule.bound is None else int(schedule.bound["value_ns"])
    results = figures(line, bound_ns, slo)
    if schedule.is_measured and schedule.is_partial:
        results |= dict.fromkeys(_OF_WHOLE_RUNS)
        results |= dict.fromkeys(name for name in OF_CLASSES if name in results)
    return results


def figures(
    line: Timeline,
    bound_ns: int | None = None,
    slo: SLO | None = None,
    first_round_ns: IntColumn | None = None,
) -> dict[str, Any]:
    """Return the numbers of ``summarise`` from a schedule's timeline; ``first_round_ns`` is for
    ``first_tokens_ns``."""
    requests, batches = line.instance.requests, line.batches
    makespan = int(line.end_ns.max(initial=0))
    busy, bubbles = client_time(line)
    output_tokens, rounds = exact_sum(requests.output_tokens), int(line.rounds_before[-1])
    if first_round_ns is None:
        first_round_ns = first_rounds_ns(line, np.arange(len(line.worker)))
    first, finish = first_tokens_ns(line, first_round_ns), finishes_ns(line)
    several = requests.output_tokens >= 2
    run = Latencies(line.instance, first, finish, TokenGaps(line))
    own = None if slo is None or slo.limits_ns == (None, None) else slo.limits_ns
    return {
        "makespan_ns": makespan,
        "busy_client_ns": busy,
        "slot_utilization": ratio(busy, busy + sum(bubbles.values())),
        "bubble_ns": bubbles,
        "prefill_stages": int((line.phase == PREFILL).sum()),
        "decode_rounds": rounds,
        "mixed_steps": int((line.phase == MIXED).sum()),
        "restarts": _restarts(line),
        **({"refused": sum(line.instance.refused)} if line.instance.refused else {}),
        "invalid_tokens": exact_sum(line.row_rounds[line.invalids]),
        "pad_tokens": exact_sum(batches.padded) - exact_sum(batches.total),
        "batch_size": {
            "prefill": ratio(len(batches.tokens), len(batches.size)),
            "decode": ratio(exact_sum(line.row_rounds), rounds),
        },
        "worker_end_ns": _worker_ends(line),
        "kv_blocks": _kv_blocks(line, makespan),
        "prompt_tokens": exact_sum(requests.prompt_tokens),
        "output_tokens": output_tokens,
        "tokens_per_s": ratio(output_tokens * NS_PER_S, makespan),
        "ttft_ns": distribution(first - requests.arrival_ns),
        "tpot_ns": distribution(run.pace[several]),
        "itl_ns": distribution(*run.gaps.spread()),
        "stall_ns": distribution(run.gaps.largest()[several]),
        "overloaded": overloaded(requests.arrival_ns, begins_ns(line)),
        "jct_ns": distribution(finish - requests.arrival_ns),
        **_weighted(requests.weights, finish - requests.arrival_ns),
        **due_figures(line.instance, finish),
        **({} if requests.group is None else {"tail_ns": _tail(finish, makespan)}),
        "slo": None if slo is None else _attainment(run, slo, makespan),
        "bound_ns": bound_ns,
        "gap": gap(makespan, bound_ns),
        **_cache_figures(line),
        **fleet_figures(line, makespan),
        **_transfer_figures(line, makespan),
        **class_figures(line, first, finish, own),
        **tenant_figures(line, first, finish),
    }


def _refused(instance: Instance) -> int:
    """Refused requests of those that limits are for, which attain none: all but bulk ones."""
    kinds = zip(instance.classes, instance.refused, strict=False)
    return sum(many for kind, many in kinds if not (instance.names_classes and kind.bulk))


def gap(makespan_ns: int, bound_ns: int | None) -> float | None:
    """Return (makespan - bound) / bound; None without a bound, and for what ends before it."""
    if bound_ns is None or makespan_ns < bound_ns:
        return None
    return ratio(makespan_ns - bound_ns, bound_ns)


def _restarts(line: Timeline) -> int:
    again = line.stay[line.stay_row] >= 1
    if line.schedule.transfers is not None:
        again &= ~line.handovers.comes
    return int(again.sum())


def _transfer_figures(line: Timeline, makespan_ns: int) -> dict[str, Any]:
    """What went over links; nothing for an instance without them."""
    if line.instance.link is None:
        return {}
    sent = line.schedule.transfers or Transfers.none()
    senders = sum(worker.prefills for worker in line.instance.workers)
    busy = exact_sum(sent.end_ns) - exact_sum(sent.start_ns)
    took = line.handovers.took_ns if len(sent) else sent.end_ns
    return {
        "transfers": {
            "count": len(sent),
            "tokens": exact_sum(sent.tokens),
            "link_ns": busy,
            "utilization": ratio(busy, senders * makespan_ns),
            "handover_ns": distribution(took),
        }
    }


def _worker_ends(line: Timeline) -> dict[str, Any]:
    """Minimum, maximum and population standard deviation of the workers' last ends."""
    heads = line.heads().tolist()
    ends = [int(line.end_ns[high - 1]) if high > low else 0 for low, high in pairwise(heads)]
    n = len(ends)
    spread = math.sqrt(n * sum(end * end for end in ends) - sum(ends) ** 2) / n
    return {"min": min(ends), "max": max(ends), "std": spread}


def _kv_blocks(line: Timeline, makespan_ns: int) -> dict[str, Any] | None:
    """Peak, mean and sum over time of the blocks held; None without memory models."""
    workers = sum(worker.memory is not None for worker in line.instance.workers)
    if workers == 0:
        return None
    held = line.caches.blocks
    block_ns = exact_product(held, line.end_ns - line.start_ns)
    return {
        "peak": int(held.max(initial=0)),
        "mean": ratio(block_ns, workers * makespan_ns),
        "block_ns": block_ns,
    }


def _cache_figures(line: Timeline) -> dict[str, Any]:
    """What prefix caches saved; nothing for an instance without one."""
    if not line.instance.caches_prefixes:
        return {}
    hit, computed = exact_sum(line.stay_hit), exact_sum(line.prefilled)
    return {
        "hit_tokens": hit,
        "hit_rate": ratio(hit, hit + computed),
        "recomputed_tokens": exact_sum(line.recomputed),
    }


def _weighted(weights: IntColumn | None, jct_ns: IntColumn) -> dict[str, Any]:
    """Return the weighted mean JCT and the sum of weights; nothing where all count the same."""
    if weights is None:
        return {}
    total = exact_sum(weights)
    mean = ratio(exact_product(weights, jct_ns), total)
    return {"weighted_jct_ns": {"mean": mean, "weight": total}}


def _tail(finish: IntColumn, makespan_ns: int) -> int:
    """Return the time of the last tenth of requests: all that follows their 90th percentile."""
    spread = distribution(finish)
    return 0 if spread is None else makespan_ns - int(spread["p90"])


def _attainment(run: Latencies, slo: SLO, makespan_ns: int) -> dict[str, Any]:
    """Requests within the limits on each, an undefined TPOT counting as met, and the figures that
    are limited; without a limit on each request their number is None."""
    requests = run.instance.requests
    judged = ~run.instance.bulk if run.instance.names_classes else np.ones(len(run.instance), bool)
    met, refused = judged.copy(), _refused(run.instance)
    if slo.ttft_ns is not None:
        met &= run.first_ns - requests.arrival_ns <= slo.ttft_ns
    if slo.tpot_ns is not None:
        met &= (requests.output_tokens < 2) | (run.pace <= slo.tpot_ns)
    attained = None if slo.limits_ns == (None, None) else int(met.sum())
    return {
        "ttft_ns": slo.ttft_ns,
        "tpot_ns": slo.tpot_ns,
        "attained": attained,
        "attainment": None if attained is None else ratio(attained, int(judged.sum()) + refused),
        "goodput_per_s": None if attained is None else ratio(attained * NS_PER_S, makespan_ns),
        **run.held_against(slo, judged, refused),
    }
