"""The one public function of the checker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.certificates.budget import DEFAULT_BUDGET
from orsched.checker.autoscaling import check_autoscaling
from orsched.checker.availability import check_availability
from orsched.checker.durations import Durations, check_durations
from orsched.checker.limits import check_limits
from orsched.checker.prefix_caches import check_prefix_caches
from orsched.checker.results import check_bound, check_labels, check_no_results, check_results
from orsched.checker.structure import check_structure
from orsched.checker.transfers import check_transfers
from orsched.checker.violations import DEFAULT_LIMIT, Findings, Violation
from orsched.common.errors import InputError
from orsched.data.instance import require_instance
from orsched.data.schedule import Schedule, Scheduled, as_schedule
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from orsched.data.instance import Instance

TIMES = ("model", "measured")


def check(
    instance: Instance,
    schedule: Scheduled,
    times: str = "model",
    limit: int | None = DEFAULT_LIMIT,
    budget: int | None = DEFAULT_BUDGET,
) -> list[Violation]:
    """Return everything that is wrong with a schedule for an instance; [] means valid.

    The checker shares no code with simulator, policies and searches: of the cost model it calls
    the scalar formulas only, and it reads the schedule as metrics and reports do
    (``orsched.metrics.timeline``). Integers are compared exactly, without tolerance.

    Args:
        instance: the problem.
        schedule: any schedule, however wrong, or a result.
        times: ``model``: durations must be those of the cost model; ``measured``: they were
            measured on a worker and are taken as they are. A measured schedule whose ``run`` says
            that it was stopped need not serve all requests to their ends.
        limit: violations of each kind that are spelt out; a last one counts the others.
        budget: cells of tables that may be filled to verify the bound's certificate (the default
            is several times what any of orsched's own takes); None: any number.

    Raises:
        InputError: ``times`` is neither of the two, or an argument is no instance or no schedule.
            No schedule makes the checker raise.
    """
    if times not in TIMES:
        raise InputError(f"{times!r} is unknown", field="times", remedy="model or measured")
    require_instance(instance)
    schedule = as_schedule(schedule)
    measured = times == "measured"
    findings = Findings(limit)
    stopped = measured and _was_stopped(schedule)
    line = Timeline(instance, schedule, strict=False)
    durations = Durations(line)
    check_labels(line, findings)
    check_structure(line, findings, stopped)
    check_transfers(line, findings, measured)
    check_prefix_caches(line, findings)
    check_limits(line, findings)
    check_availability(line, findings)
    check_autoscaling(line, findings)
    if not measured:
        check_durations(line, durations, findings)
    bound_ns = check_bound(line, findings, measured, budget)
    if stopped:
        check_no_results(line, findings)
    else:
        check_results(line, None if measured else durations, findings, bound_ns)
    return findings.violations()


def _was_stopped(schedule: Schedule) -> bool:
    run: Any = schedule.run
    return isinstance(run, dict) and run.get("complete") is False
