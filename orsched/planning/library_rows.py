"""Schedules and certificates of the public library: each is worked out again, or refused."""

from __future__ import annotations

import datetime
import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched._version import __version__
from orsched.checker import check
from orsched.checker.certificates import bound_violations, bulk_violations
from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError
from orsched.costs.protocol import read_parameters
from orsched.data.schedule_classes import ScheduleClass, class_of
from orsched.files.document import VERSION, column_lists, hold, require_format, text_field
from orsched.files.schedule_document import (
    FORMAT,
    STEP_COLUMNS,
    schedule_from_document,
    work_columns,
)  # fmt: skip
from orsched.files.text import locating, parse_json, read_text
from orsched.instances import library_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.instances.library_index import Row

SUBMISSION = "orsched/submission"
STORED_BYTES = 100_000
"""Packed schedules above this are not stored, but made again where their method allows it."""

INLINE_BYTES = 1_500
"""Certificates up to this are in the record itself."""

_SIDES = {"schedule": "upper", "policy": "upper", "bound": "lower", "search": "search"}
_DATE = re.compile(r"20\d\d-\d\d-\d\d", re.ASCII)


def value_of(instance: Instance, schedule: Schedule, objective: str) -> int:
    """Return the figure of a valid schedule that the library minimises, a whole number."""
    from orsched.certificates.bulk_parts import Demands
    from orsched.metrics.objective_values import objective_value, required_due_dates
    from orsched.metrics.summary import summarise
    from orsched.metrics.timeline import Timeline
    from orsched.metrics.token_times import finishes_ns

    if objective == "slo_attainment":
        parts = summarise(instance, schedule)["classes"]
        counts = (c for c in instance.classes if c.has_limits and not c.bulk)
        met = sum(int(parts[c.name]["slo"]["attained"]) for c in counts)
        return len(Demands.of(instance).rows) - met
    if objective == "weighted_tardiness_mean":
        finish = finishes_ns(Timeline(instance, schedule))
        return required_due_dates(instance, objective).weighted_tardiness(finish)
    value = objective_value(instance, schedule, objective)
    return int(value * (1 if objective == "makespan" else len(instance))) if value else 0


def columns_of(schedule: Schedule) -> dict[str, Any]:
    """Return what the library keeps of a schedule: its timeline and the work in it."""
    return {
        "steps": column_lists(schedule.steps, STEP_COLUMNS),
        "work": column_lists(schedule.work, work_columns(schedule.work)),
    }


def schedule_of(instance: Instance, columns: Any, method: str = "") -> Schedule:
    """Return the schedule of the columns that a submission or the library has."""
    given = read_parameters(columns, "schedule", ["steps", "work"])
    head = {"format": FORMAT, "version": VERSION, "method": method, "information": "clairvoyant"}
    owner = {"name": instance.name, "sha256": instance.sha256}
    return schedule_from_document({**head, "instance": owner, **given})


def judged_schedule(instance: Instance, row: Row, schedule: Schedule) -> tuple[int, list[str]]:
    """Return the value of a schedule and why it is refused; [] if it is valid for its row."""
    admitted = ScheduleClass.allowing(row.listed.allows)
    if faults := [str(fault) for fault in check(instance, schedule)]:
        return 0, faults
    if not class_of(instance, schedule) <= admitted:
        return 0, [f"the schedule is outside of the row's class: {admitted}"]
    return value_of(instance, schedule, row.objective), []


def judged_bound(instance: Instance, row: Row, bound: Any) -> tuple[int, list[str]]:
    """Return the value that a bound's certificate proves for a row and why it is refused."""
    from orsched.certificates.bulk_parts import Demands
    from orsched.certificates.scope import schedules_of
    from orsched.solving.objectives import other_name

    attained = isinstance(bound, dict) and bound.get("name") in ("bulk", "attained")
    if attained and row.objective == "slo_attainment":
        faults = bulk_violations(instance, bound)
        if not faults and bound["certificate"]["bound"] != "attained":
            faults = ["the certificate bounds bulk work, not how many requests meet their limits"]
    else:
        faults = bound_violations(instance, bound, other_name(row.objective))
    if faults:
        return 0, faults
    claim = bound["certificate"]
    if attained and (claim["measure"] != "attained" or claim.get("restarts") is not None):
        return 0, ["the certificate speaks of another measure, or of fewer evictions"]
    if not ScheduleClass.allowing(row.listed.allows) <= schedules_of(claim):
        return 0, [f"the bound holds for {schedules_of(claim)} only"]
    if attained:
        return len(Demands.of(instance).rows) - int(claim["value"]), []
    if row.objective == "slo_attainment":
        return int(claim.get("missed", 0)), []
    return int(bound["value_ns"] if row.objective == "makespan" else claim["sum_ns"]), []


