"""Measured times of steps over a grid: what a cost model is fitted to."""

from __future__ import annotations

import random
from statistics import median_low
from typing import TYPE_CHECKING, NamedTuple

from orsched.calibration.measurements import DECODE, MIXED, PREFILL, Measurements
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.runner.devices.device import Device
    from orsched.runner.speed import Reference


ROUNDS = 4  # rounds that a point of the decode grid is measured over
SMALL = 512  # tokens up to which the lengths of single prompts grow by factors of 2
SEVERAL = 4  # prompts beside a round at some points: runs seldom have one alone
BEHIND = 3  # numbers of cached tokens, the largest of the grid, behind which chunks are measured

LEAST_LENGTH = 36
"""Tokens of the shortest slot and stage of a grid: there are five lengths at least."""


class Point(NamedTuple):
    """A step of the grid."""

    phase: str  # prefill, decode or mixed
    count: int  # type: ignore[assignment] # shadows tuple.count, which is not called
    length: int  # tokens of each prompt (0 in a round)
    context: int  # tokens in each active request's cache, that of the round included
    spread: bool = False  # whether that is the longest only, and the others' grow evenly up to it
    beside: int = 1  # prompts in a mixed step
    cached: int = 0  # tokens before each prompt of a stage: a later chunk of a longer one

    def prompts(self) -> int:
        """Return how many prompts are in the step."""
        if self.phase == DECODE:
            return 0
        return self.count if self.phase == PREFILL else self.beside

    def contexts(self) -> list[int]:
        """Return the active requests' contexts in the first round."""
        if self.phase == PREFILL:
            return []
        if not self.spread:
            return [self.context] * self.count
        return [-(-self.context * (i + 1) // self.count) for i in range(self.count)]


def grid(slots: int, length: int, most_tokens: int, factor: int = 2) -> list[Point]:
    """Return the points to measure on a worker: lengths grow by factors of 2 or 4.

    Stages of one prompt are denser up to ``SMALL`` tokens, where most of a run's are. Contexts of a
    round are all equal at some points and spread evenly at others. Mixed steps have one prompt or
    ``SEVERAL``. Single chunks are also measured behind cached tokens, which they attend to. Numbers
    of requests grow by ``factor``.

    Raises ``InputError`` where slots, or stages of ``most_tokens``, are too short for a grid.
    """
    whole_number(slots, "slots", minimum=1)
    if length < LEAST_LENGTH or most_tokens < LEAST_LENGTH:
        raise InputError(
            f"slots of {length} tokens and stages of {most_tokens} leave too few sizes to measure",
            field="length" if length < LEAST_LENGTH else "most_tokens",
            remedy=f"at least {LEAST_LENGTH} tokens",
        )
    longest = length - ROUNDS
    counts, lengths = _powers(slots, factor), _lengths(longest)
    sizes = _lengths(min(longest, most_tokens))
    prompts = [(n, p) for n in counts for p in sizes if n * p <= most_tokens]
    prompts += [(1, p) for p in _powers(min(sizes[-1], SMALL), 2, least=8) if p not in sizes]
    rounds = [Point(DECODE, n, 0, c) for n in counts for c in lengths]
    rounds += [Point(DECODE, n, 0, c, True) for n in counts if n > 1 for c in lengths if c > n]
    beside = [n for n in (1, slots // 2, slots - 1) if 0 < n < slots]
    mixed = [
        Point(MIXED, n, p, c)
        for n in sorted(set(beside))
        for p in lengths
        for c in (lengths[0], lengths[-1])
        if n + p <= most_tokens
    ]
    mixed += [
        Point(MIXED, n, p, c, beside=SEVERAL)
        for n in sorted(set(beside))
        for p in lengths[: len(lengths) // 2]
        for c in (lengths[0], lengths[-1])
        if n + SEVERAL <= slots and n + SEVERAL * p <= most_tokens
    ]
    stages = [Point(PREFILL, n, p, 0) for n, p in prompts]
    behind = [(p, k) for p in sizes for k in lengths[-BEHIND:] if p + k <= longest]
    stages += [Point(PREFILL, 1, p, 0, cached=k) for p, k in behind]
    return stages + rounds + mixed


def profile(
    device: Device,
    points: list[Point],
    repeats: int = 5,  # after one more, which is not counted
    seed: int = 0,  # of the order and the prompts
    report: Callable[[int, int], None] | None = None,  # told how many steps are done, of how many
    between: Callable[[int], None] | None = None,  # told after each walk how many are done
    reference: Reference | None = None,  # looked at every few points, which are divided by it
) -> Measurements:
    """Measure the points of a ``grid`` on an empty worker; a row holds the median of some repeats.

    The whole grid is walked once, in random order, for each repeat, so that a slow while of the
    machine is one of the repeats of every point and not all those of some; by the ``reference``
    what is left of it is divided out.

    Raises ``InputError`` for a point that does not fit onto the worker.
    """
    whole_number(repeats, "repeats", minimum=1)
    if not points:
        raise InputError("no points to measure", field="points", remedy="give at least one point")
    for point in points:
        _require_room(device, point)
    rng = random.Random(seed)
    times: dict[Point, list[tuple[int, int]]] = {point: [] for point in points}
    total = (repeats + 1) * len(times)
    done, order = 0, list(times)
    for walk in range(repeats + 1):
        rng.shuffle(order)
        for point in order:
            look = 0 if reference is None else reference.due()
            taken, done = measured_ns(device, point, rng), done + 1
            if walk:
                times[point].append((taken, look))
            if report is not None:
                report(done, total)
        if reference is not None:
            reference.look()
        if between is not None:
            between(walk + 1)
    steady = _as_taken if reference is None else reference.steady
    return _rows({p: median_low([steady(*each) for each in times[p]]) for p in times})


def _as_taken(taken_ns: int, _: int) -> int:
    return taken_ns


def _lengths(longest: int) -> list[int]:
    return _powers(longest, 4, least=8) if longest >= 512 else _powers(longest, 2, least=2)


def _powers(most: int, base: int, least: int = 1) -> list[int]:
    """Return ``least`` times the powers of the base, and the largest number itself."""
    found = [least]
    while found[-1] * base < most:
        found.append(found[-1] * base)
    return found if found[-1] == most else [*found, most]


def _require_room(device: Device, point: Point) -> None:
    slots, length = device.slots, device.length
    used = point.count + point.beside * (point.phase == MIXED)
    if used > slots or max(point.length + point.cached, point.context + ROUNDS - 1) > length:
        raise InputError(
            f"{point} does not fit onto {slots} slots of {length} tokens",
            field="points",
            remedy="leave the point out, or give more slots or longer ones",
        )


def measured_ns(device: Device, point: Point, rng: random.Random) -> int:
    """Return the time of a step (of one round) in nanoseconds, at least 1; all slots are empty."""
    active = [] if point.phase == PREFILL else list(range(point.count))
    chunks = []
    for slot in range(len(active), len(active) + point.prompts()):
        whole = [rng.randrange(device.vocabulary) for _ in range(point.cached + point.length)]
        chunks.append(Chunk(slot, point.cached, whole[point.cached :], True, whole=whole))
    held = [point.cached] * len(chunks) if point.cached else [c - 1 for c in point.contexts()]
    if held and not device.pretend(held):
        for chunk in chunks if point.cached else []:
            before = chunk.whole[: chunk.start]
            _step(device, [chunk._replace(start=0, tokens=before, yields=False)])
        for slot, size in enumerate(held if active else []):
            prompt = [rng.randrange(device.vocabulary) for _ in range(max(1, size))]
            _step(device, [Chunk(slot, 0, prompt, True, whole=prompt)])
        chunks = [chunk._replace(whole=()) if chunk.start else chunk for chunk in chunks]
    rounds = ROUNDS if point.phase == DECODE else 1
    device.start()
    taken = _step(device, chunks, active, rounds)
    for slot in range(len(active) + len(chunks)):
        device.release(slot, 0)
    return max(1, taken // rounds)


def _step(device: Device, chunks: list[Chunk], active: Sequence[int] = (), rounds: int = 1) -> int:
    """Take a step and return its time in nanoseconds."""
    device.begin(chunks, active, rounds, 0)
    times = device.end()
    return times.end_ns - times.start_ns


def _rows(times: dict[Point, int]) -> Measurements:
    points = list(times)
    # rounds are measured from the contexts given to ones some tokens longer: the means stand for it
    middle = [(ROUNDS - 1) // 2 if point.phase == DECODE else 0 for point in points]
    contexts = [[c + m for c in p.contexts()] for p, m in zip(points, middle, strict=True)]
    return Measurements(
        phase=[point.phase for point in points],
        count=[point.count for point in points],
        duration_ns=list(times.values()),
        tokens=[p.length * p.prompts() for p in points],
        longest=[p.length for p in points],
        context_sum=[sum(found) for found in contexts],
        context_max=[max(found, default=0) for found in contexts],
        cached=[p.cached for p in points],
    )
