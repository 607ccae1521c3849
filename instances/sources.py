"""Mixes of sources: each with its own rates over time, burstiness and lengths.

The model is that of ServeGen (Xiang et al., arXiv 2505.09999): a workload is the sum of many
sources that differ from each other far more than each of them changes. Its published parameters
are read by ``load_mix``; a small synthetic mix ships with orsched.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_number
from orsched.common.units import NS_PER_S
from orsched.instances.mixes import load_mix, mix_files, synthetic_mix
from orsched.instances.source_mix import (
    WINDOW_S,
    Lengths,
    LengthWindow,
    Source,
    SourceMix,
    Window,
    lognormal_lengths,
)
from orsched.instances.streams import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.workers import Worker
    from orsched.instances.source_mix import Floats

__all__ = [
    "LengthWindow",
    "Lengths",
    "Source",
    "SourceMix",
    "Window",
    "draw_sources",
    "load_mix",
    "lognormal_lengths",
    "mix_files",
    "sources",
    "synthetic_mix",
]

MAX_REQUESTS = 20_000_000
MAX_SPAN_S = 100 * 365 * 86400


def draw_sources(
    mix: SourceMix | str,
    workers: Worker | tuple[Worker, ...],
    *,
    start_s: float = 0,
    duration_s: float = WINDOW_S,
    rate: float | None = None,
    seed: int = 0,
    **fields: Any,
) -> Instance:
    """Return the requests that the sources of a mix send in a span of time, as an instance.

    Each window of a source is a stationary renewal process of its own: the expected number of
    requests is exactly rate x length. Prompt and output lengths are drawn independently, since
    only their marginals are published. The requests are named ``source/number``.

    Args:
        mix: a mix, or what ``load_mix`` takes.
        workers: one or more workers.
        start_s, duration_s: the span; times in the instance count from its start.
        rate: mean requests a second over the span; all sources are scaled alike. Default: the
            mix's own rate.
        seed: seed of the random streams, two for each source.
        fields: fields of ``Instance`` (``first_token``, ``output_limit_tokens``, ...).

    Raises:
        InputError: an argument is wrong, or more than 20 million requests are expected.
    """
    chosen = load_mix(mix) if isinstance(mix, str) else mix
    begin = require_number(start_s, "start_s", 0, MAX_SPAN_S)
    length = require_number(duration_s, "duration_s", 1e-9, MAX_SPAN_S)
    number = whole_number(seed, "seed", remedy="give a whole number of at least 0")
    expected = chosen.expected(begin, length)
    scale = 1.0
    if rate is not None:
        if expected == 0:
            raise InputError(
                f"the mix {chosen.name} has no requests from {begin:g} s on, for {length:g} s",
                field="start_s",
                remedy=f"it spans {chosen.span_s} s",
            )
        scale = require_number(rate, "rate", 1e-9, 1e9) * length / expected
    if expected * scale > MAX_REQUESTS:
        raise InputError(
            f"about {expected * scale:.3g} requests are expected",
            field="duration_s",
            remedy=f"shorten the span or lower the rate: at most {MAX_REQUESTS}",
        )
    drawn = [_draw(chosen, source, begin, length, scale, number) for source in chosen.sources]
    return _instance(chosen, drawn, workers, f"seed{number}", fields)


class _Drawn(NamedTuple):
    arrival_ns: NDArray[np.int64]
    prompts: NDArray[np.int64]
    outputs: NDArray[np.int64]


def _instance(
    mix: SourceMix, drawn: list[_Drawn], workers: Any, label: str, fields: dict[str, Any]
) -> Instance:
    """Merge the sources' requests by arrival; ties in the order of the sources."""
    from orsched.data.instance import Instance
    from orsched.data.requests import Requests

    columns = [
        np.concatenate([np.empty(0, np.int64), *(getattr(one, name) for one in drawn)])
        for name in _Drawn._fields
    ]
    arrivals, prompts, outputs = columns
    ids = [
        f"{s.name}/{n}" for s, d in zip(mix.sources, drawn, strict=True) for n in range(len(d[0]))
    ]
    order = np.argsort(arrivals, kind="stable")
    owners = workers if isinstance(workers, tuple) else (workers,)
    return Instance(
        Requests(
            prompts[order],
            outputs[order],
            arrival_ns=arrivals[order],
            ids=tuple(ids[row] for row in order),
        ),
        owners,
        **{
            "name": f"{mix.name}-{label}",
            "description": f"Requests drawn from the {len(mix.sources)} sources of {mix.name}.",
            "source": mix.source,
            "licence": mix.licence,
            **fields,
        },
    )


