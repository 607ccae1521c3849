"""Mixes of sources: each with its own rates over time, burstiness and lengths.

The model is that of ServeGen (Xiang et al., arXiv 2505.09999): a workload is the sum of many
sources that differ from each other far more than each of them changes. Its published parameters
are read by ``load_mix``; a small synthetic mix ships with orsched.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.scalars import require_number
from orsched.common.units import NS_PER_S
from orsched.instances.datasets import data_directory
from orsched.instances.servegen import (
    FOLDERS,
    SERVEGEN,
    files_of,
    folder_of,
    read_folder,
    read_servegen,
)
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
    from os import PathLike

    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.workers import Worker
    from orsched.instances.source_mix import Floats


def load_mix(name: str, directory: str | PathLike[str] | None = None) -> SourceMix:
    """Return the mix ``synthetic``, one of ServeGen, or that in a folder in ServeGen's layout.

    ServeGen's are ``m_small``, ``m_mid``, ``m_large``, ``deepseek_r1`` and ``mm_image``, in
    ``directory``, by default the one that ``ORSCHED_DATA`` names: its own files (``language/m-mid``
    and so on, below a folder ``data`` or not), or the tables condensed from them. A name with a
    slash, or of a folder with ``chunk-N-trace.csv``, is a folder. Sources without lengths get the
    mean of those of the others, weighted by traffic. Raises ``InputError`` if there is no such mix,
    its files are not there, or one is wrong.
    """
    if name == "synthetic":
        return synthetic_mix()
    files = mix_files(name, directory)
    if files[0].name.startswith("chunk-"):
        folder = files[0].parent
        return read_folder(name if name in SERVEGEN else folder.name, folder)
    return read_servegen(name, files[0], files[1])


def mix_files(name: str, directory: str | PathLike[str] | None = None) -> list[Path]:
    """Return the files that a mix is read from, in a fixed order; raises as ``load_mix``."""
    if name == "synthetic":
        return []
    if name not in SERVEGEN:
        if files := files_of(Path(name)):
            return files
        if "/" in name or Path(name).is_dir():
            raise InputError(
                "holds no chunk-N-trace.csv", file=name, field="mix", remedy="ServeGen's layout"
            )
        remedy = known_names(name, ("synthetic", *SERVEGEN))
        raise InputError(f"unknown mix {name!r}", field="mix", remedy=remedy)
    base = data_directory(directory)
    tables = [base / f"servegen_{name}_{table}.csv" for table in ("rates", "lengths")]
    if tables[0].is_file() or tables[1].is_file():
        return tables
    folder = folder_of(name, base)
    if folder is None:
        raise InputError(
            f"neither {tables[0].name} nor ServeGen's {FOLDERS[name]} exists",
            file=str(base),
            field="mix",
            remedy=f"put ServeGen's folder data/{FOLDERS[name]} below it",
        )
    return files_of(folder)


_SYNTHETIC = (
    # name, requests a second in each window, family, shape, prompt and output (mean, sigma, most)
    ("chat", (3.0, 3.5, 4.0, 4.0, 3.5, 3.0), "Gamma", 1.0, (220, 1.0, 4096), (300, 0.8, 2048)),
    ("code", (0.5, 1.0, 2.0, 2.5, 1.0, 0.5), "Gamma", 0.1, (1600, 0.8, 8192), (60, 1.0, 1024)),
    ("summaries", (0.4,) * 6, "Weibull", 0.6, (2600, 0.4, 8192), (180, 0.5, 1024)),
    (
        "reasoning",
        (0.2, 0.2, 0.4, 0.4, 0.4, 0.2),
        "Gamma",
        0.8,
        (400, 0.9, 4096),
        (1400, 0.8, 8192),
    ),
    ("night", (0.0, 0.0, 0.0, 0.0, 2.0, 6.0), "Gamma", 0.04, (120, 0.3, 1024), (40, 0.5, 256)),
)


def synthetic_mix() -> SourceMix:
    """Return the mix that ships: five invented sources over one hour, about 6.8 requests a second.

    A steady chat, bursts of code completion that come and go, summaries, few but long reasoning
    requests, and a nightly job that starts late. Its constants are made up, not fitted.
    """
    sources = []
    for name, rates, family, shape, prompt, output in _SYNTHETIC:
        windows = [
            Window(i * WINDOW_S, rate, family, shape) for i, rate in enumerate(rates) if rate
        ]
        law = LengthWindow(0, lognormal_lengths(*prompt), lognormal_lengths(*output))
        sources.append(Source(name, tuple(windows), (law,)))
    return SourceMix("synthetic", tuple(sources))


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
        rate: mean requests a second over the span; all sources are scaled equally. Default: the
            mix's own rate.
        seed: seed of the random streams, two for each source.
        fields: fields of ``Instance`` (``first_token``, ``output_limit_tokens``, ...).

    Raises ``InputError`` if an argument is wrong, or more than 20 million requests are expected.
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
