"""Gates: when to interrupt decoding for a prefill stage (Pang, section IV-C). A gate compares what
it costs to let clients wait with what it costs to insert a stage, both read off the cost model."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from orsched.common.errors import InputError, known_names
from orsched.common.own_code import class_of
from orsched.data.step import FOREVER
from orsched.heuristics.forecast import ArrivalRate, KnownEnds, LearnedEnds, known_lengths
from orsched.simulator.policy import ClairvoyantView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.workers import Worker
    from orsched.simulator.policy import View


_TYPICAL_PROMPT = 64


class Waiting(NamedTuple):
    """What a gate decides on.

    Attributes:
        clients: free clients that could be served now, at least 1.
        tokens: expected prompt tokens of the stage that would serve them (at most the cap).
        full: whether that stage would reach the worker's prefill cap.
        queued: requests that wait.
    """

    clients: int
    tokens: int
    full: bool
    queued: int = 0


@runtime_checkable
class Gate(Protocol):
    """Decide at each round border at which requests wait: prefill now, or decode on.

    ``rounds_to_wait`` weighs what waiting clients cost against what a prefill stage costs (Pang,
    section IV-C). ``parameters={"gate": gate}`` gives one of your own to ``online``, ``offline``,
    ``hybrid`` and ``robust``: an object, which is copied for each run, a class, or a text
    ``module:Class``. A gate with all methods of ``ListeningGate`` is told of every request.

    >>> class Every:
    ...     def start(self, view): ...
    ...     def rounds_to_wait(self, view, waiting): return 0 if waiting.clients > 1 else 1
    ...     def stage_taken(self, view): ...
    >>> import orsched
    >>> found = orsched.solve(orsched.load("gate"), "online", parameters={"gate": Every()})
    >>> found.checked
    True
    """

    def start(self, view: View) -> None:
        """See the worker before the first decision."""

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Return 0 to prefill now, else the rounds to decode before asking again."""

    def stage_taken(self, view: View) -> None:
        """Record that a prefill stage was started."""


@runtime_checkable
class ListeningGate(Gate, Protocol):
    """A gate that is told of every request."""

    def arrived(self, view: View, request: int) -> None:
        """Record a request in the queue."""

    def started(self, view: View, stage: Sequence[int]) -> None:
        """Record requests that get their clients now."""

    def finished(self, view: View, request: int) -> None:
        """Record a request's end."""


