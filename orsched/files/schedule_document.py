"""The document of a schedule, planned (``orsched/schedule``) or measured (``orsched/trace``)."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.costs.protocol import read_parameters
from orsched.data.links import NAMES as TRANSFER_COLUMNS
from orsched.data.links import Transfers
from orsched.data.memory import Eviction
from orsched.data.schedule import MEASURED_BY, OPTIONAL_WORK, Schedule, Steps, Work
from orsched.files.document import (
    VERSION,
    at_field,
    column_field,
    column_lists,
    kind,
    object_field,
    require_format,
    require_object,
    text_field,
)
from orsched.files.text import plain

FORMAT = "orsched/schedule"
TRACE_FORMAT = "orsched/trace"
STEP_COLUMNS = tuple(item.name for item in fields(Steps))
OPTIONAL = OPTIONAL_WORK
"""Columns of work that are written only where they say something."""
WORK_COLUMNS = tuple(item.name for item in fields(Work) if item.name not in OPTIONAL)
BLOCKS = ("parameters", "results", "run")


def schedule_header(schedule: Schedule) -> dict[str, Any]:
    """Return everything of the document but the timeline."""
    measured = schedule.is_measured
    ruled = {} if schedule.eviction is None else {"eviction": dict(schedule.eviction)}
    lost = {
        name: [list(row) for row in getattr(schedule, name)]
        for name in ("lost_steps", "on_times")
        if getattr(schedule, name)
    }
    return {
        "format": TRACE_FORMAT if measured else FORMAT,
        "version": VERSION,
        "instance": {"name": schedule.instance_name, "sha256": schedule.instance_sha256},
        "method": schedule.method,
        "information": schedule.information,
        "seed": schedule.seed,
        "parameters": plain(schedule.parameters, "parameters"),
        **ruled,
        **lost,
        **_sent(schedule),
        "results": plain(schedule.results, "results"),
        "bound": _bound(schedule.bound),
        "run": _run(schedule.run, measured),
    }


def _sent(schedule: Schedule) -> dict[str, Any]:
    if schedule.transfers is None:
        return {}
    return {"transfers": column_lists(schedule.transfers, TRANSFER_COLUMNS)}


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return the document of a schedule, plain JSON values in their order in the file."""
    head = schedule_header(schedule)
    run, bound, results = head.pop("run"), head.pop("bound"), head.pop("results")
    return {
        **head,
        "steps": column_lists(schedule.steps, STEP_COLUMNS),
        "work": column_lists(schedule.work, work_columns(schedule.work)),
        "results": results,
        "bound": bound,
        "run": run,
    }


def work_columns(work: Work) -> tuple[str, ...]:
    """Return the names of the columns that a file of this work has."""
    return (*WORK_COLUMNS, *(name for name in OPTIONAL if getattr(work, name).any()))


def schedule_from_document(document: object) -> Schedule:
    """Inverse of ``schedule_document``, for both formats; columns may also be arrays."""
    values = read_parameters(
        require_format(document, FORMAT, TRACE_FORMAT),
        "schedule",
        ["format", "version", "instance", "method", "information", "steps", "work"],
        ["seed", "bound", "eviction", "lost_steps", "on_times", "transfers", *BLOCKS],
    )
    owner = read_parameters(
        require_object(values["instance"], "instance"), "instance", ["sha256"], ["name"]
    )
    blocks = {name: plain(object_field(values, name), name) for name in BLOCKS}
    sha256 = text_field(owner, "sha256", owner="instance.")
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise InputError(
            "must be 64 hexadecimal digits",
            field="instance.sha256",
            remedy="copy the sha256 of the instance",
        )
    return Schedule(
        instance_sha256=sha256,
        steps=Steps(**_columns(values, "steps", STEP_COLUMNS)),
        work=Work(**_columns(values, "work", WORK_COLUMNS, OPTIONAL)),
        method=text_field(values, "method"),
        information=text_field(values, "information"),
        instance_name=text_field(owner, "name", owner="instance."),
        seed=whole_number(values.get("seed", 0), "seed"),
        parameters=blocks["parameters"],
        results=blocks["results"],
        bound=_bound(values.get("bound")),
        run=_run(blocks["run"], values["format"] == TRACE_FORMAT),
        eviction=_eviction(values),
        lost_steps=values.get("lost_steps", ()),
        transfers=Transfers(**_columns(values, "transfers", TRANSFER_COLUMNS))
        if "transfers" in values
        else None,
        on_times=values.get("on_times", ()),
    )


def _eviction(values: dict[str, Any]) -> dict[str, Any] | None:
    if "eviction" not in values:
        return None
    try:
        return Eviction.from_dict(require_object(values["eviction"], "eviction")).to_dict()
    except InputError as error:
        raise at_field(error, _within("eviction", error.field), "see the file formats") from None


def _within(block: str, field: str | None) -> str:
    return block if field in (None, block) else f"{block}.{field}"


def _columns(
    values: dict[str, Any], table: str, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    given = require_object(values[table], table)
    try:
        columns = read_parameters(given, table, names, optional)
    except InputError as error:
        raise at_field(error, f"{table}.{error.field}") from None
    return {name: column_field(columns, name, f"{table}.") for name in columns}


def _bound(bound: Any) -> dict[str, Any] | None:
    if bound is None:
        return None
    if not isinstance(bound, dict):
        raise InputError(
            f"must be an object or null, not {kind(bound)}",
            field="bound",
            remedy="write null where there is none",
        )
    for name in ("name", "value_ns", "certificate"):
        if name not in bound:
            raise InputError(
                f"bound needs the field '{name}'", field=f"bound.{name}", remedy="add it"
            )
    text_field(bound, "name", owner="bound.")
    whole_number(bound["value_ns"], "bound.value_ns")
    object_field(bound, "certificate")
    checked: dict[str, Any] = plain(bound, "bound")
    return checked


def _run(run: dict[str, Any], measured: bool) -> dict[str, Any]:
    named = [name for name in MEASURED_BY if name in run]
    if not measured and len(named) == len(MEASURED_BY):
        raise InputError(
            "a schedule whose run names device and clock was measured",
            field="format",
            remedy=f'give "format": "{TRACE_FORMAT}"',
        )
    for name in MEASURED_BY if measured else ():
        if not isinstance(run.get(name), str) or not run[name]:
            raise InputError(
                f"a trace needs the text '{name}'",
                field=f"run.{name}",
                remedy="say which device ran the steps and which clock timed them",
            )
    checked: dict[str, Any] = plain(run, "run")
    return checked
