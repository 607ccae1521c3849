"""Measured runs, requests with the times of their tokens; and stages as plan and run share them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS, NS_PER_S
from orsched.costs import mixed_ns, prefill_ns
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL
from orsched.data.workers import Worker
from orsched.files import cells
from orsched.files.tables import is_text_table, read_table
from orsched.heuristics.continuous.async_scheduling import VLLM
from orsched.instances.readers import detect, read
from orsched.instances.readers.bench_files import BENCHES, read_bench_times
from orsched.instances.readers.traces import DROP_REMEDY
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.costs import CostModel
    from orsched.data.requests import Requests
    from orsched.data.schedule import Schedule

    Column = NDArray[np.int64]


def gaps_ns(instance: Instance, line: Timeline) -> IntColumn:
    """Return the gap before each step but the workers' first ones, by place."""
    ready = np.zeros(len(line.order), np.int64)
    rows = np.flatnonzero(line.work.phase == PREFILL)
    arrivals = instance.requests.arrival_ns[line.work.request[rows]]
    np.maximum.at(ready, line.first[rows], arrivals)
    follows = np.flatnonzero(line.worker[1:] == line.worker[:-1]) + 1
    since = np.maximum(line.end_ns[follows - 1], ready[follows])
    found: IntColumn = np.maximum(line.start_ns[follows] - since, 0)
    return found


Hashes = np.ndarray[Any, np.dtype[np.uint64]]


class Stages(NamedTuple):
    """Columns with one row a stage, worker by worker in order of time."""

    worker: IntColumn  # as in ``Steps``, and the next two
    phase: IntColumn
    rounds: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    took_ns: IntColumn  # durations of its steps and the gaps before them (``gaps_ns``)
    gap_ns: IntColumn  # these gaps alone
    model_ns: IntColumn  # what the cost model says of the same steps
    requests: IntColumn  # the most that are served at a time
    tokens: IntColumn  # prompt tokens
    content: Hashes  # a hash of who is prefilled, and of who decodes in which of its rounds


class StepTimes(NamedTuple):
    """Columns with one row a step, by place (``Timeline``)."""

    model_ns: IntColumn  # by the cost model
    took_ns: IntColumn  # the duration and the gap before the step
    gap_ns: IntColumn  # that gap


def step_times(instance: Instance, line: Timeline) -> StepTimes:
    """Return what time the steps take, by the cost model and in truth."""
    gap = np.zeros(len(line.order), np.int64)
    gap[np.flatnonzero(line.worker[1:] == line.worker[:-1]) + 1] = gaps_ns(instance, line)
    return StepTimes(modelled_ns(instance, line), line.end_ns - line.start_ns + gap, gap)


def modelled_ns(instance: Instance, line: Timeline) -> IntColumn:
    """Return what the cost model says of each step, by place."""
    found = np.zeros(len(line.order), np.int64)
    caches = line.caches
    contexts = np.array([caches.active, caches.context_padded, caches.context_max])
    chunks, cached = _chunks(line)
    heads = line.heads().tolist()
    for index, worker in enumerate(instance.workers):
        cost, padding = worker.cost, worker.padding
        for place in range(heads[index], heads[index + 1]):
            active, total, longest = contexts[:, place].tolist()
            if line.phase[place] == DECODE:
                found[place] = cost.rounds_ns(int(line.rounds[place]), active, total, longest)
                continue
            prompts = chunks[place]
            if padding:
                prompts = [max(prompts)] * len(prompts)
            if line.phase[place] == PREFILL:
                found[place] = prefill_ns(cost, prompts, cached[place])
            else:
                found[place] = mixed_ns(cost, prompts, active, total, longest, cached[place])
    return found


