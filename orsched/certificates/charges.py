"""What each request is charged of each worker's time.

A step's time is divided among the requests in it, so that no request is charged more than its part
and no step charges more than it takes (docs/proofs.md has the proofs). Until its end a request has
been charged a *machine time*; whatever a schedule does, it serves these on one machine per worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.kv_volume import lines_of
from orsched.certificates.scope import PLAIN
from orsched.certificates.step_lower_bounds import (
    lost_in_round,
    lost_in_stage,
    own_rounds_ns,
    whole_ns,
)
from orsched.costs.exact import round_half_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.certificates.context import Context, Jobs
    from orsched.certificates.scope import Scope
    from orsched.costs import Floor
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


class Shares(NamedTuple):
    """How a worker's steps are divided among requests, as a certificate chooses.

    ``stage`` and ``round``: by what the fixed parts are shared. ``line``: (a, b, scale), with no
    stage below (a + b tokens) / scale, or None. ``step``: the number of the line under all steps
    (``kv_volume.lines_of``) whose parts are charged, in the place of a stage's and a round's.
    """

    stage: str
    round: str
    line: tuple[int, ...] | None = None
    step: int | None = None

    @classmethod
    def read(cls, choice: dict[str, Any]) -> Shares:
        """Return the choice of a certificate."""
        line = tuple(choice["line"]) if "line" in choice else None
        return cls(choice["stage_share"], choice["round_share"], line, choice.get("step_line"))

    def stated(self) -> dict[str, Any]:
        """Return the fields of a certificate."""
        line = {} if self.line is None else {"line": list(self.line)}
        step = {} if self.step is None else {"step_line": self.step}
        return {"stage_share": self.stage, "round_share": self.round, **line, **step}


def read_shares(context: Context, choices: list[dict[str, Any]]) -> dict[int, Shares]:
    """Return the choices of a certificate by worker, one for each onto which a request fits."""
    chosen = {choice["worker"]: choice for choice in choices}
    found = {number: Shares.read(chosen[number]) for number in context.able}
    if [choice["worker"] for choice in choices] != context.able:
        raise ValueError(f"the workers listed are not {context.able}")
    return found


def any_shares(context: Context) -> dict[int, Shares]:
    """Return choices for the workers onto which a request fits, of no bearing on times alone."""
    found = {}
    for number in context.able:
        line = (0, 0, 1) if context.floor(number).by_counts else None
        found[number] = Shares("clients", "clients", line)
    return found


@dataclass(frozen=True)
class Charges:
    """What a worker's steps charge the requests that fit onto it, in 1 / scale nanoseconds.

    Attributes:
        terms: what is shared, in units ``whole`` times as large.
        clients: most requests that are on the worker's clients at one time.
        stages: of the prefill stage, by request.
        first: of a round, less what grows with the rounds before.
        growth: by which each further round charges more.
        round_fixed, round_most: a round of y requests takes ``round_fixed * (1 - y / clients)``
            more than it charges, and charges each at most ``round_most``; (0, 1) if unknown.
    """

    shares: Shares
    terms: Terms
    clients: int
    whole: int
    stages: list[int]
    first: list[int]
    growth: int
    round_fixed: int
    round_most: int

    @property
    def scale(self) -> int:
        """Charges are in so many parts of a nanosecond."""
        return self.terms.unit * self.whole

    def machine_times(self, rounds: Sequence[int]) -> list[int]:
        """Charges until so many rounds are done."""
        grown = self.growth
        columns = zip(self.stages, self.first, rounds, strict=True)
        return [stage + u * d + grown * (d * (d + 1) // 2) for stage, u, d in columns]


def charges_of(context: Context, worker: int, shares: Shares) -> Charges:
    """Return what a worker's steps charge the requests that fit onto it, at least one, as chosen.

    Raises ``ValueError`` if the steps cannot be shared so, or the cost model has no floor.
    """
    return context.once(_charges, context.kinds[worker], shares)


def _charges(context: Context, kind: int, shares: Shares) -> Charges:
    return divided(context, kind, context.fit(kind).jobs, context.scope, shares)


def divided(context: Context, kind: int, jobs: Jobs, scope: Scope, shares: Shares) -> Charges:
    """Divide a worker's steps as chosen: by the clients, or by cap or memory.

    Where a mixed step has one fixed part, stages charge tokens only; where it is only known to take
    no less than either part, nothing. Where a repeated prefill yields tokens, none is charged more
    than that takes.
    """
    worker, floor, clients = context.instance.workers[kind], context.floor(kind), jobs.clients
    prompts, by_stage, by_round = jobs.prompts.tolist(), shares.stage, shares.round
    if shares.step is None:
        line = _line_of(worker, floor, scope, shares.line)
        terms = terms_of(floor, prompts, clients, line)
    else:
        line, terms = None, _terms_by_line(context, kind, prompts, shares)
    free = scope.chunks and floor.stage.is_curved
    free = free or (scope.mixed and line is None and floor.mixed != "sum")
    free = free and shares.step is None
    memory, limit = worker.memory, worker.prefill_limit
    if (by_stage == "cap" and limit is None) or (by_round == "memory" and memory is None):
        raise ValueError("there is no cap or no memory to share a step by")
    stage_whole = (limit or 1) if by_stage == "cap" else clients
    round_parts, round_whole, part_grows = [1] * len(jobs), clients, 0
    if by_round == "memory" and memory is not None:
        round_parts, round_whole = jobs.blocks.tolist(), memory.blocks
        if memory.is_paged:  # a round over m tokens holds no fewer blocks than m / b
            round_parts, round_whole, part_grows = prompts, round_whole * memory.block_tokens, 1
    both = stage_whole * round_whole

    def stages(more: int) -> list[int]:
        """Charges of stages that prefill the prompts and so many tokens more, or what is left."""
        if free:
            return [0] * len(prompts)
        tokens, own = prompts, terms.stage_own
        if more:
            tokens = [1 if scope.cached else p + more for p in prompts]
            own = terms_of(floor, tokens, clients, line).stage_own
        parts = tokens if by_stage == "cap" else [1] * len(tokens)
        pairs = zip(parts, own, strict=True)
        return [terms.stage_fixed * part * round_whole + each * both for part, each in pairs]

    first = [
        terms.round_fixed * part * stage_whole + (terms.round_own + terms.context_own * p) * both
        for part, p in zip(round_parts, prompts, strict=True)
    ]
    growth, fixed, most = terms.context_own * both, 0, 1
    growth += terms.round_fixed * part_grows * stage_whole
    if by_round == "clients":
        fixed = terms.round_fixed * both
        most = max(u + growth * d for u, d in zip(first, jobs.rounds.tolist(), strict=True))
    if scope.yielding and shares.step is None:
        first, growth = _or_again(first, growth, stages(1), stages(2))
    return Charges(shares, terms, clients, both, stages(0), first, growth, fixed, max(1, most))


def _terms_by_line(context: Context, kind: int, prompts: list[int], shares: Shares) -> Terms:
    """Return the parts of a line under all steps; ``ValueError`` where there is none.

    A token that a prefill yields which is done again takes no less above the line than one of a
    round. In a mixed step the fixed part is that of the round, unless the line adds both.
    """
    lines = lines_of(context, kind, min(prompts) + 1)
    if shares.line is not None or context.instance.link is not None:
        raise ValueError("a line under all steps is charged alone, and where there are no links")
    if shares.step is None or shares.step >= len(lines):
        raise ValueError(f"the floor has no line {shares.step}")
    line, times = lines[shares.step], context.floor(kind).times
    fixed = line.stage if line.adds or not context.scope.mixed else 0
    own = [line.each + line.prompt * p + line.attended * (p * (p + 1) // 2) for p in prompts]
    whole = [fixed, line.round, line.request, line.context]
    stage, a_round, request, of_context = (part * times for part in whole)
    return Terms(line.unit, stage, [part * times for part in own], a_round, request, of_context)


def _line_of(
    worker: Worker, floor: Floor, scope: Scope, line: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Return the line (a, b, scale), once known that no stage is below (a + b tokens) / scale."""
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
    return line


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
    """A worker's charges, and the least times of requests served alone there, by ``rows``.

    ``rows`` are the requests that fit onto the worker; ``rounds`` are until a request's end, or its
    first token; ``stage_ns``, ``round_ns`` and ``alone_ns`` are of the stage, each round and all.
    """

    charges: Charges
    rows: list[int]
    rounds: list[int]
    stage_ns: list[int]
    round_ns: list[int]
    alone_ns: list[int]
    scope: Scope = PLAIN

    @cached_property
    def times(self) -> list[int]:
        """Machine times: all that each request is charged."""
        return self.charges.machine_times(self.rounds)

    @cached_property
    def after_ns(self) -> list[int]:
        """The least distance of an end from the mean time of its charges, rounded down.

        The rounds take ``round_ns`` each at least, one after the other, after the stage. Of chunks
        it is known only that they are before all rounds; and of a token's repeated prefill, that
        it is before the next token.
        """
        charges, found = self.charges, []
        times = zip(self.times, self.stage_ns, self.round_ns, self.alone_ns, strict=True)
        parts = zip(charges.stages, charges.first, self.rounds, strict=True)
        for (time, stage_ns, round_ns, alone), (stage, u, d) in zip(times, parts, strict=True):
            grown = charges.growth * (d * (d + 1) * (2 * d + 1) // 6)
            half = 0 if self.scope.chunks else stage_ns
            twice = (u * d * d + grown) * round_ns + stage * (2 * d * round_ns + half)
            if self.scope.yielding:
                twice -= (u * d + charges.growth * (d * (d + 1) // 2)) * round_ns
            found.append(twice // (2 * time) if time else alone)
        return found


def on_worker(
    context: Context, worker: int, shares: Shares, until_first: bool = False
) -> OneWorker:
    """Return a worker's charges for the rounds of the requests that fit onto it.

    ``until_first``: for those until a request's first token, one or none.
    """
    return context.once(_on_worker, context.kinds[worker], shares, until_first)


def _on_worker(context: Context, kind: int, shares: Shares, until_first: bool) -> OneWorker:
    rows, jobs = context.fit(kind)
    rounds = jobs.rounds.tolist()
    if until_first:
        rounds = [int(context.instance.first_token == "decode")] * len(rows)
    charges, alone = charges_of(context, kind, shares), alone_on(context, kind)
    pairs = list(zip(jobs.prompts.tolist(), rounds, strict=True))
    known = {pair: alone.times(*pair) for pair in set(pairs)}
    stage_ns, round_ns, alone_ns = map(list, zip(*map(known.__getitem__, pairs), strict=True))
    return OneWorker(charges, rows, rounds, stage_ns, round_ns, alone_ns, context.scope)


def alone_on(context: Context, worker: int) -> Alone:
    """Return the least times of requests that are alone on a worker."""
    return context.once(Alone, context.kinds[worker])


class Alone:
    """Least times of requests that are alone in their steps."""

    def __init__(self, context: Context, kind: int) -> None:
        self.limit = context.instance.workers[kind].prefill_limit
        self.floor, self.scope, jobs = context.floor(kind), context.scope, context.fit(kind).jobs
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
