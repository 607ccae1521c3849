"""What a search works on: an instance as arrays, first plans, the tables of moves, and moves."""

from __future__ import annotations

import ast
from functools import cache, wraps
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS
from orsched.costs.linear import has_step_lines, step_lines
from orsched.data.step import Step, decode_rounds
from orsched.metrics.objective_values import WeightedTimes, weighted_times
from orsched.models.compiled_kernels import Kernels, compiled_copies
from orsched.models.latency_search import decoding, plan_moves
from orsched.models.latency_search.decoding import (
    CLIENTS,
    HEAD,
    PAIRS,
    REALS,
    ROW_CHUNK,
    ROW_MIXED,
    ROW_ROUNDS,
    ROW_STAGE,
    WHOLES,
)
from orsched.models.latency_search.plan_moves import KEPT_PLACE, KINDS
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Whole = NDArray[np.int64]
    Real = NDArray[np.float64]
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.workers import Worker
    from orsched.solving.objectives import Objective


EVERY = 16  # positions from one kept state to the next


class Tables(NamedTuple):
    """What the decoder and the moves read and write; W workers, n requests, J clients.

    Attributes:
        whole, real: numbers of the requests (n by 7, n by 5), the columns of ``decoding``.
        times, limits: numbers of the workers.
        sequences, lengths: the requests of each worker in order, and how many there are.
        values, finals, tried: sum and end of each worker; end as tried last.
        state, place, ends, who: the worker that is being decoded.
        marks, mark_ends, mark_who: kept states.
        best_sequences, best_lengths, best_whole: the best plan so far.
    """

    whole: Whole
    real: Real
    times: Real
    limits: Whole
    weights: Real  # of the makespan
    sequences: Whole
    lengths: Whole
    values: Real
    finals: Real
    tried: Real
    state: Real
    place: Whole
    ends: Whole
    who: Whole
    sizes: Whole  # positions from one kept state to the next, and how many states are kept
    marks: Real
    mark_ends: Whole
    mark_who: Whole
    script: Whole  # rows that decoding writes; none for a search
    kinds: Real  # shares of the kinds of moves, added up
    counts: Whole  # moves of each kind that were kept
    saved: Whole  # what a move has overwritten
    move: Whole  # kind, worker, place, other worker and place there of the move that is tried
    change: Real  # weight of the requests that the other worker gets by it
    before: Real  # sum and end of both workers before it
    best_sequences: Whole
    best_lengths: Whole
    best_whole: Whole


def tables_of(
    whole: Whole,
    real: Real,
    times: Real,
    limits: Whole,
    makespan: float,
    orders: Sequence[Sequence[int]],
    shares: Sequence[float],
    rows: int = 0,
) -> Tables:
    """Return tables for a problem and the workers' orders, with room for that many script rows."""
    n, workers = len(whole), len(times)
    clients = max(1, min(int(limits[:, CLIENTS].max()), n))
    limits = limits.copy()
    limits[:, CLIENTS] = np.minimum(limits[:, CLIENTS], clients)
    slots = 1 if rows else n // EVERY + 1
    sequences = np.zeros((workers, n + 1), np.int64)
    lengths = np.array([len(order) for order in orders], np.int64)
    for j, order in enumerate(orders):
        sequences[j, : len(order)] = order
    marks = np.zeros((workers, slots, REALS + WHOLES))
    marks[:, :, KEPT_PLACE] = -1.0
    marked = (workers, slots, clients)
    kinds = np.cumsum(np.array(shares, float)) / sum(shares)
    assert len(kinds) == KINDS
    return Tables(
        np.ascontiguousarray(whole, np.int64).copy(),
        np.ascontiguousarray(real, np.float64).copy(),
        times,
        limits,
        np.array([makespan]),
        sequences,
        lengths,
        np.zeros(workers),
        np.zeros(workers),
        np.zeros(workers),
        np.zeros(PAIRS + 1),
        np.zeros(HEAD + 1, np.int64),
        np.zeros(2 * clients, np.int64),
        np.zeros(3 * clients, np.int64),
        np.array([EVERY, slots], np.int64),
        marks,
        np.zeros(marked, np.int64),
        np.zeros(marked, np.int64),
        np.zeros((rows, 4), np.int64),
        kinds,
        np.zeros(KINDS, np.int64),
        np.zeros(n + 1, np.int64),
        np.zeros(5, np.int64),
        np.zeros(1),
        np.zeros(4),
        sequences.copy(),
        lengths.copy(),
        np.ascontiguousarray(whole, np.int64).copy(),
    )


WRITTEN = (
    "whole", "real", "sequences", "lengths", "values", "finals", "tried", "marks", "mark_ends",
    "mark_who", "script", "counts", "best_sequences", "best_lengths", "best_whole",
)  # fmt: skip
"""What a call leaves in the tables; the rest is room, or is not changed."""


@cache
def listed() -> SimpleNamespace:
    """Return the entries of the moves, each of which takes tables of arrays. Python reads an item
    of a list many times as fast as one of an array. ``x[i, j]`` becomes ``x[i][j]``, and the tables
    are copied into lists and back at each call."""
    fast = _on_lists(plan_moves, {"decode": _on_lists(decoding, {}).decode})
    entries = (fast.evaluate, fast.evaluate_all, fast.run_moves)
    return SimpleNamespace(**{entry.__name__: _with_arrays(entry) for entry in entries})


