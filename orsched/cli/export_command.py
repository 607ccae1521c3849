"""``orsched export``: a program of an instance as a file for any solver."""

from __future__ import annotations

from pathlib import Path

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.options import INSTANCE, with_options
from orsched.cli.output import remark
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS, load_admitted
from orsched.common.errors import InputError
from orsched.solving.progress import clear_line

PROGRAMS = ("full-mip", "window-mip", "latency-mip")
FORMATS = ("mps", "lp")


@click.command("export", short_help="Write a MIP of an instance as an MPS or LP file.")
@INSTANCE
@click.option(
    "--model",
    "program",
    type=click.Choice(PROGRAMS),
    default="full-mip",
    show_default=True,
    help="Pang's full MIP, the window MIP with the same optimum, or the MIP of means.",
)
@click.option(
    "--objective",
    metavar="NAME",
    help="Of latency-mip: jct_mean (default), ttft_mean, 0.3*makespan+0.7*jct_mean, ...",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(FORMATS),
    help="Free MPS, or CPLEX's LP format (default: as OUT is named, else mps).",
)
@click.option(
    "--stages",
    type=click.IntRange(min=1),
    metavar="K",
    help="Most prefill stages of the two MIPs (default: one for each request, which suffices).",
)
@click.option(
    "--formulation",
    type=click.Choice(["compact", "printed"]),
    default="compact",
    show_default=True,
    help="Of the full MIP: printed has eq. (10) and (11) as Pang's, repaired like the rest.",
)
@click.option(
    "--symmetry-breaking/--no-symmetry-breaking",
    default=True,
    show_default=True,
    help="Rows that number clients and stages.",
)
@click.option(
    "--max-nonzeros",
    type=click.IntRange(min=1),
    default=10_000_000,
    show_default=True,
    metavar="N",
    help="A larger model is refused before it is built; one of ten million is a file of 300 MB.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="The file (.mps or .lp); default: stdout.",
)
@with_options(*REQUEST_OPTIONS, COPIES)
def export_command(
    instance: str,
    program: str,
    objective: str | None,
    style: str | None,
    stages: int | None,
    formulation: str,
    symmetry_breaking: bool,
    max_nonzeros: int,
    output: Path | None,
) -> None:
    """Write a program of INSTANCE for other solvers; comments say what its names mean.

    Example: orsched export gate --model window-mip --format lp -o gate.lp
    """
    chosen = _format(style, output)
    check_paths({"OUT": output}, [instance])
    with ProgressPrinter("exporting"):
        from orsched.models.mip.files import file_lines, in_words
        from orsched.models.mip.programs import read_program

        found = read_program(
            load_admitted(instance),
            program,
            objective=objective,
            stages=stages,
            formulation=formulation,
            symmetry_breaking=symmetry_breaking,
            max_nonzeros=max_nonzeros,
        )
        lines = file_lines(found, chosen)
        if output is None:
            clear_line(end=True)
            for line in lines:
                click.echo(line, nl=False)
            return
        from orsched.files.atomic import write_text

        write_text(output, lines)
    model, words = found.model, in_words(found)
    remark(
        f"{output}: {len(model.names):,} columns, {len(model.rows):,} rows, "
        f"{model.nonzeros:,} nonzeros; objective x {found.unit_ns} ns = {words}"
    )


def _format(style: str | None, output: Path | None) -> str:
    """Return the format of the option or of the file's name; they may not disagree."""
    named = None if output is None else output.suffix.lower().removeprefix(".")
    if style is not None and named in FORMATS and named != style:
        raise InputError(
            f"the file is named {named}, the format is {style}",
            file=str(output),
            field="--format",
            remedy="leave --format out, or name the file so",
        )
    return style or (named if named in FORMATS else "mps")