def _chunks(line: Timeline) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens that each step prefills, request by request, and those cached before."""
    found: list[list[int]] = [[] for _ in line.order]
    before: list[list[int]] = [[] for _ in line.order]
    rows = np.flatnonzero(line.is_prefill)
    places, tokens, cached = (
        column[rows].tolist() for column in (line.first, line.tokens, line.cached)
    )
    for place, count, k in zip(places, tokens, cached, strict=True):
        found[place].append(count)
        before[place].append(k)
    return found, before


def stages_of(instance: Instance, schedule: Schedule) -> Stages:
    """Return the stages of a schedule, planned or measured."""
    line = Timeline(instance, schedule)
    n = len(line.order)
    head = np.ones(n, bool)
    head[1:] = (
        (line.phase[1:] != DECODE)
        | (line.phase[:-1] != DECODE)
        | (line.worker[1:] != line.worker[:-1])
    )
    heads = np.flatnonzero(head)
    times, stage_of = step_times(instance, line), np.cumsum(head) - 1
    serving = line.by_place(line.batches.size) + line.caches.active
    rounds = np.where(line.phase == PREFILL, 0, line.rounds)
    return Stages(
        worker=line.worker[heads],
        phase=line.phase[heads],
        rounds=_over(np.add, rounds, heads),
        start_ns=line.start_ns[heads],
        end_ns=line.end_ns[np.append(heads[1:], n)[: len(heads)] - 1],
        took_ns=_over(np.add, times.took_ns, heads),
        gap_ns=_over(np.add, times.gap_ns, heads),
        model_ns=_over(np.add, times.model_ns, heads),
        requests=_over(np.maximum, serving, heads),
        tokens=_over(np.add, line.by_place(line.batches.total), heads),
        content=_contents(line, heads, stage_of),
    )


def _over(combine: np.ufunc, values: IntColumn, heads: IntColumn) -> IntColumn:
    """Combine the values of each stage."""
    if len(heads) == 0:
        return np.zeros(0, np.int64)
    found: IntColumn = combine.reduceat(values, heads)
    return found


def _contents(line: Timeline, heads: IntColumn, stage_of: IntColumn) -> Hashes:
    """Return a hash of what is in each stage.

    It adds up hashes of the prefills, of the requests that are active when the stage begins, and of
    those that begin or end to decode, each with the round after which it does.
    """
    work, before = line.work, line.rounds_before
    found = _hash(line.phase[heads], _over(np.add, line.rounds, heads), 0)
    prefills = np.flatnonzero(line.is_prefill)
    own = _hash(work.request[prefills], work.tokens[prefills], 1)
    np.add.at(found, stage_of[line.first[prefills]], own)
    rows = np.flatnonzero(~line.is_prefill)
    request, kind = work.request[rows], 2 + 3 * (work.phase[rows] == INVALID)
    first, last = stage_of[line.first[rows]], stage_of[line.last[rows]]
    begin = before[line.first[rows]] - before[heads[first]]
    end = before[line.last[rows] + 1] - before[heads[last]]
    np.add.at(found, first, _hash(request, begin, kind))
    np.add.at(found, last, _hash(request, end, kind + 1))
    active = np.zeros(len(heads) + 1, np.uint64)  # changes of the sum over those that go on
    lasting = _hash(request, kind, 9)
    np.add.at(active, first + 1, lasting)
    np.subtract.at(active, last + 1, lasting)
    return found + np.cumsum(active[:-1], dtype=np.uint64)


def _hash(first: Any, second: Any, third: Any) -> Hashes:
    """Return 64 well-mixed bits of three columns (the finalizer of splitmix64)."""
    mixed = np.zeros(np.broadcast(first, second, third).shape, np.uint64)
    with np.errstate(over="ignore"):
        for column in (first, second, third):
            mixed = mixed + np.asarray(column).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(31)
    return mixed


def matches(plan: Stages, run: Stages) -> IntColumn:
    """Return the plan's stage for each stage of the run, -1 where it has none of that content.

    The k-th stage of a worker is held against its k-th stage in the plan.
    """
    found = np.full(len(run.worker), -1, np.int64)
    for worker in np.unique(run.worker):
        mine, theirs = (np.flatnonzero(s.worker == worker) for s in (run, plan))
        count = min(len(mine), len(theirs))
        mine, theirs = mine[:count], theirs[:count]
        same = run.content[mine] == plan.content[theirs]
        found[mine[same]] = theirs[same]
    return found


PHASES = {PREFILL: "prefill", MIXED: "mixed", DECODE: "decode"}
"""Names of the phases, in the order of tables."""


RUN_FORMAT = "llmservingsim-run"
_RUNS = (
    "give CSV with arrival_s, first_token_s and last_token_s, the result of a benchmark "
    f"({', '.join(name for name, bench in BENCHES.items() if bench.first)}), or a requests.jsonl "
    "of LLMServingSim"
)
_CSV = ("queued_s", "first_token_s", "last_token_s")
_META = ("engine_kwargs", "kv_cache")
_JSON = ("queued_ts", "first_token_ts", "last_token_ts")


@dataclass(frozen=True)
class Server:
    """Settings of the server that was measured: those of vLLM that matter here."""

    clients: int  # most requests at once (``max_num_seqs``)
    memory_blocks: int | None = None  # KV-cache blocks for requests; None: memory never limits
    block_tokens: int = 16  # of a block
    token_budget: int = 2048  # most tokens of a step (``max_num_batched_tokens``)

    def __post_init__(self) -> None:
        for name in ("clients", "block_tokens", "token_budget", "memory_blocks"):
            if name != "memory_blocks" or self.memory_blocks is not None:
                whole_number(getattr(self, name), name, minimum=1, maximum=MAX_TOKENS)


@dataclass(frozen=True)
class Times:
    """Arrival, first and last token of each request in nanoseconds, and output tokens."""

    arrival: Column
    first: Column
    last: Column
    tokens: Column

    def figures(self, rows: slice = slice(None)) -> dict[str, float]:
        """Return the figures compared, in seconds, over some requests.

        The makespan is that of all requests, from the first arrival to the last token. TPOT is the
        time from first to last token over the tokens after the first, of requests with any.
        Percentiles are nearest rank.
        """
        ttft = np.sort((self.first - self.arrival)[rows])
        spans, more = (self.last - self.first)[rows], self.tokens[rows] - 1
        several = more > 0
        found = {
            "makespan": float(self.last.max()),
            "mean TPOT": float((spans[several] / more[several]).mean()) if several.any() else 0.0,
            "mean TTFT": float(ttft.mean()),
            "mean JCT": float((self.last - self.arrival)[rows].mean()),
        }
        for p in (50, 90, 99):
            found[f"TTFT p{p}"] = float(ttft[-(-p * len(ttft) // 100) - 1])
        return {name: value / NS_PER_S for name, value in found.items()}


@dataclass(frozen=True)
class MeasuredRun:
    """A measured run, on the clock of the arrivals."""

    name: str  # of its file
    requests: Requests  # arrivals and lengths
    times: Times
    offset_ns: int  # by how much the engine's clock was behind that of the arrivals

    def simulate(self, cost: CostModel, server: Server) -> tuple[Instance, Schedule, Times]:
        """Run vLLM's rules on the requests; the policy knows no lengths."""
        blocks = server.memory_blocks
        memory = None if blocks is None else BlockMemory(blocks, server.block_tokens, "paged")
        worker = Worker(server.clients, cost, None, memory)
        return served(self.requests, worker, server.token_budget)