def _on_lists(plain: ModuleType, names: dict[str, Any]) -> ModuleType:
    """Return a module of the same source that reads lists, with some names from elsewhere."""
    assert plain.__file__ is not None
    tree = _Nested().visit(ast.parse(Path(plain.__file__).read_text(encoding="utf-8")))
    module = ModuleType(f"{plain.__name__}_on_lists")
    exec(compile(ast.fix_missing_locations(tree), plain.__file__, "exec"), vars(module))
    vars(module).update(names)
    return module


class _Nested(ast.NodeTransformer):
    """Writes ``x[i][j]`` for ``x[i, j]``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        self.generic_visit(node)
        if not isinstance(node.slice, ast.Tuple):
            return node
        *others, last = node.slice.elts
        value = node.value
        for each in others:
            value = ast.Subscript(value, each, ast.Load())
        return ast.Subscript(value, last, node.ctx)


def _with_arrays(entry: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(entry)
    def called(tables: Tables, *rest: Any) -> Any:
        t = Tables(*(each.tolist() for each in tables))
        given = [each.tolist() if isinstance(each, np.ndarray) else each for each in rest]
        found = entry(t, *given)
        for name in WRITTEN:
            array = getattr(tables, name)
            if array.size:
                array[...] = getattr(t, name)
        return found

    return called


@cache
def engine() -> Kernels:
    """Return the moves of this process; the first call starts to compile them: half a minute."""
    return Kernels(_compiled, "the moves, latency_search runs slower", listed())


def _compiled() -> Any:
    """Compile decoder and moves, and try each entry once."""
    fast: Any = compiled_copies(decoding, plan_moves)
    whole, real = np.ones((1, 7), np.int64), np.zeros((1, 5))
    times, limits = np.ones((1, 8)), np.ones((1, 6), np.int64)
    t = tables_of(whole, real, times, limits, 0.0, [[0]], [1.0] * plan_moves.KINDS)
    value = fast.evaluate_all(t)
    fast.run_moves(t, value, value, np.zeros(plan_moves.DRAWS), np.zeros(1))
    fast.evaluate(t, 0, 0, 0.0, decoding.INFINITE, False)
    return fast


class PlannedStep(NamedTuple):
    """A step of one worker. ``requests``, ``tokens``: what it prefills; none: rounds alone."""

    requests: tuple[int, ...]
    tokens: tuple[int, ...]
    rounds: int  # how many; 0: a stage without a round


def steps_of(rows: Sequence[Sequence[int]]) -> list[PlannedStep]:
    """Return the steps that the rows of a script say; waits follow from the arrivals."""
    steps: list[PlannedStep] = []
    requests: list[int] = []
    tokens: list[int] = []
    for kind, first, second, _ in rows:
        if kind == ROW_CHUNK:
            requests.append(first)
            tokens.append(second)
        elif kind in (ROW_STAGE, ROW_MIXED):
            steps.append(PlannedStep(tuple(requests), tuple(tokens), int(kind == ROW_MIXED)))
            requests, tokens = [], []
        elif kind == ROW_ROUNDS:
            steps.append(PlannedStep((), (), first))
    return steps


class FollowSteps(Policy):
    """Carry out each worker's steps in their order; wait for requests that have not arrived."""

    information = Information.CLAIRVOYANT
    many_workers = True
    chunks = True

    def __init__(self, steps: Sequence[Sequence[PlannedStep]], name: str) -> None:
        self.name = name
        self.steps = steps
        self.next = [0] * len(steps)
        self.arrived: set[int] = set()

    def on_arrival(self, view: View, request: int) -> None:
        """Know that it is there."""
        self.arrived.add(request)

    def decide(self, view: View) -> Step | None:
        """Return the worker's next step, or None until its requests are there."""
        steps, number = self.steps[view.index], self.next[view.index]
        if number == len(steps):
            return None
        step = steps[number]
        if not self.arrived.issuperset(step.requests):
            return None
        self.next[view.index] += 1
        if not step.requests:
            return decode_rounds(step.rounds, until=0)
        return Step(step.requests, step.tokens, None, None if step.rounds else ())


class Problem(NamedTuple):
    """What a search minimises and under which limits; the columns are those of ``decoding``.
    ``whole``, ``real``: numbers of the requests; those of the plan are at first: no gate, no
    budget; ``times``, ``limits``: numbers of the workers."""

    whole: NDArray[np.int64]
    real: NDArray[np.float64]
    times: NDArray[np.float64]
    limits: NDArray[np.int64]
    coefficients: WeightedTimes  # of the objective
    exact: bool  # whether ``times`` are the workers' own, and not ones that are near to them


