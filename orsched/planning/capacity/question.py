"""What is asked: requests, machines, limits and the share of requests that must keep them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.fleet_demand import Limits
from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.own_code import is_own
from orsched.common.units import NEVER, seconds_to_ns
from orsched.data.instance import require_instance
from orsched.data.links import read_link
from orsched.data.memory import refused_pair
from orsched.data.service_classes import SLO, require_slo
from orsched.data.workers import Worker

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.data.service_classes import FigureLimit


Fleet = tuple[int, ...]
"""How many workers of each machine."""

CRITERIA = ("measured", "confident")
MOST_WORKERS = 1024
SPLIT = "disaggregated"
"""The policy of fleets with roles."""
REPLICATIONS = 5
_PHASES = ("prefill", "decode")
_MOST_MACHINES = 8
_MOST_REPLICATIONS = 1000


class Machine(NamedTuple):
    """A kind of worker that can be had, at a price in any unit."""

    name: str
    worker: Worker
    price: Fraction


@dataclass(frozen=True)
class Question:
    """What ``capacity`` is asked, validated; the workers of the instance play no part.

    ``policy`` is as a study holds it: name, information and parameters. ``arrivals`` and ``sample``
    are None for the requests as given, limits for those of each request's class; one trace is drawn
    for each of the ``seeds``. ``scene`` is what else a fleet has, as plain JSON values: ``link``,
    ``failures`` and ``autoscale``. With a link between machines of roles each fleet needs both.
    """

    instance: Instance
    machines: tuple[Machine, ...]
    policy: dict[str, Any]
    arrivals: str | None
    sample: int | None
    seeds: tuple[int, ...]
    ttft_ns: int | None
    tpot_ns: int | None
    attainment: Fraction
    confidence: float
    criterion: str
    scene: dict[str, Any] = field(default_factory=dict)
    figures: tuple[FigureLimit, ...] = ()

    @property
    def slo(self) -> SLO | None:
        """The limits that are given for all requests, and those on figures; None: of classes."""
        if (self.ttft_ns, self.tpot_ns, self.figures) == (None, None, ()):
            return None
        return SLO(self.figures, ttft_ns=self.ttft_ns, tpot_ns=self.tpot_ns)

    @property
    def goals(self) -> dict[str, Question]:
        """What is asked, one limit at a time, by name: a fleet must do for each of them.

        A percentile of TTFT or TPOT is within its limit where that share of the requests is, and
        no gap is longer than the longest stall, which no mean of gaps exceeds. Other figures ask
        nothing that is proven.
        """
        found = {} if self.only_figures else {"attainment": replace(self, figures=())}
        for limit in self.figures:
            if (
                limit.share
                and limit.service_class is None
                and (limit.metric in ("ttft", "tpot", "stall") or limit.name == "itl_max")
            ):
                pair = (limit.limit_ns, NEVER)
                ttft_ns, tpot_ns = pair if limit.metric == "ttft" else pair[::-1]
                found[str(limit)] = replace(
                    self, ttft_ns=ttft_ns, tpot_ns=tpot_ns, attainment=limit.share, figures=()
                )
        return found

    @property
    def only_figures(self) -> bool:
        """Whether no limit is on each request."""
        none = self.ttft_ns is None and self.tpot_ns is None
        return none and not _has_limits(self.instance)

    @property
    def is_random(self) -> bool:
        """Whether traces differ between seeds."""
        return len(self.seeds) > 1 or self.arrivals is not None or self.sample is not None

    @property
    def has_roles(self) -> bool:
        """Whether a machine only prefills or only decodes."""
        return any(machine.worker.role != "both" for machine in self.machines)

    def serves(self, fleet: Fleet) -> bool:
        """Whether a fleet can prefill and decode at all."""
        there = [m.worker for m, count in zip(self.machines, fleet, strict=True) if count]
        return any(each.prefills for each in there) and any(each.decodes for each in there)

    def on_machines(self) -> Instance:
        """Return the instance on one worker of each machine, whose roles are left out."""
        workers = tuple(replace(machine.worker, role="both") for machine in self.machines)
        return self.instance.replace(workers=workers)

    def trace(self, seed: int) -> Instance:
        """Return the requests of a seed, on one worker of the first machine."""
        one = self.instance.replace(workers=self.on_machines().workers[:1])
        return trace_of(one, self.sample, self.arrivals, seed)

    def limits(self, trace: Instance) -> Limits:
        """Return the limits of the requests of a trace that count."""
        return limits_of(trace, self.ttft_ns, self.tpot_ns)


def trace_of(instance: Instance, sample: int | None, arrivals: str | None, seed: int) -> Instance:
    """Return an instance with the requests drawn and the arrivals made, where asked for."""
    from orsched.instances.arrivals import sampled, with_arrivals

    if sample is not None:
        instance = sampled(instance, sample, seed)
    if arrivals is not None:
        instance = with_arrivals(instance, arrivals, seed)
    return instance


def windowed(instance: Instance, first: int, last: int) -> Instance:
    """Return the requests from the ``first`` to before the ``last`` one by arrival, from 0 on."""
    arrival = instance.requests.arrival_ns
    rows = np.sort(np.argsort(arrival, kind="stable")[first:last])
    kept = instance.requests.take(rows)
    begin = int(kept.arrival_ns.min()) if len(kept) else 0
    return instance.replace(requests=kept.replace(arrival_ns=kept.arrival_ns - begin))


def limits_of(instance: Instance, ttft_ns: int | None, tpot_ns: int | None) -> Limits:
    """Return the limits of the requests that count: those of no bulk class, or all without any.

    A limit that is None is that of each request's class, if that has one.
    """
    counted = ~instance.bulk
    rows = np.flatnonzero(counted) if counted.any() else np.arange(len(instance))
    columns = []
    for name, given in (("ttft_ns", ttft_ns), ("tpot_ns", tpot_ns)):
        own = [getattr(kind, name) if given is None else given for kind in instance.classes]
        kinds = np.array([NEVER if each is None else each for each in own], np.int64)
        columns.append(kinds[instance.requests.service_class[rows]])
    return Limits(rows, *columns)


def read_machines(
    instance: Instance, given: Mapping[str, tuple[Worker, float]] | None, split: bool = False
) -> tuple[Machine, ...]:
    """Return the machines of a fleet; without any, the instance's own worker at the price 1.

    ``split``: each that does both becomes one that prefills and one that decodes. Raises
    ``InputError`` for none, too many or unequal workers, and for wrong prices.
    """
    found = _machines(instance, given)
    if not split:
        return found
    roles = [
        part
        for one in found
        for part in (with_roles(one, _PHASES) if one.worker.role == "both" else [one])
    ]
    return tuple(roles if given else [each._replace(name=each.worker.role) for each in roles])


def with_roles(machine: Machine, roles: Sequence[str]) -> list[Machine]:
    """Return a machine in each of some roles, which its name says."""
    return [
        machine._replace(name=f"{machine.name}-{role}", worker=replace(machine.worker, role=role))
        for role in roles
    ]


def _machines(
    instance: Instance, given: Mapping[str, tuple[Worker, float]] | None
) -> tuple[Machine, ...]:
    if given is None:
        first = instance.workers[0]
        if any(replace(other, name=first.name) != first for other in instance.workers):
            raise InputError(
                "the instance's workers differ: which of them to count?",
                field="machines",
                remedy="name them: --machine NAME=FILE:PRICE",
            )
        return (Machine(first.name, first, Fraction(1)),)
    if not 1 <= len(given) <= _MOST_MACHINES:
        raise InputError(
            f"{len(given)} machines", field="machines", remedy=f"from 1 to {_MOST_MACHINES}"
        )
    found = []
    for name, (worker, price) in given.items():
        if not isinstance(worker, Worker):
            raise InputError(
                f"{worker!r} is not a worker", field=f"machines.{name}", remedy="give a Worker"
            )
        number = isinstance(price, (int, float)) and not isinstance(price, bool)
        if not number or not 1e-6 <= price <= 1e9:
            raise InputError(
                f"{price!r} is not a price", field=f"machines.{name}", remedy="a number above 0"
            )
        found.append(Machine(name, worker, Fraction(str(price))))
    return tuple(found)


class Given(NamedTuple):
    """What ``capacity`` and ``tune`` are asked, not yet validated: their arguments by name.

    Attributes:
        instance: the requests; how many workers it has plays no part. Limits are those of its
            interactive requests, or of all where there are none.
        policy: a method's name or ``module:Class``.
        parameters, information: of the policy.
        machines: by name, worker and price of one; default: the instance's own worker.
        split: a link, as ``read_link`` takes it: machines prefill or decode, with the policy
            ``disaggregated``.
        slo_ttft, slo_tpot: limits in seconds; at least one.
        slo: limits on figures that each trace must keep, such as ``ttft_p99<=2,itl_p95<=0.05``.
        attainment: share of the requests that must keep both.
        arrivals: another law of arrivals (``poisson:rate=3``); default: those of the instance.
        sample: draw so many requests for each replication.
        replications: traces, drawn with the seeds ``seed``, ``seed + 1`` ...; default: 5 for random
            arrivals or samples, else 1.
        confidence: level of the intervals: Student's t over replications; for one trace a block
            bootstrap over its parts, or Wilson's interval where that is wider.
        criterion: ``measured``: the measured attainment decides (default for one trace);
            ``confident``: the lower end of its interval (default for replications).
        failures, autoscale: of the fleet, as ``simulate`` takes them.
        schedule: find the fewest workers in each window of time as well: ``every=300,startup=40``,
            in seconds.
        folder: keeps finished simulations, which the next call does not run again; None: not kept.
        jobs, cluster, ray_address: of the processes, as in ``orsched.planning.study.run``.
        time_limit: in seconds.
        callback: called with what is being done.
    """

    instance: Instance
    policy: str
    parameters: Mapping[str, Any] | None = None
    information: str | None = None
    machines: Mapping[str, tuple[Worker, float]] | None = None
    split: Any = None
    slo_ttft: float | None = None
    slo_tpot: float | None = None
    slo: str | None = None
    attainment: float = 0.9
    arrivals: Any = None
    sample: int | None = None
    replications: int | None = None
    seed: int = 0
    confidence: float = 0.95
    criterion: str | None = None
    failures: Any = None
    autoscale: Any = None
    schedule: Any = None
    folder: str | os.PathLike[str] | None = None
    jobs: int | None = None
    cluster: str = "local"
    ray_address: str | None = None
    time_limit: float | None = None
    callback: Callable[[str], None] = lambda _: None


ASKED = tuple(name for name in Given._fields if name not in ("instance", "policy"))
"""Keywords of ``capacity``."""


def read_question(given: Given) -> Question:
    """Return a question; raises ``InputError`` that names the argument that is wrong."""
    from orsched.instances.arrivals import read_arrivals
    from orsched.planning.study.plan import read_specs

    instance = given.instance
    require_instance(instance)
    law = None if given.arrivals is None else read_arrivals(given.arrivals)
    drawn = None if given.sample is None else whole_number(given.sample, "sample", minimum=1)
    pairs = {"failures": given.failures, "autoscale": given.autoscale}.items()
    scene = {name: read_specs(value, name)[0] for name, value in pairs if value is not None}
    if given.split is not None:
        for other in scene:
            raise refused_pair("link", "autoscaling" if other == "autoscale" else other)
        scene["link"] = read_link(given.split).to_dict()
    random = (
        drawn is not None
        or "failures" in scene
        or (law is not None and law.law not in ("replay", "at_once"))
    )
    seeds = _seeds(given, random)
    slo = _slo(given)
    if slo is None and not _has_limits(instance):
        raise InputError(
            "no limit is given", field="slo_ttft", remedy="--slo-ttft, --slo-tpot, or classes"
        )
    require_slo(slo, instance.classes)
    criterion = given.criterion or ("confident" if len(seeds) > 1 else "measured")
    if criterion not in CRITERIA:
        raise InputError(
            f"{criterion!r} is unknown", field="criterion", remedy=known_names(criterion, CRITERIA)
        )
    question = Question(
        instance,
        read_machines(instance, given.machines, given.split is not None),
        read_policy(
            SPLIT if given.split is not None and given.policy == "vllm" else given.policy,
            given.information,
            given.parameters,
        ),
        None if law is None else law.spec(),
        drawn,
        seeds,
        None if slo is None else slo.ttft_ns,
        None if slo is None else slo.tpot_ns,
        _share(given.attainment, "attainment", one=True),
        float(_share(given.confidence, "confidence", one=False)),
        criterion,
        scene,
        () if slo is None else slo.figures,
    )
    if not len(instance):
        raise InputError(
            "no requests are given", field="instance", remedy="give an instance with requests"
        )
    return question


def _seeds(given: Given, random: bool) -> tuple[int, ...]:
    """Return the seeds of the traces."""
    count = REPLICATIONS if random else 1
    if given.replications is not None:
        count = whole_number(
            given.replications, "replications", minimum=1, maximum=_MOST_REPLICATIONS
        )
        if count > 1 and not random:
            raise InputError(
                "the arrivals are the same in every replication",
                field="replications",
                remedy="give random arrivals (poisson:rate=3), or one replication",
            )
    first = whole_number(given.seed, "seed", remedy="give a whole number of at least 0")
    return tuple(range(first, first + count))


def read_policy(
    name: object, information: str | None, parameters: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a policy as a study holds it; ``InputError`` for what is unknown or wrong."""
    from orsched.planning.study.axes import policy_axis
    from orsched.solving.method_choice import method_info, require_choice

    if not isinstance(name, str):
        raise InputError(
            f"{name!r} is not a name: simulations run in processes of their own",
            field="policy",
            remedy="give a registered name, or module:Class",
        )
    given = dict(parameters or {})
    require_choice(name, information, given, ("policy", "information", "parameters"))
    own = {key: [value] for key, value in given.items()}
    table = {"name": name, "parameters": own}
    if information is not None:
        table["information"] = information
    content = dict(policy_axis([table], {})[0].content)
    if not is_own(content["name"]) and method_info(content["name"]).searches:
        raise InputError(
            f"{content['name']} searches, and many simulations would each wait for its end",
            field="policy",
            remedy="choose a policy such as vllm, gittins or fcfs; solve and compare take searches",
        )
    return content


