"""Checks of what a schedule reports: results, bound and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.violations import STRUCTURE, shown
from orsched.checker.violations import ViolationKind as Kind
from orsched.common.errors import InputError, TimeLimitError
from orsched.common.units import MAX_TIME_NS
from orsched.data.service_classes import SLO, require_slo
from orsched.metrics.objective_values import DueDates
from orsched.metrics.summary import PERCENTILES, figures

if TYPE_CHECKING:
    from orsched.checker.durations import Durations
    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline import Timeline

_LABELS = ("none", "predicted", "clairvoyant")
_BOUND_FIELDS = ("name", "value_ns", "certificate")
_SPREAD = ("mean", *(f"p{percent}" for percent in PERCENTILES), "max")
_TABLES = {
    "bubble_ns": ("waiting_for_prefill", "other_prefill", "no_request", "tail", "invalid"),
    "batch_size": ("prefill", "decode"),
    "worker_end_ns": ("min", "max", "std"),
    "kv_blocks": ("peak", "mean", "block_ns"),
    "ttft_ns": _SPREAD,
    "jct_ns": _SPREAD,
    "tpot_ns": _SPREAD,
    "itl_ns": _SPREAD,
    "stall_ns": _SPREAD,
}
_SCALARS = (
    "makespan_ns", "busy_client_ns", "slot_utilization", "prefill_stages", "mixed_steps",
    "decode_rounds", "prompt_tokens", "output_tokens", "invalid_tokens", "pad_tokens", "restarts",
    "tokens_per_s", "bound_ns", "gap", "overloaded", "slo",
)  # fmt: skip

_NOT_IN_OLDER_FILES = (
    "results.itl_ns", "results.due", "results.slo.goodput_per_s", "results.stall_ns",
    "results.overloaded",
)  # fmt: skip
"""Numbers that schedules lack which orsched wrote before it knew them."""

_OF_CACHES = ("hit_tokens", "hit_rate", "recomputed_tokens")

_ORDER = (
    "makespan_ns", "busy_client_ns", "slot_utilization", "bubble_ns", "prefill_stages",
    "mixed_steps", "decode_rounds", "prompt_tokens", "output_tokens", "invalid_tokens",
    "pad_tokens", "restarts", "batch_size", "tokens_per_s", "worker_end_ns", "kv_blocks",
    "ttft_ns", "jct_ns", "tpot_ns", "itl_ns", "stall_ns", "overloaded",
    "bound_ns", "gap", "slo",
)  # fmt: skip
"""The order in which numbers are compared."""

_MISSING, _PAIR = object(), ("ttft_ns", "tpot_ns")


def check_labels(line: Timeline, findings: Findings) -> None:
    """The instance's hash, and the information that the method declares."""
    schedule = line.schedule
    expected = line.problem.sha256
    if not same(expected, schedule.instance_sha256):
        findings.add(
            Kind.INSTANCE,
            "the schedule is for another instance",
            field="instance_sha256",
            expected=expected,
            found=schedule.instance_sha256,
        )
    label = schedule.information
    if label not in _LABELS:
        findings.add(
            Kind.INFORMATION, f"{shown(label)} is not an information class", field="information",
            found=label,
        )  # fmt: skip
        return
    allowed = _allowed_information(schedule.method)
    if allowed is not None and label not in allowed:
        findings.add(
            Kind.INFORMATION,
            f"method {schedule.method} does not work with information '{label}'",
            field="information",
            expected=allowed,
            found=label,
        )


def _allowed_information(method: Any) -> list[str] | None:
    """Return what a registered method may know; None for methods that are not known here."""
    from orsched.common.registry import method_information

    try:
        allowed = method_information(method)
    except TimeLimitError:  # the command's deadline, which may ring anywhere
        raise
    except Exception:  # a plug-in that is installed but broken, or a name that is no text
        return None
    return None if allowed is None else [str(item) for item in allowed]


