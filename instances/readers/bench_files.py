"""Results of benchmark tools, logs of gateways and spans: each a description of its columns."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import exact_sum, whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME, MAX_TIME_NS, MAX_TOKENS, NS_PER_S
from orsched.files import cells
from orsched.files.tables import parsed
from orsched.files.text import head_of, json_object, locating, parse_json, read_text
from orsched.instances.readers.headings import UNITS
from orsched.instances.readers.own_columns import Times, settle
from orsched.instances.readers.traces import DROP_REMEDY, Columns, assemble

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from orsched.data.requests import Requests
    from orsched.files.tables import Parser
    from orsched.instances.readers.traces import Trace

    Column = NDArray[np.int64]


class Bench(NamedTuple):
    """What a tool's files have of requests: paths of names with ``/``, others behind ``|``.

    Attributes:
        title: what its files are.
        fields: names by which a file is recognised.
        prompt, output: token counts.
        arrival, first, last: when a request was sent and its first and last token came; with +
            before a path the seconds since it was sent.
        gaps: list of seconds between the pieces of an answer.
        failed: what is neither 0 nor empty where a request failed.
        apart: the same where the tool itself does not count it.
        runs: the list of runs in a document; ".": each document is one; "": they are one together.
        rows: the list of requests in a run; "": its documents.
        columns: whether a run has a list for each quantity instead.
        some: whether rows without lengths are something else.
        details: where to get what is missing.
    """

    title: str
    fields: tuple[str, ...]
    prompt: str
    output: str
    arrival: str = ""
    first: str = ""
    last: str = ""
    gaps: str = ""
    failed: str = ""
    apart: tuple[str, ...] = ()
    runs: str = ""
    rows: str = ""
    columns: bool = False
    some: bool = False
    details: str = "measure with a benchmark that streams answers"


BENCHES = {
    "vllm-bench": Bench(
        "result of vllm bench serve --save-detailed, or of SGLang's bench_serving",
        ("total_input_tokens", "total_output_tokens"), "input_lens", "output_lens",
        "start_times", "+ttfts", "+latencies", "itls", "errors", runs=".", columns=True,
        details="run the benchmark with --save-result --save-detailed (SGLang: --output-details)",
    ),
    "aiperf": Bench(
        "profile_export.jsonl of AIPerf", ("request_start_ns", "metadata", "metrics"),
        "metrics/input_sequence_length", "metrics/output_sequence_length",
        "metadata/request_start_ns", "+metrics/time_to_first_token", "+metrics/request_latency",
        failed="error", apart=("metadata/was_cancelled",), details="run AIPerf with --streaming",
    ),
    "guidellm": Bench(
        "benchmarks.json of guidellm", ("benchmarks",), "prompt_tokens", "output_tokens",
        "request_start_time|start_time", "first_token_time", "last_token_time|request_end_time",
        apart=("incomplete", "errored"), runs="benchmarks", rows="requests/successful",
    ),
    "genai-perf": Bench(
        "profile_export.json of genai-perf", ("service_kind", "experiments"), "", "",
    ),
    "inference-perf": Bench(
        "per_request_lifecycle_metrics.json of inference-perf",
        ("start_time", "end_time", "request"),
        "info/input_tokens|info/request_metrics/text/input_tokens",
        "info/output_tokens|info/response_metrics/output_tokens", "start_time",
        "info/output_token_times/0|info/response_metrics/output_token_times/0",
        "info/output_token_times/-1|info/response_metrics/output_token_times/-1|end_time",
        failed="error", rows="*", details="run inference-perf with streaming: true",
    ),
    "llmperf": Bench(
        "individual_responses.json of llmperf", ("number_input_tokens", "number_output_tokens"),
        "number_input_tokens", "number_output_tokens", "", "+ttft_s", "+end_to_end_latency_s",
        failed="error_code", rows="*", details="llmperf writes no arrivals: take another tool",
    ),
    "otlp": Bench(
        "spans of requests in OTLP's JSON", ("resourceSpans",),
        "attributes/gen_ai.usage.input_tokens|attributes/gen_ai.usage.prompt_tokens",
        "attributes/gen_ai.usage.output_tokens|attributes/gen_ai.usage.completion_tokens",
        "startTimeUnixNano", "+attributes/gen_ai.latency.time_to_first_token",
        "+attributes/gen_ai.latency.e2e|endTimeUnixNano", some=True,
        rows="resourceSpans/scopeSpans/spans", details="take the spans of vLLM itself",
    ),
    "openai-batch": Bench(
        "output of OpenAI's batches", ("custom_id", "response"),
        "response/body/usage/prompt_tokens|response/body/usage/input_tokens",
        "response/body/usage/completion_tokens|response/body/usage/output_tokens",
        failed="error",
    ),
    "openai-usage": Bench(
        "log of a gateway: a line with OpenAI's usage for each request", ("usage",),
        "usage/prompt_tokens|usage/input_tokens", "usage/completion_tokens|usage/output_tokens",
        "ts|timestamp|time|created|created_at|start_time|startTime|request_time|arrival_s",
        failed="error",
    ),
}  # fmt: skip
"""What is read beside tables, by the tools' own documentation."""


