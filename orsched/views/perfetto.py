"""Traces in the Chrome JSON format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.data.schedule import MIXED, PREFILL
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.views.curves import block_curves, interval_curve, load_curves
from orsched.views.spans import client_use, lane_offsets, stage_columns
from orsched.views.style import one_line

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.spans import Spans

_CHUNK = 20_000


class Counter(NamedTuple):
    """A step function of a process: ``value[k]`` from ``time_ns[k]``, strictly rising, on."""

    name: str
    process: int
    time_ns: IntColumn
    value: IntColumn


def write_chrome_trace(
    instance: Instance, schedule: Schedule, path: str | os.PathLike[str]
) -> None:
    """Write a schedule as a trace in Chrome's JSON format, event by event, never whole in memory.

    A process a worker holds a track of stages and a track a client with the prefills, the decode,
    the pauses and the invalid rounds of its requests; ``stay`` counts how often a request was
    evicted before. Counters follow the running requests, the KV blocks (where the worker has a
    memory model) and, in a process of their own, the waiting requests. ``ts`` and ``dur`` are exact
    microseconds with three decimals. Raises ``InputError`` if the file cannot be written.
    """
    from orsched.files.document import write_text

    write_text(path, _chunks(_trace(instance, schedule)))


def _trace(instance: Instance, schedule: Schedule) -> Iterator[str]:
    about = {
        "instance": instance.name,
        "instance_sha256": instance.sha256,
        "method": schedule.method,
        "information": schedule.information,
    }
    yield f'{{"displayTimeUnit":"ms","otherData":{_packed(about)},"traceEvents":[\n'
    yield _packed({"ph": "M", "name": "trace", "pid": 0, "args": {"producer": "orsched"}})
    for event in _events(instance, schedule):
        yield ",\n" + event
    yield "\n]}\n"


def _events(instance: Instance, schedule: Schedule) -> Iterator[str]:
    yield from _names(instance)
    line = Timeline(instance, schedule)
    yield from _stages(line)
    use = client_use(line)
    for phase in ("prefill", "decode", "invalid", "paused"):
        yield from _requests(line, phase, getattr(use, phase))
    for counter in counters(line):
        head = f'{{"ph":"C","name":"{counter.name}","pid":{counter.process},"ts":'
        for time, value in _rows(counter.time_ns, counter.value):
            yield f'{head}{microseconds(time)},"args":{{"{counter.name}":{value}}}}}'


def microseconds(ns: int) -> str:
    """Return nanoseconds as exact decimal microseconds."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _rows(*columns: IntColumn) -> Iterator[tuple[int, ...]]:
    """Return the rows as Python integers, a piece at a time: whole lists would be large."""
    for k in range(0, len(columns[0]), _CHUNK):
        yield from zip(*(column[k : k + _CHUNK].tolist() for column in columns), strict=True)


def _packed(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _chunks(parts: Iterable[str]) -> Iterator[str]:
    """Join small texts, so that the file is written in large pieces."""
    held: list[str] = []
    for part in parts:
        held.append(part)
        if len(held) == _CHUNK:
            yield "".join(held)
            held.clear()
    yield "".join(held)


def _stage_track(instance: Instance, worker: int) -> int:
    """Thread number of a worker's track of stages; its clients follow (all numbers differ)."""
    return int(lane_offsets(instance)[worker]) + worker + 1


def _names(instance: Instance) -> Iterator[str]:
    """Name and order the tracks; processes count from 1, the queue comes last."""
    offsets = lane_offsets(instance)
    processes = [*(one_line(w.name) for w in instance.workers), "queue"]
    for process, name in enumerate(processes, 1):
        for kind, args in (
            ("process_name", {"name": name}),
            ("process_sort_index", {"sort_index": process}),
        ):
            yield _packed({"ph": "M", "name": kind, "pid": process, "args": args})
    for worker in range(len(instance.workers)):
        first = _stage_track(instance, worker)
        tracks = ["stages", *(f"client {c}" for c in range(offsets[worker + 1] - offsets[worker]))]
        for place, name in enumerate(tracks):
            track = {"ph": "M", "pid": worker + 1, "tid": first + place}
            yield _packed({**track, "name": "thread_name", "args": {"name": name}})
            yield _packed({**track, "name": "thread_sort_index", "args": {"sort_index": place}})


def _stages(line: Timeline) -> Iterator[str]:
    tracks = [_stage_track(line.instance, w) for w in range(len(line.instance.workers))]
    for row in _rows(*stage_columns(line).values()):
        worker, phase, number, start, end, rounds, requests, prefilled, tokens = row
        if phase == PREFILL:
            name, args = "prefill stage", f'"requests":{requests},"tokens":{tokens}'
        elif phase == MIXED:
            name = "mixed step"
            args = f'"prefilled":{prefilled},"tokens":{tokens},"decoding":{requests - prefilled}'
        else:
            name, args = "decode stage", f'"requests_at_most":{requests},"rounds":{rounds}'
        yield (
            f'{{"ph":"X","cat":"stage","name":"{name} {number}","pid":{worker + 1},'
            f'"tid":{tracks[worker]},"ts":{microseconds(start)},"dur":{microseconds(end - start)},'
            f'"args":{{"bin":{number},{args}}}}}'
        )


def _requests(line: Timeline, phase: str, spans: Spans) -> Iterator[str]:
    table, times = line.instance.requests, request_times(line.instance, line.schedule, line)
    worker = np.searchsorted(lane_offsets(line.instance), spans.lane, side="right") - 1
    columns = (
        spans.request, worker + 1, spans.lane + worker + 2, spans.start_ns, spans.end_ns,
        table.prompt_tokens[spans.request], table.output_tokens[spans.request],
        table.arrival_ns[spans.request], times["first_token_ns"][spans.request], spans.stay,
    )  # fmt: skip
    for row in _rows(*columns):
        request, process, track, start, end, prompt, output, arrival, first, stay = row
        name = json.dumps(table.id_of(request))
        yield (
            f'{{"ph":"X","cat":"{phase}","name":{name},"pid":{process},"tid":{track},'
            f'"ts":{microseconds(start)},"dur":{microseconds(end - start)},'
            f'"args":{{"phase":"{phase}","row":{request},"prompt_tokens":{prompt},'
            f'"output_tokens":{output},"arrival_ns":{arrival},"first_token_ns":{first},"stay":{stay}}}}}'
        )


def counters(line: Timeline) -> list[Counter]:
    """Return running requests and KV blocks of each worker, and the waiting requests."""
    start, end = line.start_ns[line.stay_first], line.end_ns[line.stay_last]
    result = []
    for index, blocks in enumerate(block_curves(line)):
        mine = np.flatnonzero(line.stay_worker == index)
        result.append(Counter("running", index + 1, *interval_curve(start[mine], end[mine])))
        if blocks is not None:
            result.append(Counter("kv_blocks", index + 1, *blocks))
    waiting = load_curves(line)["waiting"]
    return [*result, Counter("waiting", len(line.instance.workers) + 1, *waiting)]
