"""Workers by the hour: how many are enough in each window of time, by simulation of the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.common.parameters import read_list_of_pairs
from orsched.common.units import seconds_to_ns
from orsched.data.autoscaling import Autoscaling
from orsched.files.text import require_known
from orsched.planning.capacity.simulation import Replicas, Windows

if TYPE_CHECKING:
    from orsched.planning.capacity.question import Question
    from orsched.planning.capacity.search import Evaluation
    from orsched.planning.capacity.simulation import Estimate

MOST_WINDOWS = 512
_STEPS = 8


def read_windows(spec: object, question: Question) -> Windows:
    """Return the windows of ``every=300,startup=40``; ``InputError`` for what is wrong."""
    values = read_list_of_pairs(spec, "schedule") if isinstance(spec, str) else spec
    if not isinstance(values, dict) or "every" not in values:
        raise InputError("names no window", field="schedule", remedy="e.g. every=300,startup=40")
    require_known(values, "schedule", ("every", "startup"))
    if len(question.machines) > 1 or "autoscale" in question.scene:
        raise InputError(
            "a schedule is of equal workers that no other rule starts and stops",
            field="schedule",
            remedy="leave the split, the mix of machines or autoscaling out",
        )
    every_ns = seconds_to_ns(values["every"], "schedule.every")
    count = -(-_last_ns(question) // max(1, every_ns))
    if every_ns < 1 or count > MOST_WINDOWS:
        raise InputError(
            f"{count} windows", field="schedule.every", remedy=f"at most {MOST_WINDOWS} windows"
        )
    return Windows(every_ns, seconds_to_ns(values.get("startup", 0), "schedule.startup"))


def least_schedule(evaluation: Evaluation, best: Estimate, windows: Windows) -> Replicas:
    """Return the schedule with the fewest worker hours found beside that of a constant fleet.

    First numbers in proportion to the work that arrives in each window, and in those that a start
    in it is for: the smallest factor that suffices, by bisection. Then one worker less in one
    window after another, the largest first, while the whole suffices. Each is simulated.
    """
    search = _Search(evaluation, best.workers, windows)
    load = search.load()
    counts, found = [best.workers] * len(load), best
    low, high = 0.0, best.workers / max(1e-9, min(load[load > 0], default=1.0))
    for step in range(_STEPS):
        factor = (low + high) / 2 if step else min(high, best.workers / load.max())
        numbers = search.numbers(load, factor)
        tried = search.tried(numbers)
        low, high = (factor, high) if tried is None else (low, factor)
        if tried is not None and sum(numbers) < sum(counts):
            counts, found = numbers, tried
    before: list[int] = []
    while before != counts:
        before = counts
        for at in sorted(range(len(counts)), key=lambda k: -counts[k]):
            fewer = [*counts[:at], counts[at] - 1, *counts[at + 1 :]]
            if fewer[at] and (tried := search.tried(fewer)) is not None:
                counts, found = fewer, tried
    return Replicas(windows, tuple(counts), found)


class _Search:
    """Schedules that were tried, each with its estimate if it suffices."""

    def __init__(self, evaluation: Evaluation, peak: int, windows: Windows) -> None:
        self.evaluation, self.peak, self.windows = evaluation, peak, windows
        self.known: dict[tuple[int, ...], Estimate | None] = {}

    def load(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the worker time that arrives in each window, alone in full rounds, as a rate."""
        question, every = self.evaluation.question, self.windows.every_ns
        worker, total = question.machines[0].worker, np.zeros(-(-_last_ns(question) // every))
        for seed in question.seeds:
            req = question.trace(seed).requests
            pairs = zip(req.prompt_tokens.tolist(), req.output_tokens.tolist(), strict=True)
            many = worker.clients
            own = [
                worker.cost.prefill_ns([p]) + n * worker.cost.round_ns(many, many * p, p) / many
                for p, n in pairs
            ]
            np.add.at(total, req.arrival_ns // every, own)
        rate = total / every / len(question.seeds)
        ahead = -(-self.windows.startup_ns // every)
        return np.array([rate[k : k + ahead + 1].max() for k in range(len(rate))])

    def numbers(self, load: np.ndarray[Any, np.dtype[np.float64]], factor: float) -> list[int]:
        """Return workers in proportion to the load, from 1 to those of the constant fleet."""
        return [int(n) for n in np.clip(np.ceil(load * factor), 1, self.peak)]

    def tried(self, counts: list[int]) -> Estimate | None:
        """Return the estimate of a schedule if it suffices."""
        key, windows = tuple(counts), self.windows
        if key not in self.known:
            rule = Autoscaling(
                startup_ns=windows.startup_ns, interval_ns=windows.every_ns, schedule=counts
            )
            scene = {**self.evaluation.question.scene, "autoscale": rule.to_dict()}
            question = replace(self.evaluation.question, scene=scene)
            found = self.evaluation.reference(question, (self.peak,))
            self.known[key] = found if found.suffices else None
        return self.known[key]


def _last_ns(question: Question) -> int:
    """Return the end of the last window that is needed: after the last arrival."""
    arrivals = [question.trace(seed).requests.arrival_ns for seed in question.seeds]
    return 1 + max(int(each.max(initial=0)) for each in arrivals)