def judged_policy(instance: Instance, row: Row, policy: Any) -> tuple[int, list[str], Schedule]:
    """Run a policy of orsched again; return its value, why it is refused, and its schedule."""
    from orsched.common.own_code import code_in, is_own
    from orsched.solving.method_choice import choose
    from orsched.solving.solver import simulate

    given = read_parameters(policy, "policy", ["name", "seed"])
    name, seed = text_field(given, "name"), whole_number(given["seed"], "seed")
    if is_own(name) or code_in(choose(name).parameters):
        remedy = "propose the policy in a pull request first"
        raise InputError("only policies of orsched are run", field="policy.name", remedy=remedy)
    schedule = simulate(instance, name, seed=seed).schedule
    value, faults = judged_schedule(instance, row, schedule)
    if row.track == "policy" and schedule.information == "clairvoyant":
        faults = ["a clairvoyant method is not a policy: use the other track"]
    return value, faults, schedule


def judged_search(instance: Instance, row: Row, search: Any) -> tuple[int, list[str]]:
    """Search a small instance to the end again; return the optimum and why it is refused."""
    from orsched.solving.solver import solve

    if read_parameters(search, "search", ["name"])["name"] != "exact":
        return 0, ["only the method exact searches to the end"]
    found = solve(instance, "exact", row.objective)
    if found.termination == "interrupted":
        raise KeyboardInterrupt
    if found.status != "optimal":
        return 0, ["the search did not end"]
    return value_of(instance, found.schedule, row.objective), []


class Verdict(NamedTuple):
    """What a check of an entry of the library says; ``fault`` is empty where all is right."""

    row: str
    side: str
    value: int
    fault: str


def verify(chosen: Sequence[Row], progress: Callable[[str], object] = str) -> Iterator[Verdict]:
    """Work each entry of the rows out again from nothing, and the index; yield what is found."""
    for row in chosen:
        progress(f"verifying {row.key}")
        sides = ("lower", "upper", "search") if row.track == "clairvoyant" else ("upper",)
        for side in sides:
            entry = getattr(row, side)
            if entry is not None:
                yield Verdict(row.key, side, entry["value"], _fault(row, side, entry))
    path = library_index.folder() / "index.csv"
    same = path.is_file() and path.read_text(encoding="utf-8") == library_index.index()
    yield Verdict("index.csv", "index", 0, "" if same else "is not what the record says")


def _fault(row: Row, side: str, entry: dict[str, Any]) -> str:
    """Return what is wrong with an entry of the library, or nothing."""
    try:
        instance = library_index.load_listed(row.listed.instance)
        kind, document = evidence(row, side, entry)
        value, faults, made = _judged(instance, row, kind, document)
    except OrschedError as error:
        return str(error)
    if faults:
        return faults[0]
    kept = columns_of(made) if made is not None else document
    if library_index.digest(kept) != entry["sha256"]:
        return "its SHA-256 is not that of the entry"
    said = entry["value"]
    return "" if value == said else f"the value is {value:,}, the entry says {said:,}"


def _judged(
    instance: Instance, row: Row, kind: str, document: Any
) -> tuple[int, list[str], Schedule | None]:
    """Return value, faults, and the schedule where a policy has made it."""
    if kind == "policy":
        return judged_policy(instance, row, document)
    if kind == "schedule":
        return *judged_schedule(instance, row, schedule_of(instance, document)), None
    return *(judged_bound if kind == "bound" else judged_search)(instance, row, document), None


def evidence(row: Row, side: str, entry: dict[str, Any]) -> tuple[str, Any]:
    """Return the kind of an entry's evidence and its document; ``InputError`` if it is missing."""
    path = library_index.evidence_path(row, side)
    for kind in ("policy", "bound", "search"):
        if kind in entry and not (kind == "policy" and path.is_file()):
            return kind, entry[kind]
    return ("bound" if side == "lower" else "schedule"), library_index.unpacked(path)


def best_schedule(instance: Instance, row: Row) -> Schedule:
    """Return the best known schedule of a row that has one."""
    upper = dict(row.upper or {})
    kind, document = evidence(row, "upper", upper)
    if kind == "policy":
        return judged_policy(instance, row, document)[2]
    return schedule_of(instance, document, upper["method"])


class Submitted(NamedTuple):
    """What has become of a submission; ``before`` is the value that the row had."""

    row: Row
    side: str
    value: int
    before: int | None
    faults: list[str]
    better: bool


