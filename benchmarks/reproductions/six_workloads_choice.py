"""The setting of each family that the tuning seeds choose for a workload, and its figures."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.reproductions.six_workloads_settings import FAMILIES, OURS, OURS_PREDICTED, PAGE
from orsched.calibration.intervals import Interval, mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.reproductions.four_workloads_runs import Scheduler
    from benchmarks.reproductions.six_workloads_runs import Case, Runs


class Chosen(NamedTuple):
    """A setting, and what its family knows of lengths."""

    information: str
    scheduler: Scheduler


class Choice:
    """One workload: what was chosen on the first seeds, and figures of all.

    Attributes:
        runs: all runs.
        cases: the workload's requests, seed by seed.
        choosing: the requests that choose, of the first seeds.
        chosen: settings by the name that tables have for them.
    """

    def __init__(self, runs: Runs, cases: Sequence[Case], choosing: Sequence[Case]) -> None:
        self.runs, self.cases, self.choosing = runs, cases, choosing
        tuned = self._least("vllm", "mean_s")
        none, predicted = "none", "predicted"
        self.chosen = {
            "vllm, 2,048": Chosen(none, PAGE),
            "vllm, tuned": Chosen(none, tuned),
            "vllm, tuned for p99": Chosen(none, self._least("vllm", "p99_s")),
            "papers, tuned": Chosen(none, self._least("papers", "mean_s")),
            "gittins": Chosen(none, OURS),
            "gittins, tuned": Chosen(none, self._least("gittins, tuned", "mean_s")),
            "gittins, TTFT of vllm, tuned": Chosen(none, self._within(tuned)),
            "gittins, TTFT of vllm, 2,048": Chosen(none, self._within(PAGE)),
            "vllm, shortest first, tuned": Chosen(
                predicted, self._least("vllm, shortest first", "mean_s")
            ),
            "papers, predicted, tuned": Chosen(
                predicted, self._least("papers, predicted", "mean_s")
            ),
            "gittins, predicted": Chosen(predicted, OURS_PREDICTED),
        }

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.cases[0].workload

    def values(self, label: str, figure: str, first: int = 0) -> list[float]:
        """Return a figure of a chosen setting, from a seed on."""
        return self.of(self.chosen[label].scheduler, figure, self.cases[first:])

    def change(self, ours: str, other: str, figure: str, first: int = 0) -> Interval:
        """Return ours over the other's, less 1, in per cent: the mean of the seeds' own ratios."""
        pairs = zip(
            self.values(ours, figure, first), self.values(other, figure, first), strict=True
        )
        return mean_interval([100 * (mine / theirs - 1) for mine, theirs in pairs])

    def ratio(self, ours: str, other: str, figure: str, first: int = 0) -> float:
        """Return the mean of a figure of ours over the mean of the other's."""
        return fmean(self.values(ours, figure, first)) / fmean(self.values(other, figure, first))

    def of(self, scheduler: Scheduler, figure: str, cases: Sequence[Case]) -> list[float]:
        """Return a figure of a setting, case by case."""
        return [getattr(self.runs.of(case, scheduler), figure) for case in cases]

    def _tuned(self, scheduler: Scheduler, figure: str) -> float:
        return fmean(self.of(scheduler, figure, self.choosing))

    def _least(self, family: str, figure: str) -> Scheduler:
        """Return the setting with the least mean of a figure over the tuning seeds."""
        return min(FAMILIES[family].settings, key=lambda each: self._tuned(each, figure))

    def _within(self, other: Scheduler) -> Scheduler:
        """Return the limited setting of least mean JCT with no more TTFT p99 than another's.

        Where none has so little, that with the least TTFT p99.
        """
        most = self._tuned(other, "ttft_p99_s")
        settings = FAMILIES["gittins, TTFT"].settings
        kept = [each for each in settings if self._tuned(each, "ttft_p99_s") <= most]
        if not kept:
            return min(settings, key=lambda each: self._tuned(each, "ttft_p99_s"))
        return min(kept, key=lambda each: self._tuned(each, "mean_s"))
