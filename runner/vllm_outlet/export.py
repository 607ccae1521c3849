"""Files with a plan's order, in the formats that vLLM's tools read (0.33)."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix
from orsched.common.units import NS_PER_S
from orsched.data.schedule import as_schedule
from orsched.files.atomic import write_text
from orsched.files.text import open_text, warn_of_formulas

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule, Scheduled


def in_order(instance: Instance, schedule: Scheduled) -> list[int]:
    """Return the rows of all requests in the order in which a schedule admits them to stay.

    A request that is evicted counts from its last admission: the plan would have done without the
    ones before. Ties, requests of one step, go by arrival, then row. Requests that a partial
    schedule does not serve come last. Raises ``InputError``: the schedule names requests or steps
    that are not there.
    """
    schedule = as_schedule(schedule)
    work, steps, n = schedule.work, schedule.steps, len(instance)
    if len(work) and (int(work.request.max()) >= n or int(work.first_step.max()) >= len(steps)):
        raise InputError(
            "the schedule is not one of this instance",
            field="schedule",
            remedy="give the instance that it was made for",
        )
    head = np.ones(len(work), bool)
    head[1:] = (work.request[1:] != work.request[:-1]) | (work.stay[1:] != work.stay[:-1])
    start = np.full(n, -1, np.int64)
    np.maximum.at(start, work.request[head], steps.start_ns[work.first_step[head]])
    start[start < 0] = np.iinfo(np.int64).max
    order: list[int] = np.lexsort((np.arange(n), instance.requests.arrival_ns, start)).tolist()
    return order


def priorities(instance: Instance, schedule: Scheduled) -> list[int]:
    """Return each request's place, from 0, in the order of ``in_order``; raises as that.

    As ``priority`` of a request it makes vLLM (``--scheduling-policy priority``) take waiting
    requests in the plan's order. All are different, so that vLLM never decides by arrival.
    """
    ranks = [0] * len(instance)
    for rank, row in enumerate(in_order(instance, schedule)):
        ranks[row] = rank
    return ranks


CHUNK_TOKENS = 16  # prompt tokens that one of ``hash_ids`` stands for: vLLM's default


def priority_rows(instance: Instance, schedule: Schedule) -> list[dict[str, Any]]:
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


def write_priorities(instance: Instance, schedule: Schedule, path: str | os.PathLike[str]) -> None:
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
    schedule: Schedule,
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


def sent_order(instance: Instance, schedule: Schedule) -> list[int]:
    """Return the rows in the order in which a timed trace sends them: by arrival, then rank."""
    arrival = instance.requests.arrival_ns
    return sorted(in_order(instance, schedule), key=lambda row: int(arrival[row]))


def write_batch(
    instance: Instance,
    schedule: Schedule,
    batch: str | os.PathLike[str],
    path: str | os.PathLike[str],
) -> str:
    """Write a batch file for ``vllm run-batch`` with priorities, its lines in the plan's order.

    ``batch`` is that file without them: JSONL with ``custom_id``, ``method``, ``url`` and ``body``.
    Its ``custom_id`` are the requests' names; where none is, its lines are the requests in order.

    Returns:
        How lines and requests were matched: ``custom_id`` or ``line``.

    Raises:
        InputError: a line is wrong, lines and requests do not match, or a file cannot be read or
            written; rows are line numbers from 1.
    """
    require_suffix(path, (".jsonl",))
    items = list(_batch_lines(batch))
    names = {instance.requests.id_of(row): row for row in range(len(instance))}
    found = [names.get(item["custom_id"]) for _, item in items]
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
        _, item = line_of[row]
        item["body"]["priority"] = rank
        ordered.append(json.dumps(item, ensure_ascii=False) + "\n")
    write_text(path, ordered)
    return how


def _batch_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    with open_text(path) as (_, stream):
        for line, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            problem = None
            try:
                item = json.loads(text)
            except (ValueError, RecursionError) as error:
                item, problem = None, f"is not JSON: {error}"
            if not isinstance(item, dict):
                problem = problem or "is not a JSON object"
            elif not isinstance(item.get("custom_id"), str):
                problem = "has no text as custom_id"
            elif not isinstance(item.get("body"), dict):
                problem = "has no object as body"
            if problem:
                raise InputError(
                    problem,
                    file=str(path),
                    row=line,
                    remedy="give a batch file as vllm run-batch takes it",
                )
            yield line, item


def seconds(ns: int) -> str:
    """Return nanoseconds, at least 0, as exact decimal seconds."""
    return f"{ns // NS_PER_S}.{ns % NS_PER_S:09d}"
