"""Lower bounds on the makespan and on mean latencies, with certificates. Time splits into prefill
stages and decode rounds, since a worker does one of the two at a time. What the tokens cost is the
same in every order; what can differ is the number K of stages and the number R of rounds. Each is
bounded alone, over the requests released at or after a moment."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.context import Context
from orsched.certificates.follows import OF_ANY_ARRIVALS, loosened
from orsched.certificates.scope import (
    FOR_ALL,
    PLAIN,
    SEES_CACHES,
    Scope,
    prefills_grow,
    relaxed,
    schedules_of,
)
from orsched.checker.certificates import bound_violations
from orsched.checker.due_bounds import ATTAINMENT, DUE, IN_TIME, NEEDS_ARRIVALS
from orsched.common.columns import frame
from orsched.common.errors import InputError
from orsched.common.stop import Clock
from orsched.common.units import NS_PER_S, seconds_text
from orsched.data.instance import require_instance
from orsched.data.schedule_classes import ALLOWANCES, allowances_of
from orsched.metrics.class_metrics import request_limits
from orsched.metrics.objective_values import required_due_dates, weighted_times
from orsched.models.bounds.due_date_bounds import due_certificates
from orsched.models.bounds.in_time_bound import in_time_certificates
from orsched.models.bounds.latency_bounds import BOUNDED, latency_certificates
from orsched.models.bounds.makespan_certificates import (
    Limits,
    last_arrival,
    makespan_certificates,
    priced_certificates,
    volume_certificates,
)
from orsched.models.bounds.stages_rounds_bound import (
    SEARCH_SECONDS,
    larger,
    shared,
    stages_and_rounds,
)
from orsched.models.packing import packing_bound
from orsched.solving.objectives import other_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    import pandas as pd

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass


_LOG = logging.getLogger(__name__)
_CHEAP_SECONDS, _ALWAYS_SECONDS = 2.0, 0.1
_MEAN_SECONDS_A_ROW = 6e-5
_MOST_KEPT = 64


@dataclass(frozen=True)
class Bound:
    """A proven lower bound on an objective.

    Attributes:
        name: which bound it is.
        value_ns: the bound, in nanoseconds.
        certificate: integers that re-derive it without a solver; checked by
            ``orsched.checker.certificates``.
        reference: values that are not bounds, such as Pang's (31)-(32); never part of a gap.
    """

    name: str
    _: KW_ONLY
    value_ns: int
    certificate: dict[str, Any]
    reference: dict[str, int]

    @property
    def allows(self) -> frozenset[str]:
        """What schedules may do for which the bound holds; see ``bound``."""
        return self.schedules.features.intersection(ALLOWANCES)

    @property
    def schedules(self) -> ScheduleClass:
        """The class of schedules for which the bound holds."""
        return schedules_of(self.certificate)

    @property
    def value_s(self) -> float:
        """The bound in seconds."""
        return self.value_ns / NS_PER_S

    def to_dict(self) -> dict[str, Any]:
        """Return name, value and certificate, as they are in a schedule file."""
        return {"name": self.name, "value_ns": self.value_ns, "certificate": self.certificate}

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with one row: the bound, and the schedules for which it holds."""
        row = {"bound": self.name, "bound_s": self.value_s, "holds_for": str(self.schedules)}
        return frame({name: [value] for name, value in row.items()})

    def __repr__(self) -> str:
        least, claim = f"{seconds_text(self.value_s)} s", self.certificate
        if "missed" in claim:
            least = f"{claim['missed']} of {claim['requests']} requests miss their limits"
        return f"Bound: at least {least} ({self.name}) for {self.schedules}"


