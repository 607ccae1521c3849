"""What a mix of sources is: windows of rates and burstiness, and laws of lengths (ServeGen)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.units import MAX_TOKENS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WINDOW_S = 600
"""Rates and gaps hold for windows of this length (ServeGen)."""

SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


class Lengths(NamedTuple):
    """A law of token counts: quantiles at ``SHARES``, the largest value, and the mean.

    Between quantiles it is linear, below the first constant. Above the last it is
    ``q99 + (largest - q99) u**a``, with the a for which the mean is right, if there is one.
    """

    quantiles: tuple[float, ...]
    largest: float
    mean: float

    def draw(self, uniform: Floats) -> NDArray[np.int64]:
        """Return the token counts of uniform numbers in [0, 1), at least 1."""
        shares, values = np.array((0.0, *SHARES)), np.array((self.quantiles[0], *self.quantiles))
        found = np.interp(uniform, shares, values)
        last, span = values[-1], self.largest - values[-1]
        body = float(np.sum(np.diff(shares) * (values[1:] + values[:-1]) / 2))
        in_tail = (self.mean - body) / (1 - SHARES[-1]) - last
        tail = uniform >= SHARES[-1]
        if span > 0 and in_tail > 0:
            power = max(0.0, span / in_tail - 1)
            place = (uniform[tail] - SHARES[-1]) / (1 - SHARES[-1])
            found[tail] = last + span * place**power
        tokens: NDArray[np.int64] = np.clip(np.rint(found), 1, MAX_TOKENS).astype(np.int64)
        return tokens


class Window(NamedTuple):
    """Requests of a source in one window: ``rate`` a second, gaps of a family and shape."""

    start_s: int
    rate: float
    family: str
    shape: float


class LengthWindow(NamedTuple):
    """Laws of prompt and output tokens of a source from ``start_s`` on."""

    start_s: int
    prompt: Lengths
    output: Lengths


@dataclass(frozen=True)
class Source:
    """One stream of requests; it is silent between its windows, which are in the order of time.

    ``lengths``: at least one, in the order of time; the first also holds before its start.
    """

    name: str
    windows: tuple[Window, ...]
    lengths: tuple[LengthWindow, ...]


@dataclass(frozen=True)
class SourceMix:
    """Sources that make up a workload together, each with its own random streams.

    ``source`` and ``licence`` are labels of the instances that are drawn from the mix.
    """

    name: str
    sources: tuple[Source, ...]
    source: str = "generated"
    licence: str = "Apache-2.0"

    @property
    def span_s(self) -> int:
        """End of the last window, in seconds."""
        return max((s.windows[-1].start_s + WINDOW_S for s in self.sources if s.windows), default=0)

    def expected(self, start_s: float, duration_s: float) -> float:
        """Return how many requests are expected in a span of time."""
        end_s = start_s + duration_s
        return sum(
            window.rate
            * max(0.0, min(end_s, window.start_s + WINDOW_S) - max(start_s, window.start_s))
            for source in self.sources
            for window in source.windows
        )


def lognormal_lengths(mean: float, sigma: float, largest: int) -> Lengths:
    """Return the quantiles of a log-normal law, cut at the largest value."""
    centre = math.log(mean) - sigma * sigma / 2
    values = [math.exp(centre + sigma * NormalDist().inv_cdf(share)) for share in SHARES]
    return Lengths(tuple(min(v, float(largest)) for v in values), float(largest), mean)
