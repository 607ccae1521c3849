"""Results of ``vllm bench serve``: one JSON object with an array for each quantity."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.files import cells
from orsched.files.tables import parsed
from orsched.files.text import locating, parse_json, read_text
from orsched.instances.readers.traces import DROP_REMEDY, Columns, assemble

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from orsched.data.requests import Requests
    from orsched.files.tables import Parser
    from orsched.instances.readers.traces import Trace

_DETAILED = "run the benchmark with --save-result --save-detailed"


def read_vllm_bench(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read the requests of a benchmark result: ``input_lens``, ``output_lens``, ``start_times``.

    The arrays are in the file only when the benchmark ran with ``--save-detailed``; without
    ``start_times`` all requests arrive at 0, with a note. A request with a text in ``errors``
    failed: ``drop_empty`` leaves it out. Rows in messages count from 0.
    """
    with locating(path):
        return _requests(_Result(path), drop_empty)


def _requests(result: _Result, drop_empty: bool) -> Trace:
    errors = result.array("errors") if "errors" in result.values else None
    found = Columns(
        str(result.path),
        "vllm-bench",
        range(result.size),
        result.column("input_lens", cells.whole_numbers),
        result.column("output_lens", cells.whole_numbers),
        "input_lens",
        "output_lens",
        arrival_ns=result.times("start_times") if "start_times" in result.values else None,
        arrival_field="start_times",
        failed=None if errors is None else ["failed" if e else "" for e in errors],
    )
    return assemble(found, drop_empty)


class BenchTimes(NamedTuple):
    """Requests of a benchmark, and when their tokens came, in nanoseconds after the first request.

    ``first_token_ns`` and ``finish_ns``: when the client had the first and the last token;
    ``gaps_ns``: times between the pieces of an answer, of all requests, in order.
    """

    requests: Requests
    first_token_ns: NDArray[np.int64]
    finish_ns: NDArray[np.int64]
    gaps_ns: NDArray[np.int64]


def read_bench_times(path: str | PathLike[str], *, drop_failed: bool = False) -> BenchTimes:
    """Read requests and their times of a benchmark result with details.

    A failed request is an error, or left out with ``drop_failed``. The last token is at
    ``start_times + latencies``; where a file has no ``latencies``, at the sum of the gaps. Rows in
    messages count from 0.
    """
    with locating(path):
        result = _Result(path)
        try:
            requests = _requests(result, drop_failed).requests
        except InputError as error:
            if error.remedy != DROP_REMEDY:
                raise
            remedy = (
                "orsched vllm results FILE --drop-failed -o times.csv leaves failed requests out"
            )
            raise InputError(
                error.problem, row=error.row, field=error.field, remedy=remedy
            ) from None
        arrays = {name: result.array(name) for name in ("start_times", "ttfts", "itls")}
        ttfts = result.times("ttfts")
        gaps = [_gaps(row, items) for row, items in enumerate(arrays["itls"])]
        if "latencies" in result.values:
            spans = result.times("latencies")
        else:
            spans = ttfts + np.array([own.sum() for own in gaps])
        failed = result.values.get("errors") or [""] * result.size
        lengths = zip(result.array("input_lens"), result.array("output_lens"), failed, strict=True)
        kept = [row for row, (p, d, error) in enumerate(lengths) if p and d and not error]
    arrival = requests.arrival_ns
    return BenchTimes(
        requests,
        arrival + ttfts[kept],
        arrival + np.maximum(spans, ttfts)[kept],
        np.concatenate([np.empty(0, np.int64), *(gaps[row] for row in kept)]),
    )


def _gaps(row: int, items: Any) -> NDArray[np.int64]:
    if not isinstance(items, list):
        raise InputError("is not an array", row=row, field="itls", remedy=_DETAILED)
    found: NDArray[np.int64] = _read(cells.seconds, items, [row] * len(items), "itls")
    return found


def _read(parse: Parser, values: list[Any], rows: Any, name: str) -> Any:
    texts = parsed(partial(cells.texts, quoted=False), values, rows, name)
    return parsed(parse, texts, rows, name)


class _Result:
    """A result, of which arrays are columns with one value a request."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = path
        try:
            values = parse_json(read_text(path), exact=True)
        except InputError as error:
            remedy = "give one result; with --append-result a file holds several, one a line"
            several = "Extra data" in error.problem
            raise InputError(
                error.problem, field=error.field, remedy=remedy if several else error.remedy
            ) from None
        if not isinstance(values, dict):
            raise InputError("is not a JSON object", remedy="give a benchmark result")
        self.values: dict[str, Any] = values
        self.size = len(self._array("input_lens"))

    def _array(self, name: str) -> list[Any]:
        if name not in self.values:
            raise InputError("the array is missing", field=name, remedy=_DETAILED)
        column = self.values[name]
        if not isinstance(column, list):
            raise InputError("is not an array", field=name, remedy=_DETAILED)
        return column

    def array(self, name: str) -> list[Any]:
        """Return an array; raises ``InputError`` unless it has one value a request."""
        column = self._array(name)
        if len(column) != self.size:
            raise InputError(
                f"{len(column)} values where {self.size} are expected",
                field=name,
                remedy="all arrays have one value a request",
            )
        return column

    def column(self, name: str, parse: Parser) -> Any:
        """Return an array, parsed."""
        return _read(parse, self.array(name), range(self.size), name)

    def times(self, name: str) -> NDArray[np.int64]:
        """Return an array of seconds in nanoseconds."""
        found: NDArray[np.int64] = self.column(name, cells.seconds)
        return found
