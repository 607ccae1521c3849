"""What requests take alone on a worker, where they fit, and which schedules a bound allows."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost

if TYPE_CHECKING:
    from orsched.costs import CostModel
    from orsched.instance import Instance
    from orsched.workers import Worker

FS = 1_000_000  # femtoseconds a nanosecond


class Allowed(NamedTuple):
    """What the schedules of a bound may do, as its certificate says in this order.

    ``again``: a prefill that is done again yields a token.
    """

    chunks: bool = False
    mixed: bool = False
    restarts: bool = False
    again: bool = False

    def stated(self) -> dict[str, Any]:
        """The field of a certificate, which is there only if anything is allowed."""
        names = [name for name in Allowed._fields[:3] if getattr(self, name)]
        return {"allows": names} if names else {}


PLAIN = Allowed()


def allowed(instance: Instance, claim: dict[str, Any]) -> Allowed:
    """What a certificate allows, once known that this is stated in the one way there is."""
    if "allows" not in claim:
        return Allowed()
    names = claim["allows"]
    restarts = "restarts" in names
    again = restarts and instance.first_token == "prefill"
    found = Allowed("chunks" in names, "mixed" in names, restarts, again)
    if type(names) is not list or found.stated() != {"allows": names}:
        raise ValueError(f"the allowances are {names!r}")
    return found


def require_growth(worker: Worker, may: Allowed) -> None:
    """Refuse cost models of which nothing is known, or whose steps may shrink as they fill."""
    cost = worker.cost
    if isinstance(cost, BilinearCost):
        grows = all(value >= 0 for value in cost.to_dict().values())
    elif isinstance(cost, PoolingCost):
        grows = cost.gamma_fs >= 0 and cost.delta_fs >= 0
        if worker.padding or may.again:
            grows = grows and cost.alpha_fs >= 0 and cost.beta_fs >= 0
        if may.mixed:
            grows = grows and cost.lambda_ppm >= 1_000_000
    else:
        grows = isinstance(cost, AffineCost | LevelsCost)
    if not grows:
        raise ValueError("the cost model has no floor")


def alone_ns(
    instance: Instance, worker: Worker, rows: list[int], first: bool, may: Allowed = PLAIN
) -> dict[int, int]:
    """Least time of each request's own stage and rounds, until its end or its first token."""
    requests, cost = requests_of(instance), worker.cost
    held = sorted(held_blocks(worker, *requests[row][:2]) for row in rows)
    active, beside = 1, 0
    if isinstance(cost, PoolingCost):
        active = most_at_once(worker, held)
        _, beside = _company(cost, active, min(requests[row][0] for row in rows))
    found = {}
    for row in rows:
        prompt, output, _ = requests[row]
        rounds = rounds_of(instance, 1 if first else output)
        if cost.context_matters:
            contexts = range(prompt + 1, prompt + rounds + 1)
            each = [cost.round_ns(active, c + beside, c) for c in contexts]
        else:
            each = [cost.round_ns(1, 0, 0)] * min(rounds, 1)
        decode = sum(each) if cost.context_matters else rounds * sum(each)
        if may.again and rounds:
            again = prefilled_again(worker, prompt, may)
            if again < each[-1]:
                decode = rounds * min(again, each[0])
        found[row] = _own_prefill(worker, prompt, may.chunks) + decode
    return found


def prefilled_again(worker: Worker, prompt: int, may: Allowed) -> int:
    """Least time of a prefill after the first, which no level need be large enough for."""
    levels = isinstance(worker.cost, LevelsCost)
    return _own_prefill(worker, prompt + 1, may.chunks or levels)


