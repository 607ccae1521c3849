"""What a step charges each request in it, re-derived from a certificate's choices.

Every worker listed has a weight, says what divides the fixed part of a stage and of a round, and
gives a line below all stages where the cost model has levels. No step may charge more than it
takes; that follows from what is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.checker.alone import (
    PLAIN,
    Allowed,
    blocks_of,
    fitting,
    held_blocks,
    most_at_once,
    own_round_ns,
    prefilled_again,
    requests_of,
    require_floor,
    round_given_away,
    rounds_of,
    stage_given_away,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.costs import Floor
    from orsched.instance import Instance
    from orsched.workers import Worker


class Charge(NamedTuple):
    """A request's charges on a worker: of its stage, of round k: ``base + k * growth``; alone.

    ``lost_half``: a token is only known to be charged before the next, not in a step of its own.
    """

    stage: int
    base: int
    growth: int
    own_stage_ns: int
    own_round_ns: int
    lost_half: bool = False

    def until(self, rounds: int) -> int:
        """Charges until so many rounds are done."""
        return self.stage + sum_of_rounds(self.base, self.growth, rounds)


def sum_of_rounds(base: int, growth: int, rounds: int) -> int:
    """Sum of ``base + k * growth`` over k = 1 ... rounds."""
    return rounds * (2 * base + (rounds + 1) * growth) // 2


@dataclass(frozen=True)
class WorkerCharges:
    """The charges of one worker, in 1 / scale nanoseconds.

    ``rows`` has the requests that fit; ``spare`` is what an empty round would take and ``fullest``
    the most that a round charges anyone (0 and 0 where an emptier round is not known to waste).
    """

    worker: Worker
    weight: int
    clients: int
    scale: int
    rows: dict[int, Charge]
    spare: int
    fullest: int

    def wasted(self, there: int) -> tuple[int, int]:
        """Least share of a round, of at most ``there`` requests, that it charges nobody."""
        if there >= self.clients or self.spare == 0:
            return 0, 1
        empty = self.spare * (self.clients - there)
        return empty, empty + self.fullest * self.clients * there


def charged_workers(
    instance: Instance, choices: list[dict[str, Any]], may: Allowed = PLAIN
) -> list[WorkerCharges]:
    """Return the charges of the workers listed, once every worker that can serve is among them."""
    named = [choice["worker"] for choice in choices]
    workers = instance.workers
    useful = [k for k, worker in enumerate(workers) if fitting(instance, worker, may.chunks)]
    if named != useful:
        raise ValueError(f"the workers listed are {named}, not {useful}")
    return [_charged(instance, workers[choice["worker"]], choice, may) for choice in choices]


def _charged(
    instance: Instance, worker: Worker, choice: dict[str, Any], may: Allowed
) -> WorkerCharges:
    requests, rows = requests_of(instance), fitting(instance, worker, may.chunks)
    weight, floor = choice["weight"], require_floor(worker, may)
    _check_choice(floor, choice)
    held = {row: held_blocks(worker, *requests[row][:2]) for row in rows}
    clients = most_at_once(worker, sorted(held.values()))
    whole_stage, whole_round = _wholes(worker, clients, choice)
    least = min(requests[row][0] for row in rows)
    parts = _parts(worker, floor, clients, choice.get("line"), least, may)
    both = whole_stage * whole_round

    def of_stage(tokens: int) -> int:
        share = tokens if choice["stage_share"] == "cap" else 1
        return parts.stage_fixed * share * whole_round + parts.stage_own(tokens) * both

    charges, fullest = {}, 0
    for row in rows:
        prompt, output, _ = requests[row]
        in_round = held[row] if choice["round_share"] == "memory" else 1
        own_round = own_round_ns(floor, clients, least, prompt)
        charge = Charge(
            of_stage(prompt),
            parts.round_fixed * in_round * whole_stage
            + (parts.round_each + parts.round_context * prompt) * both,
            parts.round_context * both,
            0 if may.chunks else floor.prefill_ns([prompt]),
            min(own_round, prefilled_again(worker, floor, prompt, may)) if may.again else own_round,
            may.again,
        )
        charges[row] = charge
        fullest = max(fullest, charge.base + charge.growth * rounds_of(instance, output))
    if may.again:
        charges = _or_again(charges, {row: requests[row][0] for row in rows}, of_stage)
    spare = parts.round_fixed * both if choice["round_share"] == "clients" else 0
    return WorkerCharges(worker, weight, clients, parts.unit * both, charges, spare, fullest)


def _check_choice(floor: Floor, choice: dict[str, Any]) -> None:
    fields = {"worker", "weight", "stage_share", "round_share"}
    if floor.by_counts:
        fields.add("line")
    if set(choice) != fields:
        raise ValueError(f"the choices are {sorted(choice)}, not {sorted(fields)}")


def _or_again(
    charges: dict[int, Charge], prompts: dict[int, int], of_stage: Callable[[int], int]
) -> dict[int, Charge]:
    """Charge no token more than a prefill of the prompt and all tokens before it does.

    That grows by more and more with the tokens, so by no less than from the first to the second.
    """
    steps = [of_stage(p + 2) - of_stage(p + 1) for p in prompts.values()]
    found = {}
    for row, charge in charges.items():
        growth = min(charge.growth, *steps)
        token = min(charge.base + charge.growth, of_stage(prompts[row] + 1))
        found[row] = charge._replace(base=token - growth, growth=growth)
    return found


def joined(instance: Instance, workers: list[WorkerCharges], scale: int) -> dict[int, Charge]:
    """The charges on one machine where requests may change workers.

    Of each part of a request the least on any worker: of its prefill, of a first round, of the
    growth from round to round.
    """
    found: dict[int, Charge] = {}
    factors = [worker.weight * (scale // worker.scale) for worker in workers]
    growth = min(
        factor * charge.growth
        for factor, worker in zip(factors, workers, strict=True)
        for charge in worker.rows.values()
    )
    for row in range(len(instance)):
        known = [
            (factor, worker.rows[row])
            for factor, worker in zip(factors, workers, strict=True)
            if row in worker.rows
        ]
        if not known:
            raise ValueError(f"no worker serves request {row}")
        found[row] = Charge(
            min(factor * charge.stage for factor, charge in known),
            min(factor * (charge.base + charge.growth) for factor, charge in known) - growth,
            growth,
            min(charge.own_stage_ns for _, charge in known),
            min(charge.own_round_ns for _, charge in known),
            known[0][1].lost_half,
        )
    return found


def _wholes(worker: Worker, clients: int, choice: dict[str, Any]) -> tuple[int, int]:
    """What all shares of one stage, and of one round, add up to at most."""
    stage, a_round = choice["stage_share"], choice["round_share"]
    if stage == "clients":
        whole_stage = clients
    elif stage == "cap" and worker.prefill_limit is not None:
        whole_stage = worker.prefill_limit
    else:
        raise ValueError(f"a stage is not shared by {stage!r}")
    if a_round == "clients":
        return whole_stage, clients
    memory = blocks_of(worker)
    if a_round == "memory" and memory is not None:
        return whole_stage, memory[0]
    raise ValueError(f"a round is not shared by {a_round!r}")


class _Parts(NamedTuple):
    """Parts that a stage and a round take at least, in 1 / unit nanoseconds.

    A stage's own parts are ``largest(quadratic p^2 + linear p, least) + each - lost``, at least 0.
    """

    unit: int
    stage_fixed: int = 0
    round_fixed: int = 0
    round_each: int = 0
    round_context: int = 0
    linear: int = 0
    each: int = 0
    quadratic: int = 0
    least: int | None = None

    def stage_own(self, prompt: int) -> int:
        own = prompt * (self.linear + self.quadratic * prompt)
        if self.least is not None:
            own = max(own, self.least)
        return max(0, own + self.each)


def _parts(
    worker: Worker, floor: Floor, clients: int, line: Any, least_prompt: int, may: Allowed
) -> _Parts:
    if floor.by_counts:
        fixed, token, unit = _checked_line(worker, floor, line)
        if may.mixed and floor.mixed != "sum" and (fixed or (token and floor.mixed == "larger")):
            raise ValueError("a mixed step is charged by its round, and more is not known of it")
        a_round = floor.round
        return _Parts(unit, fixed, unit * a_round.fixed, unit * a_round.request, 0, token)
    times = floor.times * clients
    parts = _round_parts(floor, times, least_prompt, _Parts(floor.unit * clients))
    stage, lost = floor.stage, stage_given_away(floor)
    curved = bool(stage.square) or stage.least is not None
    if (may.chunks and curved) or (may.mixed and floor.mixed != "sum"):
        return parts  # chunks may be short; a mixed step takes a round's time at least
    if stage.fixed >= lost:
        parts = parts._replace(stage_fixed=(stage.fixed - lost) * times, each=stage.request * times)
    elif curved:
        parts = parts._replace(each=(stage.request - lost) * times)
    else:
        return parts
    return parts._replace(
        linear=stage.token * times + (0 if curved else stage.longest * floor.times),
        quadratic=stage.square * times,
        least=None if stage.least is None else stage.least * times,
    )


def _round_parts(floor: Floor, times: int, least_prompt: int, parts: _Parts) -> _Parts:
    """A longest context, or a mean, is at least the sum over the clients.

    Where a round has no fixed part to lose by rounding and a mean, each request pays for a whole
    step's rounding; where it cannot, rounds charge nothing.
    """
    a_round, lost = floor.round, round_given_away(floor)
    context = a_round.context * times + (a_round.longest + (a_round.mean or 0)) * floor.times
    fixed, each = (a_round.fixed - lost) * times, a_round.request * times
    if fixed < 0:
        fixed, each = 0, each - lost * times
        if a_round.mean is None or each + context * (least_prompt + 1) < 0:
            return parts
    return parts._replace(round_fixed=fixed, round_each=each, round_context=context)


def _checked_line(worker: Worker, floor: Floor, line: Any) -> tuple[int, int, int]:
    """The line (a, b, scale), once known that a stage takes at least (a + b tokens) / scale."""
    fixed, token, scale = line
    if scale < 1:
        raise ValueError("the line has no scale")
    if floor.stage.levels is None:
        below = fixed <= scale * floor.stage.fixed and token <= scale * floor.stage.token
    else:
        levels = floor.stage.levels
        cap = levels[-1][0] if worker.prefill_limit is None else worker.prefill_limit
        below = all(fixed + token * min(c, cap) <= scale * time for c, time in levels)
    if not below:
        raise ValueError("the line is above a stage")
    return fixed, token, scale
