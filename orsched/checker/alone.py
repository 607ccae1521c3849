"""What requests take alone on a worker, where they fit, and which schedules a bound allows."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.costs import floor_of

if TYPE_CHECKING:
    from orsched.costs import Floor
    from orsched.instance import Instance
    from orsched.workers import Worker


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


def require_floor(worker: Worker, may: Allowed) -> Floor:
    """The floor under a worker's steps; refuse cost models that state none for what is allowed."""
    floor = floor_of(worker.cost)
    if floor is None or (may.mixed and floor.mixed is None):
        raise ValueError("the cost model has no floor")
    falls = min(floor.stage.square, floor.stage.token) < 0
    if falls and (worker.padding or may.again):
        raise ValueError("the cost model has no floor under longer prompts")
    return floor


def alone_ns(
    instance: Instance, worker: Worker, rows: list[int], first: bool, may: Allowed = PLAIN
) -> dict[int, int]:
    """Least time of each request's own stage and rounds, until its end or its first token."""
    requests, floor = requests_of(instance), require_floor(worker, may)
    clients = most_at_once(worker, sorted(held_blocks(worker, *requests[row][:2]) for row in rows))
    least = min(requests[row][0] for row in rows)
    found = {}
    for row in rows:
        prompt, output, _ = requests[row]
        rounds = rounds_of(instance, 1 if first else output)
        decode = own_rounds_ns(floor, clients, least, prompt, rounds)
        if may.again and rounds:
            again = prefilled_again(worker, floor, prompt, may)
            if again < own_round_ns(floor, clients, least, prompt + rounds - 1):
                decode = rounds * min(again, own_round_ns(floor, clients, least, prompt))
        found[row] = _own_prefill(worker, floor, prompt, may.chunks) + decode
    return found


def prefilled_again(worker: Worker, floor: Floor, prompt: int, may: Allowed) -> int:
    """Least time of a prefill after the first, which no level need be large enough for."""
    parted = may.chunks or floor.stage.levels is not None
    return _own_prefill(worker, floor, prompt + 1, parted)


def _own_prefill(worker: Worker, floor: Floor, tokens: int, parted: bool) -> int:
    """Least time of the steps that prefill so many tokens of a request."""
    stage, unit = floor.stage, floor.unit
    if stage.levels is not None:
        levels = stage.levels
        if not parted:
            return min(time for cap, time in levels if cap >= tokens)
        cap = levels[-1][0] if worker.prefill_limit is None else worker.prefill_limit
        rates = [(tokens * time + min(c, cap) - 1) // min(c, cap) for c, time in levels]
        return max(min(rates), min(time for _, time in levels))
    each, least = stage.fixed + stage.request, stage.least
    own = tokens * (tokens * stage.square + stage.token)
    if not parted:
        exact = each + tokens * stage.longest + (own if least is None else max(own, least))
        return (2 * exact + unit) // (2 * unit) * floor.times
    if stage.square or least is not None:
        return (2 * (each + (least or 0)) + unit) // (2 * unit) * floor.times
    each -= stage_given_away(floor)
    exact = each + tokens * (stage.token + stage.longest)
    return (exact + unit - 1) // unit * floor.times if each >= 0 else 0


def own_round_ns(floor: Floor, clients: int, least_prompt: int, prompt: int) -> int:
    """Least time of a request's first round: only a mean falls with the company it has."""
    parts, context = floor.round, prompt + 1
    exact = parts.fixed + parts.request + (parts.context + parts.longest) * context
    whole = floor.unit
    if parts.mean is not None:
        whole *= clients
        exact = exact * clients + parts.mean * (context + (clients - 1) * (least_prompt + 1))
    return (2 * exact + whole) // (2 * whole) * floor.times


def own_rounds_ns(floor: Floor, clients: int, least_prompt: int, prompt: int, rounds: int) -> int:
    """Least time of a request's first rounds, one by one where they grow."""
    parts = floor.round
    if not (parts.context or parts.longest or parts.mean):
        return rounds * own_round_ns(floor, clients, least_prompt, prompt)
    contexts = range(prompt, prompt + rounds)
    return sum(own_round_ns(floor, clients, least_prompt, context) for context in contexts)


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
        floor = require_floor(worker, may)
        rows = fitting(instance, worker, may.chunks)
        if not rows:
            continue
        for row, time in alone_ns(instance, worker, rows, first, may).items():
            whole[row] = min(time, whole.get(row, time))
        clients = most_at_once(worker, sorted(held_blocks(worker, *requests[r][:2]) for r in rows))
        shortest = min(requests[row][0] for row in rows)
        for row in rows:
            prompt = requests[row][0]
            own = _own_prefill(worker, floor, prompt, may.chunks)
            prefill[row] = min(own, prefill.get(row, own))
            own = own_round_ns(floor, clients, shortest, prompt)
            if may.again:
                own = min(own, prefilled_again(worker, floor, prompt, may))
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


def stage_given_away(floor: Floor) -> int:
    """Most that rounding takes off a stage, in 1 / unit nanoseconds."""
    stage = floor.stage
    own = [stage.request, stage.token, stage.square, stage.least or 0]
    return _given_away(floor.unit, stage.fixed, stage.longest, *own)


def round_given_away(floor: Floor) -> int:
    """Most that rounding takes off a round, in 1 / unit nanoseconds; means are fractions."""
    parts, unit = floor.round, floor.unit
    if parts.mean is not None:
        return (unit + 1) // 2
    return _given_away(unit, parts.fixed, parts.request, parts.context, parts.longest)


def _given_away(unit: int, *coefficients: int) -> int:
    step, most = gcd(unit, *coefficients), (unit - 1) // 2
    return most - most % step