class BenchTimes(NamedTuple):
    """Requests of a benchmark, and when their tokens came, in nanoseconds after the first request.

    ``first_token_ns`` and ``finish_ns``: when the client had the first and the last token;
    ``gaps_ns``: times between the pieces of an answer, of all requests, in order.
    """

    requests: Requests
    first_token_ns: Column
    finish_ns: Column
    gaps_ns: Column


def read_bench(path: str | PathLike[str], *, name: str, drop_empty: bool = False) -> Trace:
    """Read the requests of a benchmark's result or a log.

    ``name`` is that of the format, with ``:2`` for the second of several runs. Without arrival
    times all requests arrive at 0, with a note. A failed request is an error, or left out with
    ``drop_empty``; one that the tool does not count is left out. Rows in messages count from 0.
    """
    with locating(path):
        return _Run(path, name).trace(drop_empty)


def read_bench_times(
    path: str | PathLike[str], *, name: str | None = None, drop_failed: bool = False
) -> BenchTimes:
    """Read requests and the times of their tokens; ``name`` (default: recognised) as above.

    Where a file has no times of last tokens, they are the first ones plus the gaps. Raises
    ``InputError`` with what the file lacks.
    """
    with locating(path):
        run = _Run(path, name or tool_of(head_of(path)) or "vllm-bench")
        try:
            requests = run.trace(drop_failed, measured=True).requests
        except InputError as error:
            if error.remedy != DROP_REMEDY:
                raise
            remedy = (
                "orsched vllm results FILE --drop-failed -o times.csv leaves failed requests out"
            )
            raise InputError(
                error.problem, row=error.row, field=error.field, remedy=remedy
            ) from None
        return run.times(requests)


def _step(value: Any, key: str) -> Any:
    """Return what a name stands for: in a list a place, an attribute, or that of all items."""
    if key == "*":
        return value
    if isinstance(value, dict):
        return value.get(key)
    if not isinstance(value, list):
        return None
    if key.lstrip("-").isdigit():
        return value[int(key)] if value else None
    for item in value:
        if (
            isinstance(item, dict)
            and item.get("key") == key
            and isinstance(item.get("value"), dict)
        ):
            return next(iter(item["value"].values()), None)
    parts = [found for item in value if isinstance(found := _step(item, key), list)]
    return [each for part in parts for each in part] or None


def _at(value: Any, path: str) -> Any:
    """Return what is at the first of a path's ways that leads anywhere; a duration in seconds."""
    for way in path.split("|"):
        found = value
        for key in way.lstrip("+").split("/"):
            found = _step(found, key)
        if isinstance(found, dict) and {"value", "unit"} <= found.keys():
            unit, found = UNITS.get(str(found["unit"])), found["value"]
            if unit is not None and isinstance(found, (int, Decimal)) and -1 < found < 2**62:
                found = Decimal(found) * unit / NS_PER_S
        if found is not None:
            return found
    return None


def _list(value: Any, name: str, bench: Bench) -> list[Any]:
    if isinstance(value, list):
        return value
    problem = "the array is missing" if value is None else "is not an array"
    raise InputError(problem, field=name, remedy=bench.details)


_NO_NUMBER = re.compile(r'("\s*:\s*)(?:-?Infinity|NaN)\b')
"""Python's rates and means without a value, which are not JSON."""


def _runs(path: str, bench: Bench) -> list[Any]:
    """Return the runs of a file: a document, what a document lists, or (line, document) of all."""
    text = _NO_NUMBER.sub(r"\1null", read_text(path))
    try:
        documents = [(0, parse_json(text, exact=True))]
    except InputError as error:
        if "Extra data" not in error.problem:
            raise
        lines = enumerate(text.split("\n"), start=1)
        documents = [
            (n, json_object(line, exact=True, line=n)) for n, line in lines if line.strip()
        ]
    values = [value for _, value in documents]
    if bench.runs == ".":
        return values
    if bench.runs:
        return [run for value in values for run in _list(_at(value, bench.runs), bench.runs, bench)]
    return [(values[0] if bench.rows == "*" else values) if bench.rows else documents]


