"""Plan against run: how far the times were off, in which stages, and by which term."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.error_terms import Refit, Term, error_terms, refitted
from orsched.calibration.stages import (
    PHASES,
    Stages,
    StepTimes,
    matches,
    modelled_ns,
    stages_of,
    step_times,
)
from orsched.calibration.step_contents import step_contents
from orsched.common.errors import InputError
from orsched.data.schedule import require_same_instance
from orsched.metrics.distributions import ratio
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


class PhaseError(NamedTuple):
    """The stages of a phase, or all of them.

    Attributes:
        phase: ``prefill``, ``mixed``, ``decode``, or ``all``.
        stages, rounds: how many.
        planned_ns, took_ns: sums; what a stage took includes the gaps before its steps.
        gap_ns: these gaps.
        error: (took - planned) / planned.
        mean, p95, worst: of the absolute relative errors of single stages.
    """

    phase: str
    stages: int
    rounds: int
    planned_ns: int
    took_ns: int
    gap_ns: int
    error: float | None
    mean: float | None
    p95: float | None
    worst: float | None


@dataclass(frozen=True)
class PlanAgainstRun:
    """What ``plan_against_run`` returns.

    Attributes:
        plan_makespan_ns, run_makespan_ns: the makespans.
        parts: what the difference of the two adds up from, in nanoseconds: the errors of each
            phase, ``decisions`` (other steps than planned) and ``waiting`` (idle time that no gap
            between steps explains).
        stages: those of the run.
        planned_ns: what was planned of each: by the plan where it has the stage, else by the cost
            model.
        planned_start_ns: when it was to start; -1 where the plan does not have it.
        phases: errors by phase, then of all.
        terms: the share of each term of the cost model in the errors.
        cost: the cost model of the instance's first worker.
        refit: the same model fitted to the run.
        refit_error: relative error of the sum of all steps under the refit.
        has_plan: whether there was a plan; else planned times are the cost model's alone.
    """

    plan_makespan_ns: int
    run_makespan_ns: int
    parts: dict[str, int]
    stages: Stages
    planned_ns: IntColumn
    planned_start_ns: IntColumn
    phases: tuple[PhaseError, ...]
    terms: tuple[Term, ...]
    cost: dict[str, Any]
    refit: Refit
    refit_error: float | None
    has_plan: bool = True

    @property
    def makespan_error(self) -> float | None:
        """(run - plan) / plan."""
        return ratio(self.run_makespan_ns - self.plan_makespan_ns, self.plan_makespan_ns)

    @property
    def followed(self) -> int:
        """How many stages of the run the plan has at the same place."""
        return int((self.planned_start_ns >= 0).sum())

    @property
    def worst_term(self) -> Term | None:
        """Of the phase whose sum is off most, the term that explains most; None without errors."""
        off = {row.phase: abs(row.took_ns - row.planned_ns) for row in self.phases}
        phase = max(PHASES.values(), key=lambda name: off.get(name, 0))
        terms = [term for term in self.terms if term.phase == phase and off[phase]]
        return max(terms, key=lambda term: term.explains, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the stages as plain JSON values."""
        refit = self.refit.cost
        return {
            "plan_makespan_ns": self.plan_makespan_ns,
            "run_makespan_ns": self.run_makespan_ns,
            "makespan_error": self.makespan_error,
            "parts_ns": self.parts,
            "stages": len(self.stages.worker),
            "stages_as_planned": self.followed,
            "phases": [row._asdict() for row in self.phases],
            "terms": [term._asdict() for term in self.terms],
            "cost": self.cost,
            "refit": None if refit is None else {"model": refit.model, **refit.to_dict()},
            "refit_reason": self.refit.reason,
            "refit_error": self.refit_error,
        }

    def stage_rows(self) -> list[dict[str, Any]]:
        """Return one row a stage: what it held, what was planned, what it took."""
        stages, rows = self.stages, []
        names = ("worker", "phase", "start_ns", "end_ns", "rounds", "requests", "tokens")
        columns = [getattr(stages, name).tolist() for name in (*names, "took_ns", "gap_ns")]
        planned = zip(self.planned_ns.tolist(), self.planned_start_ns.tolist(), strict=True)
        for values, (expected, start) in zip(zip(*columns, strict=True), planned, strict=True):
            row = dict(zip((*names, "took_ns", "gap_ns"), values, strict=True))
            row["phase"] = PHASES[row["phase"]]
            row["planned_ns"] = expected
            row["planned_start_ns"] = None if start < 0 else start
            row["error"] = ratio(row["took_ns"] - expected, expected)
            rows.append(row)
        return rows


