"""The block about service classes and tenants below the table of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orsched.cli.output import table
from orsched.metrics.class_rows import class_rows, tenant_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.solving.result import Result

_SHOWN = (
    "class", "requests", "ttft_mean_s", "ttft_p99_s", "tpot_p99_s", "slo_attainment",
    "token_attainment", "deadline_attainment", "tokens_per_s", "hit_rate",
)  # fmt: skip


def with_classes(result: Result, style: str) -> dict[str, Any]:
    """Return a result's row; in JSON with what it has by class and tenant."""
    row = result.to_row()
    results = result.schedule.results
    if style == "json":
        for name, rows in (("classes", class_rows(results)), ("tenants", tenant_rows(results))):
            if rows:
                row[name] = rows
        if results.get("fairness"):
            row["service_difference"] = results["fairness"]["service_difference"]
    return row


def print_classes(results: Sequence[Result], style: str) -> None:
    """Print a line for each method and class, and the service of tenants, below a table.

    Only where an instance names classes or has tenants; figures that nobody has are left out.
    """
    if style != "table":
        return
    rows = []
    for result in results:
        for row in class_rows(result.schedule.results):
            shown = {name: row[name] for name in _SHOWN}
            rows.append({"method": result.label or result.schedule.method, **shown})
    if rows:
        kept = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        if not any(row["hit_rate"] for row in rows):
            kept.remove("hit_rate")
        click.echo("\n" + table([{name: row[name] for name in kept} for row in rows]))
    fair = [(each, each.schedule.results.get("fairness")) for each in results]
    differences = [
        {
            "method": result.label or result.schedule.method,
            "service_difference": found["service_difference"],
            "between": " and ".join(found["between"] or ()) or None,
        }
        for result, found in fair
        if found
    ]
    if differences:
        click.echo("\n" + table(differences))