def _draw(
    mix: SourceMix, source: Source, start_s: float, duration_s: float, scale: float, seed: int
) -> _Drawn:
    """Draw one source's requests in a span."""
    gaps = stream(f"sources/{mix.name}/{source.name}/gaps", seed)
    end_s = start_s + duration_s
    times = [np.empty(0)]
    for window in source.windows:
        first, last = max(start_s, window.start_s), min(end_s, window.start_s + WINDOW_S)
        rate = window.rate * scale
        if last > first and rate > 0:
            points = _renewals(gaps, window.family, window.shape, (last - first) * rate)
            times.append(first - start_s + points / rate)
    seconds = np.concatenate(times)
    uniform = stream(f"sources/{mix.name}/{source.name}/lengths", seed).random((len(seconds), 2))
    starts = [window.start_s for window in source.lengths]
    which = np.maximum(0, np.searchsorted(starts, seconds + start_s, side="right") - 1)
    prompts, outputs = np.empty(len(seconds), np.int64), np.empty(len(seconds), np.int64)
    for index, law in enumerate(source.lengths):
        rows = which == index
        prompts[rows] = law.prompt.draw(uniform[rows, 0])
        outputs[rows] = law.output.draw(uniform[rows, 1])
    return _Drawn(np.rint(seconds * NS_PER_S).astype(np.int64), prompts, outputs)


def _renewals(gaps: np.random.Generator, family: str, shape: float, length: float) -> Floats:
    """Return the points in [0, length) of a stationary renewal process of rate 1.

    The first point is a uniform part of a gap drawn by its length: the gap that holds a moment.
    """
    chunk = 16 + int(length + 2 * math.sqrt(length))
    points = [gaps.random() * _gaps(gaps, family, shape, 1, by_length=True)]
    while points[-1][-1] < length:
        points.append(points[-1][-1] + np.cumsum(_gaps(gaps, family, shape, chunk)))
    found = np.concatenate(points)
    return found[found < length]


def _gaps(
    gaps: np.random.Generator, family: str, shape: float, count: int, *, by_length: bool = False
) -> Floats:
    """Draw gaps of mean 1, or, ``by_length``, from their law weighted by length."""
    if family == "Gamma":
        return gaps.standard_gamma(shape + by_length, count) / shape
    powers = gaps.standard_gamma(1 + (1 / shape if by_length else 0), count)
    # math.lgamma, since the mean of a Weibull law of scale 1 is Gamma(1 + 1/shape).
    return np.exp(np.log(powers) / shape - math.lgamma(1 + 1 / shape))


def sources(
    mix: str = "synthetic",
    clients: int = 64,
    seed: int = 0,
    start_s: float = 0,
    duration_s: float = WINDOW_S,
    rate: float | None = None,
    prefill_cap_tokens: int | None = None,
    first_token: str = "prefill",
) -> Instance:
    """Return what the sources of a mix send in a span of time, on one affine worker.

    The generator of that name; see ``draw_sources`` and ``load_mix``.

    Args:
        mix: ``synthetic``, or a mix of ServeGen whose tables are in the data folder.
        clients: J, the clients of the worker.
        seed: of the random streams, two for each source.
        start_s: where the span begins in the mix.
        duration_s: length of the span.
        rate: mean requests a second over the span; None: the mix's own.
        prefill_cap_tokens: most tokens of a prefill stage; None: no cap.
        first_token: the stage that yields it, ``prefill`` or ``decode``.

    Raises:
        InputError: an argument is wrong.
    """
    from orsched.data.workers import Worker

    worker = Worker(clients, prefill_cap_tokens=prefill_cap_tokens)
    return draw_sources(
        mix,
        worker,
        start_s=start_s,
        duration_s=duration_s,
        rate=rate,
        seed=seed,
        first_token=first_token,
    )