def plan_against_run(instance: Instance, plan: Schedule | None, trace: Schedule) -> PlanAgainstRun:
    """Compare a run with its plan, stage by stage.

    The k-th stage of a worker is compared with its k-th in the plan if they have the same content,
    all others with the times of the cost model. The time of a stage includes the gaps before its
    steps, so that these errors, other decisions and other waiting add up to the error of the
    makespan, exactly: of the worker that ends last.

    Args:
        instance: of both.
        plan: a schedule; None: planned times are the cost model's alone.
        trace: the run.

    Raises:
        InputError: one of them is of another instance.
    """
    for schedule in (trace, *([] if plan is None else [plan])):
        require_same_instance(instance, schedule)
    line, run = Timeline(instance, trace), stages_of(instance, trace)
    planned, starts = run.model_ns.copy(), np.full(len(run.worker), -1, np.int64)
    expected = None if plan is None else stages_of(instance, plan)
    if expected is not None:
        found = matches(expected, run)
        same = np.flatnonzero(found >= 0)
        planned[same] = expected.took_ns[found[same]]
        starts[same] = expected.start_ns[found[same]]
    times = step_times(instance, line)
    if expected is not None and expected.gap_ns.any():  # its policy waits on purpose
        times = StepTimes(times.model_ns, times.took_ns - times.gap_ns, np.zeros_like(times.gap_ns))
    parts = _parts(run, planned, expected, trace, plan)
    refit = refitted(instance, trace, times)
    return PlanAgainstRun(
        trace.makespan_ns - sum(parts.values()),
        trace.makespan_ns,
        parts,
        run,
        planned,
        starts,
        tuple(_phases(run, planned)),
        tuple(error_terms(step_contents(instance, trace), times)),
        {"model": instance.workers[0].cost.model, **instance.workers[0].cost.to_dict()},
        refit,
        _refit_error(instance, line, times, refit),
        plan is not None,
    )


def _parts(
    run: Stages, planned: IntColumn, expected: Stages | None, trace: Schedule, plan: Schedule | None
) -> dict[str, int]:
    """Return what the difference of the makespans adds up from, on the workers that end last."""
    mine = run.worker == _last_worker(run)
    parts = {
        name: int((run.took_ns - planned)[mine & (run.phase == phase)].sum())
        for phase, name in PHASES.items()
    }
    if expected is None or plan is None:
        return {**parts, "decisions": 0, "waiting": 0}
    in_plan = int(expected.took_ns[expected.worker == _last_worker(expected)].sum())
    parts["decisions"] = int(planned[mine].sum()) - in_plan
    waited = trace.makespan_ns - int(run.took_ns[mine].sum())
    return {**parts, "waiting": waited - (plan.makespan_ns - in_plan)}


def _last_worker(stages: Stages) -> int:
    return int(stages.worker[np.argmax(stages.end_ns)]) if len(stages.worker) else 0


def _phases(run: Stages, planned: IntColumn) -> Iterator[PhaseError]:
    every = np.ones(len(run.worker), bool)
    for name, rows in (*((n, run.phase == p) for p, n in PHASES.items()), ("all", every)):
        expected, took = planned[rows], run.took_ns[rows]
        if not rows.any() and name != "all":
            continue
        total, most = int(expected.sum()), expected > 0
        errors = np.abs(took - expected)[most] / expected[most]
        ordered = np.sort(errors)
        n = len(ordered)
        yield PhaseError(
            phase=name,
            stages=int(rows.sum()),
            rounds=int(run.rounds[rows].sum()),
            planned_ns=total,
            took_ns=int(took.sum()),
            gap_ns=int(run.gap_ns[rows].sum()),
            error=ratio(int(took.sum()) - total, total),
            mean=float(errors.sum()) / n if n else None,
            p95=float(ordered[-(-95 * n // 100) - 1]) if n else None,
            worst=float(ordered[-1]) if n else None,
        )


def _refit_error(
    instance: Instance, line: Timeline, times: StepTimes, refit: Refit
) -> float | None:
    """Return how far the sum of the executed steps is off under the refitted model."""
    if refit.cost is None:
        return None
    workers = tuple(replace(worker, cost=refit.cost) for worker in instance.workers)
    try:
        again = int(modelled_ns(instance.replace(workers=workers), line).sum())
    except InputError:  # steps that the refitted model has no time for
        return None
    took = int(times.took_ns.sum())
    return ratio(took - again, again)
