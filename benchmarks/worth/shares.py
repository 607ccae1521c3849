"""How much a predictor gains, and the share of the oracle's gain that it keeps."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.worth.rows import NO_PREDICTION, Row
from orsched.calibration.intervals import Interval, mean_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WORTH = 0.05
"""From which gain in mean JCT the oracle is worth having."""

KEPT = 0.8
"""The share of it that a predictor is asked to keep."""


class Case(NamedTuple):
    """One workload, load and family of policies: rows by predictor, in the order of the seeds."""

    workload: str
    load: str
    family: str
    rows: dict[str, list[Row]]

    def values(self, predictor: str, figure: str) -> list[float]:
        """Return a figure seed by seed."""
        return [getattr(row, figure) for row in self.rows[predictor]]

    def gains(self, predictor: str, figure: str = "mean_s") -> list[float]:
        """Return 1 - predicted / unpredicted, seed by seed; above 0 predictions help."""
        pairs = zip(self.values(predictor, figure), self.values(NO_PREDICTION, figure), strict=True)
        return [1 - told / untold for told, untold in pairs]

    def gain(self, predictor: str, figure: str = "mean_s") -> Interval:
        """Return the mean of the gains."""
        return mean_interval(self.gains(predictor, figure))

    def share(self, predictor: str) -> Interval | None:
        """Return the share of the oracle's gain in mean JCT that a predictor keeps."""
        return share(self.gains(predictor), self.gains("oracle"))

    @property
    def worth(self) -> bool:
        """Whether the oracle gains at least ``WORTH``."""
        return self.gain("oracle").mean >= WORTH

    def keeps(self, predictor: str) -> bool:
        """Whether a predictor keeps at least ``KEPT`` of the oracle's gain."""
        kept = self.share(predictor)
        return kept is not None and kept.mean >= KEPT

    def tail_no_worse(self, predictor: str) -> bool:
        """Whether p99 is on average not above what it is without predictions."""
        return self.gain(predictor, "p99_s").mean >= 0


def share(gains: Sequence[float], oracle: Sequence[float]) -> Interval | None:
    """Return the mean gain over the oracle's mean gain, with its 95 % confidence interval.

    A ratio of means, since the oracle's gain on one seed may be next to nothing. The interval is
    that of the ratio's linearisation, R + (gain - R * oracle) / mean(oracle), by Student's t (the
    delta method). None where the oracle's own interval reaches 0: there is nothing to share.
    """
    whole = mean_interval(oracle)
    if whole.mean <= 0 or (whole.low is not None and whole.low <= 0):
        return None
    ratio = fsum(gains) / fsum(oracle)
    pairs = zip(gains, oracle, strict=True)
    return mean_interval([ratio + (mine - ratio * best) / whole.mean for mine, best in pairs])


def cases(rows: Iterable[Row]) -> list[Case]:
    """Return the cases in the order of the rows; the seeds of each predictor are the same."""
    found: dict[tuple[str, str, str], Case] = {}
    for row in rows:
        case = found.setdefault(row[:3], Case(*row[:3], {}))
        case.rows.setdefault(row.predictor, []).append(row)
    for case in found.values():
        for each in case.rows.values():
            each.sort(key=lambda row: row.seed)
        if len({tuple(row.seed for row in each) for each in case.rows.values()}) != 1:
            raise ValueError(f"{case[:3]}: predictors have met other seeds")
    return list(found.values())