class PrefillFirst:
    """Prefill at once, always: the gate of vLLM V0 and of Pang's baseline."""

    def start(self, view: View) -> None:
        """Nothing to remember."""

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Never wait."""
        return 0

    def stage_taken(self, view: View) -> None:
        """Nothing to remember."""


def stage_ns(view: View, waiting: Waiting) -> int:
    """Return C_p of Pang, section IV-C: the time of the stage, over prompts of equal length."""
    each, more = divmod(waiting.tokens, waiting.clients)
    return view.worker.cost.prefill_ns([each + 1] * more + [each] * (waiting.clients - more))


class Printed:
    """Prefill when C_d of Pang's eq. (43), as printed, reaches the time of the stage: T^d times the
    tokens that those who run have decoded since the last stage, whether a client waits or not.
    T^d is what a request adds to a round; J of them have J tokens a round, so it hardly waits."""

    def start(self, view: View) -> None:
        """Read T^d off the worker."""
        one = view.worker.cost.round_ns(1, _TYPICAL_PROMPT, _TYPICAL_PROMPT)
        self.token_ns = max(1, one - fixed_costs(view.worker)[1] or one)
        self.begun = 0

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Wait until C_d >= C_p."""
        a_round = self.token_ns * len(view.running)
        left = stage_ns(view, waiting) - a_round * (view.rounds - self.begun)
        return 0 if waiting.full else max(0, -(-left // a_round))

    def stage_taken(self, view: View) -> None:
        """Start a new count."""
        self.begun = view.rounds


class WaitedTime:
    """Prefill when the decode time waited so far reaches the time of the stage (Pang's C_d, C_p).

    A reading of the words of Pang, section IV-C: C_d, "the waited decode time", is what has passed
    since the first client of the stage fell idle. ``Printed`` is the formula.
    """

    def start(self, view: View) -> None:
        """Forget the last run."""
        self.since_ns = -1

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Wait until C_d >= C_p."""
        if self.since_ns < 0:
            self.since_ns = view.now_ns
        if waiting.full:
            return 0
        cost = view.worker.cost
        left = stage_ns(view, waiting) - (view.now_ns - self.since_ns)
        if left <= 0:
            return 0
        if cost.context_matters:
            return 1
        one = cost.round_ns(len(view.running), 0, 0)
        return -(-left // one) if one else FOREVER

    def stage_taken(self, view: View) -> None:
        """Start a new count."""
        self.since_ns = -1


class IdleCost:
    """Prefill when the accumulated cost of idle client-rounds reaches the stage's fixed cost.

    The derived gate (*How long to wait before a prefill* in the docs): an idle client-round costs
    1/J of a round's fixed time, a stage its fixed time (its token time is due anyway). Waiting for
    w rounds while clients free at a steady rate is cheapest per round when both are equal. A full
    stage never waits: more clients would not make it cheaper. ``factor`` multiplies the threshold;
    1 is the derived value.
    """

    def __init__(self, factor: float = 1.0) -> None:
        if not 0 <= factor < 1e6:
            raise InputError(
                f"{factor} is not a valid factor", field="gate_factor", remedy="0 to 1e6"
            )
        self.factor = factor

    def start(self, view: View) -> None:
        """Compute the threshold in client-rounds."""
        stage, one_round = fixed_costs(view.worker)
        price = one_round / view.worker.clients
        self.threshold = self.factor * stage / price if price > 0 else 0.0
        self.idle_rounds = self.idle = self.last_round = 0

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Wait until idle client-rounds reach the threshold."""
        now = view.rounds
        self.idle_rounds += self.idle * (now - self.last_round)
        self.last_round = now
        self.idle = waiting.clients
        left = self.threshold - self.idle_rounds
        if left <= 0 or waiting.full:
            return 0
        return max(1, -int(-left // waiting.clients))

    def stage_taken(self, view: View) -> None:
        """Start a new count."""
        self.idle_rounds = self.idle = 0
        self.last_round = view.rounds


def fixed_costs(worker: Worker) -> tuple[int, int]:
    """Return the fixed nanoseconds of a prefill stage (what two stages of one request take more
    than one of both) and of a decode round (extrapolated from one and two active clients to none).
    At least 0, and 0 where a fitted model with negative coefficients has no time for such a
    step."""
    cost, limit = worker.cost, worker.prefill_limit
    p = _TYPICAL_PROMPT if limit is None else max(1, min(_TYPICAL_PROMPT, limit // 2))
    try:
        stage = cost.prefill_ns([p])
        if limit is None or limit >= 2 * p:
            stage = 2 * stage - cost.prefill_ns([p, p])
        one_round = 2 * cost.round_ns(1, p, p) - cost.round_ns(2, 2 * p, p)
    except InputError:
        return 0, 0
    return max(0, stage), max(0, one_round)


_TRUSTED = 0.5  # predicted ends count as known while their mean error is so much of a usual wait
_PROVEN = 16  # ends after which predictions have proved right, or not
_ALL = 2**62
_PART = 16  # a part of the starts to record is a stage, or so many requests of one twice as large


class ShadowPrice:
    """Prefill when the next free clients are not worth the idle time until they are free.

    Knows the ends of running requests when clairvoyant, or as long as predictions prove true; else
    it learns how long requests take, and that none outlives the output limit. While arrivals are
    expected it prices the waiting requests' time (mean JCT), afterwards the makespan. It records
    starts when it is asked or an end comes: a decision that forms a stage has enough to do.
    """

    def start(self, view: View) -> None:
        """Read the fixed costs off the worker."""
        self.stage_ns, self.round_ns = fixed_costs(view.worker)
        self.cost, self.clients = view.worker.cost, view.worker.clients
        self.has_memory = view.worker.memory is not None
        self.arrivals = ArrivalRate()
        self.learned = LearnedEnds(view)
        lengths = known_lengths(view)
        self.known = None if lengths is None else KnownEnds(view, lengths)
        self.sighted = isinstance(view, ClairvoyantView)
        self.idle_rounds = self.idle = self.last_round = 0
        self._started: list[tuple[int, Sequence[int]]] = []
        self._later: deque[tuple[int, Sequence[int]]] = deque()  # only known ends are to be noted

    def arrived(self, view: View, request: int) -> None:
        """Record a request in the queue."""
        self.arrivals.note(view.arrival_ns[request])
        if self.known is not None:
            self.known.queue(request)

    def started(self, view: View, stage: Sequence[int]) -> None:
        """Remember requests that get their clients now."""
        self._started.append((view.rounds, stage))

    @property
    def unsettled(self) -> bool:
        """Whether there are starts that are not taken note of."""
        return bool(self._started or self._later)

    def settle(self, parts: int = _ALL) -> None:
        """Record a number of the starts so far, and a number of parts of their known ends."""
        self._note(parts)
        later, known = self._later, self.known
        while later and parts > 0 and known is not None:
            now, stage = later.popleft()
            if len(stage) > 2 * _PART and parts < _ALL:
                later.appendleft((now, stage[_PART:]))
                stage = stage[:_PART]
            known.start(now, stage)
            parts -= 1

    def _note(self, count: int = _ALL) -> None:
        """Record a number of the starts so far, but no known ends."""
        noted = self._started[:count]
        for entry in noted:
            self.learned.start(*entry)
        if self.known is not None:
            self._later += noted
        del self._started[:count]

    def running(self) -> tuple[dict[int, list[int]], list[tuple[int, Sequence[int]]]]:
        """Return what runs: lists that begin with the start round; starts not taken note of."""
        return self.learned.stage_of.copy(), self._started.copy()

    def finished(self, view: View, request: int) -> None:
        """Record a request's end."""
        now = view.rounds
        if self._started:
            self._note()
        while self._later and self.known is not None and request not in self.known.end_of:
            self.settle(1)
        self.learned.finish(now, request)
        if self.known is not None:
            self.known.finish(now, request)

    def stage_taken(self, view: View) -> None:
        """Start a new count."""
        self.idle_rounds = self.idle = 0
        self.last_round = view.rounds

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Return 0 when waiting does not pay, else the rounds until the next look."""
        if self._started or self._later:
            self.settle()
        now, active, clients = view.rounds, len(view.running), waiting.clients
        idle_rounds = self.idle_rounds + self.idle * (now - self.last_round)
        self.idle_rounds, self.last_round, self.idle = idle_rounds, now, clients
        stage_ns, most = self.stage_ns, self.clients
        if waiting.full or stage_ns == 0:
            return 0
        if self.has_memory:
            clients, most = within_memory(view, clients)
        left = max(0, waiting.queued - clients)
        a_round = self.cost.round_ns(active, active, 1)
        arrivals = self.expected_arrivals(view) * a_round
        price = self.round_ns / most
        if arrivals > 0:  # mean JCT: those who stay are delayed by idle time, all by the stage
            price = (price * left + a_round) / (active + waiting.queued)
        budget = stage_ns - price * idle_rounds
        if price <= 0 or budget <= 0 or (left == 0 and arrivals <= 0):
            return 0
        rounds = max(1, int(budget / (price * clients)))
        if left == 0:
            worth = sqrt(2 * stage_ns * price / arrivals)
            return rounds if price * clients < worth * arrivals else 0
        hazard = self.learned.hazard(now, active)
        rate = active * hazard
        if rate <= 0:
            return 0
        worth = sqrt(2 * stage_ns * price / rate)
        if self.known is not None and self._trusts(worth / price):
            delay = self.round_ns if arrivals <= 0 else 0
            worth = min(worth, stage_ns / clients)
            return self.known.wait(now, clients, left, most, price, worth, delay)
        if price * clients >= worth * rate:
            return 0
        return int(self.learned.expects_one(now, rounds, hazard))

    def expected_arrivals(self, view: View) -> float:
        """Return the arrivals a nanosecond that are expected."""
        if self.sighted and self.arrivals.count == len(view.arrival_ns):
            return 0.0
        return self.arrivals.rate(view.now_ns)

    def _trusts(self, usual_wait: float) -> bool:
        assert self.known is not None
        return self.known.mean_error <= _TRUSTED * usual_wait

    def proven(self, view: View, tolerance: float) -> bool:
        """Whether the ends of requests are known within a share of the usual wait for a stage:
        clairvoyant, or by the mean error of those that have ended."""
        if self.sighted:
            return True
        if self._started:
            self._note()
        active = len(view.running)
        rate = active * self.learned.hazard(view.rounds, active)
        if self.known is None or self.learned.count < _PROVEN or not (rate and self.round_ns):
            return False
        price = self.round_ns / view.worker.clients
        usual = sqrt(2 * self.stage_ns / (price * rate))
        return self.known.mean_error <= tolerance * usual


def within_memory(view: View, clients: int) -> tuple[int, int]:
    """Return how many of the clients memory leaves room for, and how many it has room for at most,
    by the mean blocks of those that run."""
    free, memory, active = view.blocks_free, view.worker.memory, len(view.running)
    if free is None or memory is None or not active:
        return clients, view.worker.clients
    used = memory.blocks - free
    fit = free * active // used if used else clients
    return max(1, min(clients, fit)), max(1, min(view.worker.clients, active + fit))


GATES: dict[str, type[Gate]] = {
    "prefill_first": PrefillFirst,
    "printed": Printed,
    "waited_time": WaitedTime,
    "idle_cost": IdleCost,
    "shadow_price": ShadowPrice,
}
"""Gates by name; ``make_gate`` makes one."""


def require_gate(gate: object) -> None:
    """Raise ``InputError`` for what cannot be a gate; no code of a ``module:Class`` runs."""
    if isinstance(gate, str):
        if gate in GATES or ":" in gate:
            return
        problem, known = f"unknown gate {gate!r}", known_names(gate, GATES, "one of: ")
    elif isinstance(gate, Gate):
        return
    else:
        problem, known = f"{gate!r:.60} is not a gate", f"one of: {', '.join(GATES)}"
    own = "of your own: module:Class, or an object with start, rounds_to_wait and stage_taken"
    raise InputError(problem, field="gate", remedy=f"{known}; {own}")


def make_gate(gate: str | Gate | type[Gate], factor: float = 1.0) -> Gate:
    """Return a fresh gate: one of ``GATES`` by its name (``factor`` is that of ``idle_cost``), one
    of a class or of ``module:Class``, whose module is imported, or a copy of an object."""
    require_gate(gate)
    if gate == "idle_cost":
        return IdleCost(factor)
    if isinstance(gate, str):
        gate = GATES[gate] if gate in GATES else class_of(gate, Gate, "gate")
    if not isinstance(gate, type):
        return deepcopy(gate)
    try:
        return gate()
    except TypeError as error:
        raise InputError(
            f"cannot make a gate of {gate.__name__}: {error}",
            field="gate",
            remedy="give a class without arguments, or an object of it",
        ) from None


def name_of_gate(gate: str | Gate | type[Gate]) -> str:
    """Return a gate as a parameter in files: its name, or ``module:Class``."""
    if isinstance(gate, str):
        return gate
    kind = gate if isinstance(gate, type) else type(gate)
    return f"{kind.__module__}:{kind.__qualname__}"
