"""Measuring a worker: a grid of steps, then steps as they come when requests are served."""

from __future__ import annotations

import gc
import math
import random
from collections import deque
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.candidates import anchored, joined
from orsched.calibration.measurements import DECODE
from orsched.calibration.observed import Observed, averaged, observed
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.step import Step, decode_rounds, prefill_stage
from orsched.data.workers import Worker
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.runner.capacity import Footprint, Found, fits_on, memory_profile
from orsched.runner.devices.device import open_device
from orsched.runner.devices.settings import AUTO, WorkerSettings, choose
from orsched.runner.loop.live import execute_policy
from orsched.runner.profiling import Point, grid, profile
from orsched.runner.speed import Reference
from orsched.runner.worker.graphs import Budget
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.calibration.measurements import Measurements
    from orsched.runner.devices.device import Device
    from orsched.runner.speed import Speed


class Rehearsal(Policy):
    """First come first served, but a prefill waits for a random number of free clients.

    So there are stages of all sizes. Numbers are drawn between 1 and a quarter of the clients, all
    powers of two as likely.
    """

    name = "rehearsal"
    information = Information.NONE

    def __init__(self, seed: int = 0) -> None:
        self.queue: deque[int] = deque()
        self.random = random.Random(seed)
        self.least = 1

    def on_arrival(self, view: View, request: int) -> None:
        """Append the request to the queue."""
        self.queue.append(request)

    def decide(self, view: View) -> Step | None:
        """Return a prefill stage once enough clients are free, else rounds until a finish."""
        if self.queue and (view.free_clients >= self.least or not view.running):
            stage = BatchBuilder(view).take(self.queue)
            if stage:
                most = max(1, view.worker.clients // 4)
                self.least = 2 ** self.random.randrange(most.bit_length())
                return prefill_stage(stage)
        return decode_rounds() if view.running else None


def made_up_requests(count: int, length: int, seed: int, like: Requests | None = None) -> Requests:
    """Return requests for a rehearsal, none longer than the ``length`` tokens of a slot.

    Pairs of lengths are drawn from those ``like``, with replacement; without them prompts are
    uniform up to half of the length, and outputs up to what is left.
    """
    whole_number(length, "length", minimum=2)
    draw = np.random.default_rng(seed)
    if like is None:
        prompts = draw.integers(1, max(1, length // 2), count, endpoint=True)
        return Requests(prompts, draw.integers(1, length - prompts, endpoint=True))
    fitting = np.flatnonzero(like.prompt_tokens + like.output_tokens <= length)
    if len(fitting) == 0:
        raise InputError(
            f"no request fits into {length} tokens", field="length", remedy="give longer slots"
        )
    rows = fitting[draw.integers(0, len(fitting), count)]
    return Requests(like.prompt_tokens[rows], like.output_tokens[rows])


def rehearse(
    device: Device,
    requests: Requests,
    most_tokens: int,
    seed: int = 0,
    reference: Reference | None = None,
) -> Observed:
    """Serve requests on an empty worker and return its steps; arrivals do not matter.

    The time from the step before counts as part of a step: a plan knows no gaps. Prompts over
    ``most_tokens`` are left out. ``seed`` draws the prompts, and when to prefill. The ``reference``
    is looked at on the way, if that is possible, in the last slot, which is left for it.
    """
    total = requests.prompt_tokens + requests.output_tokens
    if int(total.max(initial=0)) > device.length:
        raise InputError(
            f"a request of {total.max()} tokens; a slot holds {device.length}",
            field="requests",
            remedy="leave the request out, or give longer slots",
        )
    kept = requests.prompt_tokens <= most_tokens
    spare = int(reference is not None and device.slots > 1)
    instance = Instance(
        Requests(requests.prompt_tokens[kept], requests.output_tokens[kept]),
        (Worker(device.slots - spare, AffineCost(), most_tokens),),
        first_token="prefill",
    )
    look = None
    if reference is not None and spare:
        look = lambda view, step: reference.due_in_run()  # noqa: E731
    done = execute_policy(instance, Rehearsal(seed), device, seed, device.vocabulary, look)
    return _in_the_middle(observed(instance, done.schedule, gaps=True))


def _in_the_middle(steps: Observed) -> Observed:
    """Return the steps up to the last stage: a run that is longer than a rehearsal has few steps in
    which all is admitted and slots become empty. All steps, where no round comes before."""
    stages = [row for row, phase in enumerate(steps.phase) if phase != DECODE]
    end = stages[-1] + 1 if stages else 0
    if DECODE not in steps.phase[:end]:
        return steps
    phase, *columns = steps
    return Observed(list(phase)[:end], *(column[:end] for column in columns))


REQUESTS_A_SLOT = 6
"""Requests of a rehearsal for each slot: the first and the last ones run on a half-full worker."""

PARTS = 2  # into which a rehearsal is cut


class WorkerOptions(NamedTuple):
    """What a worker is to be."""

    model: str = "tiny"  # a preset or a folder
    device: str = "auto"  # as torch names it, or ``auto``: a GPU where there is one
    dtype: str | None = None  # of weights and caches; None: float32 on the CPU, bfloat16 on a GPU
    slots: int = 8  # of its caches
    length: int = 1024  # tokens of a slot
    threads: int | None = None  # on the CPU; None: as torch chooses
    allow_pickle: bool = False  # whether weights in a folder may be pickled
    graph_sizes: int = Budget().sizes
    graph_bytes: int = Budget().bytes
    worker: str = "torch"  # the engine, as ``WorkerSettings`` names it
    arguments: tuple[tuple[str, Any], ...] = ()  # of the engine's own

    def resolved(self) -> WorkerOptions:
        """Return the options with device and type of numbers filled in; raises as ``choose``."""
        if self.worker != "torch":
            return self._replace(dtype=self.dtype or AUTO)
        device, dtype = choose(self.device, self.dtype)
        return self._replace(device=device, dtype=dtype)

    def settings(self, seed: int = 0) -> WorkerSettings:
        """Return the settings of the worker, all checked; raises as ``choose``, or InputError."""
        return WorkerSettings(**self.resolved()._asdict(), seed=seed)


def make_device(options: WorkerOptions, seed: int = 0) -> tuple[Device, dict[str, Any]]:
    """Return a worker and what a report says of it; raises as ``settings`` and ``open_device``."""
    settings = options.settings(seed)
    device = open_device(settings)
    names = ("model", "slots", "length")
    about = {name: getattr(settings, name) for name in names}
    about |= {"device": device.name, "dtype": settings.dtype}
    about["threads"] = device.facts.get("threads") if settings.device == "cpu" else None
    if settings.worker == "torch":
        return device, {**about, **{name: device.facts[name] for name in ("torch", "graphs")}}
    return device, {**about, "worker": settings.worker, **dict(settings.arguments), **device.facts}


def largest_batches(
    options: WorkerOptions,  # the worker; its number of slots does not matter
    most_tokens: int,  # of a prefill stage
    limit: int | None,  # bytes to use; None: what a GPU has
    report: Callable[[str], None] | None = None,  # told what is tried
) -> list[Found]:
    """Return the largest batch (``memory_profile``) for a slot's length, its half and quarter."""
    found = options.settings()
    import torch

    from orsched.runner.capacity import size_of

    size = size_of(found.model, found.dtype, found.allow_pickle)
    bytes_of = Footprint.of(size.weight_bytes, size.token_bytes)
    if found.device == "cpu" and limit is None:
        raise InputError(
            "a CPU has no limit of its own", field="memory", remedy="say how many bytes to use"
        )
    room = torch.cuda.mem_get_info(found.device)[0] if limit is None else limit
    fits = fits_on(found, most_tokens, bytes_of, limit)
    lengths = sorted({max(1, found.length // part) for part in (1, 2, 4)})
    return memory_profile(lengths, lambda n: bytes_of.slots(n, room), fits, report=report)


class Measured(NamedTuple):
    """What was measured of a worker."""

    steps: Measurements  # what to ``calibrate``
    speed: Speed  # times of one step at the begin, between the parts and at the end


def measure_worker(
    device: Device,  # the worker; nothing may be on it
    most_tokens: int,  # of a prefill stage
    repeats: int = 5,  # of each point of the grid, which stands for their median
    seed: int = 0,  # of the order, the requests and their prompts
    requests: int | None = None,  # of the rehearsal; 0 leaves it out; by default six a slot
    like: Requests | None = None,  # requests whose lengths those of the rehearsal are drawn from
    report: Callable[[str], None] | None = None,  # told what is done
    factor: int = 2,  # by which the numbers of requests in the grid grow
) -> Measured:
    """Measure a worker's steps, for ``calibrate``.

    The grid has sizes that seldom come up in a run, for which a fit would otherwise have to guess;
    the rehearsal has steps in the state in which a run finds them, and the grid's times are
    ``anchored`` to its first part; by the second the fitted models are judged. Both are spread over
    the whole time, and a ``Reference`` says whether the machine kept its speed.
    """
    whole_number(repeats, "repeats", minimum=1)
    whole_number(seed, "seed")
    if requests is not None:
        whole_number(requests, "requests")
    say = report if report is not None else _say_nothing
    points = grid(device.slots, device.length, most_tokens, factor)
    if like is not None:
        made_up_requests(1, device.length, seed, like)  # says if none fits
    count = REQUESTS_A_SLOT * device.slots if requests is None else requests
    rehearsal = _Rehearsals(device, most_tokens, seed, count, like, say)
    _warm_up(device, most_tokens, seed)
    gc.collect()
    gc.freeze()  # else the collector walks through all of torch now and then
    try:
        return _measured(device, points, repeats, seed, rehearsal, say)
    finally:
        gc.unfreeze()


def _measured(
    device: Device,
    points: list[Point],
    repeats: int,
    seed: int,
    rehearsal: _Rehearsals,
    say: Callable[[str], None],
) -> Measured:
    reference = Reference(device, device.slots - 1)
    found = profile(
        device,
        points,
        repeats,
        seed,
        lambda done, of: say(f"{done} of {of} steps of the grid"),
        lambda walks: rehearsal.until(walks / (repeats + 1), reference),
        reference,
    )
    if rehearsal.steps:
        usual = fmean(chain.from_iterable(looks for _, looks in rehearsal.steps))
        parts = [
            _of_run(averaged(steps), k, usual / fmean(looks))
            for k, (steps, looks) in enumerate(rehearsal.steps, 1)
        ]
        found, phases = anchored(found, parts[0])  # the last part judges what is fitted
        say(", ".join(f"{phase} of the grid x {factor:.3f}" for phase, factor in phases.items()))
        found = joined(found, *parts)
    return Measured(found, reference.speed())


def _of_run(steps: Measurements, number: int, factor: float) -> Measurements:
    """Return the steps of a run at the usual speed of the machine."""
    times = np.maximum(1, np.rint(factor * steps.column("duration_ns"))).astype(np.int64)
    return replace(steps, run=[number] * len(steps), duration_ns=times)


class _Rehearsals:
    """A rehearsal in parts, so that it sees the machine as often as the grid does."""

    def __init__(
        self,
        device: Device,
        most_tokens: int,
        seed: int,
        count: int,
        like: Requests | None,
        say: Callable[[str], None],
    ) -> None:
        self.device, self.most_tokens, self.seed = device, most_tokens, seed
        self.requests = made_up_requests(count, device.length, seed, like)
        self.parts = min(PARTS, count)
        self.say = say
        self.steps: list[tuple[Observed, list[int]]] = []  # with the looks at the reference

    def until(self, share: float, reference: Reference) -> None:
        """Serve the parts that are due at a share of the time."""
        while len(self.steps) < math.floor(share * self.parts + 1e-9):
            part, count = len(self.steps), len(self.requests)
            self.say(f"a rehearsal with {count} requests, part {part + 1} of {self.parts}")
            first, last = (count * (part + i) // self.parts for i in (0, 1))
            rows = self.requests.take(np.arange(first, last))
            seen = len(reference.run_ns)
            steps = rehearse(self.device, rows, self.most_tokens, self.seed + part, reference)
            reference.look()
            self.steps.append((steps, reference.run_ns[seen:] or reference.times_ns[-2:]))


def _warm_up(device: Device, most_tokens: int, seed: int) -> None:
    """Serve a few requests, for what a device does the first time only."""
    few = made_up_requests(device.slots, min(64, device.length), seed)
    rehearse(device, few, most_tokens, seed)


def _say_nothing(_: str) -> None:
    """Report nothing."""