def makespan_bound(instance: Instance, allows: Iterable[str] = ()) -> Bound:
    """Return the best lower bound on the makespan that is proven without a search.

    Candidates: stages and rounds over the requests released at or after each of some moments (the
    whole instance among them), both counts together (``window_bound``) at the best of these, and
    the request that cannot end before its own arrival, prefill and rounds. Cost models without a
    floor (``orsched.Floor``) get the last arrival only: ``no_floor`` says so.

    Several equal workers: their steps, one worker after the other, are a schedule of one worker
    from a moment on, so one of them is busy for its share of the bound for one worker. Arrivals
    that ramp up and workers that are not equal: ``aggregation_bound``.

    Args:
        instance: one or several workers, equal or not.
        allows: as in ``bound``.

    Raises:
        InputError: another allowance.
        InfeasibleError: no schedule exists.
    """
    context = Context.allowing(loosened(instance), allows)
    # Unequal workers have no bound in its place.
    seconds = _CHEAP_SECONDS if context.equal else float("inf")
    limits = Limits(lambda: False, lambda: seconds, False)
    return _largest_proven(instance, _improving(context, limits))


def improving_bounds(
    instance: Instance,
    out_of_time: Callable[[], bool],
    seconds_left: Callable[[], float] = lambda: SEARCH_SECONDS,
) -> Iterator[Bound]:
    """Yield lower bounds on the makespan, each larger than the one before, cheap ones first.

    The first comes in milliseconds, whatever ``out_of_time`` says, which is asked before each
    further one. One that would take longer than ``seconds_left`` says is left out. The last ones
    come from a search for dual prices of packing the rounds, of at most ``SEARCH_SECONDS``.

    Raises:
        InfeasibleError: no schedule exists.
    """
    limits = Limits(out_of_time, seconds_left, True)
    context = Context(loosened(instance))
    return (b for b in _improving(context, limits) if _is_proven(instance, b, "makespan"))


def _improving(context: Context, limits: Limits) -> Iterator[Bound]:
    instance, cache = context.instance, _Cache.of(context)
    if len(instance) == 0:
        yield Bound("empty", value_ns=0, certificate={"bound": "empty"}, reference={})
        return
    if cache.hides:
        yield _bound(last_arrival(context))
        return
    one = len(instance.workers) == 1 and instance.link is None
    reference = pang_reference(instance) if one and context.scope.is_plain else {}
    best = -1
    for found in _all_certificates(context, cache, limits):
        if found["value_ns"] > best:
            best = found["value_ns"]
            yield _bound(cache.stated(found), reference)


