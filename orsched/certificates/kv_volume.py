"""Lower bound on the makespan by volume: the steps that yield all tokens, and what all steps take.

A step yields at most one token of a request, and at most J in all; the requests that get one hold
their caches, in blocks, of which there are at most M. So the number S of these steps is at least
the largest D, the sum of D over J, and the sum of the block-rounds V over M, and every step is
above the lines that the cost model's floor states (docs/bounds.md has the proof). It holds with
chunks, mixed steps, restarts and prefix caches: each is restated, none drops the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.context import sum_of_products
from orsched.certificates.scope import cut_tokens, prefills_grow
from orsched.certificates.step_lower_bounds import (
    lost_by_rounding,
    lost_in_round,
    lost_in_stage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.certificates.context import Context
    from orsched.certificates.scope import Scope
    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.memory import BlockMemory
    from orsched.data.workers import Worker


@dataclass(frozen=True)
class Line:
    """What each step takes at least, in 1 / ``unit`` ns: ``StepLine``, less what rounding takes.

    ``adds``: a mixed step has both fixed parts. ``prefilled``: of all first prefills together.
    """

    unit: int
    stage: int
    round: int
    request: int
    context: int
    prompt: int
    attended: int
    prefilled: int
    adds: bool = False


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
        instance, worker = context.instance, context.instance.workers[0]
        prompts = instance.requests.prompt_tokens[rows]
        rounds, cut = instance.rounds_needed[rows], context.once(_cut)[rows]
        outputs, memory = instance.requests.output_tokens[rows], worker.memory
        held = None if memory is None else block_rounds(prompts, outputs, rounds, cut, memory)
        return cls(
            requests=len(rows),
            prompts=int((prompts - cut).sum()),
            attended=_triangles(prompts) - _triangles(cut),
            tokens=int(rounds.sum()),
            most=int(rounds.max()),
            contexts=sum_of_products(rounds, prompts) + _triangles(rounds),
            least_context=int(prompts.min()) + 1,
            block_rounds=0 if held is None else held,
            blocks=0 if memory is None else memory.blocks,
            clients=min(worker.clients, len(instance)),
        )


def _cut(context: Context) -> IntColumn:
    return cut_tokens(context.instance)


def block_rounds(
    prompts: IntColumn, outputs: IntColumn, rounds: IntColumn, cut: IntColumn, memory: BlockMemory
) -> int:
    """Return the blocks held in the rounds that yield all tokens, what may be shared left out.

    Paged: ``ceil((N^p + j) / b)`` in round j; else all blocks of a request in each.
    """
    size = memory.block_tokens
    shared = sum_of_products(cut // size, rounds)
    if not memory.is_paged:
        return sum_of_products(-(-(prompts + outputs) // size), rounds) - shared
    return _filled(prompts + rounds, size) - _filled(prompts, size) - shared


def _filled(tokens: IntColumn, size: int) -> int:
    """Return the sum over some numbers t of ceil(j / size) over j = 1 ... t."""
    whole, rest = np.divmod(tokens, size)
    return size * _triangles(whole) + sum_of_products(rest, whole + 1)


def _triangles(tokens: IntColumn) -> int:
    """Return the sum of t (t + 1) / 2."""
    return sum_of_products(tokens, tokens + 1) // 2


def lines_of(floor: Floor, volume: Volume, scope: Scope, worker: Worker) -> list[Line]:
    """Return the lines under each step that a floor states, or that follow from its parts.

    A line whose steps could take less for being more is left out.
    """
    found = []
    for stated in floor.lines:
        own = stated.prompt, stated.request, stated.context, stated.attended
        line = Line(
            unit=floor.unit,
            stage=stated.stage - lost_by_rounding(floor.unit, stated.stage, *own),
            round=stated.round - lost_by_rounding(floor.unit, stated.round, *own),
            request=stated.request,
            context=stated.context,
            prompt=stated.prompt,
            attended=stated.attended,
            prefilled=stated.prompt * volume.prompts + stated.attended * volume.attended,
        )
        found.append(line)
    return [line for line in found or _by_parts(floor, volume, scope, worker) if _adds_up(line)]


def _adds_up(line: Line) -> bool:
    return line.stage >= 0 and line.round >= 0


def _by_parts(floor: Floor, volume: Volume, scope: Scope, worker: Worker) -> Iterable[Line]:
    """Yield the lines that follow from the parts of a floor.

    The longest context and the mean one are at least a J-th of the sum.
    """
    stage, parts, clients = floor.stage, floor.round, volume.clients
    context = parts.context * clients + parts.longest + (parts.mean or 0)
    a_round = (parts.fixed - lost_in_round(floor)) * clients
    unit, request = floor.unit * clients, parts.request * clients
    make = partial(Line, unit=unit, attended=0)
    apart = scope.mixed and floor.mixed == "larger"
    rounds = {"round": a_round, "request": request, "context": context}
    if apart:
        yield make(stage=0, prompt=0, prefilled=0, **rounds)
        rounds = {"round": 0, "request": 0, "context": 0}
    adds = apart or floor.mixed == "sum"
    if stage.levels is not None:
        for height, slope, scale in stage_lines(floor, worker.prefill_limit):
            scaled = {name: value * scale for name, value in rounds.items()}
            yield Line(
                unit=unit * scale,
                stage=height * clients,
                prompt=slope * clients,
                attended=0,
                prefilled=slope * clients * volume.prompts,
                adds=adds,
                **scaled,
            )
        return
    fixed, token = stage.fixed - lost_in_stage(floor), 0 if stage.is_curved else stage.token
    prefilled = (token * volume.prompts + stage.request * volume.requests) * clients
    yield make(
        stage=fixed * clients, prompt=token * clients, prefilled=prefilled, adds=adds, **rounds
    )


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

    Without mixed steps, prefills and rounds are each above all lines; else all steps together. A
    prefill that is done again may yield what a round would: ``_again``.
    """
    floor, scope, worker = context.floor(0), context.scope, context.instance.workers[0]
    lines = lines_of(floor, volume, scope, worker)
    if not lines:
        return 0
    stages = -(-volume.requests // volume.clients)
    if worker.prefill_limit is not None:
        stages = max(stages, -(-volume.prompts // worker.prefill_limit))
    if scope.yielding:
        exact = _again(lines, volume, steps, scope.cached)
    elif scope.mixed:
        exact = max(
            Fraction(_decoded(line, volume, steps) + line.prefilled, line.unit)
            + Fraction(line.stage * stages * line.adds, line.unit)
            for line in lines
        )
    else:
        exact = max(Fraction(_decoded(line, volume, steps), line.unit) for line in lines)
        exact += max(Fraction(line.prefilled + line.stage * stages, line.unit) for line in lines)
    return -(-exact.numerator // exact.denominator) * floor.times


def _decoded(line: Line, volume: Volume, steps: int) -> int:
    return line.round * steps + line.request * volume.tokens + line.context * volume.contexts


def _again(lines: list[Line], volume: Volume, steps: int, cached: bool) -> Fraction:
    """Return the least time where prefills that are done again may stand for rounds.

    Let E tokens of context be prefilled again instead of being read. A line at E = 0 then changes
    by at least a slope for each of them: they are computed and attended to, or, where a cache may
    have all but one of m tokens, that one attends to m. The largest line is least at E = 0, at all
    the contexts, or where two lines cross. No line is below its steps and first prefills.
    """
    shortest, heights, slopes, found = volume.least_context, [], [], Fraction(0)
    for line in lines:
        fixed = min(line.stage, line.round) * steps
        decoded = _decoded(line, volume, 0) + line.prefilled + fixed
        found = max(found, Fraction(line.prefilled + fixed, line.unit))
        heights.append(Fraction(decoded, line.unit))
        if cached:
            saved = Fraction(max(0, line.request - line.prompt), shortest)
            slope = line.attended - line.context - saved
        else:
            attended = Fraction(line.attended * (shortest + 1), 2)
            slope = line.prompt + attended - line.context - Fraction(line.request, shortest)
        slopes.append(slope / line.unit)
    pairs = list(zip(heights, slopes, strict=True))
    found = max(found, *(h + min(Fraction(0), s) * volume.contexts for h, s in pairs))
    for height, slope in pairs:
        if slope >= 0:
            continue
        for other, rise in pairs:
            if rise > 0:
                found = max(found, (height * rise - other * slope) / (rise - slope))
    return found


def kv_volume(context: Context, released: int, request: int) -> dict[str, Any]:
    """Return the certificate over what is released at or after a moment, and of a request alone.

    Raises ``ValueError`` where it proves nothing.
    """
    instance = context.instance
    if not context.equal or instance.link is not None:
        raise ValueError("the bound by volume is of equal workers without links")
    if context.once(_cut).any() and not prefills_grow(instance):
        raise ValueError("prompts that are cut may take longer")
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


def alone_ns(context: Context, request: int) -> int:
    """Return the least time of a request from its arrival to its end, alone on any worker."""
    volume = Volume.of(context, np.array([request]))
    return least_ns(context, volume, volume.most)
