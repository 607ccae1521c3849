"""Training of a learned gate: a search over tables of thresholds by the cross-entropy method.

The reward is minus the time that a run takes (makespan or mean JCT), over what ``shadow_price``
takes on the same requests, so that instances of different size count alike. Rubinstein 1999;
Szita and Lorincz 2006 for policies of this kind.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.columns import whole_number
from orsched.errors import InputError
from orsched.heuristics.gate_table import GateTable
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.gates import Gate, make_gate
from orsched.heuristics.learned_gate import LearnedGate
from orsched.instance import require_instance
from orsched.policy import Information
from orsched.simulator import simulate_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from orsched.instance import Instance

OBJECTIVES = ("auto", "makespan", "jct_mean")
"""What a gate is trained for; ``auto``: mean JCT with arrivals, else makespan."""

QUEUE_EDGES = (1e-9, 0.25, 1.0)
DECODING_EDGES = (0.5,)
_START_SPREAD, _LEAST_SPREAD = 0.6, 0.08
"""Of the logarithm of a threshold: at first a factor of 1.8 either way."""
_ELITE = 0.25
_SMOOTHING = 0.3
"""Weight of what the last generation's mean and spread keep."""
_FIRST_WEIGHTS = (0.5, 0.25, 0.5)
_ALL_START = 0.05
"""The first threshold where nobody arrives any more and all that wait could start."""
_OPEN = 0.02
"""A threshold below this is 0: prefill at once."""


class Trained(NamedTuple):
    """What training ends with.

    Attributes:
        table: the best that was found.
        score: its mean time over that of ``shadow_price`` on the training instances.
        first: the same of the table that the search began with.
        runs: simulations that it took.
    """

    table: GateTable
    score: float
    first: float
    runs: int


class Progress(NamedTuple):
    """A generation that is done: its number, and the best score so far."""

    generation: int
    score: float


def train_gate(
    instances: Sequence[Instance],
    objective: str = "auto",
    *,
    generations: int = 12,
    population: int = 16,
    seed: int = 0,
    callback: Callable[[Progress], None] | None = None,
) -> Trained:
    """Search for the table under which runs take the least time; a seed gives the same table.

    Args:
        instances: to train on, of one worker each; longest first, one queue, lengths unknown.
        objective: one of ``OBJECTIVES``.
        generations, population: of the search; each table is tried on every instance.
        seed: of the draws.
        callback: called after each generation.

    Raises:
        InputError: no instance, one that the policy does not take, or a number out of range.
    """
    if objective not in OBJECTIVES:
        raise InputError(f"no objective {objective!r}", field="objective", remedy="auto")
    whole_number(generations, "generations", minimum=1, maximum=10_000)
    whole_number(population, "population", minimum=4, maximum=10_000)
    whole_number(seed, "seed")
    for each in instances if isinstance(instances, (list, tuple)) else [instances]:
        require_instance(each)
    if not any(len(each) for each in instances):
        raise InputError("there are no requests to train on", field="instances", remedy="add some")
    problems = [_Problem(each, objective) for each in instances if len(each)]
    draws = np.random.Generator(np.random.PCG64(seed))
    shape = 2, len(QUEUE_EDGES) + 1, len(DECODING_EDGES) + 1
    thresholds = np.zeros(shape)
    thresholds[0, 0] = math.log(_ALL_START)
    mean = np.concatenate([np.log(_FIRST_WEIGHTS), thresholds.ravel()])
    spread = np.full(len(mean), _START_SPREAD)
    best, first = mean.copy(), _score(mean, problems)
    least, kept = first, max(2, round(_ELITE * population))
    for generation in range(generations):
        tried = mean + spread * draws.standard_normal((population, len(mean)))
        tried[0] = mean
        scores = np.array([_score(each, problems) for each in tried])
        order = np.argsort(scores, kind="stable")
        if scores[order[0]] < least:
            least, best = float(scores[order[0]]), tried[order[0]].copy()
        elite = tried[order[:kept]]
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * elite.mean(axis=0)
        spread = _SMOOTHING * spread + (1 - _SMOOTHING) * elite.std(axis=0)
        spread = np.maximum(spread, _LEAST_SPREAD)
        if callback is not None:
            callback(Progress(generation + 1, least))
    runs = len(problems) * (generations * population + 2)
    return Trained(_table(best), least, first, runs)


class _Problem:
    """An instance to train on, with what ``shadow_price`` takes on it."""

    def __init__(self, instance: Instance, objective: str) -> None:
        instance.require_stages("the gate")
        self.instance = instance
        arrivals = instance.requests.arrival_ns
        late = bool(len(arrivals) and arrivals.max() > arrivals.min())
        self.latency = objective == "jct_mean" or (objective == "auto" and late)
        self.base = self.time(make_gate("shadow_price"))

    def time(self, gate: Gate) -> float:
        """Return what a run under a gate takes."""
        policy = _Gated(gate)
        schedule = simulate_policy(self.instance, policy).schedule
        if not self.latency:
            return float(schedule.makespan_ns)
        finish = schedule.request_times(self.instance)["finish_ns"]
        return float((finish - self.instance.requests.arrival_ns).mean())


class _Gated(GatedPolicy):
    """The gated policy with a gate that is given as an object."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(GatedParams("shared"), Information.NONE)
        self.given = gate

    def make_gate(self) -> Gate:
        """Return the given one."""
        return self.given


def _score(vector: NDArray[np.float64], problems: Sequence[_Problem]) -> float:
    """Return the mean time under a table over that of ``shadow_price``."""
    table = _table(vector)
    return math.fsum(each.time(LearnedGate(table)) / each.base for each in problems) / len(problems)


def _table(vector: NDArray[np.float64]) -> GateTable:
    """Return the table of a point of the search, in numbers of four digits as files have them."""
    values = [float(f"{value:.4g}") for value in np.exp(np.clip(vector, -12, 12)).tolist()]
    signs = len(_FIRST_WEIGHTS)
    weights, cells = values[:signs], [0.0 if v < _OPEN else v for v in values[signs:]]
    rows, columns = len(QUEUE_EDGES) + 1, len(DECODING_EDGES) + 1
    thresholds = tuple(
        tuple(tuple(cells[(regime * rows + row) * columns :][:columns]) for row in range(rows))
        for regime in range(2)
    )
    return GateTable(tuple(weights), QUEUE_EDGES, DECODING_EDGES, thresholds)