def _all_certificates(context: Context, cache: _Cache, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates in no order of size; some kinds see themselves what caches share."""
    others = makespan_certificates(cache.relaxed, limits)
    best = next(others)
    yield best
    for found in chain(volume_certificates(context), others):
        best = larger(best, found)
        yield found
    if limits.search:
        yield from priced_certificates(context, best, limits)


def _bound(certificate: dict[str, Any], reference: dict[str, int] | None = None) -> Bound:
    value, reference = certificate["value_ns"], reference or {}
    return Bound(certificate["bound"], value_ns=value, certificate=certificate, reference=reference)


class _Cache(NamedTuple):
    """What prefix caches leave of an instance for bounds."""

    relaxed: Context  # the instance with prompts cut by what caches may hold
    cut: int  # tokens that are cut
    hides: bool  # whether nothing is proven but what holds for all schedules: less may take longer

    @classmethod
    def of(cls, context: Context) -> _Cache:
        """Return it; ``InfeasibleError`` where no schedule exists."""
        instance, scope = context.instance, context.scope
        instance.require_feasible(chunks=True)
        found = relaxed(instance)
        found.require_feasible(scope.chunks)
        if found is instance:
            return cls(context, 0, False)
        cut = int((instance.requests.prompt_tokens - found.requests.prompt_tokens).sum())
        return cls(Context(found, scope), cut, not prefills_grow(instance))

    def stated(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return a certificate that says what was cut."""
        hidden = self.cut and found["bound"] not in (*FOR_ALL, *SEES_CACHES)
        return found | {"cut_tokens": self.cut} if hidden else found


def bound(
    instance: Instance,
    objective: str = "makespan",
    time_limit: float | None = None,
    allows: Iterable[str] = (),
) -> Bound:
    """Return a proven lower bound on an objective; its ``name`` says which one it is.

    >>> import orsched
    >>> bound(orsched.load("gate")).value_s
    0.287

    Args:
        instance: one or several workers, equal or not. Requests that fit onto no worker are set
            aside, as ``solve`` does (``Instance.admitted``).
        objective: ``makespan``, ``mean_jct`` or ``mean_ttft``, or the names of these as figures,
            ``jct_mean`` and ``ttft_mean``, or ``weighted_jct_mean``; where requests have deadlines,
            ``weighted_tardiness_mean`` or ``lateness_max``, whose bound may be negative.
            Percentiles: ``ttft_p50``, ``ttft_p99``, ``jct_p50``, ``jct_p99``. For
            ``slo_attainment`` the bound is the share of requests that miss their limits. A bound on
            a mean is that on the sum over the requests (``sum_ns`` in the certificate) divided by
            their number, or by all weights, rounded down to whole nanoseconds.
        time_limit: seconds from the call. The cheap bounds come first, and the first is always
            computed; the best one found in time is returned. None or infinity: all of them; the
            search for dual prices, where there is one, ends after ``SEARCH_SECONDS``.
        allows: what the schedules may do for which it holds, beside whole prefills between the
            rounds, with pauses, static batches and padding: ``chunks``, ``mixed``, ``restarts``,
            and ``moves``, which are restarts on another worker.

    Raises:
        InputError: another objective or allowance, or a time limit that is not a number above 0.
        InfeasibleError: no request fits onto any worker.
    """
    require_instance(instance)
    instance = instance.admitted()
    objective = other_name(objective)
    clock = Clock(time_limit)
    context = Context.allowing(loosened(instance), allows)
    limits = Limits(clock.out, clock.left, True)
    if objective == "makespan":
        found = _improving(context, limits)
    elif objective in (*BOUNDED, *IN_TIME):
        if len(instance) and objective == ATTAINMENT:
            _require_limits(instance)
        elif len(instance) and objective in BOUNDED:
            weighted_times(instance, objective)  # refuses weights that are all 0
        found = _improving_latency_bounds(context, objective, limits)
        if instance.arrivals_follow:
            found = takewhile(lambda each: each.name in OF_ANY_ARRIVALS, found)
    elif objective in DUE:
        if len(instance):
            required_due_dates(instance, objective)
        found = _improving_due_bounds(context, objective, limits)
        if instance.arrivals_follow:
            found = takewhile(lambda each: NEEDS_ARRIVALS.isdisjoint(each.certificate), found)
    else:
        raise InputError(
            f"no bound on {objective!r}",
            field="objective",
            remedy=f"the objectives are makespan, {', '.join((*BOUNDED, *DUE, *IN_TIME))}",
        )
    return _largest_proven(instance, found, objective)


def _require_limits(instance: Instance) -> None:
    if not len(request_limits(instance, None).judged):
        kind = instance.classes[int(instance.requests.service_class[0])].name
        remedy = f"give its class one: instance.with_classes('{kind}:ttft=1')"
        problem = "no request has a limit on its TTFT or TPOT"
        raise InputError(problem, field="objective", remedy=remedy)


def _largest_proven(
    instance: Instance, found: Iterable[Bound], objective: str = "makespan"
) -> Bound:
    """Return the last of some growing bounds of which the checker says that it is proven. The first
    ones are formulas; what a search proposes might be wrong, or be beyond what is verified."""
    first, *others = found
    return next((b for b in reversed(others) if _is_proven(instance, b, objective)), first)


def _is_proven(instance: Instance, lower: Bound, objective: str) -> bool:
    """Return whether the checker finds a bound proven; a warning is logged where it does not."""
    faults = bound_violations(instance, lower.to_dict(), objective)
    if faults:
        _LOG.warning(
            "the bound %s of %d ns on the %s is left out, for it is not proven: %s",
            lower.name, lower.value_ns, objective, faults[0],
        )  # fmt: skip
    return not faults


def no_floor(instance: Instance, allows: Iterable[str] = ()) -> str | None:
    """Return why there is no bound but the last arrival, or None where there may be others."""
    scope = Scope.allowing(allows, instance)
    for worker in instance.workers:
        if scope.floor_of(worker) is None:
            kind = type(worker.cost).__name__
            plain = PLAIN.floor_of(worker) is not None
            what = f"schedules with {', '.join(scope.names)}" if plain else "its steps"
            return (
                f"{kind} states no floor under {what}, so nothing is proven but that no schedule "
                "ends before the last arrival (docs: A cost model of your own)"
            )
    return None


def bound_for(
    instance: Instance,
    schedule: Schedule,
    lower: Bound | None,
    time_limit: float | None = None,
    objective: str = "makespan",
) -> Bound | None:
    """Return the best bound known to hold for schedules that do what this one does. ``lower`` where
    it holds as it is; else one that allows what the schedule does (``allowances_of``), which is
    kept for the next schedule of the same instance. None only where ``lower`` is: under any cost
    model nothing ends before the last arrival. Raises ``InputError``: another objective, or a time
    limit that is no number above 0. Raises ``InfeasibleError``: the schedule cannot be valid."""
    if lower is None:
        return None
    needed = allowances_of(instance, schedule)
    if lower.allows >= needed:
        return lower

    def prove() -> Bound:
        found = bound(instance, objective, time_limit, needed)
        other = _by_known_rounds(instance, lower, Scope.allowing(needed, instance))
        if other is not None and other.value_ns > found.value_ns:
            found = _largest_proven(instance, [found, other])
        return found

    return _kept(prove, time_limit, instance, objective, needed, lower.name, lower.value_ns)


def bound_once(
    instance: Instance, objective: str, time_limit: float | None, allows: Iterable[str]
) -> Bound:
    """Return the same as ``bound``, and keep it for the next method on the same instance."""
    needed = frozenset(allows)

    def prove() -> Bound:
        return bound(instance, objective, time_limit, needed)

    return _kept(prove, time_limit, instance, objective, needed)


def _kept(
    prove: Callable[[], Bound], time_limit: float | None, instance: Instance, *key: Hashable
) -> Bound:
    """Return a bound that was proven before in no less time, or prove it and keep it."""
    kinds = tuple(type(worker.cost) for worker in instance.workers)  # one file may fit several
    place = (instance.sha256, kinds, *key)
    seconds = float("inf") if time_limit is None else time_limit
    known = _KEPT.get(place)
    if known is None or known[0] < seconds:
        clock = Clock(time_limit)
        found = prove()
        known = (seconds if clock.out() else float("inf"), found)
        _KEPT[place] = known
        if len(_KEPT) > _MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
    return known[1]


_KEPT: dict[tuple[Hashable, ...], tuple[float, Bound]] = {}
"""Bounds on instances, and for how many seconds each was improved (inf: it cannot be)."""


def _by_known_rounds(instance: Instance, lower: Bound, scope: Scope) -> Bound | None:
    """Return the bound by stages and rounds, the rounds as dual prices have proven them before.
    Without restarts a request's rounds are on one client, whatever else a schedule does."""
    certificate = lower.certificate.get("one_worker", lower.certificate)
    rounds = certificate.get("decode_rounds")
    cache = _Cache.of(Context(loosened(instance), scope))
    if rounds is None or "duals" not in rounds or scope.restarts or not cache.relaxed.has_floors:
        return None
    counted = stages_and_rounds(cache.relaxed.one, certificate["released_ns"], rounds)
    return _bound(cache.stated(shared(cache.relaxed, counted)))


def _improving_latency_bounds(context: Context, objective: str, limits: Limits) -> Iterator[Bound]:
    cache, instance = _Cache.of(context), context.instance
    if len(instance) == 0:
        yield Bound("empty", value_ns=0, certificate={"bound": "empty"}, reference={})
        return
    rows = len(instance) * len(instance.workers)
    enough = rows * _MEAN_SECONDS_A_ROW <= max(_ALWAYS_SECONDS, limits.seconds_left())
    enough = enough and not cache.hides
    made = in_time_certificates if objective in IN_TIME else latency_certificates
    for found in made(cache.relaxed, objective, limits.out_of_time, enough):
        yield _bound(cache.stated(found))


def _improving_due_bounds(context: Context, objective: str, limits: Limits) -> Iterator[Bound]:
    cache, instance, names = _Cache.of(context), context.instance, context.scope.names
    if len(instance) == 0:
        yield Bound("empty", value_ns=0, certificate={"bound": "empty"}, reference={})
        return

    def prove(part: Instance, aim: str) -> dict[str, Any]:
        if aim == "makespan":  # without a search: many parts are tried
            return makespan_bound(part, names).to_dict()
        left = limits.seconds_left()
        return bound(part, aim, left if left > 0 else _ALWAYS_SECONDS, names).to_dict()

    def hidden() -> bool:
        return cache.hides or limits.out_of_time()

    for found in due_certificates(cache.relaxed, objective, prove, hidden):
        yield _bound(cache.stated(found))


def pang_reference(instance: Instance) -> dict[str, int]:
    """Return Pang's (31)-(32), reported as "Pang's reference value": no bound.

    ``T^p_L ceil(sum N^p / N^cap_L)`` plus the packing's rounds at the time of a full round (under
    the affine cost, and in Pang's MIP with several levels, it exceeds real schedules): the sum,
    then both parts. Empty without a cap, and under cost models by contexts, which the paper does
    not have."""
    worker, req = instance.worker, instance.requests
    limit, cost = worker.prefill_limit, instance.worker.cost
    if limit is None or len(req) == 0 or cost.context_matters:
        return {}
    prefill = cost.prefill_ns([limit]) * -(-int(req.prompt_tokens.sum()) // limit)
    rounds = packing_bound(instance.rounds_needed.tolist(), worker.clients)["value"]
    decode = rounds * cost.round_ns(worker.clients, 0, 0)
    return {
        "pang_31_32_ns": prefill + decode,
        "pang_31_32_prefill_ns": prefill,
        "pang_31_32_decode_ns": decode,
    }


def require_objectives(names: object) -> tuple[str, ...]:
    """Return the names of objectives on which bounds are asked for, each once. ``makespan``, whose
    bound is always there, may be among them. Raises ``InputError``."""
    known = ("makespan", *BOUNDED, *DUE, *IN_TIME)
    found = (names,) if isinstance(names, str) else tuple(names)  # type: ignore[arg-type]
    found = tuple(other_name(name) for name in found)
    for name in found:
        if name not in known:
            raise InputError(
                f"no bound on {name!r} is available", field="bounds", remedy=", ".join(known)
            )
    return tuple(name for name in known[1:] if name in found)


def mean_bounds(
    instance: Instance, schedule: Schedule, objectives: Iterable[str], time_limit: float | None
) -> dict[str, dict[str, Any]]:
    """Return a proven bound on each objective that holds for what the schedule does. By objective,
    each with ``name``, ``value_ns`` and ``certificate``, as in a schedule file. Nothing on an empty
    instance. ``instance``, ``schedule``: the problem and a valid schedule; ``objectives``: names
    from ``require_objectives``; ``time_limit``: seconds for each."""
    if len(instance) == 0:
        return {}
    allows = allowances_of(instance, schedule)
    kinds = tuple(type(worker.cost) for worker in instance.workers)  # one file may fit several
    found = {}
    for objective in objectives:
        key = (instance.sha256, kinds, objective, allows)
        if time_limit is not None:
            found[objective] = bound(instance, objective, time_limit, allows).to_dict()
            continue
        if key not in _MEANS:
            _MEANS[key] = bound(instance, objective, None, allows).to_dict()
            if len(_MEANS) > _MOST_MEANS:
                del _MEANS[next(iter(_MEANS))]
        found[objective] = _MEANS[key]
    return found


_MEANS: dict[tuple[Hashable, ...], dict[str, Any]] = {}
"""Bounds that no clock has cut short: the methods of a comparison share them."""

_MOST_MEANS = 8
