"""Lower bound on the makespan by volume: the steps that yield all tokens, and what all steps take.

A step yields at most one token of a request, and at most J in all; the requests that get one hold
their caches, in blocks, of which there are at most M. So the number S of these steps is at least
the largest D, the sum of D over J, and the sum of the block-rounds V over M, and every step is
above the lines that the cost model's floor states (docs/proofs.md has the proof). It holds with
chunks, mixed steps, restarts and prefix caches: each is restated, none drops the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from orsched.certificates.scope import Findable, cut_tokens, prefills_grow
from orsched.certificates.step_lower_bounds import (
    lost_by_rounding,
    lost_in_round,
    lost_in_stage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.certificates.context import Context
    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.memory import BlockMemory


Many = TypeVar("Many", int, "IntColumn")
"""A number of one request, or a column of all."""


@dataclass(frozen=True)
class Line:
    """What all steps take at least, in 1 / ``unit`` ns: ``StepLine``, less what rounding takes off.

    ``each``: for each request, in its first prefill. ``adds``: a step with both a prefill and a
    round has ``stage`` and ``round``.
    """

    unit: int
    stage: int = 0
    round: int = 0
    request: int = 0
    context: int = 0
    each: int = 0
    prompt: int = 0
    attended: int = 0
    adds: bool = False

    def decoded(self, volume: Volume) -> int:
        """Return what requests add to the rounds that yield their tokens."""
        return self.request * volume.tokens + self.context * volume.contexts

    def prefilled(self, volume: Volume) -> int:
        """Return what the first prefills add to their steps."""
        prompts = self.prompt * volume.prompts + self.attended * volume.attended
        return self.each * volume.requests + prompts

    def and_other(self, share: int, other: Line, rest: int) -> Line:
        """Return so many of this line and of another of the same unit: a line as well."""
        both = {
            name: share * getattr(self, name) + rest * getattr(other, name)
            for name in ("stage", "round", "request", "context", "each", "prompt", "attended")
        }
        return Line(unit=self.unit * (share + rest), **both)


@dataclass(frozen=True)
class Volume:
    """Sums over requests: what any schedule of them has to do on one machine.

    ``tokens``: to be yielded in rounds, ``most`` of one request; ``contexts``: over these, with
    what a cache holds; ``block_rounds`` in ``blocks`` of memory, 0 and 0 without.
    """

    requests: int
    prompts: int
    attended: int
    tokens: int
    most: int
    contexts: int
    least_context: int
    block_rounds: int
    blocks: int
    clients: int

    @property
    def steps(self) -> int:
        """The fewest steps, on all workers together, that yield the tokens."""
        by_memory = -(-self.block_rounds // self.blocks) if self.blocks else 0
        return max(-(-self.tokens // self.clients), by_memory)

    @classmethod
    def of(cls, context: Context, rows: IntColumn) -> Volume:
        """Return the sums over some requests, by rows, of an instance with workers of one kind."""
        needs, worker = Needs.alone(context, 0, rows), context.instance.workers[0]
        computed, attended, held = _once(context, rows)
        return cls(
            requests=len(rows),
            prompts=_total(needs.prompts) + computed,
            attended=_total(needs.attended) + attended,
            tokens=_total(needs.tokens),
            most=int(needs.tokens.max()),
            contexts=_total(needs.contexts),
            least_context=needs.least_context,
            block_rounds=_total(needs.block_rounds) + held,
            blocks=0 if worker.memory is None else worker.memory.blocks,
            clients=min(worker.clients, len(context.instance)),
        )


class Needs(NamedTuple):
    """What each of some requests needs of a kind of worker, as ``Volume`` has their sums."""

    prompts: IntColumn
    attended: IntColumn
    tokens: IntColumn
    contexts: IntColumn
    block_rounds: IntColumn
    least_context: int

    @classmethod
    def of(cls, context: Context, kind: int, rows: IntColumn) -> Needs:
        """Return what requests, by rows, need: of a block that k requests share a k-th each."""
        own, shared = cls.alone(context, kind, rows), context.once(_findable)
        if shared is None:
            return own
        requests, size = context.instance.requests, shared.size
        most = int(requests.prompt_tokens.max()) + int(own.tokens.max())
        part, place = _ONE // shared.sharers, shared.place
        if most >= _MOST_SHARED:
            part, place = part.astype(object), place.astype(object)
        late = shared.since[shared.key] >= int(requests.arrival_ns[rows].min())

        def each(values: IntColumn) -> IntColumn:
            """Return the whole part of the sums of parts, by row."""
            sums = np.zeros(len(requests), values.dtype)
            np.add.at(sums, shared.row, values)
            return sums[rows]

        held = own.block_rounds
        if context.instance.workers[kind].caches_prefixes:
            held = held + own.tokens * each(part) // _ONE
        attended = _attended_in(place, size) * part
        return own._replace(
            prompts=own.prompts + each(part * size * late) // _ONE,
            attended=own.attended + each(attended * late) // _ONE,
            block_rounds=held,
        )

    @classmethod
    def alone(cls, context: Context, kind: int, rows: IntColumn) -> Needs:
        """Return what requests, by rows, need; what a cache may share is left out."""
        instance, memory = context.instance, context.instance.workers[kind].memory
        columns = (
            instance.requests.prompt_tokens,
            instance.requests.output_tokens,
            instance.rounds_needed,
            context.once(_cut),
        )
        prompts, outputs, rounds, cut = (column[rows] for column in columns)
        if int((prompts + outputs).max()) >= _MOST_SQUARED:
            prompts, outputs, rounds, cut = (
                each.astype(object) for each in (prompts, outputs, rounds, cut)
            )
        held = np.zeros(len(rows), np.int64)
        if memory is not None:
            held = block_rounds(prompts, outputs, rounds, memory)
            held -= cut // memory.block_tokens * rounds
        return cls(
            prompts=prompts - cut,
            attended=_triangle(prompts) - _triangle(cut),
            tokens=rounds,
            contexts=rounds * prompts + _triangle(rounds),
            block_rounds=held,
            least_context=int(prompts.min()) + 1,
        )


_MOST_SQUARED = 2**30
"""Tokens whose squares are far below 64 bits."""

_ONE, _MOST_SHARED = 2**16, 2**21
"""Parts of a block that requests share, and tokens whose squares in parts are below 64 bits."""


def _total(values: IntColumn) -> int:
    """Return the exact sum of whole numbers of at least 0."""
    if int(values.max()) * len(values) < 2**62:
        return int(values.sum())
    return sum(values.tolist())


def _cut(context: Context) -> IntColumn:
    return cut_tokens(context.instance)


def _findable(context: Context) -> Findable | None:
    return Findable.of(context.instance)


def _once(context: Context, rows: IntColumn) -> tuple[int, int, int]:
    """Return what requests, by rows, need of the blocks that they may find, on all equal workers.

    Tokens, and what they attend to: a block is computed before a request finds it, unless requests
    that came earlier have it. Block-rounds: it is in memory in all rounds of each request.
    """
    shared, instance = context.once(_findable), context.instance
    if shared is None:
        return 0, 0, 0
    chosen = np.zeros(len(instance), bool)
    chosen[rows] = True
    here = chosen[shared.row]
    keys, first = np.unique(shared.key[here], return_index=True)
    rounds = np.zeros(len(shared.since), np.int64)
    np.maximum.at(rounds, shared.key[here], instance.rounds_needed[shared.row[here]])
    late = shared.since[keys] >= int(instance.requests.arrival_ns[rows].min())
    attended = _attended_in(shared.place[here][first][late].astype(object), shared.size)
    return int(late.sum()) * shared.size, sum(attended.tolist()), sum(rounds.tolist())


def _attended_in(place: IntColumn, size: int) -> IntColumn:
    """Return what the tokens of blocks attend to, themselves included."""
    return _triangle((place + 1) * size) - _triangle(place * size)


def block_rounds(prompts: Many, outputs: Many, rounds: Many, memory: BlockMemory) -> Many:
    """Return the blocks held in the rounds that yield all tokens, for one request or for each.

    Paged: ``ceil((N^p + j) / b)`` in round j; else all blocks of a request in each.
    """
    size = memory.block_tokens
    if memory.is_paged:
        return _filled(prompts + rounds, size) - _filled(prompts, size)
    return -(-(prompts + outputs) // size) * rounds


def _filled(tokens: Many, size: int) -> Many:
    """Return the sum of ceil(j / size) over j = 1 ... t, for each t."""
    whole, rest = tokens // size, tokens % size
    return size * _triangle(whole) + rest * (whole + 1)


def _triangle(tokens: Many) -> Many:
    """Return t (t + 1) / 2."""
    return tokens * (tokens + 1) // 2


def lines_of(context: Context, kind: int, shortest: int) -> list[Line]:
    """Return the lines under all steps of a kind of worker, as its floor states or implies them.

    A line whose steps could take less for being more is left out. ``shortest``: the least context
    of a round; where prefills that are done again may yield tokens, see ``_again``.
    """
    floor, scope, found = context.floor(kind), context.scope, list[Line]()
    for stated in floor.lines:
        parts = {name: getattr(stated, name) for name in ("request", "context", "prompt")}
        own = (*parts.values(), stated.attended)
        line = Line(
            unit=floor.unit,
            stage=stated.stage - lost_by_rounding(floor.unit, stated.stage, *own),
            round=stated.round - lost_by_rounding(floor.unit, stated.round, *own),
            attended=stated.attended,
            **parts,
        )
        found.append(line)
    if not found:
        found = list(_by_parts(context, kind))
    found = [line for line in found if line.stage >= 0 and line.round >= 0]
    return list(_again(found, shortest, scope.cached)) if scope.yielding else found


def _by_parts(context: Context, kind: int) -> Iterator[Line]:
    """Yield the lines that follow from the parts of a floor.

    The longest context and the mean one are at least a J-th of the sum.
    """
    floor, worker = context.floor(kind), context.instance.workers[kind]
    stage, parts, clients = floor.stage, floor.round, context.fit(kind).jobs.clients
    rounds: dict[str, Any] = {
        "round": (parts.fixed - lost_in_round(floor)) * clients,
        "request": parts.request * clients,
        "context": parts.context * clients + parts.longest + (parts.mean or 0),
    }
    unit, apart = floor.unit * clients, context.scope.mixed and floor.mixed == "larger"
    if apart:
        yield Line(unit, **rounds)
        rounds = {}
    adds = apart or floor.mixed == "sum"
    if stage.levels is not None:
        for height, slope, scale in stage_lines(floor, worker.prefill_limit):
            scaled: dict[str, Any] = {name: value * scale for name, value in rounds.items()}
            prefills: dict[str, Any] = {
                "stage": height * clients,
                "prompt": slope * clients,
                "adds": adds,
            }
            yield Line(unit * scale, **prefills, **scaled)
        return
    yield Line(
        unit,
        stage=(stage.fixed - lost_in_stage(floor)) * clients,
        each=stage.request * clients,
        prompt=0 if stage.is_curved else stage.token * clients,
        adds=adds,
        **rounds,
    )


def _again(lines: list[Line], shortest: int, cached: bool) -> Iterator[Line]:
    """Yield lines that hold where prefills that are done again may stand for rounds.

    A token that a prefill of m tokens yields, instead of a round over m of context, changes a line
    by at least a slope times m: they are computed and attended to, or, where a cache may have all
    but one of them, that one attends to m. A line without a negative slope holds as it is; so does
    what two lines have in common where their slopes are 0 together; and all hold with the lesser of
    what a round and such a prefill take.
    """
    slopes = [_slope(line, shortest, cached) for line in lines]
    fixed = [
        replace(line, stage=0, round=min(line.stage, line.round), adds=False) for line in lines
    ]
    for line, slope in zip(fixed, slopes, strict=True):
        if slope >= 0:
            yield line
            continue
        least = line.attended
        if not cached:
            least = (line.attended * (shortest + 1)) // 2 + line.prompt * (shortest - 1) // shortest
        request, context = min(line.request, line.prompt), min(line.context, least)
        yield replace(line, request=request, context=context)
        for other, rise in zip(fixed, slopes, strict=True):
            if rise > 0 and other.unit == line.unit:
                yield line.and_other(rise, other, -slope)


def _slope(line: Line, shortest: int, cached: bool) -> int:
    """Return by how much a line changes for each token at least, times twice ``shortest``."""
    if cached:
        saved = max(0, line.request - line.prompt)
        return 2 * shortest * (line.attended - line.context) - 2 * saved
    attended = shortest * (shortest + 1) * line.attended
    return 2 * shortest * (line.prompt - line.context) + attended - 2 * line.request


def stage_lines(floor: Floor, limit: int | None) -> list[tuple[int, int, int]]:
    """Lines (a, b, scale), a, b >= 0: no stage takes less than (a + b tokens) / scale."""
    if floor.stage.levels is None:
        return [(floor.stage.fixed, floor.stage.token, 1)]
    cap_at = floor.stage.levels[-1][0] if limit is None else limit
    # A level above the limit holds no more than the limit.
    points = [(min(cap, cap_at), time) for cap, time in floor.stage.levels]
    least = min(points, key=lambda point: Fraction(point[1], point[0]))
    lines = [(points[0][1], 0, 1), (0, least[1], least[0])]
    for (cap, time), (next_cap, next_time) in pairwise(points):
        slope, scale = next_time - time, next_cap - cap
        if scale:
            height = min(t * scale - slope * c for c, t in points)
            if height >= 0:
                lines.append((height, slope, scale))
    return lines


def least_ns(context: Context, volume: Volume, steps: int) -> int:
    """Return the least time of all steps that serve requests, of at least so many that yield.

    Without mixed steps, prefills and rounds are each above all lines; else all steps together.
    """
    scope, limit = context.scope, context.instance.workers[0].prefill_limit
    lines = lines_of(context, 0, volume.least_context)
    stages = -(-volume.requests // volume.clients)
    if limit is not None:
        stages = max(stages, -(-volume.prompts // limit))
    rounds, prefills = list[Fraction](), list[Fraction]()
    for line in lines:
        rounds.append(Fraction(line.round * steps + line.decoded(volume), line.unit))
        counted = line.stage * stages if line.adds or not scope.mixed else 0
        prefills.append(Fraction(counted + line.prefilled(volume), line.unit))
    if scope.mixed or scope.yielding:
        exact = max(map(sum, zip(rounds, prefills, strict=True)), default=Fraction(0))
    else:
        exact = max(rounds, default=Fraction(0)) + max(prefills, default=Fraction(0))
    return -(-exact.numerator // exact.denominator) * context.floor(0).times


def kv_volume(context: Context, released: int, request: int) -> dict[str, Any]:
    """Return the certificate over what is released at or after a moment, and of a request alone.

    Raises ``ValueError`` where it proves nothing.
    """
    instance = context.instance
    if not context.equal or instance.link is not None:
        raise ValueError("the bound by volume is of equal workers without links")
    prompts_known(context)
    rows = np.flatnonzero(instance.requests.arrival_ns >= released)
    if not len(rows) or request >= len(instance):
        raise ValueError(f"no request {request}, or none arrives at {released} or later")
    volume, workers = Volume.of(context, rows), len(instance.workers)
    steps = max(volume.steps, volume.most) if workers == 1 else volume.steps
    value = released - (-least_ns(context, volume, steps) // workers)
    return {
        "bound": "kv_volume",
        **context.scope.stated(),
        "released_ns": released,
        "request": request,
        "block_rounds": volume.block_rounds,
        "blocks": volume.blocks,
        "steps": steps,
        "context_sum": volume.contexts,
        "prompt_tokens": volume.prompts,
        "value_ns": max(value, context.arrivals[request] + alone_ns(context, request)),
    }


def prompts_known(context: Context) -> None:
    """Raise ``ValueError`` where nothing is known of prompts that a cache may have in part."""
    if context.once(_cut).any() and not prefills_grow(context.instance):
        raise ValueError("prompts that are cut may take longer")


def alone_ns(context: Context, request: int) -> int:
    """Return the least time of a request from its arrival to its end, alone on any worker."""
    volume = Volume.of(context, np.array([request]))
    return least_ns(context, volume, volume.most)
