"""Proofs that fleets are too small: a certificate for each drawn trace, verified in integers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from orsched.certificates.fields import WEIGHT, Budget, Field, listed, table, whole
from orsched.certificates.fleet_demand import FIELDS, attained_at_most
from orsched.checker.violations import proving
from orsched.common.errors import InfeasibleError
from orsched.common.scalars import DEFAULT_BUDGET
from orsched.common.units import NS_PER_S
from orsched.models.bounds.fleet_bound import AttainmentSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.data.workers import Worker
    from orsched.planning.capacity.question import Fleet, Question

_FINEST = 1000
"""The weight of the dearest of several machines."""
_HOPELESS = Fraction(1, 50)
_MOST_SPEED = 2**30
_BILLIONTH = Fraction(1, 10**9)


class Proof:
    """What is proven of the fleets of a question.

    ``weights`` are of the machines, no more than in proportion to their prices; fleets whose
    weights add up to ``speed`` or less are proven to be too small. ``certificate`` has the choices
    that prove it, None where nothing can be proven; then ``unproven`` says why.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self.weights = weights_of(question)
        self.speed, self.unproven = 0, ""
        self.certificate: dict[str, Any] | None = None
        self._searches: list[AttainmentSearch] = []

    def run(self, out_of_time: Callable[[], bool], say: Callable[[str], None]) -> None:
        """Find the largest fleets proven too small; ``InfeasibleError`` where none can suffice."""
        if not self._prepare():
            return
        self.certificate = self._stated(0, [])
        unit, known = min(self.weights), 0
        step = unit
        while not out_of_time() and known + step <= _MOST_SPEED:
            say(f"proving: is a fleet of speed {known + step} too small?")
            if not self._proven(known + step, out_of_time):
                break
            known, step = self.speed, 2 * step
        high = known + step
        while high - known > max(1, unit // 16) and not out_of_time():
            middle = (known + high) // 2
            say(f"proving: is a fleet of speed {middle} too small?")
            if self._proven(middle, out_of_time):
                known = self.speed
            else:
                high = middle

    def _prepare(self) -> bool:
        """Work out the demands; say why nothing can be proven where that is so."""
        workers = self.question.on_machines().workers
        try:
            for seed in self.question.seeds:
                trace = self.question.trace(seed)
                limits = self.question.limits(trace)
                self._searches.append(AttainmentSearch(trace, limits, workers, self.weights))
        except ValueError as error:
            self.unproven = str(error)
            return False
        total = sum(
            Fraction(int(each.demand.possible.sum()), len(each.limits)) for each in self._searches
        )
        if total < self.question.attainment * len(self._searches):
            raise InfeasibleError(self._impossible())
        return True

    def _impossible(self) -> str:
        """Say that no number suffices, and which request is the first that cannot."""
        worst = min(self._searches, key=lambda each: float(each.demand.possible.mean()))
        demand = worst.demand
        at = int(demand.possible.argmin())
        share = 1 - float(demand.possible.mean())
        row = int(worst.limits.rows[at])
        name = worst.instance.requests.id_of(row)
        need, limit = int(demand.alone_ns[at]), int(worst.limits.ttft_ns[at])
        if need > limit:
            reason = (
                f"its {int(demand.prompts[at])} prompt tokens alone take {need / NS_PER_S:.6g} s "
                f"until the first token, more than the TTFT limit of {limit / NS_PER_S:g} s"
            )
        else:
            gap = int(demand.gap[at])
            reason = (
                f"a token alone takes {gap / NS_PER_S:.6g} s, more than the TPOT limit of "
                f"{int(worst.limits.tpot_ns[at]) / NS_PER_S:g} s"
            )
        wanted = float(self.question.attainment)
        return (
            f"no number of workers can keep an attainment of {wanted:g}: {share:.2%} of the "
            f"requests cannot keep their limits even alone; the first is request {name} "
            f"(row {row}): {reason}"
        )

    def _proven(self, speed: int, out_of_time: Callable[[], bool]) -> bool:
        """Try to prove that fleets of a speed are too small; keep the certificate if so."""
        wanted, traces, total = self.question.attainment, [], Fraction(0)
        for number, search in enumerate(self._searches, start=1):
            n = len(search.limits)
            fewer = -(-wanted.numerator * n // wanted.denominator)
            found = search.certificate(speed, fewer, out_of_time)
            total += Fraction(found["attained"], n)
            traces.append(found)
            if total - wanted * number > _HOPELESS * len(self._searches):
                return False
        if total >= wanted * len(traces):
            return False
        self.speed, self.certificate = speed, self._stated(speed, traces)
        return True

    def most_attained(self, speed: int, out_of_time: Callable[[], bool]) -> Fraction | None:
        """Return a share that no fleet of a speed exceeds, None: unknown; certified + 1e-9."""
        if not self._searches and not self._prepare():
            return None
        traces = [search.certificate(speed, 0, out_of_time) for search in self._searches]
        pairs = zip(traces, self._searches, strict=True)
        shares = [Fraction(found["attained"], len(search.limits)) for found, search in pairs]
        share = sum(shares, Fraction(0)) / len(shares)
        self.speed, self.certificate = speed, self._stated(speed, traces, share + _BILLIONTH)
        return share

    def _stated(
        self, speed: int, traces: Sequence[dict[str, Any]], excluded: Fraction | None = None
    ) -> dict[str, Any]:
        question = self.question
        return {
            "bound": "capacity",
            "attainment": str(question.attainment if excluded is None else excluded),
            "ttft_ns": question.ttft_ns,
            "tpot_ns": question.tpot_ns,
            "arrivals": question.arrivals,
            "sample": question.sample,
            "weights": self.weights,
            "speed": speed,
            "traces": [
                {"seed": seed, "sha256": search.instance.sha256, "certificate": found}
                for seed, search, found in zip(question.seeds, self._searches, traces, strict=False)
            ],
        }

    @property
    def lower_workers(self) -> int:
        """The fewest workers, of whatever machines, that are not proven to be too few."""
        return self.speed // max(self.weights) + 1

    def lower_price(self) -> Fraction:
        """A price below which every fleet is proven to be too small."""
        dearest = max(machine.price for machine in self.question.machines)
        if len(self.weights) == 1:
            return self.lower_workers * dearest
        return Fraction(self.speed) * dearest / _FINEST

    def is_too_small(self, fleet: Fleet) -> bool:
        """Say if a fleet is proven to be too small, or has no worker for a phase."""
        if not self.question.serves(fleet):
            return True
        weight = sum(a * b for a, b in zip(self.weights, fleet, strict=True))
        return weight <= self.speed


def weights_of(question: Question) -> list[int]:
    """Return the machines' weights: 1 for one machine, else below the prices in proportion."""
    prices = [machine.price for machine in question.machines]
    if len(prices) == 1:
        return [1]
    return [max(1, int(price * _FINEST / max(prices))) for price in prices]


def _optional(required: Field) -> Field:
    return lambda value, where: None if value is None else required(value, where)


_text_or_none = {"arrivals": (str, type(None)), "sample": (int, type(None)), "attainment": (str,)}
_trace = table({"seed": whole(0, 2**63), "sha256": lambda *_: None, "certificate": table(FIELDS)})
_require = table(
    {
        "bound": lambda *_: None,
        "attainment": lambda *_: None,
        "ttft_ns": _optional(whole(0, 2**63)),
        "tpot_ns": _optional(whole(0, 2**63)),
        "arrivals": lambda *_: None,
        "sample": lambda *_: None,
        "weights": listed(whole(1, WEIGHT), 1, 64),
        "speed": whole(0, WEIGHT),
        "traces": listed(_trace, 0, 1000),
    }
)


@proving
def proof_violations(
    instance: Instance,
    certificate: Mapping[str, Any],
    machines: Sequence[Worker] | None = None,
    budget: int | None = DEFAULT_BUDGET,
) -> list[str]:
    """Return what is wrong with a certificate of ``capacity``; an empty list: it is proven.

    What is proven: no fleet of these machines whose weights add up to ``speed`` or less keeps the
    attainment on average over the traces, whatever its policy. For one machine the weight is 1 and
    the speed the number of workers. Traces are made again from the instance; nothing is searched.

    Args:
        instance: the one that was asked about.
        certificate: as in the result.
        machines: in the order of the weights; default: the instance's own worker.
        budget: cells of tables to fill; None: any number.
    """
    return _violations(instance, dict(certificate), machines, Budget(budget))


def _violations(
    instance: Instance, claim: dict[str, Any], machines: Sequence[Worker] | None, budget: Budget
) -> list[str]:
    from orsched.planning.capacity.question import limits_of, trace_of

    _require(claim, "certificate")
    for name, kinds in _text_or_none.items():
        if type(claim[name]) not in kinds:
            return [f"{name} is {claim[name]!r}"]
    machines = instance.workers[:1] if machines is None else machines
    workers = [replace(worker, role="both") for worker in machines]
    seeds = [trace["seed"] for trace in claim["traces"]]
    if claim["bound"] != "capacity" or len(set(seeds)) != len(seeds):
        return ["it is of another kind, or has a trace twice"]
    if claim["speed"] == 0:
        return []
    one, wanted = instance.replace(workers=(workers[0],)), Fraction(claim["attainment"])
    total, found = Fraction(0), []
    for part in claim["traces"]:
        trace = trace_of(one, claim["sample"], claim["arrivals"], part["seed"])
        if trace.sha256 != part["sha256"]:
            found.append(f"the trace of seed {part['seed']} is another one")
            continue
        inner = part["certificate"]
        if inner["weights"] != claim["weights"] or inner["speed"] != claim["speed"]:
            found.append(f"the trace of seed {part['seed']} is about another fleet")
            continue
        limits = limits_of(trace, claim["ttft_ns"], claim["tpot_ns"])
        attained = attained_at_most(trace, limits, workers, inner, budget)
        if attained != inner["attained"]:
            found.append(
                f"of seed {part['seed']} at most {inner['attained']} requests are claimed, "
                f"{attained} proven"
            )
        total += Fraction(attained, len(limits))
    if not claim["traces"] or total >= wanted * len(claim["traces"]):
        found.append(f"the attainment of {float(wanted):g} is not excluded")
    return found
