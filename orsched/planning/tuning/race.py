"""The race: coordinate descent; within a knob successive halving (Jamieson and Talwalkar, AISTATS
2016) with comparisons on equal requests (F-race, Birattari, GECCO 2002)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.intervals import mean_interval
from orsched.common.units import NS_PER_S
from orsched.instances.streams import stream
from orsched.planning.capacity.simulation import mean_s, shares_interval, simulation_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.random import Generator

    from orsched.calibration.intervals import Interval
    from orsched.planning.capacity.search import Evaluation
    from orsched.planning.tuning.space import Setting, Space

    Values = tuple[tuple[str, Any], ...]

_PARTS, _FEWEST, _FEW, _STARTS = 4, 50, 4, 8
_TAILS = ("ttft_p99", "tpot_p99")


class Piece(NamedTuple):
    """What settings run on: the trace of a seed, or a window of it; ``cost`` in whole traces."""

    seed: int
    window: tuple[int, int] | None
    cost: Fraction


class Trial(NamedTuple):
    """A setting on the whole, its value with the ends of its interval, and what was measured."""

    setting: Setting
    value: float
    low: float
    high: float
    kind: str
    figures: dict[str, float | None]

    @property
    def ends(self) -> dict[str, float]:
        """The value and the ends of its interval by name."""
        return {"value": self.value, "low": self.low, "high": self.high}


class Race:
    """Results of settings on pieces, of which ``runs`` whole traces may be spent. The value is the
    attainment, or ``goodput`` per GPU; of equal ones the shorter mean JCT is better."""

    def __init__(
        self, space: Space, evaluation: Evaluation, goodput: bool, runs: int, arrivals: str | None
    ) -> None:
        self.space, self.evaluation, self.goodput = space, evaluation, goodput
        self.runs, self.spent, self.arrivals = Fraction(runs), Fraction(0), arrivals
        self.results: dict[Values, dict[Piece, dict[str, Any]]] = {}
        self.failed: dict[Values, str] = {}
        self.seen: dict[Values, Setting] = {}
        instance = space.question.instance
        self.requests = space.question.sample or len(instance)
        turns = instance.requests.parent is not None or instance.concurrency is not None
        self.windows = self.requests >= _PARTS * _FEWEST and not turns
        self.whole = [Piece(seed, None, Fraction(1)) for seed in space.question.seeds]

    def run(self, seed: int) -> None:
        """Descend knob by knob from the default, then from drawn settings, while runs are left."""
        drawn, draws = self.space.drawn(seed), stream("tune/windows", seed)
        self._descend(self.space.default, draws)
        while batch := list(islice(drawn, _STARTS)):
            before = self.spent
            fresh = [each for each in batch if not self._is_known(each)]
            ahead = self._ahead(fresh, draws)
            if ahead:
                self._descend(ahead[0], draws)
            if fresh and self.spent == before:
                return

    def _descend(self, start: Setting, draws: Generator) -> None:
        """Take the best value of one knob after another until none changes: at first of all values,
        later on of those next to the best."""
        best, unchanged, first = start, 0, True
        names = [name for name, axis in reversed(self.space.axes.items()) if len(axis) > 1]
        self.try_on([start], self.whole)
        while unchanged < len(names):
            for name in names:
                others = self.space.along(best, name, near=not first)
                if first:
                    others = self._ahead([best, *others], draws)[: 1 + len(others) // 2]
                done = self.try_on([best, *others], self.whole)
                if not done:
                    return
                before, best = best, self._ranked(done, self.whole)[0]
                unchanged = unchanged + 1 if best.values == before.values else 1
            first = False

    def _ahead(self, settings: Sequence[Setting], draws: Generator) -> list[Setting]:
        """Return the unknown settings that are not certain to be worse on a part, the best first:
        the trace of a seed, or of one trace a quarter, drawn and not chosen by its load."""
        new = [each for each in settings if not self._is_known(each)]
        place, several = int(draws.integers(0, len(self.whole) * _PARTS)), len(self.whole) > 1
        first, last = (self.requests * (place % _PARTS + k) // _PARTS for k in (0, 1))
        window = Piece(self.whole[0].seed, (first, last), Fraction(1, _PARTS))
        part = [self.whole[place // _PARTS] if several else window]
        if len(new) < _FEW or not (several or self.windows):
            return new
        ranked = self._ranked(self.try_on(settings, part), part)
        ends_of = [(each, self.paired(each, ranked[0], part).high) for each in ranked]
        return [s for s, high in ends_of if not (self._is_known(s) or (high or 0) < 0)]

    def _is_known(self, setting: Setting) -> bool:
        known = self.results.get(setting.values, {})
        return setting.values in self.failed or all(piece in known for piece in self.whole)

    def try_on(self, settings: Iterable[Setting], pieces: Sequence[Piece]) -> list[Setting]:
        """Run settings, in order, on pieces as far as the budget goes; return those with all."""
        jobs, asked = [], []
        for setting in {each.values: each for each in settings}.values():
            known = self.results.setdefault(setting.values, {})
            self.seen[setting.values] = setting
            missing = [piece for piece in pieces if piece not in known]
            cost = sum(piece.cost for piece in missing)
            if setting.values in self.failed or self.spent + cost > self.runs:
                continue
            self.spent += cost
            asked.append(setting)
            of = replace(setting.question, arrivals=self.arrivals), setting.fleet
            jobs += [
                (setting, piece, simulation_of(*of, piece.seed, self.evaluation.path, piece.window))
                for piece in missing
            ]
        records: dict[str, dict[str, Any]] = {}
        try:
            self.evaluation.collect([job for _, _, job in jobs], records, failures=True)
        finally:
            for setting, piece, job in jobs:
                record = records.get(job.key)
                if record is not None and record["status"] == "ok":
                    self.results[setting.values][piece] = _judged(record["results"])
                elif record is not None:
                    self.failed[setting.values] = str(record["error"])
        return [setting for setting in asked if setting.values not in self.failed]

    def _sums(self, setting: Setting, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the sums of results, each result, and what an attained share of 1 is worth."""
        each = [self.results[setting.values][piece] for piece in pieces]
        names = ("requests", "attained", "makespan_ns", "jct_sum_ns")
        found: dict[str, Any] = {name: sum(one[name] for one in each) for name in names}
        rate = found["requests"] * NS_PER_S / max(1, found["makespan_ns"]) / setting.price
        return {**found, "each": each, "scale": rate if self.goodput else 1.0}

    def value(self, setting: Setting, pieces: Sequence[Piece]) -> tuple[float, float, float]:
        """Return the objective of a setting on pieces, kept figures, and the mean JCT below 0."""
        sums = self._sums(setting, pieces)
        total = sums["scale"] * sums["attained"]
        limits = [limit for one in sums["each"] for limit in one.get("limits", {}).values()]
        kept = float(sum(limit["kept"] for limit in limits))
        return total / sums["requests"], kept, -sums["jct_sum_ns"] / sums["requests"]

    def paired(
        self, setting: Setting, other: Setting, pieces: Sequence[Piece], level: float = 0.95
    ) -> Interval:
        """Return by how much a setting is better than another, over seeds or parts of the trace."""
        sides = []
        for sums in (self._sums(setting, pieces), self._sums(other, pieces)):
            means = [[(one["attained"], one["requests"])] for one in sums["each"]]
            parts = means if len(means) > 2 else [one["parts"] for one in sums["each"]]
            sides.append([sums["scale"] * kept / n for part in parts for kept, n in part])
        return mean_interval([a - b for a, b in zip(*sides, strict=True)], level)

    def _ranked(self, settings: Iterable[Setting], pieces: Sequence[Piece]) -> list[Setting]:
        return sorted(settings, key=lambda each: self.value(each, pieces), reverse=True)

    def finished(self) -> list[Setting]:
        """Return the settings that ran on the whole, the best first."""
        done = [s for s in self.seen.values() if self._is_known(s) and s.values not in self.failed]
        return self._ranked(done, self.whole)

    def rivals(self) -> list[Setting]:
        """Return those that cannot be told from the best, at 95 % for all pairs (Bonferroni)."""
        best, *others = self.finished()
        level = 1 - 0.05 / max(1, len(others))
        highs = {s.values: self.paired(s, best, self.whole, level).high for s in others}
        return [each for each in others if (highs[each.values] or 0) >= 0]

    def trial(self, setting: Setting) -> Trial:
        """Return what is known of a setting on the whole."""
        sums = self._sums(setting, self.whole)
        share = shares_interval(sums["each"], self.space.question.confidence)
        per_s = sums["attained"] * NS_PER_S / max(1, sums["makespan_ns"])
        figures = {
            "attainment": sums["attained"] / sums["requests"],
            "goodput_per_s": per_s,
            "goodput_per_gpu_hour": 3600 * per_s / setting.price,
            **{f"{name}_s": mean_s([one[f"{name}_ns"] for one in sums["each"]]) for name in _TAILS},
            "jct_mean_s": sums["jct_sum_ns"] / sums["requests"] / NS_PER_S,
        }
        value, low, high = (sums["scale"] * end for end in share[:3])
        return Trial(setting, value, low, high, share.kind, figures)


def _judged(results: dict[str, Any]) -> dict[str, Any]:
    """Return results in which a run that exceeds a limit on a figure attains nothing."""
    if results.get("kept", True):
        return results
    parts = [[0, many] for _, many in results["parts"]]
    return {**results, "attained": 0, "parts": parts}
