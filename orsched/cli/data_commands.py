"""``orsched data list|verify|convert``: the public data sets that orsched knows."""

from __future__ import annotations

from pathlib import Path

import click

from orsched.cli.instance_commands import convert_source
from orsched.cli.options import FORMAT, with_options
from orsched.cli.output import print_rows
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS

_DIRECTORY = click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where the files lie (default: the environment variable ORSCHED_DATA).",
)


@click.group("data", short_help="List, verify and convert public data sets.")
def data_group() -> None:
    """List, verify and convert public data sets; the files themselves are not shipped."""


@data_group.command("list", short_help="List the known data sets, and which are here.")
@_DIRECTORY
@FORMAT
def list_command(directory: Path | None, style: str) -> None:
    """List the known data sets: origin, licence, rows, checksum and whether they are here."""
    import os

    from orsched.instances.datasets import DATA_SETS, VARIABLE, found

    here = found(directory) if directory is not None or os.environ.get(VARIABLE) else {}
    rows = [
        {
            "name": name,
            "file": entry.file,
            "rows": entry.rows,
            "licence": entry.licence,
            "origin": entry.origin,
            "here": name in here,
            **({} if style == "table" else {"sha256": entry.sha256, "cite": entry.citation}),
        }
        for name, entry in DATA_SETS.items()
    ]
    print_rows(rows, style)


@data_group.command("verify", short_help="Compare the files with their checksums.")
@_DIRECTORY
@FORMAT
def verify_command(directory: Path | None, style: str) -> int:
    """Compare the files with their checksums; exits with 1 if one is changed."""
    from orsched.instances.datasets import verify

    with ProgressPrinter("verifying"):
        outcomes = verify(directory)
    print_rows([outcome._asdict() for outcome in outcomes], style)
    return 1 if any(outcome.status == "changed" for outcome in outcomes) else 0


@data_group.command("convert", short_help="Convert a data set to an instance file.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path), metavar="TARGET")
@with_options(*REQUEST_OPTIONS, COPIES)
def convert_command(source: str, target: Path) -> None:
    """Convert a data set (its name, or a path) to the instance file TARGET."""
    with ProgressPrinter("converting"):
        convert_source(source, target)
