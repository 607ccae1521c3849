"""What a step charges each request in it, re-derived from a certificate's choices.

Every worker listed has a weight, says what divides the fixed part of a stage and of a round, and
gives a line below all stages where the cost model has levels. No step may charge more than it
takes; that follows from what is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.checker.alone import (
    FS,
    PLAIN,
    Allowed,
    blocks_of,
    fitting,
    given_away,
    held_blocks,
    most_at_once,
    own_round_ns,
    prefilled_again,
    requests_of,
    require_growth,
    rounds_of,
)
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost

if TYPE_CHECKING:
    from collections.abc import Callable

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
    weight, cost = choice["weight"], worker.cost
    require_growth(worker, may)
    _check_choice(worker, choice)
    held = {row: held_blocks(worker, *requests[row][:2]) for row in rows}
    clients = most_at_once(worker, sorted(held.values()))
    whole_stage, whole_round = _wholes(worker, clients, choice)
    parts = _parts(worker, clients, choice.get("line"), [requests[row][0] for row in rows], may)
    both = whole_stage * whole_round
    least = min(requests[row][0] for row in rows)

    def of_stage(tokens: int) -> int:
        share = tokens if choice["stage_share"] == "cap" else 1
        return parts.stage_fixed * share * whole_round + parts.stage_own(tokens) * both

    charges, fullest = {}, 0
    for row in rows:
        prompt, output, _ = requests[row]
        in_round = held[row] if choice["round_share"] == "memory" else 1
        own_round = own_round_ns(cost, clients, least, prompt)
        charge = Charge(
            of_stage(prompt),
            parts.round_fixed * in_round * whole_stage
            + (parts.round_each + parts.round_context * prompt) * both,
            parts.round_context * both,
            0 if may.chunks else cost.prefill_ns([prompt]),
            min(own_round, prefilled_again(worker, prompt, may)) if may.again else own_round,
            may.again,
        )
        charges[row] = charge
        fullest = max(fullest, charge.base + charge.growth * rounds_of(instance, output))
    if may.again:
        charges = _or_again(charges, {row: requests[row][0] for row in rows}, of_stage)
    spare = parts.round_fixed * both if choice["round_share"] == "clients" else 0
    return WorkerCharges(worker, weight, clients, parts.unit * both, charges, spare, fullest)


def _check_choice(worker: Worker, choice: dict[str, Any]) -> None:
    fields = {"worker", "weight", "stage_share", "round_share"}
    if isinstance(worker.cost, AffineCost | LevelsCost):
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
    stage_fixed: int
    round_fixed: int
    round_each: int
    round_context: int
    linear: int
    each: int = 0
    quadratic: int = 0
    least: int | None = None

    def stage_own(self, prompt: int) -> int:
        own = prompt * (self.linear + self.quadratic * prompt)
        if self.least is not None:
            own = max(own, self.least)
        return max(0, own + self.each)


def _parts(worker: Worker, clients: int, line: Any, prompts: list[int], may: Allowed) -> _Parts:
    cost = worker.cost
    if isinstance(cost, AffineCost | LevelsCost):
        fixed, token, unit = _checked_line(worker, line)
        if may.mixed and isinstance(cost, AffineCost) and fixed > 0:
            raise ValueError("a mixed step has one fixed part, which its round charges")
        empty = cost.round_ns(0, 0, 0)
        one = cost.round_ns(1, 0, 0)
        return _Parts(unit, fixed, unit * empty, unit * (one - empty), 0, token)
    if isinstance(cost, BilinearCost):
        return _bilinear_parts(cost, clients)
    if isinstance(cost, PoolingCost) and cost.gamma_fs >= 0 and cost.delta_fs >= 0:
        parts = _pooling_parts(cost, clients, min(prompts))
        if may.chunks or may.mixed:  # a mixed step takes a round's time at least
            parts = parts._replace(linear=0, each=0, quadratic=0, least=None)
        return parts
    raise ValueError("the cost model has no charges")


def _bilinear_parts(cost: BilinearCost, clients: int) -> _Parts:
    """A longest context, or prompt, is at least the mean over the clients."""
    if any(value < 0 for value in cost.to_dict().values()):
        raise ValueError("the cost model has no floor")
    times = cost.time_scale * clients
    stage = cost.p4_fs - given_away(cost.p1_fs, cost.p2_fs, cost.p3_fs, cost.p4_fs)
    a_round = cost.d4_fs - given_away(cost.d1_fs, cost.d2_fs, cost.d3_fs, cost.d4_fs)
    parts = _Parts(FS * clients, 0, 0, 0, 0, 0)
    if stage >= 0:
        linear = cost.p1_fs * times + cost.p3_fs * cost.time_scale
        parts = parts._replace(stage_fixed=stage * times, linear=linear, each=cost.p2_fs * times)
    if a_round >= 0:
        context = cost.d1_fs * times + cost.d3_fs * cost.time_scale
        parts = parts._replace(
            round_fixed=a_round * times, round_each=cost.d2_fs * times, round_context=context
        )
    return parts


def _pooling_parts(cost: PoolingCost, clients: int, least_prompt: int) -> _Parts:
    """Each request pays for a whole step's rounding; where it cannot, rounds charge nothing."""
    times = cost.time_scale * clients
    lost = given_away(cost.alpha_fs, cost.beta_fs, cost.c_fs)
    context = (cost.gamma_fs + cost.delta_fs) * cost.time_scale
    each = -(FS // 2) * times
    if context * (least_prompt + 1) + each < 0:
        context = each = 0
    return _Parts(
        unit=FS * clients,
        stage_fixed=0,
        round_fixed=0,
        round_each=each,
        round_context=context,
        linear=cost.beta_fs * times,
        each=-lost * times,
        quadratic=cost.alpha_fs * times,
        least=cost.c_fs * times,
    )


def _checked_line(worker: Worker, line: Any) -> tuple[int, int, int]:
    """The line (a, b, scale), once known that a stage takes at least (a + b tokens) / scale."""
    fixed, token, scale = line
    if scale < 1:
        raise ValueError("the line has no scale")
    cost = worker.cost
    if isinstance(cost, AffineCost):
        below = fixed <= scale * cost.prefill_fixed_ns and token <= scale * cost.prefill_token_ns
    else:
        assert isinstance(cost, LevelsCost)
        cap = cost.prefill_limit if worker.prefill_limit is None else worker.prefill_limit
        below = all(fixed + token * min(c, cap) <= scale * time for c, time in cost.levels)
    if not below:
        raise ValueError("the line is above a stage")
    return fixed, token, scale
