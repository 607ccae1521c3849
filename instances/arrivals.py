"""Arrival processes: other arrival times for the requests of an instance."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_number
from orsched.common.units import MAX_TIME, MAX_TIME_NS, NS_PER_S
from orsched.data.instance import require_instance
from orsched.data.requests import NONE
from orsched.instances.streams import read_spec, stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

MAX_CV = 100.0
"""Above it nearly all gaps of a Gamma process round to 0."""

MAX_RATE = 1e9
"""Requests a second: one a nanosecond."""


class Arrivals(ABC):
    """A law of arrival times; ``law`` is its name in specifications."""

    law: ClassVar[str]

    @abstractmethod
    def times_ns(self, given_ns: IntColumn, seed: int) -> IntColumn:
        """Return as many times as are given, in order; ``given_ns`` are those of the trace."""

    def spec(self) -> str:
        """Return the specification: ``read_arrivals`` makes an equal law of it."""
        values = [(f.name, getattr(self, f.name)) for f in fields(self)]  # type: ignore[arg-type]
        pairs = [f"{name}={value:g}" for name, value in values if value is not None]
        # %g keeps six digits; what needs more is written in full.
        exact = [f"{name}={value!r}" for name, value in values if value is not None]
        kept = [
            short if float(short.partition("=")[2]) == float(full.partition("=")[2]) else full
            for short, full in zip(pairs, exact, strict=True)
        ]
        return f"{self.law}:{','.join(kept)}" if kept else self.law


@dataclass(frozen=True)
class Poisson(Arrivals):
    """A Poisson process of ``rate`` requests a second."""

    law = "poisson"
    rate: float

    def __post_init__(self) -> None:
        _rate(self.rate, "rate")

    def times_ns(self, given_ns: IntColumn, seed: int) -> IntColumn:
        """Add up exponential gaps; the first arrival is one gap after 0."""
        gaps = stream("arrivals/poisson", seed).standard_exponential(len(given_ns))
        return _rounded(np.cumsum(gaps) * (NS_PER_S / self.rate), self)


@dataclass(frozen=True)
class Gamma(Arrivals):
    """Gaps that are Gamma distributed with a coefficient of variation: 1 is Poisson, 0 a clock."""

    law = "gamma"
    rate: float
    cv: float

    def __post_init__(self) -> None:
        _rate(self.rate, "rate")
        _within(self.cv, "cv", 0, MAX_CV)

    def times_ns(self, given_ns: IntColumn, seed: int) -> IntColumn:
        """Add up Gamma gaps of shape 1/cv^2; the first arrival is one gap after 0."""
        n, square = len(given_ns), self.cv * self.cv
        if square == 0:
            gaps = np.ones(n)
        else:
            gaps = stream("arrivals/gamma", seed).standard_gamma(1 / square, n) * square
        return _rounded(np.cumsum(gaps) * (NS_PER_S / self.rate), self)


@dataclass(frozen=True)
class Replay(Arrivals):
    """The instance's own arrivals, ``scale`` times as fast, or stretched to a mean ``rate``.

    The mean rate is (n - 1) gaps over the time from the first arrival to the last. The first
    arrival is moved to 0.
    """

    law = "replay"
    scale: float | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and self.rate is not None:
            raise _wrong("scale and rate say the same", "rate", "give one of them")
        if self.rate is not None:
            _rate(self.rate, "rate")
        else:
            object.__setattr__(self, "scale", 1.0 if self.scale is None else self.scale)
            _within(self.scale, "scale", 0, MAX_RATE, above=True)

    def times_ns(self, given_ns: IntColumn, seed: int) -> IntColumn:
        """Divide the given times, exactly and rounded once; nothing in it is random."""
        if len(given_ns) == 0:
            return given_ns
        first, last = int(given_ns[0]), int(given_ns[-1])
        if self.rate is None:
            assert self.scale is not None
            factor = 1 / Fraction(self.scale)
        else:
            if last == first:
                raise _wrong(
                    "all requests arrive at the same time, so they have no rate to scale",
                    "rate",
                    "use poisson or gamma, or an instance with arrivals",
                )
            factor = Fraction((len(given_ns) - 1) * NS_PER_S) / (
                Fraction(self.rate) * (last - first)
            )
        if (last - first) * factor > MAX_TIME_NS:
            raise _too_late(self)
        up, down = factor.numerator, factor.denominator
        times = [(2 * (t - first) * up + down) // (2 * down) for t in given_ns.tolist()]
        return np.array(times, np.int64)


@dataclass(frozen=True)
class OnOff(Arrivals):
    """Poisson arrivals whose rate switches: ``rate`` while on, ``off_rate`` while off.

    The phases have exponential lengths with means ``on_s`` and ``off_s`` seconds; the first is
    on (a Markov-modulated Poisson process of two states; with ``off_rate`` 0 an interrupted one).
    """

    law = "onoff"
    rate: float
    on_s: float
    off_s: float
    off_rate: float = 0.0

    def __post_init__(self) -> None:
        _rate(self.rate, "rate")
        for name in ("on_s", "off_s"):
            _within(getattr(self, name), name, 0, MAX_TIME_NS / NS_PER_S, above=True)
        _within(self.off_rate, "off_rate", 0, MAX_RATE)
        if self.off_rate > self.rate:
            raise _wrong("more arrivals while off than while on", "off_rate", "at most rate")

    def times_ns(self, given_ns: IntColumn, seed: int) -> IntColumn:
        """Map a Poisson process of rate 1 through the inverse of the summed-up rate."""
        n = len(given_ns)
        expected = np.cumsum(stream("arrivals/onoff/requests", seed).standard_exponential(n))
        if n == 0:
            return given_ns
        phases = stream("arrivals/onoff/phases", seed)
        ends, done = [np.zeros(1)], [np.zeros(1)]
        while done[-1][-1] < expected[-1]:
            lengths = phases.standard_exponential((256, 2)) * (self.on_s, self.off_s)
            ends.append(ends[-1][-1] + np.cumsum(lengths))
            done.append(done[-1][-1] + np.cumsum(lengths * (self.rate, self.off_rate)))
        moments, requests = np.concatenate(ends), np.concatenate(done)
        return _rounded(np.interp(expected, requests, moments) * NS_PER_S, self)


@dataclass(frozen=True)
class Bursts(Arrivals):
    """Bursts of simultaneous requests: Poisson bursts of geometric size, ``rate`` in all."""

    law = "bursts"
    rate: float
    size: float

    def __post_init__(self) -> None:
        _rate(self.rate, "rate")
        _within(self.size, "size", 1, 1e9)

    def times_ns(self, given_ns: IntColumn, seed: int) -> IntColumn:
        """Begin a new burst before a request with probability 1/size; the first begins one."""
        n = len(given_ns)
        begins = stream("arrivals/bursts/sizes", seed).random(n) < 1 / self.size
        begins[:1] = True
        gaps = stream("arrivals/bursts/gaps", seed).standard_exponential(n)
        times = np.cumsum(np.where(begins, gaps, 0.0)) * (NS_PER_S * self.size / self.rate)
        return _rounded(times, self)


@dataclass(frozen=True)
class AtOnce(Arrivals):
    """All requests at time 0: the offline problem."""

    law = "at_once"

    def times_ns(self, given_ns: IntColumn, seed: int) -> IntColumn:
        """Return zeros."""
        return np.zeros(len(given_ns), np.int64)


LAWS: dict[str, type[Arrivals]] = {
    kind.law: kind for kind in (Poisson, Gamma, Replay, OnOff, Bursts, AtOnce)
}
"""The laws by name."""


def read_arrivals(spec: str | Mapping[str, Any] | Arrivals) -> Arrivals:
    """Return the law that a specification names; ``InputError`` says what is wrong with it.

    ``spec`` is a text such as ``gamma:rate=10,cv=2``, or a mapping with the key ``law`` beside the
    parameters, or a law itself.
    """
    law: Arrivals = read_spec(
        spec, Arrivals, LAWS, field="arrivals", what="law", example="poisson:rate=10"
    )
    return law


def with_arrivals(
    instance: Instance, spec: str | Mapping[str, Any] | Arrivals, seed: int = 0
) -> Instance:
    """Return the instance with other arrival times, by the law that ``read_arrivals`` reads.

    The requests keep the order in which they arrive (then row), and their rows. Requests that are
    of the class ``batch`` because all arrived at 0 become ``interactive`` when they no longer do.
    Turns that arrive when their parents have ended still do, and the law is not theirs. ``seed`` is
    that of the random stream, one for each law; a replay has none. Raises ``InputError`` if the
    specification is wrong, or the last arrival is past 2**61 ns.
    """
    require_instance(instance)
    law = read_arrivals(spec)
    number = whole_number(seed, "seed", remedy="give a whole number of at least 0")
    requests = instance.requests
    order, delay = np.argsort(requests.arrival_ns, kind="stable"), requests.delay_ns
    if delay is not None:
        order = order[delay[order] == NONE]
    arrivals = np.zeros(len(requests), np.int64)
    arrivals[order] = law.times_ns(requests.arrival_ns[order], number)
    plain = requests.replace(service_class=None).service_class
    same = bool((plain == requests.service_class).all())
    changes: dict[str, Any] = {"service_class": None} if same else {}
    label = law.spec() if isinstance(law, (Replay, AtOnce)) else f"{law.spec()}, seed {number}"
    return instance.replace(
        requests=requests.replace(arrival_ns=arrivals, **changes),
        name=f"{instance.name} ({label})",
    )


def sampled(instance: Instance, requests: int, seed: int = 0) -> Instance:
    """Return an instance with a number of requests drawn from those given, with replacement.

    All arrive at 0 (their own times mean nothing any more): ``with_arrivals`` gives them others.
    Prefixes go with their prompts, and so do classes where the instance names some; names are
    dropped. Raises ``InputError`` if the number or the seed is wrong, if there is nothing to draw
    from, or if requests are turns of conversations, which would lose their parents.
    """
    if instance.requests.parent is not None:
        raise InputError(
            "turns of conversations are not drawn one by one", field="parent",
            remedy="leave sample out, or the column parent",
        )  # fmt: skip
    count = whole_number(requests, "requests", maximum=100_000_000)
    if count and not len(instance):
        raise InputError(
            "the instance has no requests to draw from",
            field="requests",
            remedy="give an instance with requests",
        )
    draws = stream("sampled", seed).integers(0, max(1, len(instance)), count)
    unnamed = instance.requests.replace(ids=None)
    rows = unnamed.take(draws).replace(arrival_ns=np.zeros(count, np.int64))
    if not instance.names_classes:
        rows = rows.replace(service_class=None)
    return instance.replace(requests=rows, name=f"{instance.name} ({count} sampled, seed {seed})")


def _wrong(problem: str, parameter: str | None, remedy: str) -> InputError:
    field = "arrivals" if parameter is None else f"arrivals.{parameter}"
    return InputError(problem, field=field, remedy=remedy)


def _rate(value: object, name: str) -> None:
    _within(value, name, 0, MAX_RATE, above=True)


def _within(value: object, name: str, low: float, high: float, *, above: bool = False) -> None:
    """Raise ``InputError`` unless a parameter is a number in [low, high], or (low, high]."""
    unit = "requests a second" if "rate" in name else "seconds" if name.endswith("_s") else None
    remedy = unit and f"give {unit}"
    require_number(value, f"arrivals.{name}", low, high, above=above, remedy=remedy)


def _rounded(times: NDArray[np.float64], law: Arrivals) -> IntColumn:
    if len(times) and not (math.isfinite(times[-1]) and times[-1] <= MAX_TIME_NS):
        raise _too_late(law)
    return np.rint(times).astype(np.int64)


def _too_late(law: Arrivals) -> InputError:
    return _wrong(f"with {law.spec()} the last arrival is past {MAX_TIME}", None, "raise the rate")
