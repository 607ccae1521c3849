"""``orsched vllm``: plans for vLLM, and its benchmark results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orsched.cli.options import FORMAT, INSTANCE, load_instance, with_options
from orsched.cli.output import remark
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS
from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("vllm", short_help="Send a plan's order to vLLM; read what it measured.")
def vllm_group() -> None:
    """Send a plan's order to vLLM, and read back what it measured."""


@vllm_group.command("export", short_help="Write a plan's order for vLLM's scheduler.")
@INSTANCE
@click.argument("schedule", type=_FILE)
@click.option("-o", "--output", type=_FILE, required=True, help="The file to write.")
@click.option(
    "--as",
    "kind",
    type=click.Choice(["priorities", "trace", "batch"]),
    default="priorities",
    show_default=True,
    help="A table (.csv, .json, .jsonl), a trace for vllm bench serve, or a batch file (.jsonl).",
)
@click.option("--batch", type=_FILE, help="The batch file without priorities, for --as batch.")
@with_options(*REQUEST_OPTIONS, COPIES)
def export_command(
    instance: str, schedule: Path, output: Path, kind: str, batch: Path | None
) -> None:
    """Write the order of SCHEDULE, a plan for INSTANCE, for vLLM's tools.

    A request's priority is its place in the order of admission (the last one, if it is evicted);
    lower goes first under vLLM's --scheduling-policy priority.

    Example: orsched vllm export gsm8k-llama65b plan.json --as trace -o trace.jsonl
    """
    from orsched.files import load_schedule
    from orsched.runner.vllm_outlet import write_batch, write_priorities, write_timed_trace

    if (batch is None) == (kind == "batch"):
        raise InputError(
            "--as batch and --batch FILE go together",
            field="--batch",
            remedy="give both, or leave both out",
        )
    _require_other(output, [Path(instance), schedule, *([] if batch is None else [batch])])
    problem, plan = load_instance(instance).admitted(), load_schedule(schedule)
    matched = ""
    if kind == "priorities":
        write_priorities(problem, plan, output)
    elif kind == "trace":
        write_timed_trace(problem, plan, output)
    else:
        assert batch is not None
        matched = f", matched by {write_batch(problem, plan, batch, output)}"
    remark(f"{len(problem)} requests written to {output}{matched}")


@vllm_group.command("results", short_help="Read what vllm bench serve has measured.")
@click.argument("result", type=_FILE)
@click.option(
    "--plan",
    type=(str, _FILE),
    metavar="INSTANCE SCHEDULE",
    help="Compare with this plan, whose trace (export --as trace) was sent.",
)
@click.option("-o", "--output", type=_FILE, help="Write the times of the requests (.csv).")
@click.option("--drop-failed", is_flag=True, help="Leave failed requests out.")
@FORMAT
def results_command(
    result: Path,
    plan: tuple[str, Path] | None,
    output: Path | None,
    drop_failed: bool,
    style: str,
) -> None:
    """Read RESULT of vllm bench serve --save-result --save-detailed: figures, or plan against run.

    Example: orsched vllm results result.json --plan gsm8k-llama65b plan.json -o times.csv
    """
    from orsched.cli.output import print_rows
    from orsched.files import load_schedule
    from orsched.runner.vllm_outlet import read_request_times
    from orsched.runner.vllm_outlet.export import sent_order

    if output is not None:
        require_suffix(output, (".csv",))
        _require_other(output, [result, *([] if plan is None else [Path(plan[0]), plan[1]])])
    times = read_request_times(result, drop_failed=drop_failed)
    if plan is None:
        rows = _figure_rows(times.figures())
    else:
        problem, schedule = load_instance(plan[0]).admitted(), load_schedule(plan[1])
        rows_sent = sent_order(problem, schedule)
        if len(rows_sent) == len(times.requests):
            times = times.in_rows_of(rows_sent)
        rows = [_with_unit(row._asdict()) for row in times.against_plan(problem, schedule)]
    if output is not None:
        times.write_csv(output)
        remark(f"{len(times.requests)} requests written to {output}")
    print_rows(rows, style)


def _require_other(output: Path, inputs: list[Path]) -> None:
    """Raise ``InputError`` if the file to write is one that the command reads."""
    if output.exists() and any(each.exists() and each.samefile(output) for each in inputs):
        raise InputError(
            "this file would be overwritten: the command reads it",
            file=str(output),
            field="--output",
            remedy="choose another name",
        )


def _figure_rows(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row a figure, times in seconds."""
    rows = []
    for name, value in figures.items():
        is_time = name.endswith("_ns")
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            shown = number / 1e9 if is_time and number is not None else number
            label = f"{part} {name.removesuffix('_ns')}".strip()
            rows.append(_with_unit({"figure": label, "measured": shown}))
    return rows


def _with_unit(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a figure with its unit behind the name."""
    unit = _UNITS.get(row["figure"], "s")
    return {"figure": row.pop("figure"), "unit": unit, **row}


_UNITS = {
    "prompt_tokens": "tokens",
    "output_tokens": "tokens",
    "tokens_per_s": "tokens/s",
    "order": "rank correlation",
}
"""Units of the figures that are no times in seconds."""
