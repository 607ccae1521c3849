"""``orsched batch``, ``offload`` and ``gantt``: single pieces on files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import SUFFIXES, check_paths, require_packages
from orsched.cli.bound_commands import print_loads, sizes_or_instance
from orsched.cli.check_commands import checked_schedules, require_order
from orsched.cli.declaring import AT_LEAST_1, Options, argument, command, option
from orsched.cli.options import INSTANCE, Printed
from orsched.cli.output import ProgressPrinter, print_facts, print_json, print_rows, remark
from orsched.cli.request_options import RequestsAndCopies
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.solving.progress import clear_line

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.heuristics.scls.offloading import Offloading
    from orsched.models.batch import Batches


class _Piece(Printed):
    """Options of commands on a column of whole numbers."""

    column: str | None = option("The column of a CSV file that holds the numbers.", metavar="NAME")
    plot: Path | None = option("Write a picture (.png, .svg or .pdf).")

    def require_files(self, source: str) -> None:
        """Refuse, before any work, a picture that could not be written."""
        check_paths({"plot": self.plot}, [source])
        require_packages({"plot": self.plot})

    def draw(self, piece: Any) -> None:
        """Write the picture of a piece, if it is asked for."""
        if self.plot is not None:
            from orsched.views.pictures import save_picture

            save_picture(lambda figure: piece.plot(figure.subplots()), self.plot, (8.0, 4.0))
            remark(f"picture written to {self.plot}")


@command("batch")
class BatchCommand(_Piece):
    """Batch the prompts in SOURCE for slices: least total time under memory (SCLS, Algorithm 1).

    SOURCE is a file of whole numbers, prompt tokens, one a line, as a column of CSV, or JSON (a
    list), or an instance (a name or a file).

    Example: orsched batch gsm8k-llama65b --slice 128 --max-batch 16
    """

    source: str = argument("SOURCE")
    slice_tokens: int = option(
        "Decode rounds that each batch runs.", "--slice", type=AT_LEAST_1, default=128, metavar="S"
    )
    max_batch: int | None = option("Most requests of a batch.", type=AT_LEAST_1, metavar="N")
    memory_tokens: int | None = option(
        "Tokens that fit into memory; each request of a batch takes its longest prompt and S.",
        type=AT_LEAST_1,
        metavar="N",
    )
    cost: str | None = option(
        "A machine or a cost-model file (default: the instance's, else LLaMA-65B).",
        metavar="NAME|FILE",
    )

    def _run(self) -> None:
        self.require_files(self.source)
        with ProgressPrinter("batching"):
            from orsched.models.batch import PaddedMemory, batch

            found = sizes_or_instance(self.source, self.column)
            lengths = found if isinstance(found, list) else found.requests.prompt_tokens
            memory = None if self.memory_tokens is None else PaddedMemory(self.memory_tokens, 1)
            cost = _bilinear(found, self.cost)
            batches = batch(lengths, cost, self.slice_tokens, memory, self.max_batch)
            self.draw(batches)
        _print_batches(batches, self.style)


def _bilinear(source: list[int] | Instance, name: str | None) -> CostModel:
    """Return the model by which batches are estimated, of a machine or of an instance's worker."""
    from orsched.data.workers import Worker
    from orsched.files.worker_choice import read_machine
    from orsched.heuristics.scls.offloading import bilinear_of

    if name is None and not isinstance(source, list):
        return bilinear_of(source.worker)
    return bilinear_of(Worker(64, read_machine(name)[0]))


def _print_batches(batches: Batches, style: str) -> None:
    columns = (batches.sizes.tolist(), batches.longest.tolist(), batches.serving_ns.tolist())
    rows = [
        {"batch": k, "requests": size, "padded_to": longest, "batch_s": ns / NS_PER_S}
        for k, (size, longest, ns) in enumerate(zip(*columns, strict=True))
    ]
    total = {"total_s": batches.total_ns / NS_PER_S, "least_over": batches.optimal_over}
    if style == "table":
        print_facts(total, "table")
        click.echo()
    else:
        rows = [row | {"rows": own.tolist()} for row, own in zip(rows, batches, strict=True)]
    if style == "json":
        clear_line(end=True)
        print_json({**total, "of_each": rows})
    else:
        print_rows(rows, style, ("batch", "requests", "padded_to", "batch_s", "rows"))