def read_submission(path: Path, objective: str | None = None) -> dict[str, Any]:
    """Return the submission in a file, or that of a schedule file; else ``InputError``."""
    with locating(path):
        found = parse_json(read_text(path))
        if isinstance(found, dict) and found.get("format") == FORMAT:
            return _of_schedule(found, objective or "makespan")
        found = dict(require_format(found, SUBMISSION))
        required = ("format", "version", "instance", "objective", "method", "seconds", "date")
        read_parameters(found, "submission", required, ("track", "by", "hardware", *_SIDES))
        for name in ("instance", "objective", "track", "method", "by", "hardware", "date"):
            text_field(found, name)
        if objective not in (None, found["objective"]):
            raise InputError(f"must be {objective}, as the command says", field="objective")
        return found


def _of_schedule(document: dict[str, Any], objective: str) -> dict[str, Any]:
    """Return the submission that a schedule file makes."""
    schedule = schedule_from_document(document)
    every = library_index.listed().values()
    name = next((o.instance for o in every if o.sha256 == schedule.instance_sha256), None)
    if name is None:
        raise InputError("must be that of an instance of the library", field="instance.sha256")
    runtime = schedule.run.get("runtime_s") or {}
    return {
        "instance": name, "objective": objective, "method": schedule.method,
        "seconds": runtime.get("total", 0), "schedule": columns_of(schedule),
    }  # fmt: skip


def submit(given: dict[str, Any], *, dry: bool = False, **said: Any) -> Submitted:
    """Judge a submission, as ``read_submission`` returns it and with what is ``said`` besides, and
    write it into the library where it is valid and better, unless ``dry``. One process at a time
    writes: ``InputError`` for another."""
    folder = os.open(library_index.folder(), os.O_RDONLY)
    try:
        if not dry:
            hold(folder, library_index.folder(), "submits to this library")
        return _submit(given, dry, **said)
    finally:
        os.close(folder)


def _submit(given: dict[str, Any], dry: bool = False, **said: Any) -> Submitted:
    given = given | {name: value for name, value in said.items() if value}
    kinds = [kind for kind in _SIDES if kind in given]
    if len(kinds) != 1:
        raise InputError("must be one of schedule, bound, policy and search", field="schedule")
    kind, side = kinds[0], _SIDES[kinds[0]]
    date, seconds = given.get("date", ""), given["seconds"]
    try:
        if not _DATE.fullmatch(date):
            raise ValueError(date)
        datetime.date.fromisoformat(date)
    except ValueError:
        remedy = "write it as 2026-11-26"
        raise InputError(f"{date!r} is not a date", field="date", remedy=remedy) from None
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds <= 1e9
    ):
        raise InputError("must be a number of seconds from 0 to 1e9", field="seconds")
    track = given.get("track", "policy" if kind == "policy" else "clairvoyant")
    row = library_index.row_of(given["instance"], given["objective"], track)
    if side != "upper" and track != "clairvoyant":
        raise InputError("must be clairvoyant for a bound or a search", field="track")
    if kind == "schedule" and track == "policy":
        raise InputError("must be the name and seed of a policy on its track", field="policy")
    instance = library_index.load_listed(row.listed.instance)
    value, faults, made = _judged(instance, row, kind, given[kind])
    old = getattr(row, side)
    before = None if old is None else int(old["value"])
    known = before if before is not None else 0 if side == "lower" else value + 1
    better = not faults and (value > known if side == "lower" else value < known)
    if better and not dry:
        _store(row, side, kind, value, given, made)
        if track == "policy":  # what it makes is a schedule of the other track, too
            _submit({**given, "track": "clairvoyant"})
    return Submitted(row, side, value, before, faults, better)


def _store(
    row: Row, side: str, kind: str, value: int, given: dict[str, Any], made: Schedule | None
) -> None:
    """Write an entry and what proves it; what it replaces goes to the past of the row."""
    document = given[kind] if made is None else columns_of(made)
    entry = {name: given.get(name, "") for name in ("method", "by", "hardware", "date")}
    entry |= {"value": value, "seconds": round(float(given["seconds"]), 3)}
    entry |= {"version": __version__, "sha256": library_index.digest(document)}
    if kind != "schedule":
        entry[kind] = given[kind]
    if kind == "bound" and len(json.dumps(document)) > INLINE_BYTES:
        del entry[kind]
    too_large = len(library_index.packed(document)) > STORED_BYTES
    if kind == "schedule" and too_large:
        problem = f"is larger than {STORED_BYTES:,} bytes packed"
        raise InputError(problem, field="schedule", remedy="give the policy that makes it")
    library_index.evidence_path(row, side).unlink(missing_ok=True)
    if kind == "schedule" or (kind == "policy" and not too_large) or kind not in entry:
        library_index.write_evidence(row, side, document)
    record = library_index.record(row.listed.family)
    known = record.setdefault(row.key, {})
    if side in known:
        kept = ("value", "method", "by", "date", "seconds")
        gone = {"side": side, **{name: known[side].get(name, "") for name in kept}}
        known.setdefault("past", []).append(gone)
    known[side] = entry
    library_index.write_record(row.listed.family, record)
