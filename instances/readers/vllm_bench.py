"""Results of ``vllm bench serve``: one JSON object with an array for each quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.instances.readers.assemble import DROP_REMEDY, Columns, assemble
from orsched.instances.readers.objects import DECODER, Fields, refusal
from orsched.instances.readers.text import open_text

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from orsched.data.requests import Requests
    from orsched.instances.readers.report import Trace

_DETAILED = "run the benchmark with --save-result --save-detailed"


def read_vllm_bench(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read the requests of a benchmark result: ``input_lens``, ``output_lens``, ``start_times``.

    The arrays are in the file only when the benchmark ran with ``--save-detailed``; without
    ``start_times`` all requests arrive at 0, with a note. A request with a text in ``errors``
    failed: ``drop_empty`` leaves it out. Rows in messages count from 0.
    Raises ``InputError`` as all readers.
    """
    values = _load(path)
    prompts, outputs = _array(values, "input_lens", path), _array(values, "output_lens", path)
    starts = _array(values, "start_times", path, len(prompts)) if "start_times" in values else None
    errors = _array(values, "errors", path, len(prompts)) if "errors" in values else None
    if len(prompts) != len(outputs):
        raise _wrong_length(path, "output_lens", len(outputs), len(prompts))
    fields = Fields(path)
    rows = range(len(prompts))
    found = Columns(
        str(path),
        "vllm-bench",
        rows,
        [fields.whole({"input_lens": prompts[r]}, "input_lens", r) for r in rows],
        [fields.whole({"output_lens": outputs[r]}, "output_lens", r) for r in rows],
        "input_lens",
        "output_lens",
        arrival_ns=None
        if starts is None
        else [fields.time_ns({"start_times": starts[r]}, "start_times", r, NS_PER_S) for r in rows],
        arrival_field="start_times",
        failed=None if errors is None else ["failed" if e else "" for e in errors],
    )
    return assemble(found, drop_empty)


class BenchTimes(NamedTuple):
    """Requests of a benchmark, and when their tokens came, in nanoseconds after the first request.

    Attributes:
        requests: lengths, and when each request was sent.
        first_token_ns, finish_ns: when the client had the first and the last token.
        gaps_ns: times between the pieces of an answer, of all requests, in order.
    """

    requests: Requests
    first_token_ns: NDArray[np.int64]
    finish_ns: NDArray[np.int64]
    gaps_ns: NDArray[np.int64]


def read_bench_times(path: str | PathLike[str], *, drop_failed: bool = False) -> BenchTimes:
    """Read requests and their times of a benchmark result.

    A failed request is an error, or left out with ``drop_failed``. The last token is at
    ``start_times + latencies``; where a file has no ``latencies``, at the sum of the gaps.

    Raises:
        InputError: the file is not such a result, or was written without details; rows of
            messages count from 0.
    """
    try:
        requests = read_vllm_bench(path, drop_empty=drop_failed).requests
    except InputError as error:
        if error.remedy != DROP_REMEDY:
            raise
        remedy = "orsched vllm results FILE --drop-failed -o times.csv leaves failed requests out"
        raise InputError(
            error.problem, file=error.file, row=error.row, field=error.field, remedy=remedy
        ) from None
    values = _load(path)
    n = len(values["input_lens"])
    arrays = {name: _array(values, name, path, n) for name in ("start_times", "ttfts", "itls")}
    fields = Fields(path)

    def times(name: str, items: list[Any]) -> list[int]:
        return [fields.time_ns({name: each}, name, row, NS_PER_S) for row, each in enumerate(items)]

    ttfts = times("ttfts", arrays["ttfts"])
    gaps = [_gaps(fields, row, items) for row, items in enumerate(arrays["itls"])]
    if "latencies" in values:
        spans = times("latencies", _array(values, "latencies", path, n))
    else:
        spans = [ttft + sum(own) for ttft, own in zip(ttfts, gaps, strict=True)]
    failed = values.get("errors") or [""] * n
    lengths = zip(values["input_lens"], values["output_lens"], failed, strict=True)
    kept = [row for row, (p, d, error) in enumerate(lengths) if p and d and not error]
    arrival = requests.arrival_ns
    return BenchTimes(
        requests,
        arrival + np.array([ttfts[row] for row in kept], np.int64),
        arrival + np.array([max(spans[row], ttfts[row]) for row in kept], np.int64),
        np.array([gap for row in kept for gap in gaps[row]], np.int64),
    )


def _gaps(fields: Fields, row: int, items: Any) -> list[int]:
    if not isinstance(items, list):
        raise InputError(
            "is not an array", file=fields.file, row=row, field="itls", remedy=_DETAILED
        )
    return [fields.time_ns({"itls": item}, "itls", row, NS_PER_S) for item in items]


def _load(path: str | PathLike[str]) -> dict[str, Any]:
    with open_text(path) as stream:
        text = stream.read()
    try:
        values = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        remedy = "give one result; with --append-result a file holds several, one a line"
        raise refusal(error, str(path), getattr(error, "lineno", None), remedy) from None
    if not isinstance(values, dict):
        raise InputError("is not a JSON object", file=str(path), remedy="give a benchmark result")
    return values


def _array(
    values: dict[str, Any], name: str, path: str | PathLike[str], length: int | None = None
) -> list[Any]:
    if name not in values:
        raise InputError(
            "the array is missing",
            file=str(path),
            field=name,
            remedy=_DETAILED,
        )
    column = values[name]
    if not isinstance(column, list):
        raise InputError("is not an array", file=str(path), field=name, remedy=_DETAILED)
    if length is not None and len(column) != length:
        raise _wrong_length(path, name, len(column), length)
    return column


def _wrong_length(path: str | PathLike[str], name: str, found: int, expected: int) -> InputError:
    return InputError(
        f"{found} values where {expected} are expected",
        file=str(path),
        field=name,
        remedy="all arrays have one value a request",
    )
