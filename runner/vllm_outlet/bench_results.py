"""Results of ``vllm bench serve`` as a table of request times, and a plan held against it."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import int_column
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.files.atomic import write_text
from orsched.files.text import warn_of_formulas
from orsched.instances.readers.bench_files import read_bench_times
from orsched.metrics.flat_figures import ratio
from orsched.metrics.summary import distribution
from orsched.metrics.token_times import request_times
from orsched.runner.vllm_outlet.export import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.requests import Requests
    from orsched.data.schedule import Schedule

_COLUMNS = (
    "id", "arrival_s", "prompt_tokens", "output_tokens", "queued_s", "first_token_s",
    "last_token_s",
)  # fmt: skip


class PlanRow(NamedTuple):
    """A figure of a plan and of a run: in seconds, but ``tokens_per_s`` and ``order``."""

    figure: str  # its name
    plan: float | None  # None where it is not defined
    measured: float | None  # None where it is not defined
    error: float | None  # (plan - measured) / measured, None where that is not defined


@dataclass(frozen=True, eq=False)
class RequestTimes:
    """When requests were sent, and when their first and last tokens came.

    It is no schedule: what the server did in between, its steps, the client does not see. Times are
    those of the client: network and frontend are in them.

    Attributes:
        requests: lengths as counted, and arrivals: when each request was sent, after the first.
        first_token_ns, finish_ns: when the client had the first and the last token.
        gaps_ns: times between the pieces of an answer, of all requests, in order; a piece can hold
            several tokens.
    """

    requests: Requests
    first_token_ns: IntColumn
    finish_ns: IntColumn
    gaps_ns: IntColumn

    def __post_init__(self) -> None:
        n = len(self.requests)
        for name, length in (("first_token_ns", n), ("finish_ns", n), ("gaps_ns", None)):
            column = int_column(getattr(self, name), name, length=length)
            object.__setattr__(self, name, column)
        for earlier, later, name in (
            (self.requests.arrival_ns, self.first_token_ns, "first_token_ns"),
            (self.first_token_ns, self.finish_ns, "finish_ns"),
        ):
            if (later < earlier).any():
                row = int(np.argmax(later < earlier))
                raise InputError("times must not fall", row=row, field=name)

    def figures(self) -> dict[str, Any]:
        """Return the figures of ``orsched.metrics.summary.summarise`` that request times define.

        The makespan is from the first arrival to the last token. ``itl_ns`` is the distribution of
        ``gaps_ns``.
        """
        figures = _figures(self.requests, self.first_token_ns, self.finish_ns)
        return {**figures, "itl_ns": distribution(self.gaps_ns)}

    def in_rows_of(self, rows: list[int]) -> RequestTimes:
        """Return the times by row of an instance; ``rows`` has the row of each request here."""
        back = np.argsort(np.asarray(rows, np.int64))
        requests = self.requests.take(back)
        return RequestTimes(requests, self.first_token_ns[back], self.finish_ns[back], self.gaps_ns)

    def against_plan(
        self, instance: Instance, schedule: Schedule, rows: Sequence[int] | None = None
    ) -> list[PlanRow]:
        """Return figures of a schedule beside those measured; rows are those of the instance.

        ``rows``: which requests were sent, such as those of one worker; all without it. ``order``
        is Spearman's rank correlation of the first tokens' order, under ``measured``.
        """
        kept = np.arange(len(instance)) if rows is None else np.sort(rows)
        sent, times = instance.requests.take(kept), request_times(instance, schedule)
        _require_same(self.requests, sent)
        begin = int(sent.arrival_ns.min()) if len(sent) else 0
        sent = sent.replace(arrival_ns=sent.arrival_ns - begin)
        first, finish = times["first_token_ns"][kept] - begin, times["finish_ns"][kept] - begin
        planned = _figures(sent, first, finish)
        measured = self.figures()
        found = []
        for name in ("makespan_ns", "ttft_ns", "tpot_ns", "jct_ns"):
            for part in ("",) if name == "makespan_ns" else ("mean", "p50", "p90", "p99"):
                pair = [
                    (figures[name] or {}).get(part) if part else figures[name]
                    for figures in (planned, measured)
                ]
                label = f"{part} {name[:-3]}".strip()
                found.append(_row(label, *(None if v is None else v / NS_PER_S for v in pair)))
        found.append(_row("tokens_per_s", planned["tokens_per_s"], measured["tokens_per_s"]))
        same = rank_correlation(first, self.first_token_ns)
        found.append(PlanRow("order", 1.0, same, None))
        return found

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write the table as CSV in the columns of a measured run, exact decimal seconds.

        ``queued_s`` is when the client sent the request, as ``arrival_s``: how long it took to the
        server's queue, and when the server began, is not known.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        table = self.requests
        for row in range(len(table)):
            sent, first, last = (
                seconds(int(column[row]))
                for column in (table.arrival_ns, self.first_token_ns, self.finish_ns)
            )
            lengths = (int(table.prompt_tokens[row]), int(table.output_tokens[row]))
            writer.writerow([table.id_of(row), sent, *lengths, sent, first, last])
        warn_of_formulas(table.ids or (), str(path))
        write_text(path, text.getvalue())


def read_request_times(path: str | PathLike[str], *, drop_failed: bool = False) -> RequestTimes:
    """Read a result of ``vllm bench serve --save-result --save-detailed``.

    A failed request is an error, or left out with ``drop_failed``. The last token is at
    ``start_times + latencies``; where a file has no ``latencies``, at the sum of the gaps. Raises
    ``InputError``: the file is not such a result, or was written without details; rows of messages
    count from 0.
    """
    found = read_bench_times(path, drop_failed=drop_failed)
    return RequestTimes(found.requests, found.first_token_ns, found.finish_ns, found.gaps_ns)


def rank_correlation(a: IntColumn, b: IntColumn) -> float | None:
    """Return Spearman's rank correlation of two columns; ties go by row; None below two rows."""
    n = len(a)
    if n < 2:
        return None
    ranks = [np.argsort(np.argsort(column, kind="stable"), kind="stable") for column in (a, b)]
    apart = int(((ranks[0] - ranks[1]) ** 2).sum())
    return 1 - 6 * apart / (n * (n * n - 1))


