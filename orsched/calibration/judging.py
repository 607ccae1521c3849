"""Runs that were measured, and what a cost model says that they take: sums, not points."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.measurements import DECODE, MIXED, PHASES, PREFILL, prompts_of
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS, NS_PER_S
from orsched.costs import mixed_ns
from orsched.costs.linear import attended_tokens
from orsched.files.text import locating, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.costs import CostModel

COLUMNS = ("phase", "start_ns", "end_ns")
_OF = {
    PREFILL: ("prompts", "tokens", "longest"),
    DECODE: ("rounds", "active", "context_sum", "context_max"),
    MIXED: ("active", "context_sum", "context_max", "prompts", "tokens", "longest"),
}
_BEFORE = ("cached", "attended")
_KNOWN = (
    "rounds", "active", "context_sum", "context_max", "prompts", "tokens", "longest", *_BEFORE
)  # fmt: skip


class RunStep(NamedTuple):
    """A step of a run, or a run of rounds.

    Attributes:
        start_ns, end_ns: when it ran.
        active, context_sum, context_max: of the (first) round.
        prompts, tokens, longest: prompts in the step, their tokens in it, and those of the longest.
    """

    phase: str  # prefill, decode or mixed
    start_ns: int
    end_ns: int
    rounds: int = 1  # how many, in phase decode
    active: int = 0
    context_sum: int = 0
    context_max: int = 0
    prompts: int = 0
    tokens: int = 0
    longest: int = 0
    cached: int = 0  # tokens in the cache before them, added up
    attended: int = 0  # tokens that the prompt tokens attend to, added up; 0: not known

    def predicted_ns(self, cost: CostModel) -> int:
        """Return what a cost model says of it; prompts are as equal as their longest allows."""
        load = (self.active, self.context_sum, self.context_max)
        if self.phase == DECODE:
            return cost.rounds_ns(self.rounds, *load)
        prompts = prompts_of(self.prompts, self.tokens, self.longest)
        return mixed_ns(cost, prompts, *load, self._before(prompts))

    def _before(self, prompts: list[int]) -> list[int]:
        """Return the tokens cached before each prompt: as many before each token as on average.

        That is exact for one prompt. Where the step has several and ``attended`` is not known, most
        of the tokens may be of those with nothing before them: then nothing is counted.
        """
        if not self.cached:
            return []
        if self.attended:
            mean = (self.attended - attended_tokens(prompts)) // self.tokens
            return [max(0, mean)] * len(prompts)
        return [self.cached] if len(prompts) == 1 else []


@dataclass(frozen=True)
class Verdict:
    """What a run took, and what a cost model says of it; nanoseconds, by phase and in all.

    Attributes:
        measured_ns, predicted_ns: sums over the steps of each phase that the run has.
    """

    file: str  # of the run's steps
    measured_ns: dict[str, int]
    predicted_ns: dict[str, int]

    @property
    def error(self) -> float:
        """Share by which the prediction of the whole run is above what was measured."""
        return sum(self.predicted_ns.values()) / sum(self.measured_ns.values()) - 1

    def to_dict(self) -> dict[str, Any]:
        """Return file, measured_s, predicted_s, error, and the last three of each phase."""
        return {
            "file": self.file,
            "measured_s": sum(self.measured_ns.values()) / NS_PER_S,
            "predicted_s": sum(self.predicted_ns.values()) / NS_PER_S,
            "error": self.error,
            "phases": {
                phase: {
                    "measured_s": measured / NS_PER_S,
                    "predicted_s": self.predicted_ns[phase] / NS_PER_S,
                    "error": self.predicted_ns[phase] / measured - 1,
                }
                for phase, measured in self.measured_ns.items()
            },
        }


def judge(cost: CostModel, file: str, steps: list[RunStep]) -> Verdict:
    """Return what a cost model says of a run beside what it took."""
    measured: dict[str, int] = {}
    predicted: dict[str, int] = {}
    for phase in PHASES:
        found = [step for step in steps if step.phase == phase]
        if found:
            measured[phase] = sum(step.end_ns - step.start_ns for step in found)
            predicted[phase] = sum(step.predicted_ns(cost) for step in found)
    return Verdict(file, measured, predicted)


def read_steps(path: Path) -> list[RunStep]:
    """Read the steps of a run: CSV with ``phase``, ``start_ns``, ``end_ns`` and what is in a step.

    Columns may be in any order; what a phase does not use may be empty or left out, ``cached`` and
    ``attended`` by all (``RunStep``).
    """
    with locating(path):
        reader = csv.DictReader(StringIO(read_text(path), newline=""), strict=True)
        try:
            _check_names(reader.fieldnames)
            steps = [_step(line, reader.line_num) for line in reader]
        except csv.Error as error:
            raise InputError(
                f"not valid CSV: {error}", row=reader.line_num, remedy="check quotes and line ends"
            ) from None
        if not steps:
            raise InputError("there is no step in the file", remedy="one line a step")
        return steps


def _check_names(names: Any) -> None:
    known = (*COLUMNS, *_KNOWN)
    for name in names or ():
        if name not in known:
            raise InputError(
                f"unknown column {name!r}", row=1, field=name, remedy=f"known: {', '.join(known)}"
            )
    for name in COLUMNS:
        if name not in (names or ()):
            raise InputError("the column is missing", row=1, field=name, remedy="add it")


def _step(line: dict[str | None, Any], row: int) -> RunStep:
    if None in line or None in line.values():
        raise InputError(
            "not as many cells as columns", row=row, remedy="give each row one cell for each column"
        )
    phase = line["phase"]
    if phase not in PHASES:
        raise InputError(
            f"unknown phase {phase!r}", row=row, field="phase", remedy=f"known: {', '.join(PHASES)}"
        )
    names = ("start_ns", "end_ns", *_OF[phase])
    found = {name: _whole(line.get(name) or "", name, row) for name in names}
    least = {"end_ns": found["start_ns"] + 1, "start_ns": 0, "context_sum": 0, "context_max": 0}
    for name, value in found.items():
        if value < least.get(name, 1):
            raise InputError(
                f"{value} is too small",
                row=row,
                field=name,
                remedy=f"give at least {least.get(name, 1)}",
            )
    if phase != DECODE:
        count, tokens, longest = (found[name] for name in _OF[PREFILL])
        if not longest + count - 1 <= tokens <= count * longest:
            raise InputError(
                f"no {count} prompts with the longest of {longest} have {tokens} tokens",
                row=row,
                field="tokens",
                remedy="correct the number of tokens, or the longest",
            )
        found |= {name: _whole(line.get(name) or "0", name, row) for name in _BEFORE}
    return RunStep(phase, **found)


def _whole(text: str, name: str, row: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_TIME_NS):
        raise InputError(
            f"{text!r} is not a whole number", row=row, field=name, remedy="give a whole number"
        )
    return int(text)
