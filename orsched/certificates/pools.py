"""Makespan bounds where some workers prefill, some decode, and caches go over links.

Each pool serves its part of the work, on any of its workers: what all requests are charged of
steps (``charges``), at the worker where that is least, divided by the devices of the
pool. Links carry each cache that has to change workers. And no request is faster than alone.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.charges import alone_on, any_shares, charges_of, read_shares

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.certificates.charges import Alone, Charges, Shares
    from orsched.certificates.context import Context
    from orsched.data.workers import Worker


class Needs(NamedTuple):
    """What a request needs at least, wherever it is served, in nanoseconds.

    ``stages`` and ``rounds`` are charges of its prefill and rounds; ``prefill_ns``, ``decode_ns``
    times of both, alone; ``transfer_ns`` is that of its cache on a link, 0 if it may stay.
    """

    stages: Fraction
    rounds: Fraction
    prefill_ns: int
    decode_ns: int
    transfer_ns: int

    @property
    def alone_ns(self) -> int:
        """All of it, one after the other."""
        return self.prefill_ns + self.transfer_ns + self.decode_ns


def pools(context: Context, released: int, choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the certificate that follows from a moment and the choices of the workers.

    Raises ``ValueError`` if these are not one for each worker, or prove nothing.
    """
    weights = {choice["worker"]: choice["weight"] for choice in choices}
    for number in context.able:
        if weights.get(number) != 1:
            raise ValueError(f"worker {number} has no shares, or another weight than 1")
    needs = context.once(needs_of, tuple(read_shares(context, choices).items()))
    rows = [row for row, arrival in enumerate(context.arrivals) if arrival >= released]
    if not rows:
        raise ValueError("nothing is released then")
    some, workers = [needs[row] for row in rows], context.instance.workers
    prefill = _devices(worker for worker in workers if worker.prefills)
    decode = _devices(worker for worker in workers if worker.decodes)
    senders = sum(worker.prefills for worker in workers)
    first = min(each.prefill_ns for each in some)
    come = min(each.prefill_ns + each.transfer_ns for each in some)
    stages, rounds = sum(each.stages for each in some), sum(each.rounds for each in some)
    moved = sum(each.transfer_ns for each in some)
    pairs = zip(rows, some, strict=True)
    found = {
        "prefill_ns": ceil(stages / prefill),
        "decode_ns": come + ceil(rounds / decode) if rounds else 0,
        "all_ns": ceil((stages + rounds) / _devices(workers)),
        "link_ns": first + -(-moved // senders) if moved else 0,
        "path_ns": max(context.arrivals[row] - released + each.alone_ns for row, each in pairs),
    }
    return {
        "bound": "pools",
        **context.scope.stated(),
        "released_ns": released,
        "workers": choices,
        **found,
        "value_ns": released + max(found.values()),
    }


def _devices(workers: Iterable[Worker]) -> int:
    """Return how many of some workers can be at work at one time."""
    names = [worker.device for worker in workers]
    return names.count("") + len(set(names) - {""})


def needs_of(
    context: Context, shares: tuple[tuple[int, Shares], ...], until_first: bool = False
) -> list[Needs]:
    """Return what each request needs until its end or its first token, by the workers' shares.

    Where prefills that are done again yield tokens, no rounds and no transfer are certain.
    """
    instance = context.instance
    assert instance.link is not None
    # Workers that are alike and whose steps are shared alike count once.
    alike = dict.fromkeys((context.kinds[number], own) for number, own in shares)
    parts = [_Part.of(context, kind, own) for kind, own in alike]
    prompts, rounds = instance.requests.prompt_tokens.tolist(), instance.rounds_needed.tolist()
    if until_first:
        rounds = [int(instance.first_token == "decode")] * len(instance)
    moves = all(worker.role != "both" for worker in instance.workers)
    found = []
    for row, (prompt, count) in enumerate(zip(prompts, rounds, strict=True)):
        mine = [part for part in parts if row in part.at]
        stage = [part.stage_of(row, prompt) for part in mine if part.worker.prefills]
        stages, prefill_ns = min(s for s, _ in stage), min(t for _, t in stage)
        if context.scope.yielding or not count:
            found.append(Needs(stages, Fraction(0), prefill_ns, 0, 0))
            continue
        round_ = [part.rounds_of(row, prompt, count) for part in mine if part.worker.decodes]
        transfer = instance.link.transfer_ns(prompt) if moves else 0
        least, decode_ns = min(s for s, _ in round_), min(t for _, t in round_)
        found.append(Needs(stages, least, prefill_ns, decode_ns, transfer))
    return found


def alone_ns(context: Context, until_first: bool) -> list[int]:
    """Return the least times of requests alone, to the first or last token, whatever is chosen."""
    needs = needs_of(context, tuple(any_shares(context).items()), until_first)
    return [each.alone_ns for each in needs]


class _Part(NamedTuple):
    """A worker's charges and times, by row of the instance."""

    worker: Worker
    charges: Charges
    alone: Alone
    at: dict[int, int]

    @classmethod
    def of(cls, context: Context, kind: int, shares: Shares) -> _Part:
        """Return those of a worker."""
        at = {row: index for index, row in enumerate(context.fit(kind).rows)}
        charges, alone = charges_of(context, kind, shares), alone_on(context, kind)
        return cls(context.instance.workers[kind], charges, alone, at)

    def stage_of(self, row: int, prompt: int) -> tuple[Fraction, int]:
        """Return what a prefill is charged, and how long it takes alone."""
        charged = Fraction(self.charges.stages[self.at[row]], self.charges.scale)
        return charged, self.alone.prefill(prompt, self.alone.scope.chunks)

    def rounds_of(self, row: int, prompt: int, rounds: int) -> tuple[Fraction, int]:
        """Return what the rounds are charged, and how long they take alone."""
        first, growth = self.charges.first[self.at[row]], self.charges.growth
        charged = first * rounds + growth * (rounds * (rounds + 1) // 2)
        return Fraction(charged, self.charges.scale), self.alone.rounds(prompt, rounds)
