"""What each request is charged of each worker's time, and all workers as one machine.

A step's time is divided among the requests in it, so that no request is charged more than its part
and no step charges more than it takes (docs/bounds.md has the proofs). Until its end a request has
been charged a *machine time*; whatever a schedule does, it serves these on one machine per worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Any

from orsched.certificates.jobs import Jobs, whole_memory
from orsched.certificates.scope import PLAIN, Scope, equal_workers
from orsched.certificates.single_machine import Machine
from orsched.certificates.step_lower_bounds import (
    lost_in_round,
    lost_in_stage,
    own_rounds_ns,
    whole_ns,
)
from orsched.costs.exact import round_half_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


@dataclass(frozen=True)
class Terms:
    """Parts of a step that no schedule can avoid, in 1 / unit nanoseconds.

    A stage takes at least ``stage_fixed`` and ``stage_own`` for each request in it; a round at
    least ``round_fixed`` and, for each request, ``round_own`` and ``context_own`` a context token.
    """

    unit: int
    stage_fixed: int
    stage_own: list[int]
    round_fixed: int
    round_own: int
    context_own: int


@dataclass(frozen=True)
class Charges:
    """What a worker's steps charge the requests that it can serve.

    Attributes:
        choices: how fixed parts are shared, as it stands in a certificate.
        clients: most requests that are on the worker's clients at one time.
        rows: the requests that fit onto the worker.
        scale: charges are in 1 / scale nanoseconds.
        stages: of the prefill stage, by row of ``rows``.
        first: of a round, less what grows with the rounds before.
        growth: by which each further round charges more.
        round_fixed, round_most: a round of y requests takes ``round_fixed * (1 - y / clients)``
            more than it charges, and charges each at most ``round_most``; (0, 1) if unknown.
    """

    choices: dict[str, Any]
    clients: int
    rows: list[int]
    scale: int
    stages: list[int]
    first: list[int]
    growth: int
    round_fixed: int
    round_most: int

    def machine_times(self, rounds: Sequence[int]) -> list[int]:
        """Charges until so many rounds are done."""
        grown = self.growth
        columns = zip(self.stages, self.first, rounds, strict=True)
        return [stage + u * d + grown * (d * (d + 1) // 2) for stage, u, d in columns]


def charges_of(
    worker: Worker, jobs: Jobs, rows: list[int], scope: Scope, choices: dict[str, Any]
) -> Charges:
    """Divide a worker's steps as chosen: by the clients, or by cap or memory.

    ``jobs`` are the requests that fit onto the worker, at least one. Where a mixed step has one
    fixed part, stages charge tokens only; where it is only known to take no less than either part,
    nothing. Where a repeated prefill yields tokens, none is charged more than that takes.

    Raises:
        ValueError: the worker's steps cannot be shared so, or its cost model has no floor.
    """
    floor, clients, prompts = scope.require_floor(worker), jobs.clients, jobs.prompts.tolist()
    by_stage, by_round = choices["stage_share"], choices["round_share"]
    line = _line_of(worker, floor, scope, choices)
    terms = terms_of(floor, prompts, clients, line)
    free = scope.chunks and floor.stage.is_curved
    free = free or (scope.mixed and line is None and floor.mixed != "sum")
    memory, limit = whole_memory(worker), worker.prefill_limit
    if (by_stage == "cap" and limit is None) or (by_round == "memory" and memory is None):
        raise ValueError("there is no cap or no memory to share a step by")
    stage_whole = (limit or 1) if by_stage == "cap" else clients
    round_parts, round_whole = [1] * len(jobs), clients
    if by_round == "memory" and memory is not None:
        round_parts, round_whole = jobs.blocks.tolist(), memory.blocks
    both = stage_whole * round_whole

    def stages(more: int) -> list[int]:
        """Charges of stages that prefill the prompts and so many tokens more, or what is left."""
        if free:
            return [0] * len(prompts)
        tokens = [1 if more and scope.cached else p + more for p in prompts]
        parts = tokens if by_stage == "cap" else [1] * len(tokens)
        own = terms_of(floor, tokens, clients, line).stage_own
        pairs = zip(parts, own, strict=True)
        return [terms.stage_fixed * part * round_whole + each * both for part, each in pairs]

    first = [
        terms.round_fixed * part * stage_whole + (terms.round_own + terms.context_own * p) * both
        for part, p in zip(round_parts, prompts, strict=True)
    ]
    growth, fixed, most = terms.context_own * both, 0, 1
    if by_round == "clients":
        fixed = terms.round_fixed * both
        most = max(u + growth * d for u, d in zip(first, jobs.rounds.tolist(), strict=True))
    if scope.yielding:
        first, growth = _or_again(first, growth, stages(1), stages(2))
    return Charges(
        choices, clients, rows, terms.unit * both, stages(0), first, growth, fixed, max(1, most)
    )


def _line_of(
    worker: Worker, floor: Floor, scope: Scope, choices: dict[str, Any]
) -> Sequence[int] | None:
    """Return the line (a, b, scale), once known that no stage is below (a + b tokens) / scale."""
    line = choices.get("line")
    if (line is not None) != floor.by_counts:
        raise ValueError("there is a line where, and only where, time splits into two counts")
    if line is None:
        return None
    fixed, token, scale = line
    levels, limit = floor.stage.levels, worker.prefill_limit
    if levels is None:
        below = fixed <= scale * floor.stage.fixed and token <= scale * floor.stage.token
    else:
        cap = levels[-1][0] if limit is None else limit
        below = all(fixed + token * min(c, cap) <= scale * time for c, time in levels)
    if scale < 1 or not below:
        raise ValueError("the line is above a stage")
    if scope.mixed and floor.mixed != "sum" and (fixed or (token and floor.mixed == "larger")):
        raise ValueError("a mixed step is charged by its round, and more is not known of it")
    return list(line)


def _or_again(
    first: list[int], growth: int, again: list[int], later: list[int]
) -> tuple[list[int], int]:
    """Charges of tokens that rounds yield or repeated prefills: the least of both.

    What a stage charges is convex in its tokens, so that it grows at least as from the first
    repetition to the second.
    """
    grown = min([growth, *(two - one for one, two in zip(again, later, strict=True))])
    pairs = zip(first, again, strict=True)
    return [min(u + growth, one) - grown for u, one in pairs], grown


def terms_of(floor: Floor, prompts: list[int], clients: int, line: Sequence[int] | None) -> Terms:
    """Return the unavoidable parts of a stage and a round; what rounding takes off is given away.

    The longest prompt is at least a J-th of the sum of the prompts, the longest context and the
    mean one at least a J-th of that of the contexts. Where rounding may take off more than the
    fixed part, each request pays for it where its parts are curved, or there is a mean, as far as
    it can, so that no share is below 0; else nothing is charged.
    """
    if line is not None:
        fixed, token, unit = line
        own = [token * p for p in prompts]
        return Terms(unit, fixed, own, floor.round.fixed * unit, floor.round.request * unit, 0)
    stage_fixed, stage_own = _stage_terms(floor, prompts, clients)
    round_terms = _round_terms(floor, min(prompts), clients)
    times = floor.times
    return Terms(
        floor.unit * clients,
        stage_fixed * times,
        [part * times for part in stage_own],
        *(part * times for part in round_terms),
    )


def _stage_terms(floor: Floor, prompts: list[int], clients: int) -> tuple[int, list[int]]:
    """Return the fixed part of a stage and those of the prompts, in 1 / clients units."""
    stage, lost = floor.stage, lost_in_stage(floor)
    if stage.fixed >= lost:
        longest = 0 if stage.is_curved else stage.longest
        own = [stage.own(p) * clients + longest * p for p in prompts]
        return (stage.fixed - lost) * clients, own
    if stage.is_curved:
        return 0, [max(0, stage.own(p) - lost) * clients for p in prompts]
    return 0, [0] * len(prompts)


def _round_terms(floor: Floor, least: int, clients: int) -> tuple[int, int, int]:
    """Return a round's fixed part, that of each request and that of each context token."""
    parts, lost = floor.round, lost_in_round(floor)
    own, context = parts.request * clients, parts.context * clients + parts.longest
    context += parts.mean or 0
    if parts.fixed >= lost:
        return (parts.fixed - lost) * clients, own, context
    own -= lost * clients
    if parts.mean is None or own + context * (least + 1) < 0:
        return 0, 0, 0
    return 0, own, context