def _slo(given: Given) -> SLO | None:
    """Return the limits that are given, or None."""
    pair = [
        None if seconds is None else seconds_to_ns(seconds, field)
        for seconds, field in ((given.slo_ttft, "slo_ttft"), (given.slo_tpot, "slo_tpot"))
    ]
    if pair == [None, None] and given.slo is None:
        return None
    return SLO(() if given.slo is None else str(given.slo), ttft_ns=pair[0], tpot_ns=pair[1])


def _has_limits(instance: Instance) -> bool:
    limits = limits_of(instance, None, None)
    least = min(limits.ttft_ns.min(initial=NEVER), limits.tpot_ns.min(initial=NEVER))
    return bool(least < NEVER)


def _share(value: object, field: str, *, one: bool) -> Fraction:
    """Return a share as the fraction that its decimal digits say."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1 or (value == 1 and not one):  # type: ignore[operator]
        upto = "1" if one else "below 1"
        raise InputError(
            f"{value!r} is not such a share", field=field, remedy=f"a number above 0, up to {upto}"
        )
    return Fraction(str(value))


def price_of(machines: Sequence[Machine], fleet: Fleet) -> Fraction:
    """Return the price of a fleet."""
    pairs = zip(machines, fleet, strict=True)
    return sum((machine.price * count for machine, count in pairs), Fraction(0))
