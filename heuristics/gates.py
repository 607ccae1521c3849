"""Gates: when to interrupt decoding for a prefill stage (Pang, section IV-C).

A gate compares what it costs to let clients wait with what it costs to insert a prefill stage.
Both are read off the cost model, so a gate works under every one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from orsched.common.errors import InputError
from orsched.data.step import FOREVER

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


class Gate(Protocol):
    """Decides at each round border with waiting clients; state belongs to one run."""

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


class WaitedTime:
    """Prefill when the decode time waited so far reaches the time of the stage (Pang's C_d, C_p).

    A reading of the words of Pang, section IV-C: C_p is the time of the prefill stage that would
    be inserted (over prompts of equal length), C_d, "the waited decode time", what has passed since
    the first of its clients fell idle. The formula of eq. (43) is another: T^d times the tokens of
    the decode stage, whether a client waits or not.
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
        each, more = divmod(waiting.tokens, waiting.clients)
        prompts = [each + 1] * more + [each] * (waiting.clients - more)
        left = cost.prefill_ns(prompts) - (view.now_ns - self.since_ns)
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
    1/J of a round's fixed time, a stage its fixed time (its token time is due anyway). Waiting
    for w rounds while clients free at a steady rate is cheapest per round when both are equal. A
    full stage never waits: more waiting clients would not make it cheaper.

    Args:
        factor: multiplies the threshold; 1 is the derived value.
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
        self.idle_rounds = 0
        self.last_round = 0
        self.idle = 0

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
        self.idle_rounds = 0
        self.last_round = view.rounds
        self.idle = 0


def fixed_costs(worker: Worker) -> tuple[int, int]:
    """Return the fixed time of a prefill stage and of a decode round, in nanoseconds.

    Stage: what two stages of one request take more than one stage of both. Round: what a round
    would take with no active client, extrapolated from one and two. Both at least 0, and 0 where
    a fitted model with negative coefficients has no time for such a step.
    """
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


GATES = ("prefill_first", "waited_time", "idle_cost", "shadow_price")
"""Names of gates; ``gated.make_gate`` makes one."""
