"""What is printed: tables, JSON and CSV on stdout, messages and progress on stderr."""

from __future__ import annotations

import codecs
import csv
import io
import json
import shutil
import sys
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.declaring import QUIET
from orsched.common.errors import InputError
from orsched.common.units import seconds_text
from orsched.solving.progress import InPlace, Lines, Watch, clear_line, is_terminal
from orsched.solving.progress import printable as printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.solving.result import Result


LISTS = ("table", "json")
"""Formats of what has lists in it, which rows of CSV do not hold."""


REMARKS = ("note", "machine")
"""What a quiet command does not say."""


def is_quiet() -> bool:
    """Whether the command that runs was told to be quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def say(message: str, who: str = "orsched") -> None:
    """Print a message on stderr, on one line; quiet commands leave remarks out."""
    if who in REMARKS and is_quiet():
        return
    clear_line()
    click.echo(f"{who}: {printable(message)}", err=True)


def remark(message: str) -> None:
    """Print what was read or written on stderr; quiet commands leave it out."""
    if not is_quiet():
        say(message)


def show_lines(text: str) -> None:
    """Print a text of several lines, a traceback say, on stderr."""
    clear_line()
    for line in text.split("\n")[:-1]:
        click.echo(printable(line), err=True)


class ProgressPrinter(Watch):
    """Shows the current step of a command, and the incumbent of a search.

    A context manager; ``callback`` goes to ``solve``, ``say`` names a step of the work. What
    takes less than two seconds (half a second on a terminal) prints nothing.
    """

    def __init__(self, what: str) -> None:
        surface = InPlace(sys.stderr) if is_terminal(sys.stderr) else Lines(say)
        super().__init__(what, None if is_quiet() else surface)
        context = click.get_current_context(silent=True)
        if context is not None:
            context.meta[_CURRENT] = self


_CURRENT = "orsched.solving.progress"
"""Where the progress of a command stands in its context."""


def name_step(what: str) -> None:
    """Name a step of the work that the command does, from where its progress is not at hand."""
    context = click.get_current_context(silent=True)
    progress = None if context is None else context.meta.get(_CURRENT)
    if isinstance(progress, ProgressPrinter):
        progress.say(what)


WIDEST = 100
"""Characters of a line, however wide the terminal is."""


def line_width() -> int:
    """Return how wide lines of text are: as the terminal, 80 where there is none."""
    return max(40, min(shutil.get_terminal_size().columns, WIDEST))


def wrapped(text: str, head: str = "", left: int = 0) -> str:
    """Return a text in lines, from the column ``left`` on, with a heading before the first."""
    return textwrap.fill(
        text,
        line_width(),
        initial_indent=head.ljust(left),
        subsequent_indent=" " * left,
        break_on_hyphens=False,
        break_long_words=False,
    )


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    clear_line(end=True)
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def escape_what_cannot_be_encoded() -> None:
    """Let standard output show what its encoding does not have as ``\\uXXXX``, as JSON does."""
    codecs.register_error(_ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=_ESCAPED)


_ESCAPED = "orsched.escaped"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


HEADINGS = {
    "makespan_s": "makespan s", "slot_utilization": "utilization", "prefill_stages": "K",
    "decode_rounds": "R", "tokens_per_s": "tokens/s", "bound_s": "bound s",
    "decision_p99_s": "decide p99", "plan_s": "plan s", "plan_error": "error",
    "busy_share": "device busy", "gap_share": "gaps", "ttft_mean_s": "TTFT s",
    "ttft_p50_s": "TTFT p50 s", "ttft_p99_s": "TTFT p99 s", "ttft_mean_bound_s": "TTFT bound s",
    "tpot_mean_s": "TPOT s", "tpot_p50_s": "TPOT p50 s", "tpot_p99_s": "TPOT p99 s",
    "itl_p50_s": "ITL p50 s", "itl_p95_s": "ITL p95 s", "itl_p99_s": "ITL p99 s",
    "itl_max_s": "ITL max s", "stall_p50_s": "stall p50 s", "stall_p99_s": "stall p99 s",
    "slo_kept": "limits kept", "jct_mean_s": "JCT s", "jct_ci_s": "+/- s", "jct_p50_s": "JCT p50 s",
    "jct_p99_s": "JCT p99 s", "jct_mean_bound_s": "JCT bound s", "goodput_per_s": "goodput/s",
    "slo_attainment": "SLO", "token_attainment": "tokens in time",
    "deadline_attainment": "deadlines", "hit_rate": "hits", "weighted_jct_mean_s": "weighted JCT s",
    "weighted_tardiness_mean_s": "weighted tardiness s", "lateness_max_s": "lateness s",
    "objective_value": "objective", "objective_bound": "bound s", "attainment_bound": "bound",
    "worker_s": "worker s", "lost_s": "lost s", "lost_steps": "lost steps",
    "service_difference": "service difference", "bubble_share": "bubbles", "tail_s": "tail s",
    "prefilled_tokens": "prefilled", "queue_mean": "queue", "queue_max": "longest queue",
    "least_busy": "least busy",
}  # fmt: skip


def print_rows(
    rows: Sequence[dict[str, Any]],
    style: str,
    names: Sequence[str] | None = None,
    *,
    single: bool = False,
) -> None:
    """Print rows, a ``single`` one as a JSON object; CSV's ``names``: default, the first row's."""
    clear_line(end=True)
    if style == "json":
        print_json(rows[0] if single else list(rows))
    elif style == "csv":
        from orsched.files.text import warn_of_formulas

        text = io.StringIO()
        writer = csv.DictWriter(text, names or (list(rows[0]) if rows else []), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _flat(value) for name, value in row.items()} for row in rows)
        click.echo(text.getvalue(), nl=False)
        warn_of_formulas((value for row in rows for value in row.values()), "the table")
    else:
        click.echo(table(rows))


def require_format(style: str, has: Sequence[str], what: str) -> None:
    """Refuse a format that an output does not have, before it is worked out."""
    if style not in has:
        raise InputError(
            f"{what} has no {style.upper()}",
            field="--format",
            remedy=f"choose {' or '.join(has)}",
        )


def _flat(value: Any) -> Any:
    """Return a value for a cell of CSV: lists of texts in a row, other lists and tables as JSON."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as an aligned text table: numbers to the right."""
    if not rows:
        return "(nothing)"
    names = list(rows[0])
    cells = [[cell_text(name, row[name]) for name in names] for row in rows]
    heads = [HEADINGS.get(name, printable(name)) for name in names]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(names))]
    right = [all(_is_number(row[name]) for row in rows) for name in names]

    def line(values: Sequence[str]) -> str:
        parts = [
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(heads), rule, *(line(values) for values in cells)])


