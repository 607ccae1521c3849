"""An instance as the MIP sees it: whole numbers in one unit of time, and what maps into it.

Levels are Pang's own cost model. The affine model is one level of the fixed time; what a token
costs adds up to a constant while all requests arrive together, and stays in the stages' times
when they do not. A round that depends on contexts cannot be written with Pang's variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.costs import splits

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker

MAX_UNITS = 2**50
"""Largest horizon, in units of time, that both solvers can still count in whole numbers."""


@dataclass(frozen=True)
class Problem:
    """The data of Pang's MIP; times in units of ``unit_ns``, counted from ``first_ns``.

    Attributes:
        prompts, needed, blocks, arrivals: one entry a request: N^p, decode rounds, memory
            blocks, arrival after the first one.
        clients: J.
        levels: pairs (N^cap_l, T^p_l), Pang eq. (5)-(7).
        round_fixed: T^d as the time of a round, eq. (8).
        prompt_token, round_client: time a token, where stage times must hold it; else 0.
        constant_ns: what all tokens cost together, where stage times need not hold it.
        memory_blocks: blocks of the worker, or None.
        timed: whether arrivals differ.
    """

    prompts: tuple[int, ...]
    needed: tuple[int, ...]
    blocks: tuple[int, ...]
    arrivals: tuple[int, ...]
    clients: int
    levels: tuple[tuple[int, int], ...]
    round_fixed: int
    prompt_token: int
    round_client: int
    constant_ns: int
    memory_blocks: int | None
    timed: bool
    unit_ns: int
    first_ns: int

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def most_rounds(self) -> int:
        """Rounds of the longest request: no decode stage needs more."""
        return max(self.needed, default=0)

    def horizon(self, stages: int) -> int:
        """Return a time by which some best schedule with at most ``stages`` stages has ended.

        The worker waits for arrivals only, and in each round some request is active.
        """
        return (
            max(self.arrivals, default=0)
            + stages * self.levels[-1][1]
            + self.prompt_token * sum(self.prompts)
            + (self.round_fixed + self.round_client) * sum(self.needed)
        )

    def to_ns(self, units: int) -> int:
        """Return the makespan in nanoseconds of an objective value."""
        return self.first_ns + self.constant_ns + self.unit_ns * units


def read_problem(instance: Instance, *, exact: bool = False) -> Problem:
    """Return the data of the MIP for an instance with one worker.

    ``exact``: what tokens cost stays in the times of stages and rounds, where the end of each
    request is asked for, not only that of all.

    Raises:
        InputError: several workers, padding, paged memory, a cost model that does not map, or
            times too far apart.
        InfeasibleError: a request is over the prefill cap or the memory.
    """
    worker = instance.require_stages("the full MIP", paged=False)
    instance.require_feasible()
    req = instance.requests
    levels, round_fixed, prompt_token, round_client = _times(worker, int(req.prompt_tokens.sum()))
    arrivals = req.arrival_ns.tolist()
    first = min(arrivals, default=0)
    timed = exact or max(arrivals, default=0) > first
    inside = [prompt_token, round_client, *(a - first for a in arrivals)] if timed else []
    unit = gcd(round_fixed, *(time for _, time in levels), *inside) or 1
    outside = prompt_token * int(req.prompt_tokens.sum())
    outside += round_client * int(instance.rounds_needed.sum())
    problem = Problem(
        prompts=tuple(req.prompt_tokens.tolist()),
        needed=tuple(instance.rounds_needed.tolist()),
        blocks=_blocks(instance, worker),
        arrivals=tuple((a - first) // unit for a in arrivals),
        clients=worker.clients,
        levels=tuple((cap, time // unit) for cap, time in levels),
        round_fixed=round_fixed // unit,
        prompt_token=prompt_token // unit if timed else 0,
        round_client=round_client // unit if timed else 0,
        constant_ns=0 if timed else outside,
        memory_blocks=None if worker.memory is None else worker.memory.blocks,
        timed=timed,
        unit_ns=unit,
        first_ns=first,
    )
    if problem.horizon(len(problem)) > MAX_UNITS:
        raise InputError(
            f"the times span more than {MAX_UNITS} units of {unit} ns, too many for a solver",
            field="requests",
            remedy="round costs and arrivals to a coarser unit",
        )
    return problem


def _times(worker: Worker, all_prompts: int) -> tuple[tuple[tuple[int, int], ...], int, int, int]:
    """Return levels, time of a round, time of a prompt token and of an active client, in ns."""
    cost, cap = worker.cost, worker.prefill_limit
    floor = splits(cost)
    if floor is None:
        raise InputError(
            f"the cost model {cost.model!r} does not map into Pang's MIP: its stages must take the "
            "time of a level or an affine time, its rounds a time that no context changes, and it "
            "must state that as an exact floor",
            field="cost",
            remedy="use levels or affine, state a floor, or use a method without the full MIP",
        )
    parts = (floor.round.fixed, floor.stage.token, floor.round.request)
    if floor.stage.levels is not None:
        return (_capped(floor.stage.levels, cap), *parts)
    most = all_prompts if cap is None else min(cap, all_prompts)
    return (((max(1, most), floor.stage.fixed),), *parts)


def _capped(levels: tuple[tuple[int, int], ...], cap: int | None) -> tuple[tuple[int, int], ...]:
    """Return the levels with none above the worker's cap."""
    if cap is None:
        return levels
    below = [pair for pair in levels if pair[0] < cap]
    above = next((time for size, time in levels if size >= cap), None)
    return (*below, (cap, above)) if above is not None else tuple(below)


def _blocks(instance: Instance, worker: Worker) -> tuple[int, ...]:
    if worker.memory is None:
        return (0,) * len(instance)
    req = instance.requests
    pairs = zip(req.prompt_tokens.tolist(), req.output_tokens.tolist(), strict=True)
    return tuple(worker.memory.blocks_held(p, d) for p, d in pairs)
