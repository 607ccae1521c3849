"""Bounds on bulk work on the command line: ``orsched bound --objective bulk``, and their check."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.options import SLO_OPTIONS, with_options
from orsched.cli.output import LISTS, print_facts, print_json, require_format, say
from orsched.cli.seconds import SECONDS
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orsched.data.instance import Instance

FORMAT_NAME = "orsched/bound"
_HEAD = 64

_OPTIONS = (
    click.option(
        "--attainment",
        type=float,
        help="bulk: share of the requests with limits that are to meet them.  [default: 0.9]",
    ),
    click.option(
        "--horizon",
        "horizon_s",
        type=SECONDS,
        metavar="SECONDS",
        help="bulk: until when work counts (default: when the last request is due).",
    ),
    click.option(
        "--measure",
        type=click.Choice(["attained", "in_time"]),
        help="bulk: limits are met by the mean of the tokens, or by each.  [default: attained]",
    ),
    click.option(
        "--restarts",
        type=click.IntRange(min=0),
        metavar="N",
        help="bulk: for schedules with at most so many evictions (default: any number).",
    ),
    click.option("--windows", type=click.IntRange(min=1), help="bulk: time windows at most."),
    *SLO_OPTIONS,
)


def bulk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that are for bounds on bulk work only."""
    return with_options(*_OPTIONS)(function)


def refuse_bulk_options(given: dict[str, Any], objective: str) -> None:
    """Raise ``InputError`` for options of bulk bounds beside another objective."""
    for name, value in given.items():
        if value is not None:
            option = f"--{name.removesuffix('_s').replace('_', '-')}"
            raise InputError(
                f"is for bounds on bulk work, not on {objective}",
                field=option,
                remedy="add --objective bulk",
            )


def print_bulk_bound(
    instance: Instance,
    given: dict[str, Any],
    time_limit: float | None,
    certificate: bool,
    style: str,
) -> None:
    """Bound bulk work, verify the certificate, and print the bound or the certificate."""
    from orsched.models.bounds.bulk_bound import bulk_bound

    if certificate:
        require_format(style, LISTS, "a certificate")
    given = {name: value for name, value in given.items() if value is not None}
    limits = {name: given.pop(name) for name in ("slo_ttft", "slo_tpot") if name in given}
    if limits:
        text = ",".join(f"{name.removeprefix('slo_')}={value}" for name, value in limits.items())
        instance = instance.with_classes(f"interactive:{text}")
    found = bulk_bound(instance, time_limit=time_limit, **given)
    if certificate:
        classes = [kind.to_dict() for kind in instance.classes]
        print_json({"format": FORMAT_NAME, **found.to_dict(), "classes": classes})
        return
    facts = {
        "bound": found.name,
        "bulk_tokens": found.value,
        "bulk_tokens_per_s": found.tokens_per_s,
        "horizon_s": found.horizon_s,
        "attainment": found.attainment,
        "feasible": found.feasible,
        "most_attained": found.most_attained,
        "windows": len(found.certificate["windows"]) - 1,
        "certificate": "verified",
    }
    print_facts(facts, style)
    if not found.feasible:
        say("no schedule reaches the attainment: too few requests can meet their limits", "note")


def bulk_claim(path: Path) -> dict[str, Any] | None:
    """Return the bound that a file holds as ``--certificate`` prints it; None for other files."""
    try:
        with path.open("rb") as file:
            if FORMAT_NAME.encode() not in file.read(_HEAD):
                return None
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT_NAME else None


def check_bulk_claim(instance: Instance, claim: dict[str, Any], budget: int) -> list[str]:
    """Return what is wrong with a bound for an instance with the classes that it states."""
    from orsched.checker.bulk_certificates import bulk_violations
    from orsched.data.service_classes import ServiceClass

    kinds = claim.get("classes")
    if not isinstance(kinds, list):
        raise InputError("must be a list of classes", field="classes")
    instance = instance.replace(classes=tuple(map(ServiceClass.from_dict, kinds)))
    return bulk_violations(instance, claim, budget)