def served(
    requests: Requests, worker: Worker, token_budget: int, concurrency: int | None = None
) -> tuple[Instance, Schedule, Times]:
    """Run vLLM's rules on requests; arrivals are those that follow from ends, where they do."""
    instance = Instance(requests, (worker,), first_token="prefill", concurrency=concurrency)
    policy, _ = VLLM.build(instance, Information.NONE, {"max_num_batched_tokens": token_budget}, 0)
    line = Timeline(instance, schedule := simulate_policy(instance, policy).schedule)
    found, arrival = request_times(instance, schedule, line), line.instance.requests.arrival_ns
    first, last = found["first_token_ns"], found["finish_ns"]
    return instance, schedule, Times(arrival, first, last, requests.output_tokens)


def recorded_settings(path: str | PathLike[str]) -> dict[str, int]:
    """Return what ``meta.json`` beside a run that LLMServingSim recorded says of its server.

    Fields of ``Server``, those that it has; nothing without that file. vLLM keeps one block
    of its cache for itself. Raises ``InputError`` for a wrong file or a run of several engines.
    """
    from orsched.files.text import locating, parse_json, read_text

    file = Path(path).parent / "meta.json"
    if not file.is_file():
        return {}
    with locating(file):
        values: Any = parse_json(read_text(file))
        parts = [values.get(name) if isinstance(values, dict) else None for name in _META]
        engine, cache = (part if isinstance(part, dict) else {} for part in parts)
        engines = whole_number(engine.get("data_parallel_size", 1), "data_parallel_size", minimum=1)
        if engines != 1:
            raise InputError(
                f"{engines} engines served the run, one is simulated",
                field="data_parallel_size",
                remedy="give the requests of one engine, without meta.json, and --clients",
            )
        found: dict[str, int] = {}
        for own, part, theirs, less in (
            ("clients", engine, "max_num_seqs", 0),
            ("token_budget", engine, "max_num_batched_tokens", 0),
            ("memory_blocks", cache, "num_gpu_blocks", 1),
            ("block_tokens", cache, "block_size", 0),
        ):
            if part.get(theirs) is not None:
                found[own] = whole_number(part[theirs], theirs, minimum=1 + less) - less
        return found