def check_bound(
    line: Timeline, findings: Findings, measured: bool, budget: int | None
) -> int | None:
    """The bound is whole, certified and not above the makespan; returns its value.

    Its certificate is not looked at beside a schedule that is wrong in its structure.
    """
    bound: Any = line.schedule.bound
    if bound is None:
        return None
    if not isinstance(bound, dict):
        findings.add(Kind.BOUND, "the bound is not a table", field="bound", found=bound)
        return None
    _check_names(findings, Kind.BOUND, "bound", bound, _BOUND_FIELDS)
    if not isinstance(bound.get("name"), str):
        findings.add(Kind.BOUND, "the bound has no name", field="bound.name")
    value = bound.get("value_ns")
    if type(value) is not int or value < 0:
        findings.add(Kind.BOUND, "not a time", field="bound.value_ns", found=value)
        value = None
    # A bound holds for the model's times; a real worker may be faster than the model.
    elif not measured and value > (makespan := int(line.end_ns.max(initial=0))):
        findings.add(
            Kind.BOUND,
            f"the bound {value} ns exceeds the makespan {makespan} ns",
            field="bound.value_ns",
            expected=makespan,
            found=value,
        )
    if not findings.any_of(*STRUCTURE):
        _check_certificate(line, findings, bound, budget)
    return value


def _check_certificate(
    line: Timeline, findings: Findings, bound: dict[str, Any], budget: int | None
) -> None:
    from orsched.checker.certificates import certificate_violations, inapplicable

    found = certificate_violations(line.problem, bound, budget)
    for message in found or inapplicable(line, bound):
        findings.add(Kind.BOUND, message, field="bound.certificate")


def check_no_results(line: Timeline, findings: Findings) -> None:
    """A run that was stopped reports nothing."""
    results: Any = line.schedule.results
    if not isinstance(results, dict):
        findings.add(Kind.RESULT, "the results are not table", field="results", found=results)
    elif results:
        message = "a run that was stopped has no results: not all requests have times"
        findings.add(Kind.RESULT, message, field="results")


def check_results(
    line: Timeline, durations: Durations | None, findings: Findings, bound_ns: int | None
) -> None:
    """Every reported number is right, none is missing, none unknown.

    A schedule with ``{}`` reports nothing. The numbers of a schedule that is wrong in its structure
    are not defined: then only their names are checked. Without durations times were measured.
    """
    results: Any = line.schedule.results
    if not isinstance(results, dict):
        findings.add(Kind.RESULT, "the results are not table", field="results", found=results)
        return
    if not results:
        return
    further = _further(line)
    _check_names(findings, Kind.RESULT, "results", results, (*_SCALARS, *_TABLES, *further))
    for name, parts in _TABLES.items():
        if isinstance(results.get(name), dict):
            _check_names(findings, Kind.RESULT, f"results.{name}", results[name], parts)
    if findings.any_of(*STRUCTURE):
        return
    if durations is not None and durations.refusals:
        return  # reported already; the times of tokens are not known
    slo = _slo(line, findings, results.get("slo"))
    expected = figures(line, bound_ns, slo, _first_rounds(line, durations))
    if slo is None and results.get("slo") is not None:
        del expected["slo"]  # nothing to compare with
    elif slo is not None:  # limits beyond all times, in older files
        expected["slo"] |= {name: results["slo"][name] for name in _PAIR}
    if "stall_ns" not in results:  # what older files have as itl_ns
        expected["itl_ns"] = expected["stall_ns"]
    for name in (*_ORDER, *further):
        if name in results and name in expected:
            _compare(findings, f"results.{name}", expected[name], results[name])
    for name in ("slo", *further):
        if name in results and name in expected:
            _check_nested_names(findings, f"results.{name}", expected[name], results[name])