@command("offload")
class OffloadCommand(_Piece):
    """Assign the jobs in SOURCE to workers, the largest first to the least loaded (SCLS, max-min).

    SOURCE is a file of whole numbers, the costs, one a line, as a column of CSV, or JSON (a list),
    or an instance (a name or a file): then the costs are the decode rounds of its requests. The
    bound is one on the largest load of any assignment.

    Example: orsched offload batches.csv --column milliseconds --workers 8
    """

    source: str = argument("SOURCE")
    workers: int | None = option("Workers.", type=AT_LEAST_1, metavar="N")
    loads: str | None = option("What each worker has to do already: 30,0,12.", metavar="A,B,...")
    rule: str = option(
        "max_min, or stealing: in turn, longest first, idle workers steal (Pang, Algorithm 1).",
        choices=["max_min", "stealing"],
        default="max_min",
    )

    def _run(self) -> None:
        self.require_files(self.source)
        loads = None if self.loads is None else self.loads.split(",")
        with ProgressPrinter("offloading"):
            found = sizes_or_instance(self.source, self.column)
            costs = found if isinstance(found, list) else found.rounds_needed.tolist()
            done = _offloaded(costs, self.workers, loads, self.rule)
            self.draw(done)
        _print_offloading(done, self.style)


def _offloaded(
    costs: list[int], workers: int | None, loads: list[str] | None, rule: str
) -> Offloading:
    from dataclasses import replace

    from orsched.heuristics.scls.offloading import offload
    from orsched.heuristics.stealing import sort_with_stealing

    plain: Any = None
    if loads is not None:  # what does not fit into 64 bits is refused as it is written
        plain = [int(w) if w.strip().isdecimal() and len(w) < 19 else w for w in loads]
        if rule != "max_min":
            raise InputError("is for max_min", field="--loads", remedy="leave it out")
    done = offload(costs, workers, plain)
    if rule == "max_min":
        return done
    queues = sort_with_stealing(costs, len(done.loads))
    ends = queues.serve()
    place = dict(queues.taken)
    assignment = [place[job] for job in range(len(costs))]
    return replace(done, makespan=max(ends), loads=ends, assignment=assignment)


def _print_offloading(done: Offloading, style: str) -> None:
    pairs = enumerate(zip(done.costs, done.assignment, strict=True))
    rows = [{"job": job, "cost": cost, "worker": worker} for job, (cost, worker) in pairs]
    facts = {
        "jobs": len(rows),
        "workers": len(done.loads),
        "makespan": done.makespan,
        "bound": done.bound,
        "gap": (done.makespan - done.bound) / done.bound if done.bound else 0.0,
    }
    if style == "json":
        clear_line(end=True)
        print_json({**facts, "loads": done.loads, "assignment": done.assignment})
    elif style == "csv":
        print_rows(rows, "csv", ("job", "cost", "worker"))
    else:
        print_facts(facts, "table")
        print_loads("worker", done.costs, done.assignment)


class _Drawn(Options):
    output: Path = option("The picture (.png, .svg or .pdf).", "-o", required=True)


@command("gantt", usual="output title slack style clients cost")
class GanttCommand(_Drawn, Printed, RequestsAndCopies):
    """Draw SCHEDULE files of INSTANCE in one picture: one axis of time, one legend.

    Each schedule is checked first.

    Example: orsched gantt pang-100x20 fcfs.json hybrid.json -o both.png
    """

    instance: str = INSTANCE
    schedules: tuple[Path, ...] = argument("SCHEDULE...", required=True)
    title: str | None = option("The title of each chart (default: instance and method).")
    slack: bool = option(
        "Of one SCHEDULE: draw and print how late each request may be without a longer makespan."
    )

    def _run(self) -> None:
        from orsched.views.gantt import save_gantt

        if self.slack and len(self.schedules) > 1:
            raise InputError("takes one SCHEDULE", field="--slack", remedy="give one, or leave it")

        require_order(self.instance, self.schedules)
        check_paths({"output": self.output}, (self.instance, *self.schedules), SUFFIXES["plot"])
        require_packages({"plot": self.output})
        with ProgressPrinter("loading") as progress:
            problem, loaded = checked_schedules(self.instance, self.schedules, progress)
            progress.say("drawing")
            if self.slack:
                _draw_slack(problem, loaded[0], self.output, self.style)
            else:
                save_gantt(problem, loaded, self.output, title=self.title)
        remark(f"gantt written to {self.output}")


def _draw_slack(instance: Instance, schedule: Schedule, path: Path, style: str) -> None:
    from orsched.models.bounds.request_slack import request_slack
    from orsched.views.gantt_frame import Chart, place_axes
    from orsched.views.pictures import save_picture

    found = request_slack(instance, schedule)
    chart = Chart.of(instance, schedule)
    save_picture(lambda figure: found.plot(place_axes(figure, chart)), path)
    rows: Any = found.to_pandas().to_dict("records")
    print_rows(rows, style)
