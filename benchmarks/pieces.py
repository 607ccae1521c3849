"""The page of the pieces: each noun of the design with equation, Python line, command and picture.

python -m benchmarks.pieces writes the table of ``docs/pieces.md`` and draws its pictures into
``docs/_static``. The tests run every cell and compare the page with ``page``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orsched
from orsched.views.pictures import save_picture
from orsched.views.style import line_look

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "pieces.md"
BEGIN, END = "<!-- written by python -m benchmarks.pieces -->", "<!-- end -->"

GATE = 'orsched.load("gate")'


FLEET = "orsched.load(columns, clients=1, workers=2)"
COLUMNS = {"prompt_tokens": [30, 200, 50], "output_tokens": [90, 300, 60]}
"""Requests of a fleet, which the page shows under the name ``columns``."""


def _gantt(found: Any, figure: Any) -> None:
    """Draw the Gantt chart of requests on two clients over time."""
    instance = getattr(found, "instance", orsched.load("gate"))
    schedule = found.trace if hasattr(found, "trace") else found.schedule
    orsched.gantt(instance, schedule.bare(), figure.subplots(), title="")


def _with_bound(found: Any, figure: Any) -> None:
    """Draw the Gantt chart of two clients with the lower bound as a dashed line."""
    result = orsched.solve(orsched.load("gate"), "hybrid")
    orsched.gantt(result.instance, result.schedule, figure.subplots(), title="")


def _used(found: Any, figure: Any) -> None:
    """Draw the busy clients over time, prefill and decode stacked."""
    orsched.usage(found.instance, found.schedule, figure, title="")


def _times(found: Any, figure: Any) -> None:
    """Draw the time of a prefill stage over the longest prompt, a line for each batch size."""
    axes, lengths = figure.subplots(), range(0, 2049, 64)
    for place, count in enumerate((1, 8, 32)):
        times = [found.prefill_ns([length] * count) / 1e9 for length in lengths]
        axes.plot(lengths, times, label=f"N = {count}", **line_look(place))
    axes.set(xlabel="longest prompt (tokens)", ylabel="prefill stage (s)")
    axes.legend()


def _own(found: Any, figure: Any) -> None:
    """Draw the loads, batches or slack as bars."""
    found.plot(figure.subplots())


def _served(found: Any, figure: Any) -> None:
    """Draw the load of each client as a bar."""
    found.serve()
    found.plot(figure.subplots())


class Piece(NamedTuple):
    """A row of the table.

    Attributes:
        noun, page: its name, and the page that explains it.
        equation: what it solves or decides, as a formula or in words.
        python: one line, an expression.
        commands: what does the same on the command line, in order.
        draw: draws the value of the expression into a figure; None: the piece has no picture.
    """

    noun: str
    page: str
    equation: str
    python: str
    commands: tuple[str, ...]
    draw: Callable[[Any, Any], None] | None = None

    @property
    def picture(self) -> Path:
        """Where its picture is."""
        return DOCS / "_static" / f"piece-{self.noun.replace(' ', '-')}.svg"

    def value(self) -> Any:
        """Return what the Python line gives."""
        import orsched.runner  # a line of the runner needs it, as the page says

        return eval(self.python, {"orsched": orsched, "columns": COLUMNS})

    @property
    def alt(self) -> str:
        """The picture in words, for readers who do not see it."""
        words = (self.draw.__doc__ or "").removeprefix("Draw the ").rstrip(".")
        return f"{self.noun}: {words}"

    def row(self) -> str:
        """Return the row of the table."""
        shown = "" if self.draw is None else f"![{self.alt}](_static/{self.picture.name})"
        calls = "<br>".join(f"`{each}`" for each in (self.python, *self.commands))
        return f"| **[{self.noun}]({self.page})**<br>{self.equation}<br>{calls} | {shown} |"


PIECES = (
    Piece(
        "full MIP", "full-mip.md",
        r"$\min t_{max}$ s.t. Pang (1)-(25)",
        f'orsched.full_mip({GATE}).solve("cpsat")',
        ("orsched export gate --model full-mip -o gate.lp",
         "orsched solve gate --method exact --param search=mip"),
        _gantt,
    ),
    Piece(
        "compact model", "full-mip.md#the-compact-model",
        r"intervals $[a_i, a_i + r_i)$ of rounds, at most $J$ at a time",
        f'orsched.solve({GATE}, "exact", parameters={{"search": "cp"}})',
        ("orsched solve gate --method exact --param search=cp",),
        _gantt,
    ),
    Piece(
        "packing", "packing.md",
        r"$\min t$ s.t. $\sum_j x_{ij} = 1$, $\sum_i r_i x_{ij} \le t$; Pang (26)-(30)",
        "orsched.pack([9, 7, 6, 5, 5, 4], clients=3)",
        ("orsched pack pang-100x20", "orsched export gate --model packing -o packing.mps"),
        _own,
    ),
    Piece(
        "lower bound", "bounds.md",
        r"$T \ge s_0 K + c_0 R + \sum_i (b N^p_i + d N^d_i)$ for all $K$ stages and $R$ rounds",
        f"orsched.bound({GATE})",
        ("orsched bound gate --certificate",),
        _with_bound,
    ),
    Piece(
        "sorting with preemption", "gates-and-orders.md",
        r"own queue by $N^p_i + N^d_i$, else from $\arg\max_j$ of tokens left; Pang, Algorithm 1",
        "orsched.sort_with_stealing([9, 4, 3, 8], clients=2, assignment=[0, 0, 0, 0])",
        ("orsched offload pang-100x20 --workers 8 --rule stealing",
         "orsched simulate pang-100x20 --policy online"),
        _served,
    ),
    Piece(
        "Lagrangian gate", "gates-and-orders.md",
        r"prefill once $C_d \ge C_p$; Pang (41)-(43), by its words",
        f'orsched.solve({GATE}, "online", parameters={{"gate": "waited_time"}})',
        ("orsched simulate gate --policy online --param gate=waited_time",),
        _gantt,
    ),
    Piece(
        "hybrid", "gates-and-orders.md",
        "the packing for all requests, then sorting with preemption under the gate",
        f'orsched.solve({GATE}, "hybrid")',
        ("orsched solve gate --method hybrid",),
        _gantt,
    ),
    Piece(
        "estimators", "batches-and-slices.md",
        r"$T_{serve} = A(L) N + B(L)$, $N_{max} = \lfloor \zeta M / (\Delta (L + S)) \rfloor$;"
        " SCLS (1)-(9)",
        "orsched.BilinearCost.from_ms(p=(0.12, 1.7, 0.4, 31.5), d=(0.005, 0.09, 0.002, 29.3))",
        ("orsched calibrate --template",),
        _times,
    ),
    Piece(
        "DP batcher", "batches-and-slices.md",
        r"$T[i] = \min_{j < i} T[j] + T_{serve}(i - j, L_i)$; SCLS (10)",
        "orsched.batch([9, 10, 800, 11, 900], orsched.AffineCost(), slice_tokens=16, max_batch=4)",
        ("orsched batch pang-100x20 --slice 128 --max-batch 16",),
        _own,
    ),
    Piece(
        "max-min offloader", "batches-and-slices.md#slices-on-several-workers",
        r"longest batch to $\arg\min_w T_{load}(w)$; SCLS (11)",
        "orsched.offload([7, 5, 4, 3], workers=2)",
        ("orsched offload pang-100x20 --workers 8",),
        _own,
    ),
    Piece(
        "SSJF", "online-policies.md",
        r"next is $\arg\min_i a \, \hat N^d_i + t_i$, with aging $a$ and arrival $t_i$",
        f'orsched.simulate({GATE}, "ssjf")',
        ("orsched simulate gate --policy ssjf",),
        _gantt,
    ),
    Piece(
        "MICO", "online-policies.md",
        r"heaviest request to $\arg\min_k M_k$, the tokens of cloud $k$",
        f'orsched.simulate({GATE}, "mico", workers=2)',
        ("orsched simulate gate --policy mico --workers 2",),
        _gantt,
    ),
    Piece(
        "Echo", "online-policies.md",
        r"$\max$ (benefit $-$ punishment) / time; token $i$ due at TTFT $+ i$ TPOT; Echo (1)-(8)",
        f'orsched.simulate({GATE}, "echo")',
        ("orsched simulate gate --policy echo",),
        _gantt,
    ),
    Piece(
        "utilization", "words.md",
        r"$\sum_j$ busy time of client $j$ / $(J \, T)$",
        f'orsched.simulate({GATE}, "hybrid")',
        ("orsched simulate gate --policy hybrid --usage usage.svg",),
        _used,
    ),
    Piece(
        "Gantt chart", "charts-and-report.md#schedule",
        "clients down, time to the right",
        f'orsched.solve({GATE}, "hybrid").plot("gantt")',
        ("orsched solve gate --method hybrid -o hybrid.json",
         "orsched gantt gate hybrid.json -o gate.png"),
        _with_bound,
    ),
    Piece(
        "precedence graph", "charts-and-report.md#slack",
        r"longest path through the steps (networkx); slack is latest start $-$ start",
        f'orsched.request_slack({FLEET}, orsched.simulate({FLEET}, "fcfs"))',
        ("orsched simulate gate --workers 2 -o s.json --instance-output fleet.json",
         "orsched gantt fleet.json s.json --slack -o slack.png"),
        _own,
    ),
    Piece(
        "runner", "run.md",
        "the same policy on a worker that takes time",
        f'orsched.runner.run({GATE}, "hybrid", orsched.runner.RunSettings(worker="virtual"))',
        ("orsched run gate --policy hybrid --worker virtual -o run.json",),
        _gantt,
    ),
)  # fmt: skip


def table() -> str:
    """Return the table in Markdown."""
    head = "| piece, equation, Python line, commands | picture |\n| --- | --- |"
    return "\n".join([head, *(piece.row() for piece in PIECES)])


def page(text: str) -> str:
    """Return a page with the table as it is now between the marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def draw(piece: Piece) -> None:
    """Draw the picture of a piece, if it has one."""
    if piece.draw is None:
        return
    value, show = piece.value(), piece.draw
    save_picture(lambda figure: show(value, figure), piece.picture, (6.0, 2.8))


def run(piece: Piece) -> list[int]:
    """Run the commands of a piece in an empty folder and return their exit codes."""
    from orsched.cli.commands import run as start

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return [start(command.split()[1:]) for command in piece.commands]
        finally:
            os.chdir(here)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and its pictures."""
    argparse.ArgumentParser(prog="python -m benchmarks.pieces", description=__doc__).parse_args(
        argv
    )
    for piece in PIECES:
        draw(piece)
        print(piece.noun)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