def _own_prefill(worker: Worker, tokens: int, parted: bool) -> int:
    """Least time of the steps that prefill so many tokens of a request."""
    cost = worker.cost
    if not parted or isinstance(cost, AffineCost):
        return cost.prefill_ns([tokens])
    if isinstance(cost, LevelsCost):
        cap = cost.prefill_limit if worker.prefill_limit is None else worker.prefill_limit
        rates = [(tokens * time + min(c, cap) - 1) // min(c, cap) for c, time in cost.levels]
        return max(min(rates), min(time for _, time in cost.levels))
    if isinstance(cost, BilinearCost):
        fixed = cost.p2_fs + cost.p4_fs
        fixed -= given_away(cost.p1_fs, cost.p2_fs, cost.p3_fs, cost.p4_fs)
        exact = fixed + tokens * (cost.p1_fs + cost.p3_fs)
        return (exact + FS - 1) // FS * cost.time_scale if fixed >= 0 else 0
    assert isinstance(cost, PoolingCost)
    return (2 * cost.c_fs + FS) // (2 * FS) * cost.time_scale


def _company(cost: CostModel, clients: int, least_prompt: int) -> tuple[int, int]:
    """Who is beside a request when its rounds are shortest: a pool's mean falls beside others."""
    if isinstance(cost, PoolingCost):
        return clients, (clients - 1) * (least_prompt + 1)
    return 1, 0


def blocks_of(worker: Worker) -> tuple[int, int] | None:
    """Blocks and tokens a block, if requests hold theirs from their prefill to their end."""
    memory = worker.memory
    if memory is None or memory.allocation != "whole":
        return None
    return memory.blocks, memory.block_tokens


def held_blocks(worker: Worker, prompt: int, output: int) -> int:
    """Memory blocks that a request holds."""
    memory = blocks_of(worker)
    return 0 if memory is None else (prompt + output + memory[1] - 1) // memory[1]


def requests_of(instance: Instance) -> list[tuple[int, int, int]]:
    """Prompt tokens, output tokens and arrival of each request."""
    req = instance.requests
    columns = (req.prompt_tokens, req.output_tokens, req.arrival_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def rounds_of(instance: Instance, output: int) -> int:
    """Rounds until the last of so many tokens."""
    return output if instance.first_token == "decode" else output - 1


def fitting(instance: Instance, worker: Worker, chunks: bool = False) -> list[int]:
    """Requests that fit onto a worker: under its cap unless in chunks, and into its memory."""
    found = []
    for row, (prompt, output, _) in enumerate(requests_of(instance)):
        limit = None if chunks else worker.prefill_limit
        capped = limit is not None and prompt > limit
        memory = blocks_of(worker)
        room = memory is None or held_blocks(worker, prompt, output) <= memory[0]
        if room and not capped:
            found.append(row)
    return found


def least_alone(instance: Instance, first: bool, may: Allowed) -> dict[int, int]:
    """Least time of each request on its own, on whichever worker, or on several with restarts."""
    whole: dict[int, int] = {}
    prefill: dict[int, int] = {}
    a_round: dict[int, int] = {}
    requests = requests_of(instance)
    for worker in instance.workers:
        require_growth(worker, may)
        rows = fitting(instance, worker, may.chunks)
        if not rows:
            continue
        for row, time in alone_ns(instance, worker, rows, first, may).items():
            whole[row] = min(time, whole.get(row, time))
        clients = most_at_once(worker, sorted(held_blocks(worker, *requests[r][:2]) for r in rows))
        shortest = min(requests[row][0] for row in rows)
        for row in rows:
            prompt = requests[row][0]
            own = _own_prefill(worker, prompt, may.chunks)
            prefill[row] = min(own, prefill.get(row, own))
            own = own_round_ns(worker.cost, clients, shortest, prompt)
            if may.again:
                own = min(own, prefilled_again(worker, prompt, may))
            a_round[row] = min(own, a_round.get(row, own))
    if may.restarts and not same_workers(instance):
        for row in whole:
            rounds = rounds_of(instance, 1 if first else requests[row][1])
            whole[row] = prefill[row] + rounds * a_round[row]
    return whole


def same_workers(instance: Instance) -> bool:
    """Whether the workers are equal but for their names."""
    first, *others = (worker.to_dict() for worker in instance.workers)
    return all({**worker, "name": first["name"]} == first for worker in others)


def own_round_ns(cost: CostModel, clients: int, least_prompt: int, prompt: int) -> int:
    """Least time of a request's first round."""
    active, beside = _company(cost, clients, least_prompt)
    return cost.round_ns(active, prompt + 1 + beside, prompt + 1)


def most_at_once(worker: Worker, blocks: list[int]) -> int:
    """Most requests on clients at one time: clients, requests, or the smallest in memory."""
    together, memory = 0, blocks_of(worker)
    room = None if memory is None else memory[0]
    for size in blocks[: worker.clients]:
        if room is not None:
            room -= size
            if room < 0:
                break
        together += 1
    return together


def given_away(*coefficients: int) -> int:
    """Most that rounding half up takes off, in femtoseconds."""
    unit = gcd(FS, *coefficients)
    most = (FS - 1) // 2
    return most - most % unit