def _first_rounds(line: Timeline, durations: Durations | None) -> IntColumn:
    """Duration of the first round of each decode step: the model's, or an equal share."""
    if durations is None:
        return np.asarray((line.end_ns - line.start_ns) // line.rounds)
    return np.maximum(durations.first_round, 0)


def _slo(line: Timeline, findings: Findings, slo: object) -> SLO | None:
    """Return the stated limits, which are free to choose, one of them at least; None without."""
    if slo is None:
        return None
    given = slo if isinstance(slo, dict) else {}
    stated = {name: given.get(name, _MISSING) for name in _PAIR}
    figures = given.get("limits", {})
    for name, each in figures.items() if isinstance(figures, dict) else [("", None)]:
        stated[f"limits.{name}"] = each.get("limit_ns") if isinstance(each, dict) else _MISSING
    found = []
    for name, limit in stated.items():
        figure = name.removeprefix("limits.")
        of_figure = figure != name
        if (of_figure or limit is not None) and (type(limit) is not int or not 0 <= limit < 2**63):
            wrong = None if limit is _MISSING else limit
            findings.add(Kind.RESULT, "not a time", field=f"results.slo.{name}", found=wrong)
            return None
        try:
            if of_figure and isinstance(limit, int):
                found += [each._replace(limit_ns=limit) for each in SLO(f"{figure}<=0").figures]
        except InputError:
            findings.add(Kind.RESULT, "not a limit on a figure", field=f"results.slo.{name}")
            return None
    pair = [None if stated[k] is None else min(stated[k], MAX_TIME_NS) for k in _PAIR]
    try:
        limits = SLO(found, ttft_ns=pair[0], tpot_ns=pair[1])
        require_slo(limits, line.instance.classes)
    except InputError:
        findings.add(Kind.RESULT, "an objective without a limit", field="results.slo")
        return None
    return limits


def _further(line: Timeline) -> tuple[str, ...]:
    """Names of the results that an instance with caches, links, weights, groups, classes has."""
    classes, tenants = line.instance.names_classes, line.instance.requests.tenant is not None
    caches = _OF_CACHES * line.instance.caches_prefixes
    caches += ("refused",) * bool(line.instance.refused)
    caches += ("fleet",) * line.instance.fleet_changes
    caches += ("transfers",) * (line.instance.link is not None)
    caches += ("tail_ns",) * (line.instance.requests.group is not None)
    caches += ("weighted_jct_ns",) * (line.instance.requests.weights is not None)
    caches += ("due",) * (DueDates.of(line.instance) is not None)
    return caches + ("classes",) * classes + ("tenants", "fairness") * tenants


def _check_nested_names(findings: Findings, where: str, expected: Any, found: Any) -> None:
    """Check the names of tables within tables, which the instance's own names are among."""
    if not isinstance(expected, dict) or not isinstance(found, dict):
        return
    _check_names(findings, Kind.RESULT, where, found, tuple(expected))
    for name, value in expected.items():
        _check_nested_names(findings, f"{where}.{name}", value, found.get(name))


def _check_names(
    findings: Findings, kind: Kind, where: str, table: dict[Any, Any], names: tuple[str, ...]
) -> None:
    for name in names:
        if name not in table and f"{where}.{name}" not in _NOT_IN_OLDER_FILES:
            findings.add(kind, f"{where} lacks {name}", field=f"{where}.{name}")
    for name in table:
        if name not in names:
            field = f"{where}.{name if isinstance(name, str) else shown(name)}"
            findings.add(kind, f"{where} has an unknown entry {shown(name)}", field=field)


def _compare(findings: Findings, where: str, expected: Any, found: Any) -> None:
    """Compare two JSON values leaf by leaf; missing and unknown names were reported before."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name, value in expected.items():
            if name in found:
                _compare(findings, f"{where}.{name}", value, found[name])
    elif not same(expected, found):
        findings.add(
            Kind.RESULT,
            f"{where} is {shown(found)} instead of {shown(expected)}",
            field=where,
            expected=expected,
            found=found,
        )


def same(expected: object, found: object) -> bool:
    """Equality of JSON values: True is not 1, but 1.0 may be written 1, where 1.0 is expected."""
    if type(expected) is float:
        return type(found) in (float, int) and bool(expected == found)
    return type(expected) is type(found) and bool(expected == found)
