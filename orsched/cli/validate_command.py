"""``orsched validate``: how far predictions are from measured rows of served configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import SUFFIXES, check_paths, require_packages
from orsched.cli.declaring import THERE, argument, command, option
from orsched.cli.options import Printed
from orsched.cli.output import ProgressPrinter, print_json, print_rows, remark, say, table

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.views.planning_charts import Validation


@command("validate")
class ValidateCommand(Printed):
    """Predict measured configurations, and print the errors by GPU, model and layout.

    FILE holds served configurations as rows, with the columns of AIConfigurator's measured rows or
    of InferenceX's runs: each is simulated in closed loop on the machine that the data sheet gives.
    Rows that cannot be expressed are counted by reason. A measured run (requests with the times of
    their first and last token, as of LLMServingSim) is simulated on the machine of --cost, and the
    steps of a run, as orsched run writes them, are judged by its cost model.

    Example: orsched validate silicon.csv -o errors.svg

    Example: orsched validate run.csv --cost rtx4090-8b-sheet --clients 256
    """

    files: tuple[Path, ...] = argument("FILE...", type=THERE, required=True)
    gpu: str | None = option(
        "GPU of rows whose table does not name one (orsched info machines).", metavar="NAME"
    )
    cost: str | None = option(
        "Machine of runs and steps (orsched info machines), or a cost-model file.", metavar="NAME"
    )
    clients: int | None = option(
        "Most requests at once of a run.", metavar="J", show_default="as meta.json beside it says"
    )
    output: Path | None = option("Draw predicted against measured (.png, .svg, .pdf).", "-o")

    def _run(self) -> None:
        from orsched.planning.validation.errors import validate

        check_paths({"output": self.output}, self.files, SUFFIXES["plot"])
        require_packages({"plot": self.output})
        with ProgressPrinter("reading") as progress:
            found = validate(self.files, self.gpu, progress.say, self.cost, self.clients)
        _print(found, self.style)
        if self.output is not None and found.rows:
            from orsched.views.planning_charts import save_predicted

            save_predicted(found.rows, self.output)
            remark(f"picture written to {self.output}")


def _print(found: Validation, style: str) -> None:
    if style == "json":
        print_json(found.to_dict())
    elif style == "csv":
        print_rows(found.rows, style)
    elif found.rows:
        click.echo(table([_shown(group) for group in found.groups()]))
    served = len({row["id"] for row in found.rows})
    say(f"{served:,} configurations predicted, {len(found.skipped):,} left out")
    for reason, count in found.reasons.items():
        say(f"{count:,} left out: {reason}", "note")


def _shown(group: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table: medians of absolute errors in per cent, and of errors."""
    row = {name: group[name] for name in ("by", "value", "rows")}
    for name in ("tpot", "tpot_bias", "ttft", "ttft_bias", "throughput", "makespan"):
        share = group[name]
        row[f"{name.replace('_', ' ')} %"] = None if share is None else round(100 * share, 1)
    return row | {"order": None if group["order"] is None else round(group["order"], 2)}
