"""The four methods of Pang: fcfs, offline, online, hybrid. Where the paper is vague the choices are
those that reproduce its makespans best (the page *Results: Pang*); every other one is a
parameter."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from orsched.common.errors import OrschedError, TimeLimitError
from orsched.data.step import Step, decode_rounds
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.heuristics.continuous.params import Order, make_queue
from orsched.heuristics.continuous.queues import popped
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.policy_method import ANY, LiveMethod, PolicyMethod, read_params, split
from orsched.models.fleet.planned_for import predictions_as_lengths
from orsched.models.packing import pack
from orsched.simulator import Simulated, simulate_policy
from orsched.simulator.policy import Information, Policy, View
from orsched.solving.methods import Outcome, Progress, Run
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.heuristics.continuous.queues import Queue


_DECODE = decode_rounds()


class FirstComeFirstServed(Policy):
    """Prefill whenever a request waits and a client is free; else decode (Pang, section V-A).

    Requests are taken in the order of arrival (then row); the first that does not fit under the
    prefill cap or into memory ends the stage, as in vLLM V0.
    """

    name = "fcfs"
    information = Information.NONE
    shares_queue = True

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.batch: BatchBuilder | None = None

    def on_arrival(self, view: View, request: int) -> None:
        """Append the request to the queue."""
        self.queue.append(request)

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.queue)

    def surrender(self) -> int:
        """Give up the request that came last."""
        return self.queue.pop()

    def decide(self, view: View) -> Step | None:
        """Return a prefill stage if one is possible, else decode until something happens."""
        if view.prefilling:
            return self._batch(view).next_part()
        clients = view.free_clients if self.waiting() else 0
        if clients:
            batch = self._batch(view)
            stage = self._stage(batch, clients)
            if stage:
                return batch.prefill(stage)
        return _DECODE if view.running else None

    def _stage(self, batch: BatchBuilder, clients: int) -> list[int]:
        return batch.take(self.queue, clients)

    def _batch(self, view: View) -> BatchBuilder:
        batch = self.batch
        if batch is None or batch.view is not view:  # not in start, which may be overridden
            batch = self.batch = BatchBuilder(view)
        return batch


class InOrder(FirstComeFirstServed):
    """``fcfs`` with a queue in another order than that of arrival."""

    def __init__(self, line: Queue, information: Information) -> None:
        super().__init__()
        self.queue: Queue = line  # type: ignore[assignment]
        self.information = information

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        self.queue.put(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        self.queue.forget(request)

    def surrender(self) -> int:
        """Give up the request that is last."""
        return self.queue.surrender()

    def _stage(self, batch: BatchBuilder, clients: int) -> list[int]:
        most = min(clients, len(self.queue))
        return batch.take_offered(popped(self.queue, most), most)


FACTORS = (1.0, 0.5, 0.0, 0.7, 0.35, 1.4, 0.85, 0.6, 0.25)
"""Gate factors tried in this order; 1 is the derived value, 0 never waits."""


class _Best(NamedTuple):
    makespan_ns: int
    params: GatedParams
    simulated: Simulated


def plan(
    instance: Instance, name: str, params: GatedParams, fixed: frozenset[str], run: Run
) -> Outcome:
    """Try candidates until ``run.stop`` ends the search; return the best one's schedule: the given
    parameters, then the shared queue (stealing taken to its end) and a grid of gate factors, then
    random factors from the seed; parameters that the caller fixed stay. Ctrl-C keeps the
    incumbent."""
    known = as_known(instance, run.information)
    run.require_time()
    packing = pack_known(known, run.stop.seconds_left) if params.assignment == "packing" else None
    clairvoyant = run.information is Information.CLAIRVOYANT
    best: _Best | None = None
    termination = Termination.ITERATIONS
    iteration = 0
    reserve = 0.0 if clairvoyant else 1e-9  # seconds that the run on the truth will take
    try:
        for candidate in _candidates(params, fixed, run.seed):
            begin = perf_counter()
            best, improved = _try(known, candidate, packing, name, best, run, reserve)
            reserve = reserve if clairvoyant else max(reserve, perf_counter() - begin)
            iteration += 1
            run.report(Progress(name, iteration, best.makespan_ns, improved))
            if best.makespan_ns == run.bound_ns and clairvoyant:
                termination = Termination.FINISHED
                break
            ended = run.why_ended(iteration, best.makespan_ns)
            if ended is not None:
                termination = ended
                break
    except TimeLimitError:
        if best is None:
            raise
        termination = Termination.TIME_LIMIT
    except KeyboardInterrupt:
        if best is None:
            raise
        termination = Termination.INTERRUPTED
    if best is None:
        raise OrschedError("no candidate was tried: a bug in orsched")
    done = best.simulated
    if not clairvoyant:
        classes = instance.requests.service_class.tolist()
        policy = GatedPolicy(best.params, run.information, name, packing, classes)
        done = simulate_policy(instance, policy, deadline=run.require_time)
    return Outcome(done.schedule, termination, done.decision_ns, best.params.to_dict())


def pack_known(known: Instance, seconds_left: float) -> Sequence[int]:
    """Return the client of each request by makespan packing, in a quarter of the time left."""
    limit = max(1e-3, seconds_left / 4) if seconds_left < math.inf else None
    packed = pack(known.requests.output_tokens.tolist(), known.worker.clients, limit)
    return packed.uninterrupted().assignment


def as_known(instance: Instance, information: Information) -> Instance:
    """Return the instance as the method knows it: predictions in the place of the truth."""
    if information is Information.CLAIRVOYANT:
        return instance
    return predictions_as_lengths(instance)


def _candidates(params: GatedParams, fixed: frozenset[str], seed: int) -> Iterator[GatedParams]:
    """Yield parameters, the given ones first; without end where there is a choice."""
    rng = random.Random(seed)
    yield params
    assignments = [params.assignment]
    if "assignment" not in fixed and params.assignment != "shared":
        assignments.append("shared")
    for factor in FACTORS if "gate_factor" not in fixed else ():
        for assignment in reversed(assignments):
            candidate = replace(params, assignment=assignment, gate_factor=factor)
            if candidate != params:
                yield candidate
    if len(assignments) == 1 and "gate_factor" in fixed:
        return
    while True:
        changes: dict[str, object] = {"assignment": rng.choice(assignments)}
        if "gate_factor" not in fixed:
            changes["gate_factor"] = round(rng.uniform(0.1, 2.0), 3)
        yield replace(params, **changes)  # type: ignore[arg-type]


def _try(
    known: Instance,
    params: GatedParams,
    packing: Sequence[int] | None,
    name: str,
    best: _Best | None,
    run: Run,
    reserve: float,
) -> tuple[_Best, bool]:
    """Return the better of a candidate, simulated, and the incumbent. With a reserve it ends in
    time for one more run that takes as long as the longest so far."""
    begin = perf_counter()

    def deadline() -> None:
        run.require_time(max(reserve, perf_counter() - begin) if reserve else 0.0)

    classes = known.requests.service_class.tolist()
    policy = GatedPolicy(params, run.information, name, packing, classes)
    done = simulate_policy(known, policy, deadline=deadline)
    makespan = done.schedule.makespan_ns
    if best is None or makespan < best.makespan_ns:
        return _Best(makespan, params, done), True
    return best, False


_NONE, _PREDICTED, _CLAIRVOYANT = ANY


def _read(defaults: GatedParams, parameters: dict[str, Any]) -> GatedParams:
    """Return the defaults with some parameters replaced; a dispatcher's say nothing here."""
    own, _ = split(parameters, defaults.to_dict())
    params: GatedParams = read_params(GatedParams, {**defaults.to_dict(), **own})
    return params


