"""A plan cut at every finish: the bins of the MIP that asks when each request is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.models.full_mip.plan import Plan
    from orsched.models.full_mip.problem import Problem


class Bin(NamedTuple):
    """A prefill stage or none, and the rounds until the next finish or prefill.

    Attributes:
        level: place of the stage's level, None without a stage.
        rounds: rounds behind it.
        running: the requests that decode in them.
        times: when it begins, when its prefill ends and when it ends, in units.
    """

    level: int | None
    rounds: int
    running: tuple[int, ...]
    times: tuple[int, int, int]


@dataclass(frozen=True)
class Refined:
    """The bins, and for each request those in which it is prefilled and done."""

    bins: tuple[Bin, ...]
    windows: tuple[tuple[int, int], ...]


def refined(problem: Problem, plan: Plan, equals: Sequence[tuple[int, int]] = ()) -> Refined:
    """Return the bins of a plan; of requests that are ``equals`` the first is prefilled first."""
    stage = _in_order(plan.stage, equals)
    left = dict[int, int]()
    bins: list[Bin] = []
    begun, done = [0] * len(stage), [0] * len(stage)
    now = 0
    for k, rounds in enumerate(plan.rounds):
        inside = [i for i, each in enumerate(stage) if each == k]
        now = max([now, *(problem.arrivals[i] for i in inside)])
        level, prefill = _prefill(problem, inside)
        for i in inside:
            begun[i] = done[i] = len(bins)
            if problem.needed[i]:
                left[i] = problem.needed[i]
        while True:
            part = min([rounds, *left.values()]) if left else 0
            if level is None and not part:
                break
            running = tuple(left)
            decode = part * (problem.round_fixed + problem.round_client * len(running))
            bins.append(Bin(level, part, running, (now, now + prefill, now + prefill + decode)))
            now += prefill + decode
            rounds -= part
            level, prefill = None, 0
            for i in running:
                left[i] -= part
                done[i] = len(bins) - 1
            left = {i: count for i, count in left.items() if count}
    return Refined(tuple(bins), tuple(zip(begun, done, strict=True)))


def _prefill(problem: Problem, inside: Sequence[int]) -> tuple[int | None, int]:
    """Return the level of a prefill stage and how long it takes; None without requests."""
    if not inside:
        return None, 0
    tokens = sum(problem.prompts[i] for i in inside)
    level = next(n for n, (cap, _) in enumerate(problem.levels) if cap >= tokens)
    return level, problem.levels[level][1] + problem.prompt_token * tokens


def _in_order(stage: Sequence[int], equals: Sequence[tuple[int, int]]) -> list[int]:
    """Return stages exchanged between equal requests so that earlier ones come first."""
    groups: dict[int, list[int]] = {}
    of: dict[int, int] = {}
    for i, j in equals:
        head = of.setdefault(i, i)
        of[j] = head
        groups.setdefault(head, [head]).append(j)
    found = list(stage)
    for rows in groups.values():
        for row, each in zip(rows, sorted(found[row] for row in rows), strict=True):
            found[row] = each
    return found
