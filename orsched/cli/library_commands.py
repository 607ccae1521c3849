"""``orsched library``: the public instances, their best known schedules, and their proofs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.columns import Viewed, viewed
from orsched.cli.declaring import AT_LEAST_1, argument, command, option
from orsched.cli.ending import EXIT_INVALID
from orsched.cli.options import Printed
from orsched.cli.output import ProgressPrinter, print_facts, print_json, print_rows, remark, say
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instances.library_index import Row


@click.group("library")
def library_group() -> None:
    """List, fetch and verify public instances, and submit schedules and bounds for them."""


FAMILY = option("Only this family, such as gsm8k.", metavar="NAME")


def _rows(family: str | None) -> list[Row]:
    """Return the rows of a family, or of all, that have something to show."""
    from orsched.common.errors import known_names
    from orsched.instances.library_index import listed, rows

    known = dict.fromkeys(one.family for one in listed().values())
    if family not in (None, *known):
        remedy = known_names(family, known)
        raise InputError(f"unknown family {family!r}", field="--family", remedy=remedy)
    return [row for row in rows(family) if row.upper is not None or row.track == "clairvoyant"]


LISTED = (
    "instance", "objective", "track", "class", "status", "lower_bound", "upper_bound", "unit",
    "gap",
)  # fmt: skip


@command("list", "List instances with their best values and bounds.", group=library_group)
class ListLibraryCommand(Viewed):
    """List instances, one row for each objective and track, with value, bound and gap."""

    known = LISTED

    family: str | None = FAMILY
    status: str | None = option("Only rows of it.", choices=["proven", "searched", "open"])

    def _run(self) -> None:
        found = [row.cells() for row in _rows(self.family)]
        kept = [row for row in found if self.status in (None, row["status"])]
        print_rows(viewed([{name: row[name] for name in LISTED} for row in kept]), self.style)


@command("show", "Show an instance: origin, rows, methods and dates.", group=library_group)
class ShowLibraryCommand(Printed):
    """Show an instance of the library: origin, licence, and who found and proved what."""

    name: str = argument("NAME")

    def _run(self) -> None:
        from orsched.instances.library_index import UNITS, named, rows

        one = named(self.name)
        facts = {name: value for name, value in one._asdict().items() if value}
        if self.style == "table":
            print_facts({name: _text(value) for name, value in facts.items()}, "table")
        shown = ("value", "method", "by", "date", "seconds")
        entries = [
            {"objective": row.objective, "track": row.track, "side": side}
            | {name: entry.get(name, "") for name in shown}
            | {"unit": UNITS[row.objective]}
            for row in rows(one.family)
            if row.listed == one
            for side in ("lower", "upper", "search")
            for entry in [getattr(row, side)]
            if entry is not None and not (side == "lower" and row.track == "policy")
        ]
        if self.style == "json":
            print_json({**facts, "entries": entries})
            return
        print_rows(entries, self.style)


def _text(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(value)
    return json.dumps(value) if isinstance(value, dict) else value


@command("get", "Write an instance, or its best schedule, as a file.", group=library_group)
class GetLibraryCommand(Printed):
    """Write an instance of the library as a file, or the best schedule that is stored for it."""

    name: str = argument("NAME")
    output: Path | None = option("The file (.json or .parquet; default: NAME.json).", "-o")
    schedule: str | None = option("Write the best schedule for it instead.", metavar="OBJECTIVE")

    def _run(self) -> None:
        from orsched.files import save_instance, save_schedule
        from orsched.instances.library_index import load_listed, row_of
        from orsched.planning.library_rows import best_schedule

        instance = load_listed(self.name)
        plain = instance.name.removeprefix("lib:")
        output = self.output or Path(f"{plain}{'.schedule' if self.schedule else ''}.json")
        check_paths({"output": output})
        if self.schedule is None:
            save_instance(instance, output)
        else:
            row = row_of(plain, self.schedule, "clairvoyant")
            if row.upper is None:
                raise InputError("must be an objective with a known schedule", field="--schedule")
            save_schedule(best_schedule(instance, row), output)
        print_facts({"file": str(output), "instance": plain, "source": instance.source}, self.style)


@command("verify", "Check schedules and certificates from nothing.", group=library_group)
class VerifyLibraryCommand(Viewed):
    """Check each schedule and certificate from nothing, and that the index says what they prove.

    NAMES are instances (default: all). Each instance is made or read and compared with its SHA-256,
    policies are run again and searches repeated. Exits with 1 if an entry does not hold.
    """

    known = ("row", "side", "value", "fault")

    names: tuple[str, ...] = argument("NAMES...")
    family: str | None = FAMILY
    sample: int | None = option(
        "Check so many rows, evenly spread (default: all).", type=AT_LEAST_1, metavar="N"
    )
    first: int = option("The first row of the sample.", type=click.IntRange(min=0), default=0)

    def _run(self) -> int:
        from orsched.instances.library_index import named
        from orsched.planning.library_rows import verify

        wanted = {named(name).instance for name in self.names}
        chosen = [r for r in _rows(self.family) if not wanted or r.listed.instance in wanted]
        chosen = spread(chosen, self.sample, self.first)
        with ProgressPrinter("verifying") as progress:
            found = list(verify(chosen, progress.say))
        wrong = [each._asdict() for each in found if each.fault]
        if wrong or self.style != "table":
            print_rows(viewed(wrong) if wrong else [], self.style, self.known)
        say(f"{len(found) - len(wrong)} of {len(found)} entries hold, in {len(chosen)} rows")
        return EXIT_INVALID if wrong else 0


def spread(found: Sequence[Row], sample: int | None, first: int = 0) -> list[Row]:
    """Return so many of the rows, evenly spread from one on, or all."""
    if sample is None or sample >= len(found):
        return list(found)
    return [found[(first + k * len(found) // sample) % len(found)] for k in range(sample)]


@command("submit", "Judge a schedule, bound or policy; record a better one.", group=library_group)
class SubmitLibraryCommand(Printed):
    """Judge the schedule, certificate or policy in FILE, and record it where it is better.

    FILE is a JSON document that needs no orsched to write (docs: The instance library), or a
    schedule file of orsched for an instance of the library. Exits with 1 if it is not valid.
    """

    file: Path = argument("FILE")
    objective: str | None = option("Objective of a schedule file (default: makespan).")
    by: str | None = option("Your name, or that of your group.")
    date: str | None = option("The date of the result, as 2026-11-26.", metavar="DATE")
    hardware: str | None = option("What it ran on.", metavar="TEXT")
    dry_run: bool = option("Judge it, and write nothing.")

    def _run(self) -> int:
        from orsched.files.text import locating
        from orsched.planning.library_rows import read_submission, submit

        said = {"by": self.by, "date": self.date, "hardware": self.hardware}
        with ProgressPrinter("judging"), locating(self.file):
            given = read_submission(self.file, self.objective)
            found = submit(given, dry=self.dry_run, **said)
        facts = found._asdict() | {"row": found.row.key, "valid": not found.faults}
        facts["fault"] = next(iter(facts.pop("faults")), None)
        print_facts(facts, self.style)
        if found.better:
            remark("not written: a dry run" if self.dry_run else "written into the library")
        return EXIT_INVALID if found.faults else 0


@command("table", "Sum up proofs and gaps by family.", group=library_group)
class TableLibraryCommand(Viewed):
    """Sum up each family and objective: rows, proofs, gaps, and the regret of the best policies.

    Regret is how much more the best policy without the output lengths needs than the best known
    schedule, the mean over the instances.
    """

    known = (
        "family", "objective", "rows", "proven", "searched", "below_1_%", "median_gap_%",
        "largest_gap_%", "policies", "regret_%",
    )  # fmt: skip

    family: str | None = FAMILY

    def _run(self) -> None:
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in _rows(self.family):
            groups.setdefault((row.listed.family, row.objective), []).append(row)
        print_rows(viewed([_summed(*key, rows) for key, rows in groups.items()]), self.style)


def _summed(family: str, objective: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the row of a family and objective."""
    from statistics import fmean, median

    known = [row for row in rows if row.track == "clairvoyant"]
    gaps = sorted(row.gap for row in known if row.gap is not None)
    best = {row.listed.instance: row.values[1] or 0 for row in known}
    online = [(row.listed.instance, row.values[1]) for row in rows if row.track == "policy"]
    regrets = [100 * (v / best[n] - 1) for n, v in online if v is not None and best[n]]
    return {
        "family": family,
        "objective": objective,
        "rows": len(known),
        **{kind: sum(row.status == kind for row in known) for kind in ("proven", "searched")},
        "below_1_%": sum(gap < 0.01 for gap in gaps),
        "median_gap_%": round(100 * median(gaps), 3) if gaps else None,
        "largest_gap_%": round(100 * gaps[-1], 3) if gaps else None,
        "policies": len(regrets),
        "regret_%": round(fmean(regrets), 2) if regrets else None,
    }
