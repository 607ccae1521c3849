"""A plan beside ``vllm bench serve``: its inputs are written, its results read and compared."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import int_column
from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix
from orsched.common.units import NS_PER_S
from orsched.files.document import write_text
from orsched.files.tables import read_objects
from orsched.files.text import warn_of_formulas
from orsched.instances.readers.bench_files import read_bench_times
from orsched.metrics.flat_figures import ratio
from orsched.metrics.summary import distribution
from orsched.metrics.token_times import request_times
from orsched.runner.vllm_outlet.assignment import in_order

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.requests import Requests
    from orsched.data.schedule import Schedule
    from orsched.runner.vllm_outlet.assignment import Plan


def priorities(instance: Instance, schedule: Plan) -> list[int]:
    """Return each request's place, from 0, in the order of ``in_order``; raises as that.

    As ``priority`` of a request it makes vLLM (``--scheduling-policy priority``) take waiting
    requests in the plan's order. All are different, so that vLLM never decides by arrival, but of
    requests that an assignment leaves out: those are last, at ``len(instance)``.
    """
    ranks = [len(instance)] * len(instance)
    for rank, row in enumerate(in_order(instance, schedule)):
        ranks[row] = rank
    return ranks


CHUNK_TOKENS = 16  # prompt tokens that one of ``hash_ids`` stands for: vLLM's default


def priority_rows(instance: Instance, schedule: Plan) -> list[dict[str, Any]]:
    """Return one row a request, in the plan's order: what ``LLM.generate`` takes as lists.

    ``output_tokens`` is what the plan reckons with. It is no ``max_tokens``: a server would cut the
    answers that turn out longer.
    """
    requests = instance.requests
    return [
        {
            "id": requests.id_of(row),
            "arrival_s": seconds(int(requests.arrival_ns[row])),
            "prompt_tokens": int(requests.prompt_tokens[row]),
            "output_tokens": int(requests.output_tokens[row]),
            "priority": rank,
        }
        for rank, row in enumerate(in_order(instance, schedule))
    ]


def write_priorities(instance: Instance, schedule: Plan, path: str | os.PathLike[str]) -> None:
    """Write ``priority_rows`` as CSV, JSON (a list) or JSONL, by suffix.

    Raises ``InputError``: the suffix is none of these, or the file cannot be written.
    """
    suffix = require_suffix(path, (".csv", ".json", ".jsonl"))
    rows = priority_rows(instance, schedule)
    if suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, rows[0] if rows else ["id"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        warn_of_formulas((row["id"] for row in rows), str(path))
        write_text(path, text.getvalue())
        return
    for row in rows:
        row["arrival_s"] = float(row["arrival_s"])
    if suffix == ".json":
        write_text(path, json.dumps(rows, indent=1) + "\n")
    else:
        write_text(path, (json.dumps(row) + "\n" for row in rows))


def write_timed_trace(
    instance: Instance,
    schedule: Plan,
    path: str | os.PathLike[str],
    chunk_tokens: int = CHUNK_TOKENS,
) -> None:
    """Write a trace for ``vllm bench serve --dataset-name timed_trace``: JSONL, no texts needed.

    vLLM makes up prompts of the right lengths and sends them at ``timestamp`` seconds, lines of one
    moment in the order of the file, which is the plan's. ``output_length`` is N^d, which that
    benchmark enforces. No two requests share a prefix. The benchmark sends no priorities: where
    requests arrive apart, the order is up to the server's scheduler. Raises ``InputError``: the
    suffix is not ``.jsonl``, or the file cannot be written.
    """
    require_suffix(path, (".jsonl",))
    requests, rows = instance.requests, sent_order(instance, schedule)
    chunks = -(-int(requests.prompt_tokens.max()) // chunk_tokens) if rows else 0

    def lines() -> Iterator[str]:
        for row in rows:
            prompt = int(requests.prompt_tokens[row])
            first = row * chunks
            ids = list(range(first, first + -(-prompt // chunk_tokens)))
            lengths = f'"input_length": {prompt}, "output_length": {requests.output_tokens[row]}'
            arrival = seconds(int(requests.arrival_ns[row]))
            yield f'{{"timestamp": {arrival}, {lengths}, "hash_ids": {ids}}}\n'

    write_text(path, lines())


def sent_order(instance: Instance, schedule: Plan) -> list[int]:
    """Return the rows in the order in which a timed trace sends them: by arrival, then rank."""
    arrival = instance.requests.arrival_ns
    return sorted(in_order(instance, schedule), key=lambda row: int(arrival[row]))


def write_batch(
    instance: Instance,
    schedule: Plan,
    batch: str | os.PathLike[str],
    path: str | os.PathLike[str],
) -> str:
    """Write a batch file for ``vllm run-batch`` with priorities, its lines in the plan's order.

    ``batch`` is that file without them: JSONL with ``custom_id``, ``method``, ``url`` and ``body``.
    Its ``custom_id`` are the requests' names; where none is, its lines are the requests in order.
    Lines of requests that an assignment leaves out are left out.

    Returns:
        How lines and requests were matched: ``custom_id`` or ``line``.

    Raises:
        InputError: a line is wrong, lines and requests do not match, or a file cannot be read or
            written; rows are line numbers from 1.
    """
    require_suffix(path, (".jsonl",))
    items = list(_batch_items(batch))
    names = {instance.requests.id_of(row): row for row in range(len(instance))}
    found = [names.get(item["custom_id"]) for item in items]
    how = "line" if all(row is None for row in found) else "custom_id"
    rows = list(range(len(found))) if how == "line" else found
    if len(rows) != len(instance) or None in rows or len(set(rows)) < len(rows):
        raise InputError(
            f"{len(items)} lines, of which {sum(row is not None for row in found)} are named like "
            f"a request, for {len(instance)} requests",
            file=str(batch),
            field="custom_id",
            remedy="give one line a request, with the requests' ids or with none of them",
        )
    line_of = dict(zip(rows, items, strict=True))
    ordered = []
    for rank, row in enumerate(in_order(instance, schedule)):
        item = line_of[row]
        item["body"]["priority"] = rank
        ordered.append(json.dumps(item, ensure_ascii=False) + "\n")
    write_text(path, ordered)
    return how


def _batch_items(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    for line, item in read_objects(path, exact=False):
        for field, kind, what in (("custom_id", str, "text"), ("body", dict, "object")):
            if not isinstance(item.get(field), kind):
                said, remedy = f"has no {what} as {field}", "write it as for vllm run-batch"
                raise InputError(said, file=str(path), row=line, remedy=remedy)
        yield item


def seconds(ns: int) -> str:
    """Return nanoseconds, at least 0, as exact decimal seconds."""
    return f"{ns // NS_PER_S}.{ns % NS_PER_S:09d}"


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