def print_below(rows: Sequence[dict[str, Any]], without: Sequence[str] = ()) -> None:
    """Print a table of the columns that rows have values in, but for some."""
    if rows:
        kept = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        kept = [name for name in kept if name not in without]
        click.echo("\n" + table([{name: row[name] for name in kept} for row in rows]))


def print_facts(facts: dict[str, Any], style: str, *, wrap: bool = False) -> None:
    """Print named values: one a line, or as one JSON object or CSV row.

    ``wrap``: long texts go on in the next line, below their beginning.
    """
    clear_line(end=True)
    if style == "table":
        width = max((len(name) for name in facts), default=0)
        for name, value in facts.items():
            head, text = f"{printable(name).ljust(width)}  ", cell_text(name, value)
            if wrap and isinstance(value, str):
                click.echo(wrapped(text, head, width + 2))
            else:
                click.echo(f"{head}{text}")
    else:
        print_rows([facts], style, single=True)


def print_notes(results: Sequence[Result]) -> None:
    """Print each remark once, on stderr."""
    for note in dict.fromkeys(note for result in results for note in result.notes):
        say(note, "note")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


_SHARES = (
    "slot_utilization", "gap", "attainment", "plan_error", "busy_share", "gap_share", "hit_rate",
    "slo_attainment", "token_attainment", "deadline_attainment", "attainment_bound",
    "bubble_share", "busy", "busiest", "least_busy",
)  # fmt: skip
"""Figures that are printed as per cent."""


def cell_text(name: str, value: Any) -> str:
    """Return a value as tables have it, by the name of its column."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in _SHARES:
        return f"{100 * value:.2f} %"
    if name == "decision_p99_s":
        return f"{1e6 * value:.0f} us"
    if name.startswith(("tpot_", "itl_", "stall_")):
        return seconds_text(value, 4)
    if isinstance(value, float) and name in ("measured", "plan") and 0 < abs(value) < 1:
        return f"{value:#.4g}"
    if isinstance(value, float) and name == "error":
        return f"{100 * value:+.2f} %"
    if isinstance(value, float):
        return seconds_text(value, 2)
    if isinstance(value, list):
        return printable(_flat(value)) or "-"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))


def counted(values: Sequence[Any]) -> Any:
    """Return what all seeds have in common, or how often each of several words is said."""
    if len(set(values)) < 2:
        return values[0] if values else None
    counts = Counter(str(value) for value in values)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
