"""``orsched paper``: figures and tables of five papers, rerun."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orsched.cli.artefacts import SUFFIXES, check_paths, require_packages
from orsched.cli.declaring import AT_LEAST_1, FOLDER, argument, command, option
from orsched.cli.options import Printed
from orsched.cli.output import ProgressPrinter, print_json, print_rows, remark, wrapped
from orsched.common.errors import InputError
from orsched.common.parameters import read_pairs

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.papers.running import Rerunning


@command("paper", usual="figure table every full settings state output style")
class PaperCommand(Printed):
    """Rerun a figure or table of a paper: printed values beside ours, statements judged.

    NAME is pang, scls, ssjf, mico or echo. Without a figure or table, its figures are listed.

    Example: orsched paper pang --figure 9 -o figure-9.png
    """

    name: str | None = argument("[NAME]", required=False)
    figure: int | None = option("The figure to rerun.", type=AT_LEAST_1, metavar="N")
    table: int | None = option("The table to rerun.", type=AT_LEAST_1, metavar="N")
    every: bool = option("List the figures and tables, with what is drawn.", "--list")
    full: bool = option("Rerun in the paper's size, not in the quick one.")
    settings: tuple[str, ...] = option(
        "A setting of the figure; may be given several times.", "--set", metavar="NAME=VALUE"
    )
    state: Path | None = option("Keep finished runs here; do not repeat them.", type=FOLDER)
    output: Path | None = option("Write the picture (.png, .svg or .pdf).", "-o")

    def _run(self) -> None:
        from orsched.papers import listed, paper

        chosen = self.figure is not None or self.table is not None
        if self.every or not chosen:
            self._refuse_without_figure()
            print_rows(listed(self.name), self.style)
            return
        if self.name is None:
            raise InputError("no paper is named", field="NAME", remedy="for example pang")
        check_paths({"output": self.output}, (), SUFFIXES["plot"])
        require_packages({"plot": self.output})
        pairs = read_pairs(self.settings, "--set")
        with ProgressPrinter(f"{self.name}") as progress:
            found = paper(
                self.name, self.figure, self.table, full=self.full, settings=pairs,
                state=self.state, progress=progress.say,
            )  # fmt: skip
            if self.output is not None:
                progress.say("drawing")
                found.save(self.output)
        if self.output is not None:
            remark(f"picture written to {self.output}")
        _show(found, self.style)

    def _refuse_without_figure(self) -> None:
        given = {"--set": self.settings, "-o": self.output, "--state": self.state,
                 "--full": self.full}  # fmt: skip
        for flag, value in given.items():
            if value:
                raise InputError("is for one figure", field=flag, remedy="add --figure N")


def _show(found: Rerunning, style: str) -> None:
    if style == "json":
        print_json(found.to_dict())
    elif style == "csv":
        print_rows(found.rows, "csv")
    else:
        click.echo(wrapped(f"{found.entry.name}: {found.entry.caption} {found.entry.rerun}"))
        settings = ", ".join(f"{name}={_text(value)}" for name, value in found.settings.items())
        click.echo(wrapped(settings, "settings: ", 2))
        for rows in (found.rows, found.printed):
            if rows:
                click.echo()
                print_rows(rows, "table")
        click.echo()
        for each in found.verdicts:
            reason = f": {each.reason}" if each.reason else ""
            click.echo(wrapped(f"{each.statement} ({each.where}){reason}", f"{each.verdict}  ", 4))


def _text(value: object) -> str:
    return ",".join(str(each) for each in value) if isinstance(value, list) else str(value)