def _figures(requests: Requests, first: IntColumn, finish: IntColumn) -> dict[str, Any]:
    makespan = int(finish.max()) if len(finish) else 0
    several = requests.output_tokens >= 2
    spans = (finish - first)[several] // (requests.output_tokens[several] - 1)
    tokens = int(requests.output_tokens.sum())
    return {
        "makespan_ns": makespan,
        "prompt_tokens": int(requests.prompt_tokens.sum()),
        "output_tokens": tokens,
        "tokens_per_s": ratio(tokens * NS_PER_S, makespan),
        "ttft_ns": distribution(first - requests.arrival_ns),
        "tpot_ns": distribution(spans),
        "jct_ns": distribution(finish - requests.arrival_ns),
    }


def _row(figure: str, plan: float | None, measured: float | None) -> PlanRow:
    known = plan is not None and measured
    return PlanRow(figure, plan, measured, (plan - measured) / measured if known else None)  # type: ignore[operator]


def _require_same(run: Requests, plan: Requests) -> None:
    if len(run) != len(plan):
        raise InputError(
            f"{len(run)} requests were measured, the plan has {len(plan)}",
            field="requests",
            remedy="give the result of a benchmark of this plan's requests",
        )
    for name in ("prompt_tokens", "output_tokens"):
        differ = getattr(run, name) != getattr(plan, name)
        if differ.any():
            row = int(np.argmax(differ))
            raise InputError(
                f"{getattr(run, name)[row]} were measured where the plan has "
                f"{getattr(plan, name)[row]}",
                row=row,
                field=name,
                remedy="send the plan's requests (orsched vllm export --as trace)",
            )
