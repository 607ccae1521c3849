"""Files with a plan's order, in the formats that vLLM's tools read (0.33)."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix
from orsched.common.units import NS_PER_S
from orsched.files.atomic import write_text
from orsched.files.tables import read_objects
from orsched.files.text import warn_of_formulas
from orsched.runner.vllm_outlet.assignment import in_order

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from orsched.data.instance import Instance
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
