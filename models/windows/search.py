"""The search over stage counts and ends: anneal to a schedule, then squeeze it.

A target is a pair (K, R); its excess, 25 (K - K_lb) + 29 (R - R_lb) ms under Pang's costs, is what
the search lowers. Short pilot runs find how much of an excess should go into stages (more window
lengths) and how much into rounds (slack). The best pilot is annealed until it is a schedule. Then
a squeeze asks for a little less, by an earlier end, a stage fewer, or a stage more for two
rounds: the same state, annealed on at a lower temperature, since only a few dozen client-rounds
are missing. Squeezes that succeed are tried more often; what fails is tried with more moves.
"""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from orsched.models.windows.annealing import anneal
from orsched.models.windows.assignment import assign
from orsched.models.windows.construction import construct, even_times
from orsched.models.windows.plan import plan_of
from orsched.models.windows.squeezing import earlier_end, fewer_stages, more_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.instance import Instance
    from orsched.models.windows.plan import PlannedStage
    from orsched.models.windows.structure import Windows

    Squeeze = Callable[[Windows, int], Windows]

HOT, WARM, COLD = 4.0, 0.8, 0.2
MOVES_A_REQUEST = 300
LEAST_MOVES = 400_000
MOVES_A_PAIR = 100
"""Moves of a run: by requests and clients, not below the least, but few for a handful."""
PILOT_SHARES = (0.15, 0.3, 0.5, 0.7, 0.85)
"""Shares of the excess that pilots spend on stages."""
PILOT_PART = 8
"""A pilot makes one part in this many of the moves of a run."""
FIRST_AIM, LESS_AMBITIOUS = 0.35, 1.25
"""The first target's excess as a share of the incumbent's; it grows by a factor on failure."""
MOST_EFFORT = 8


class Target(NamedTuple):
    """A number of stages and an end in rounds."""

    stages: int
    end: int


@dataclass(frozen=True)
class Terms:
    """What the search minimises: ``stage_ns K + round_ns R``, from lower bounds on both.

    Attributes:
        stage_ns: fixed time of a prefill stage.
        round_ns: fixed time of a round.
        stages: lower bound on K.
        rounds: lower bound on R.
        limit: most starts in a stage, by the prompts' mean.
    """

    stage_ns: int
    round_ns: int
    stages: int
    rounds: int
    limit: int

    def excess(self, target: Target) -> int:
        """Return the cost of a target above both lower bounds."""
        stages, rounds = target.stages - self.stages, target.end - self.rounds
        return self.stage_ns * stages + self.round_ns * rounds

    def aim(self, excess: int, share: float) -> Target:
        """Return a target of at most this excess, a share of it in stages."""
        stages = int(excess * share) // self.stage_ns
        rounds = (excess - stages * self.stage_ns) // self.round_ns
        return Target(self.stages + stages, self.rounds + rounds)


class Attempt(NamedTuple):
    """One annealing: its target and, if it succeeded, the plan."""

    target: Target
    plan: list[PlannedStage] | None


class Search:
    """The search on one instance; deterministic given the seed, apart from ``out_of_time``."""

    def __init__(
        self, instance: Instance, terms: Terms, seed: int, out_of_time: Callable[[], bool]
    ) -> None:
        self.instance = instance
        self.terms = terms
        self.rng = random.Random(seed)
        self.out_of_time = out_of_time
        self.lengths = instance.rounds_needed
        self.effort, self.step = 1, 1
        squeezes: tuple[Squeeze, ...] = (earlier_end, fewer_stages, more_stages)
        self.promise = dict.fromkeys(squeezes, 1.0)

    def attempts(self, excess: int) -> Iterator[Attempt]:
        """Yield attempts until nothing is left to gain or time is out, below an excess at first."""
        aim = int(excess * FIRST_AIM)
        while True:
            state = self._best_pilot(aim)
            self._anneal(state, HOT)
            attempt = self._outcome(state)
            yield attempt
            if self.out_of_time():
                return
            if attempt.plan is not None:
                break
            aim, self.effort = int(aim * LESS_AMBITIOUS), 1
        self.step = max(1, self.terms.excess(self.target) // (8 * self.terms.round_ns))
        while self.terms.excess(self.target) > 0 and not self.out_of_time():
            squeeze = self._next_squeeze()
            tighter = squeeze(deepcopy(self.best), self.step)
            self._anneal(tighter, WARM)
            attempt = self._outcome(tighter)
            if attempt.plan is None:
                self.promise[squeeze] *= 0.6
                self.effort = min(MOST_EFFORT, self.effort + (self.step == 1))
                self.step = (self.step + 1) // 2
            else:
                self.promise[squeeze] *= 1.4
            yield attempt

    def _best_pilot(self, excess: int) -> Windows:
        """Return the state, after a short run, that is least short at this excess."""
        pilots = []
        for target in dict.fromkeys(self.terms.aim(excess, share) for share in PILOT_SHARES):
            state = self._first_state(target)
            self._anneal(state, HOT, PILOT_PART)
            pilots.append(state)
            if state.missing == 0 or self.out_of_time():
                break
        return min(pilots, key=lambda state: state.missing)

    def _next_squeeze(self) -> Squeeze:
        """Draw one of the squeezes that are possible, by their promise."""
        possible = dict(self.promise)
        if self.target.end < self.terms.rounds + self.step:
            del possible[earlier_end]
        if self.target.stages <= max(1, self.terms.stages):
            del possible[fewer_stages]
        if self.target.end < self.terms.rounds + 2 * self.step:
            del possible[more_stages]
        if not possible:
            self.step = 1
            possible = {earlier_end if self.target.stages == 1 else fewer_stages: 1.0}
        return self.rng.choices(list(possible), list(possible.values()))[0]

    def _first_state(self, target: Target) -> Windows:
        clients, n = self.instance.worker.clients, len(self.instance)
        first = -(-min(clients, n) // self.terms.limit)
        times = even_times(target.stages, first, target.end)
        return construct(self.lengths.tolist(), clients, times, target.end, self.terms.limit)

    def _anneal(self, state: Windows, hot: float, part: int = 1) -> None:
        n = len(self.instance)
        moves = max(LEAST_MOVES, MOVES_A_REQUEST * (n + 4 * self.instance.worker.clients))
        moves = min(moves, MOVES_A_PAIR * n * n) * self.effort // part
        anneal(state, self.terms.limit, moves, hot, COLD, self.rng, self.out_of_time)

    def _outcome(self, state: Windows) -> Attempt:
        """Assign requests where nothing is missing; keep the state if that succeeds."""
        target = Target(state.stages, state.times[-1])
        assigned = None
        if state.missing == 0:
            prompts = self.instance.requests.prompt_tokens
            limit = self.instance.worker.prefill_limit
            assigned = assign(state, self.lengths, prompts, limit)
        if assigned is None:
            return Attempt(target, None)
        self.best, self.target, self.effort = state, target, 1
        return Attempt(target, plan_of(state, assigned))