class _Run:
    """One run of a file: its requests, and a column for each quantity."""

    def __init__(self, path: str | PathLike[str], name: str) -> None:
        self.path, self.name = str(path), name
        form, _, number = name.partition(":")
        self.bench = bench = BENCHES[form]
        if not bench.prompt:
            raise InputError(
                f"a {bench.title} holds text, not token counts",
                remedy="measure with AIPerf, its successor, or count tokens with the tokenizer",
            )
        runs = _runs(self.path, bench)
        place = int(number) if number.isdecimal() else 1 if not number and len(runs) < 2 else 0
        if not 1 <= place <= len(runs):
            known = (f"{form}:{k}{_about(run)}" for k, run in enumerate(runs[:9], 1))
            say = f"say which with --from (format=): {', '.join(known)}" if runs else bench.details
            problem = f"holds {len(runs)} runs, of which one is read"
            raise InputError(problem, field="format", remedy=say)
        self.value: Any = runs[place - 1]
        self.rows: list[Any] = self._of_columns() if bench.columns else self._listed()
        self.lines: list[int] = list(range(len(self.rows)))
        if not bench.rows and not bench.columns:
            self.lines, self.rows = map(list, zip(*self.value, strict=True))
        self.apart = {
            row: name.rpartition("_")[2]
            for row, each in enumerate(self.rows) for name in bench.apart if _at(each, name)
        }  # fmt: skip
        failed = ["failed" if bench.failed and _at(row, bench.failed) else "" for row in self.rows]
        self.failed = [self.apart.get(row, why) for row, why in enumerate(failed)]

    def _of_columns(self) -> list[Any]:
        """Return the rows of a document that has a list for each quantity."""
        bench, values = self.bench, self.value
        if not isinstance(values, dict):
            raise InputError("is not a JSON object", remedy="give a benchmark result")
        paths = (bench.prompt, bench.output, bench.arrival, bench.first, bench.last, bench.gaps)
        names = [path.lstrip("+") for path in (*paths, bench.failed)]
        there = [name for place, name in enumerate(names) if place < 2 or name in values]
        found = {name: _list(values.get(name), name, bench) for name in there}
        size = len(found[bench.prompt])
        for name, column in found.items():
            if len(column) != size:
                raise InputError(
                    f"{len(column)} values where {size} are expected",
                    field=name,
                    remedy="all arrays have one value a request",
                )
        return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]

    def _listed(self) -> list[Any]:
        """Return the rows of a list, then those that the tool sets apart."""
        bench = self.bench
        found = _list(_at(self.value, bench.rows or "*"), bench.rows, bench)
        if bench.runs:
            folder = bench.rows.rpartition("/")[0]
            for name in bench.apart:
                parts = _list(_at(self.value, f"{folder}/{name}") or [], name, bench)
                found = found + [{**row, name: 1} for row in parts if isinstance(row, dict)]
        if bench.some:
            found = [row for row in found if _at(row, bench.prompt) is not None]
        return found

    def column(self, path: str, parse: Parser) -> Any:
        """Return a column, parsed; of a row that failed 0 tokens, or the time of another."""
        name = path.partition("|")[0].lstrip("+")
        values = [_at(row, path) for row in self.rows]
        some = (value for value in values if value is not None)
        default = next(some, 0) if isinstance(parse, Times) else 0
        filled = [
            default if value is None and why else value
            for value, why in zip(values, self.failed, strict=True)
        ]
        texts = parsed(cells.texts, filled, self.lines, name)
        return parsed(parse, texts, self.lines, name)

    def way(self, path: str) -> str:
        """Return the first of a path's ways that leads to something of a request; "" for none."""
        rows = [row for row, why in zip(self.rows, self.failed, strict=True) if not why]
        ways = path.split("|") if path else []
        return next((way for way in ways if any(_at(row, way) is not None for row in rows)), "")

    def trace(self, drop_empty: bool, measured: bool = False) -> Trace:
        """Return the requests and the report; ``measured``: with the times of sending, always."""
        bench, notes = self.bench, list[str]()
        most = _at(self.value, "max_concurrency") if bench.columns else None
        if most is not None:
            whole_number(most, "max_concurrency", minimum=1, maximum=MAX_TOKENS)
        at_once = most is not None and _at(self.value, "request_rate") in (None, "inf")
        if most is not None:
            notes.append(
                f"a closed loop of at most {most} requests at once (max_concurrency): one is sent "
                f"when another ends{'' if at_once else ', not before its time in the file'}"
            )
        arrival = self.sent(notes) if self.way(bench.arrival) else None
        if at_once and not measured:
            arrival = np.zeros(len(self.rows), np.int64)
        found = Columns(
            self.path,
            self.name,
            self.lines,
            self.column(bench.prompt, cells.whole_numbers),
            self.column(bench.output, cells.whole_numbers),
            bench.prompt.partition("|")[0],
            bench.output.partition("|")[0],
            arrival_ns=arrival,
            arrival_field=bench.arrival.partition("|")[0],
            failed=self.failed,
            apart=frozenset(self.apart),
            notes=notes,
        )
        trace = assemble(found, drop_empty)
        return trace._replace(report=replace(trace.report, concurrency=most))

    def sent(self, notes: list[str]) -> Column:
        """Return when requests were sent, on the clock of the file."""
        path, how = self.bench.arrival, Times(None)
        times: Column = self.column(path, how)
        if not self.bench.first:  # a log, whose unit and order are a guess
            notes += settle(times, how, path.partition("|")[0], np.array(self.lines))[1]
        return times

    def times(self, requests: Requests) -> BenchTimes:
        """Return when tokens came; ``requests`` are those that are kept."""
        bench = self.bench
        wanted = {"arrival": bench.arrival, "first token": bench.first, "last token": bench.last}
        gaps = bool(self.way(bench.gaps))
        lacking = [
            what for what, path in wanted.items()
            if not self.way(path) and not (what == "last token" and gaps)
        ]  # fmt: skip
        if lacking:
            raise InputError(
                f"the format {self.name} is here without the times of {', '.join(lacking)}",
                field=wanted[lacking[0]].partition("|")[0].lstrip("+") or None,
                remedy=bench.details,
            )
        pieces = [self._gaps(row) if gaps else np.empty(0, np.int64) for row in self.lines]
        sent = self.sent([])
        first = self._moments(bench.first, sent)
        if self.way(bench.last):
            last = self._moments(bench.last, sent)
        else:
            sums = map(exact_sum, pieces)
            last = np.array([a + b for a, b in zip(first.tolist(), sums, strict=True)], object)
            if (last > MAX_TIME_NS).any():
                row = int(np.argmax(last))
                problem = f"the gaps of the request end after {MAX_TIME}"
                raise InputError(problem, row=row, field=bench.gaps, remedy="check their unit")
            last = last.astype(np.int64)
        counts = self.column(bench.output, cells.whole_numbers)
        rows = [row for row, why in enumerate(self.failed) if counts[row] and not why]
        start = sent[rows] - requests.arrival_ns
        parts = [np.empty(0, np.int64), *(pieces[row] for row in rows)]
        latest = np.maximum(first, last)[rows]
        return BenchTimes(requests, first[rows] - start, latest - start, np.concatenate(parts))

    def _moments(self, path: str, sent: Column) -> Column:
        """Return times of tokens on the clock of the arrivals."""
        way = self.way(path)
        if way.startswith("+"):
            return sent + self.column(way, cells.seconds)  # type: ignore[no-any-return]
        ways = "|".join(way for way in path.split("|") if not way.startswith("+"))
        return self.column(ways, Times(None))  # type: ignore[no-any-return]

    def _gaps(self, row: int) -> Column:
        name = self.bench.gaps
        items = _at(self.rows[row], name)
        if self.failed[row] and not isinstance(items, list):
            return np.empty(0, np.int64)
        try:
            found: list[Any] = _list(items, name, self.bench)
        except InputError as error:
            raise InputError(error.problem, row=row, field=name, remedy=error.remedy) from None
        places = [row] * len(found)
        texts = parsed(cells.texts, found, places, name)
        return parsed(cells.seconds, texts, places, name)  # type: ignore[no-any-return]


def tool_of(head: str) -> str | None:
    """Return the tool whose fields all are in the first part of a file, None without one."""
    is_list = head.lstrip().startswith("[")
    names = (name for name, bench in BENCHES.items() if (bench.rows == "*") == is_list)
    return next((n for n in names if all(f'"{f}"' in head for f in BENCHES[n].fields)), None)


def _about(run: Any) -> str:
    rate = _at(run, "request_rate|config/strategy/rate|config/strategy/type_")
    return "" if rate is None else f" (rate {rate})"


READERS = {name: partial(read_bench, name=name) for name in BENCHES}