def problem_of(instance: Instance, objective: Objective, *, mixed: bool, chunks: bool) -> Problem:
    """Return the arrays for an instance; ``mixed`` and ``chunks`` say what steps may do."""
    requests, n = instance.requests, len(instance)
    prompts, rounds = requests.prompt_tokens, instance.rounds_needed
    memory = instance.workers[0].memory
    whole = np.zeros((n, 7), np.int64)
    whole[:, 0], whole[:, 1] = prompts, rounds
    if memory is not None:
        final = prompts + (rounds if memory.is_paged else requests.output_tokens)
        whole[:, 2] = -(-final // memory.block_tokens)
    whole[:, 3] = max(worker.clients for worker in instance.workers)
    whole[:, 4] = MAX_TOKENS
    whole[:, 5] = 0 if mixed else 1
    coefficients = weighted_times(instance, objective)
    real = np.zeros((n, 5))
    real[:, 0], real[:, 1], real[:, 2] = (
        requests.arrival_ns,
        coefficients.finish,
        coefficients.first,
    )
    if coefficients.due is not None:
        real[:, 4] = coefficients.due
    means = float(prompts.mean()), float((prompts + rounds / 2).mean())
    times = np.array([step_lines(w.cost, *means, w.clients) for w in instance.workers])
    first = int(instance.first_token == "prefill")
    limits = np.array([_limits(worker, first, chunks) for worker in instance.workers], np.int64)
    exact = all(has_step_lines(worker.cost) for worker in instance.workers)
    return Problem(whole, real, times, limits, coefficients, exact)


def require_searchable(instance: Instance) -> None:
    """Raise ``InputError`` for workers that the search does not plan for."""
    instance.require_steady("latency_search")
    faults = (
        ("padding", any(worker.padding for worker in instance.workers)),
        ("prefix_cache", instance.caches_prefixes),
        ("role", any(worker.role != "both" for worker in instance.workers)),
        ("device", any(worker.device for worker in instance.workers)),
    )
    for field, found in faults:
        if found:
            raise InputError(
                f"latency_search does not support workers with {field.replace('_', ' ')}",
                field=field,
                remedy="leave it out, or choose a policy: gittins, vllm",
            )
    if len({worker.memory for worker in instance.workers}) > 1:
        raise InputError(
            "latency_search plans for workers with the same memory",
            field="memory",
            remedy="give all workers the same memory, or choose a policy: gittins, vllm",
        )


def _limits(worker: Worker, first: int, chunks: bool) -> list[int]:
    memory, cap = worker.memory, worker.prefill_limit
    blocks = 0 if memory is None else memory.blocks
    size = memory.block_tokens if memory is not None and memory.is_paged else 0
    return [worker.clients, MAX_TOKENS if cap is None else cap, int(chunks), blocks, size, first]


BUDGETS = (256, 512, 1024, 2048, 4096)
"""Most tokens of a step in first plans; the last are those of the worker."""


TOGETHER = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""How many requests join at a time in first plans: a stage has a fixed time of its own."""


class Plan(NamedTuple):
    """What decoding needs beside the problem. ``gates``, ``budgets``, ``alone``: of each request
    (``decoding``)."""

    orders: list[list[int]]  # the requests of each worker in the order in which they join
    gates: NDArray[np.int64]
    budgets: NDArray[np.int64]
    alone: NDArray[np.int64]


def plans_of(
    instance: Instance, schedule: Schedule, problem: Problem, *, mixed: bool
) -> Iterator[Plan]:
    """Yield plans with the workers and the order of a complete schedule."""
    orders = orders_of(instance, schedule)
    n = len(instance)
    budgets = [*BUDGETS, int(problem.whole[0, 4])]
    if not problem.limits[:, 2].all():  # undivided prompts fill a step up to its cap
        budgets = budgets[-1:]
    clients = int(problem.limits[:, 0].max())
    levels = sorted({clients, *(max(1, clients * part // 8) for part in (1, 2, 3, 4, 6))})
    gates = [np.full(n, level, np.int64) for level in levels]
    gates += [_together(orders, n, clients, size) for size in TOGETHER if size <= clients]
    for budget, gate, stage in product(budgets, gates, (0, 1) if mixed else (1,)):
        yield Plan(orders, gate, np.full(n, budget, np.int64), np.full(n, stage, np.int64))


def _together(orders: list[list[int]], n: int, clients: int, size: int) -> NDArray[np.int64]:
    """Return gates by which so many requests join at a time, once that many clients are free."""
    gates = np.full(n, clients, np.int64)
    for order in orders:
        gates[order[clients::size]] = clients - size + 1
    return gates


def orders_of(instance: Instance, schedule: Schedule) -> list[list[int]]:
    """Return each worker's requests by the start of their prefill: the last stay's, if evicted."""
    work, steps = schedule.work, schedule.steps
    prefills = work.phase == 0
    stays = np.zeros(len(instance), np.int64)
    np.maximum.at(stays, work.request, work.stay)
    rows = np.flatnonzero(prefills & (work.stay == stays[work.request]))
    rows = rows[np.lexsort((rows, work.first_step[rows]))]
    _, first = np.unique(work.request[rows], return_index=True)
    rows = rows[np.sort(first)]
    workers = steps.worker[work.first_step[rows]]
    return [work.request[rows[workers == j]].tolist() for j in range(len(instance.workers))]
