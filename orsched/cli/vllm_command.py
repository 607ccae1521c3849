"""``orsched vllm``: plans for vLLM, and its benchmark results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.declaring import FILE, argument, command, option
from orsched.cli.options import INSTANCE, Printed
from orsched.cli.output import print_rows, remark, say
from orsched.cli.request_options import RequestsAndCopies, load_instance
from orsched.common.errors import InputError
from orsched.common.scalars import require_one_of

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.runner.vllm_outlet.assignment import Plan


@click.group("vllm")
def vllm_group() -> None:
    """Send a plan's order to vLLM, and read back what it measured."""


@command(
    "export",
    "Write a plan's order for vLLM's scheduler.",
    usual="output kind worker batch clients cost",
    group=vllm_group,
)
class ExportCommand(RequestsAndCopies):
    """Write the order of PLAN, a schedule or an assignment (.jsonl) for INSTANCE, for vLLM's tools.

    A request's priority is its place in the order of admission (the last one, if it is evicted);
    lower goes first under vLLM's --scheduling-policy priority. An assignment has one line for each
    request: {"request": ID, "worker": NAME, "rank": PLACE}, ranks from 0 on each worker.

    Example: orsched vllm export gsm8k-llama65b plan.json --as trace -o trace.jsonl
    """

    instance: str = INSTANCE
    schedule: Path = argument("PLAN")
    output: Path = option("The file to write.", "-o", required=True)
    kind: str = option(
        "A table (.csv, .json, .jsonl), a trace for vllm bench serve, a batch file or an "
        "assignment (.jsonl).",
        "--as",
        choices=["priorities", "trace", "batch", "assignment"],
        default="priorities",
    )
    worker: str | None = option("Write the requests of this worker only.", metavar="NAME")
    batch: Path | None = option("The batch file without priorities, for --as batch.")

    def _run(self) -> None:
        from orsched.runner.vllm_outlet import (
            Assignment,
            in_order,
            write_batch,
            write_priorities,
            write_timed_trace,
        )

        output, batch = self.output, self.batch
        if (batch is None) == (self.kind == "batch"):
            raise InputError(
                "--as batch and --batch FILE go together",
                field="--batch",
                remedy="give both, or leave both out",
            )
        read = [Path(self.instance), self.schedule, *([] if batch is None else [batch])]
        check_paths({"output": output}, read, ())
        problem = load_instance(self.instance).admitted()
        plan, matched = self._plan(problem), ""
        if self.kind == "priorities":
            write_priorities(problem, plan, output)
        elif self.kind == "trace":
            write_timed_trace(problem, plan, output)
        elif isinstance(plan, Assignment) and batch is None:
            plan.write(problem, output)
        else:
            assert batch is not None
            matched = f", matched by {write_batch(problem, plan, batch, output)}"
        remark(f"{len(in_order(problem, plan))} requests written to {output}{matched}")
        if len(problem.workers) > 1 and self.worker is None and self.kind != "assignment":
            say("one order over all workers; each engine needs its own file (--worker)", "note")

    def _plan(self, problem: Instance) -> Plan:
        from orsched.files import load_schedule
        from orsched.runner.vllm_outlet import Assignment

        plan: Plan
        if self.schedule.suffix.lower() == ".jsonl":
            plan = Assignment.read(problem, self.schedule)
        else:
            plan = load_schedule(self.schedule)
            if self.kind == "assignment":
                plan = Assignment.from_schedule(problem, plan)
        return _part_of(problem, plan, self.worker)


def _part_of(problem: Instance, plan: Plan, worker: str | None) -> Plan:
    """Return the part of a plan that one worker serves; the whole plan without its name."""
    from orsched.runner.vllm_outlet import Assignment, worker_names

    if worker is None:
        return plan
    if not isinstance(plan, Assignment):
        plan = Assignment.from_schedule(problem, plan)
    require_one_of(worker, "--worker", worker_names(problem))
    return plan.only(problem, worker)


@command("results", "Read what vllm bench serve has measured.", group=vllm_group)
class ResultsCommand(Printed):
    """Read RESULT of vllm bench serve --save-result --save-detailed: figures, or plan against run.

    Example: orsched vllm results result.json --plan gsm8k-llama65b plan.json -o times.csv
    """

    result: Path = argument()
    plan: tuple[str, Path] | None = option(
        "Compare with this plan, whose trace (export --as trace) was sent.",
        type=(str, FILE),
        metavar="INSTANCE SCHEDULE",
    )
    worker: str | None = option("Compare with this worker's part of the plan.", metavar="NAME")
    output: Path | None = option("Write the times of the requests (.csv).", "-o")
    drop_failed: bool = option("Leave failed requests out.")

    def _run(self) -> None:
        from orsched.files import load_schedule
        from orsched.runner.vllm_outlet import read_request_times
        from orsched.runner.vllm_outlet.bench_results import sent_order

        plan, output = self.plan, self.output
        if self.worker is not None and plan is None:
            raise InputError(
                "--worker names a part of a plan", field="--worker", remedy="give --plan"
            )
        check_paths({"output": output}, [self.result, *(plan or ())], (".csv",))
        times = read_request_times(self.result, drop_failed=self.drop_failed)
        if plan is None:
            rows = _figure_rows(times.figures())
        else:
            problem, schedule = load_instance(plan[0]).admitted(), load_schedule(plan[1])
            sent = sent_order(problem, _part_of(problem, schedule, self.worker))
            if len(sent) == len(times.requests):
                times = times.in_rows_of(sent)
            compared = times.against_plan(problem, schedule, sent)
            rows = [_with_unit(row._asdict()) for row in compared]
        if output is not None:
            times.write_csv(output)
            remark(f"{len(times.requests)} requests written to {output}")
        print_rows(rows, self.style)


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