@dataclass(frozen=True)
class GatedMethod(LiveMethod):
    """A ``GatedPolicy`` with its defaults, on one worker that does not pad."""

    name: str
    information: tuple[Information, ...]
    summary: str
    defaults: GatedParams

    def build(
        self,
        instance: Instance,
        information: Information,
        parameters: dict[str, Any],
        seed: int,
        seconds_left: float = math.inf,
    ) -> tuple[Policy, dict[str, Any]]:
        """Return a fresh policy with its packing, for which a quarter of the time is taken."""
        instance.require_stages(self.name)
        params = _read(self.defaults, parameters)
        packing = None
        if params.assignment == "packing" and information is not _NONE:
            packing = pack_known(as_known(instance, information), seconds_left)
        classes = instance.requests.service_class.tolist()
        policy = GatedPolicy(params, information, self.name, packing, classes)
        return policy, params.to_dict()

    def check_parameters(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""
        _read(self.defaults, parameters)

    def require_fit(
        self, instance: Instance, information: Information, parameters: dict[str, Any]
    ) -> None:
        """Refuse workers that do not take stages, and predictions that the instance lacks."""
        instance.require_stages(self.name)
        if information is not _NONE:
            as_known(instance, information)


@dataclass(frozen=True)
class PlannedMethod(GatedMethod):
    """A ``GatedPolicy`` whose open parameters are chosen on the known lengths beforehand."""

    live: ClassVar[bool] = False

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Plan on what is known, then run the chosen policy on the truth."""
        instance.require_stages(self.name)
        params = _read(self.defaults, run.parameters)
        return plan(instance, self.name, params, frozenset(run.parameters) - {"dispatch"}, run)


def _fcfs(instance: Instance, params: Order, information: Information, seed: int) -> Policy:
    if params.first_come:
        return FirstComeFirstServed()
    return InOrder(make_queue(instance, params, information), information)


FCFS = PolicyMethod(
    "fcfs",
    ANY,
    "first come first served, prefill first (vLLM V0, Pang's baseline)",
    _fcfs,
    Order,
)

OFFLINE = GatedMethod(
    "offline",
    (_CLAIRVOYANT, _PREDICTED),
    "makespan packing onto the clients, then fcfs's gate (Pang, offline request scheduling)",
    GatedParams("packing", "arrival", steal=False, gate="prefill_first"),
)

ONLINE = GatedMethod(
    "online",
    (_NONE, _PREDICTED),
    "sorting with stealing and the waited-time gate (Pang, Algorithm 1 and section IV-C)",
    GatedParams("round_robin", "longest", steal=True, gate="waited_time"),
)

HYBRID = PlannedMethod(
    "hybrid",
    (_CLAIRVOYANT, _PREDICTED),
    "packing, sorting with stealing and the derived gate, planned on the known lengths",
    GatedParams("packing", "longest", steal=True, gate="idle_cost"),
)