def read_run(path: str | PathLike[str], format: str | None = None) -> MeasuredRun:
    """Read a measured run: CSV with ``arrival_s``, lengths, ``first_token_s`` and ``last_token_s``.

    Or the ``requests.jsonl`` of a run that LLMServingSim recorded, or the result of a benchmark
    with the times of each request, which are the client's; failed requests are an error, but those
    that the tool does not count. ``format`` as in ``orsched.load``: ``vllm-bench:2`` is the second
    run of a file. Where the engine's own clock is recorded
    (``queued_s``, ``queued_ts``), it is taken to be behind by the largest difference of arrival and
    queueing: so the fastest request took no time from one to the other. Raises ``InputError`` for a
    column that is missing or wrong, or a request answered before it arrives.
    """
    file = Path(path)
    form = format or detect(file)
    if form.partition(":")[0] in BENCHES:
        bench = read_bench_times(file, name=form)
        some = bench.requests
        whole = Times(some.arrival_ns, bench.first_token_ns, bench.finish_ns, some.output_tokens)
        return MeasuredRun(file.name, some, whole, 0)
    if form != RUN_FORMAT and not is_text_table(file):
        raise InputError(
            f"the format {form} holds requests without the times of their tokens",
            file=str(file),
            remedy=_RUNS,
        )
    requests = _all_of(file, form)
    recorded = form == RUN_FORMAT
    names = _JSON if recorded else _CSV
    needed = ("arrival_time", *names) if recorded else names[1:]
    times_of = dict.fromkeys((*needed, names[0]), cells.seconds)
    optional = {} if recorded else {names[0]: times_of.pop(names[0])}
    columns, lines = read_table(file, times_of, optional, quoted=False)
    arrival = columns["arrival_time"] if recorded else requests.arrival_ns
    queued = columns.get(names[0])
    first, last = (columns[name] for name in names[1:])
    offset = int((arrival - queued).max()) if queued is not None else 0
    moved = offset - int(arrival.min())  # arrivals of the requests begin at 0
    times = Times(requests.arrival_ns, first + moved, last + moved, requests.output_tokens)
    _check(file, times, None if queued is None else queued + moved, lines, names)
    return MeasuredRun(file.name, requests, times, offset if form != RUN_FORMAT else 0)


def _all_of(file: Path, form: str) -> Requests:
    """Return the requests of a file; no row is left out, since each row has times, too."""
    try:
        return read(file, form).requests
    except InputError as error:
        if error.remedy != DROP_REMEDY:
            raise
        raise InputError(
            error.problem,
            file=error.file,
            row=error.row,
            field=error.field,
            remedy="remove the rows of failed requests from the file",
        ) from None


def _check(
    file: Path, times: Times, queued: Column | None, lines: Column, names: tuple[str, ...]
) -> None:
    taken = times.first if queued is None else queued
    for early, late, name, what in (
        (times.arrival, times.first, names[1], "the first token comes before the request arrives"),
        (taken, times.first, names[1], "the first token comes before the request is queued"),
        (times.first, times.last, names[2], "the last token comes before the first"),
    ):
        bad: Any = late < early
        if bad.any():
            raise InputError(
                what,
                file=str(file),
                row=int(lines[int(np.argmax(bad))]),
                field=name,
                remedy="arrivals on one clock, all other times on one",
            )