@dataclass(frozen=True)
class OneWorker:
    """A worker's charges, and the times of requests served alone there, by row of ``charges``."""

    charges: Charges
    rounds: list[int]
    stage_ns: list[int]
    round_ns: list[int]
    alone_ns: list[int]
    scope: Scope = PLAIN

    def after_ns(self, times: list[int]) -> list[int]:
        """Return the least distance of an end from the mean time of its charges, rounded down.

        The rounds take ``round_ns`` each at least, one after the other, after the stage. Of chunks
        it is known only that they are before all rounds; and of a token's repeated prefill, that
        it is before the next token.
        """
        charges, found = self.charges, []
        columns = (
            times,
            charges.stages,
            charges.first,
            self.rounds,
            self.stage_ns,
            self.round_ns,
            self.alone_ns,
        )
        for time, stage, u, d, stage_ns, round_ns, alone in zip(*columns, strict=True):
            grown = charges.growth * (d * (d + 1) * (2 * d + 1) // 6)
            half = 0 if self.scope.chunks else stage_ns
            twice = (u * d * d + grown) * round_ns + stage * (2 * d * round_ns + half)
            if self.scope.yielding:
                twice -= (u * d + charges.growth * (d * (d + 1) // 2)) * round_ns
            found.append(twice // (2 * time) if time else alone)
        return found


def on_worker(
    worker: Worker,
    jobs: Jobs,
    rows: list[int],
    rounds: IntColumn,
    scope: Scope,
    choices: dict[str, Any],
) -> OneWorker:
    """Return a worker's charges for these many rounds of the requests that fit onto it."""
    charges = charges_of(worker, jobs, rows, scope, choices)
    alone = Alone(worker, jobs, scope)
    pairs = list(zip(jobs.prompts.tolist(), rounds.tolist(), strict=True))
    known = {pair: alone.times(*pair) for pair in set(pairs)}
    stage_ns, round_ns, alone_ns = ([known[pair][k] for pair in pairs] for k in range(3))
    return OneWorker(charges, rounds.tolist(), stage_ns, round_ns, alone_ns, scope)


class Alone:
    """Least times of requests that are alone in their steps."""

    def __init__(self, worker: Worker, jobs: Jobs, scope: Scope) -> None:
        self.limit, self.floor, self.scope = (
            worker.prefill_limit,
            scope.require_floor(worker),
            scope,
        )
        self.least, self.clients = int(jobs.prompts.min()), jobs.clients
        self._steps: dict[int, tuple[int, int]] = {}

    def times(self, prompt: int, rounds: int) -> tuple[int, int, int]:
        """Return a request's stage, the least of its rounds, and all of both."""
        if prompt not in self._steps:  # the same for all requests with this prompt
            self._steps[prompt] = self.prefill(prompt, self.scope.chunks), self.rounds(prompt, 1)
        stage, a_round = self._steps[prompt]
        decode = self.rounds(prompt, rounds)
        if self.scope.yielding:
            # Levels may be too small for a repeated prefill, but a line below them is not.
            levels = self.floor.stage.levels is not None
            tokens = 1 if self.scope.cached else prompt + 1
            again = self.prefill(tokens, self.scope.chunks or levels)
            if rounds and again < self.rounds(prompt + rounds - 1, 1):
                decode = rounds * min(a_round, again)
            a_round = min(a_round, again)
        return stage, a_round, stage + decode

    def rounds(self, prompt: int, rounds: int) -> int:
        """Return the least time of the first rounds after a prompt."""
        return own_rounds_ns(self.floor, self.clients, self.least, prompt, rounds)

    def prefill(self, tokens: int, chunks: bool) -> int:
        """Return the least time of the steps that prefill so many tokens, perhaps in chunks."""
        floor, stage = self.floor, self.floor.stage
        if not chunks:
            return floor.prefill_ns([tokens])
        if stage.levels is not None:
            return max(stage.levels[0][1], _at_best_rate(stage.levels, self.limit, tokens))
        fixed = stage.fixed + stage.request
        if stage.is_curved:
            return round_half_up(fixed + (stage.least or 0), floor.unit) * floor.times
        fixed -= lost_in_stage(floor)
        exact = 0 if fixed < 0 else fixed + (stage.token + stage.longest) * tokens
        return whole_ns(exact, floor.unit) * floor.times


def _at_best_rate(levels: Sequence[tuple[int, int]], limit: int | None, tokens: int) -> int:
    """Return the least time of tokens on any levels, in full use."""
    assert limit is not None
    return min(-(-tokens * time // min(cap, limit)) for cap, time in levels)


def joined(instance: Instance, workers: list[OneWorker], weights: Sequence[int]) -> OneWorker:
    """Return all workers as one for requests that may change between them.

    Of each part of a request's time, prefill or round, the least on any worker, charged at that
    worker's speed; so the scale is that of the machine with a speed of 1.
    """
    common = lcm(*(worker.charges.scale for worker in workers))
    n, equal = len(instance), equal_workers(instance)
    columns: list[list[int | None]] = [[None] * n for _ in range(5)]
    rounds, growth = [0] * n, None
    for worker, weight in zip(workers, weights, strict=True):
        charges, factor = worker.charges, weight * (common // worker.charges.scale)
        growth = _least(growth, factor * charges.growth)
        for at, row in enumerate(charges.rows):
            rounds[row] = worker.rounds[at]
            for column, value in zip(
                columns,
                (
                    factor * charges.stages[at],
                    factor * (charges.first[at] + charges.growth),
                    worker.stage_ns[at],
                    worker.round_ns[at],
                    worker.alone_ns[at],
                ),
                strict=True,
            ):
                column[row] = _least(column[row], value)
    stages, tokens, stage_ns, round_ns, alone_ns = map(_whole, columns)
    grown = growth or 0
    if not equal:
        times = zip(stage_ns, rounds, round_ns, strict=True)
        alone_ns = [stage + d * a_round for stage, d, a_round in times]
    first = [token - grown for token in tokens]
    charges = Charges({}, n, list(range(n)), common, stages, first, grown, 0, 1)
    return OneWorker(charges, rounds, stage_ns, round_ns, alone_ns, workers[0].scope)


def machine_of(instance: Instance, workers: list[OneWorker], weights: Sequence[int]) -> Machine:
    """Return all workers as one machine, worker w with the speed ``weights[w]``.

    A request's time is the least of its times on the workers, each at that worker's speed; with
    restarts that of each part of it.
    """
    common = lcm(*(worker.charges.scale for worker in workers))
    speed = common * sum(weights)
    if workers[0].scope.restarts and len(workers) > 1:
        workers, weights = [joined(instance, workers, weights)], [1]
    n = len(instance)
    times: list[int | None] = [None] * n
    after: list[int | None] = [None] * n
    alone: list[int | None] = [None] * n
    for worker, weight in zip(workers, weights, strict=True):
        factor = weight * (common // worker.charges.scale)
        own = worker.charges.machine_times(worker.rounds)
        columns = zip(worker.charges.rows, own, worker.after_ns(own), worker.alone_ns, strict=True)
        for row, time, later, by_itself in columns:
            times[row] = _least(times[row], factor * time)
            after[row] = _least(after[row], later)
            alone[row] = _least(alone[row], by_itself)
    arrivals = instance.requests.arrival_ns.tolist()
    return Machine(speed, arrivals, _whole(times), _whole(after), _whole(alone))


def _least(one: int | None, other: int) -> int:
    return other if one is None or other < one else one


def _whole(column: list[int | None]) -> list[int]:
    return [value for value in column if value is not None]
