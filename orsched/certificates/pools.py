"""Makespan bounds where some workers prefill, some decode, and caches go over links.

Each pool serves its part of the work, whoever of its workers does: what all requests are charged of
steps (``aggregate_machine``), at the worker where that is least, divided by the devices of the
pool. Links carry each cache that has to change workers. And no request is faster than alone.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.aggregate_machine import Alone, Charges, charges_of
from orsched.certificates.jobs import Jobs, jobs_on
from orsched.certificates.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


class Needs(NamedTuple):
    """What a request needs at least, wherever it is served, in nanoseconds.

    Attributes:
        stages, rounds: charges of its prefill and of its rounds.
        prefill_ns, decode_ns: times of both, alone.
        transfer_ns: of its cache on a link; 0 if it may stay where it is.
    """

    stages: Fraction
    rounds: Fraction
    prefill_ns: int
    decode_ns: int
    transfer_ns: int


def jobs_of(instance: Instance, worker: Worker, scope: Scope) -> tuple[list[int], Jobs]:
    """Return the rows of the requests that fit onto a worker as far as it serves them."""
    return jobs_on(instance, worker, scope.chunks or not worker.prefills)


def pools(instance: Instance, claim: dict[str, Any]) -> dict[str, Any]:
    """Return the certificate that follows from the choices of a claim.

    Raises:
        ValueError: the choices are not one for each worker, or prove nothing.
    """
    scope, released = Scope.read(claim, instance), claim["released_ns"]
    needs = needs_of(instance, claim["workers"], scope, instance.rounds_needed.tolist())
    arrivals = instance.requests.arrival_ns.tolist()
    rows = [row for row, arrival in enumerate(arrivals) if arrival >= released]
    if not rows:
        raise ValueError("nothing is released then")
    some = [needs[row] for row in rows]
    workers = instance.workers
    prefill = _devices(worker for worker in workers if worker.prefills)
    decode = _devices(worker for worker in workers if worker.decodes)
    senders = sum(worker.prefills for worker in workers)
    first = min(each.prefill_ns for each in some)
    come = min(each.prefill_ns + each.transfer_ns for each in some)
    stages, rounds = sum(each.stages for each in some), sum(each.rounds for each in some)
    moved = sum(each.transfer_ns for each in some)
    found = {
        "prefill_ns": ceil(stages / prefill),
        "decode_ns": come + ceil(rounds / decode) if rounds else 0,
        "all_ns": ceil((stages + rounds) / _devices(workers)),
        "link_ns": first + -(-moved // senders) if moved else 0,
    }
    path = max(
        arrivals[row] - released + each.prefill_ns + each.transfer_ns + each.decode_ns
        for row, each in zip(rows, some, strict=True)
    )
    found["path_ns"] = path
    return {
        "bound": "pools",
        **scope.stated(),
        "released_ns": released,
        "workers": claim["workers"],
        **found,
        "value_ns": released + max(found.values()),
    }


def _devices(workers: Iterable[Worker]) -> int:
    """Return how many of some workers can be at work at one time."""
    names = [worker.device for worker in workers]
    return names.count("") + len(set(names) - {""})


def needs_of(
    instance: Instance, choices: list[dict[str, Any]], scope: Scope, rounds: list[int]
) -> list[Needs]:
    """Return what each request needs for so many rounds, from the choices of the workers.

    Raises ``ValueError`` for choices of others.

    Where prefills that are done again yield tokens, no rounds and no transfer are certain.
    """
    assert instance.link is not None
    parts = _parts(instance, choices, scope)
    prompts = instance.requests.prompt_tokens.tolist()
    moves = all(worker.role != "both" for worker in instance.workers)
    found = []
    for row, (prompt, count) in enumerate(zip(prompts, rounds, strict=True)):
        mine = [(worker, part) for worker, part in parts if row in part.at]
        stage = [part.stage_of(row, prompt) for worker, part in mine if worker.prefills]
        stages, prefill_ns = min(s for s, _ in stage), min(t for _, t in stage)
        if scope.yielding or not count:
            found.append(Needs(stages, Fraction(0), prefill_ns, 0, 0))
            continue
        round_ = [part.rounds_of(row, prompt, count) for worker, part in mine if worker.decodes]
        transfer = instance.link.transfer_ns(prompt) if moves else 0
        least, decode_ns = min(s for s, _ in round_), min(t for _, t in round_)
        found.append(Needs(stages, least, prefill_ns, decode_ns, transfer))
    return found


def alone_ns(instance: Instance, until_first: bool, scope: Scope) -> list[int]:
    """Return the least times of requests alone, until the first token or the last one.

    No choice has a bearing on them.
    """
    choices: list[dict[str, Any]] = []
    for number, worker in enumerate(instance.workers):
        if jobs_of(instance, worker, scope)[0]:
            line = {"line": [0, 0, 1]} if scope.require_floor(worker).by_counts else {}
            shares = {"stage_share": "clients", "round_share": "clients"}
            choices.append({"worker": number, "weight": 1, **shares, **line})
    rounds = instance.rounds_needed.tolist()
    if until_first:
        rounds = [int(instance.first_token == "decode")] * len(instance)
    needs = needs_of(instance, choices, scope, rounds)
    return [each.prefill_ns + each.transfer_ns + each.decode_ns for each in needs]


class _Part(NamedTuple):
    """A worker's charges and times, by row of the instance."""

    charges: Charges
    alone: Alone
    at: dict[int, int]

    def stage_of(self, row: int, prompt: int) -> tuple[Fraction, int]:
        """Return what a prefill is charged, and how long it takes alone."""
        charged = Fraction(self.charges.stages[self.at[row]], self.charges.scale)
        return charged, self.alone.prefill(prompt, self.alone.scope.chunks)

    def rounds_of(self, row: int, prompt: int, rounds: int) -> tuple[Fraction, int]:
        """Return what the rounds are charged, and how long they take alone."""
        first, growth = self.charges.first[self.at[row]], self.charges.growth
        charged = first * rounds + growth * (rounds * (rounds + 1) // 2)
        return Fraction(charged, self.charges.scale), self.alone.rounds(prompt, rounds)


def _parts(
    instance: Instance, choices: list[dict[str, Any]], scope: Scope
) -> list[tuple[Worker, _Part]]:
    chosen = {choice["worker"]: choice for choice in choices}
    numbers, found = [], []
    for number, worker in enumerate(instance.workers):
        rows, jobs = jobs_of(instance, worker, scope)
        if rows:
            numbers.append(number)
            named = ("stage_share", "round_share", "line")
            each = chosen.get(number, {})
            own = {name: each[name] for name in named if name in each}
            if "stage_share" not in own or each.get("weight") != 1:
                raise ValueError(f"worker {number} has no shares, or another weight than 1")
            charges = charges_of(worker, jobs, rows, scope, own)
            at = {row: index for index, row in enumerate(rows)}
            found.append((worker, _Part(charges, Alone(worker, jobs, scope), at)))
    if [choice["worker"] for choice in choices] != numbers:
        raise ValueError(f"the workers listed are not {numbers}")
    return found
