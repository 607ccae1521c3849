"""The timeline of one worker while it is being made, and the schedule in the end."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.schedule import DECODE, PREFILL, Steps, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn


_REQUEST_BITS = 32
EARLY, LATE = 2**62, -1
"""Less its place, the last number of a stay that has finished and is evicted before the next step,
which did not know; of one that is freed when that step has taken its blocks."""


class StayRecorder:
    """Hits and turns of stays that begin, and when those that are evicted end."""

    def __init__(self) -> None:
        self.begun = array("q")  # request, stay, tokens hit and turn, one after the other
        self.ended = array("q")  # freed: worker, request, stay, next step, stays before it

    def columns(self, rows: dict[str, IntColumn]) -> dict[str, IntColumn]:
        """Return ``hit``, ``turn``, ``rested`` and ``exit`` of rows with steps by worker."""
        key = _key(rows["request"], rows["stay"])
        columns = {name: np.zeros(len(key), np.int64) for name in ("hit", "turn")}
        order = np.lexsort((rows["phase"], rows["first_step"], key))
        request, stay, hit, turn = np.array(self.begun, np.int64).reshape(-1, 4).T
        _, opens = np.unique(key[order], return_index=True)
        at = order[opens][np.searchsorted(key[order][opens], _key(request, stay))]
        columns["hit"][at], columns["turn"][at] = hit, turn
        if self.ended:
            columns |= self._evicted(key, order, rows["last_step"])
        return columns

    def _evicted(
        self, key: IntColumn, order: IntColumn, last_step: IntColumn
    ) -> dict[str, IntColumn]:
        """Return the columns ``rested`` and ``exit``, both on the last row of a stay."""
        ended = np.array(self.ended, np.int64).reshape(-1, 5)
        _, request, stay, step, _ = ended.T
        backwards = order[::-1]
        keys, closes = np.unique(key[backwards], return_index=True)
        at = backwards[closes][np.searchsorted(keys, _key(request, stay))]
        columns = {name: np.zeros(len(key), np.int64) for name in ("rested", "exit")}
        columns["rested"][at] = step - last_step[at] - 1
        columns["exit"][at] = _exits(ended)
        return columns


def _exits(ended: IntColumn) -> list[int]:
    """Return the places of evictions before one step; 0 where the last admitted went first. They
    begin with 1 where some had finished."""
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row, (worker, _, _, step, place) in enumerate(ended.tolist()):
        if place >= 0:
            groups.setdefault((worker, step), []).append((row, place))
    exits = [0] * len(ended)
    for group in groups.values():
        places = [place for _, place in group]
        early = max(places) > EARLY // 2
        if early or places != sorted(places, reverse=True):
            for turn, (row, _) in enumerate(group, early):
                exits[row] = turn
    return exits


def _key(request: Any, stay: Any) -> IntColumn:
    return np.asarray(request, np.int64) << _REQUEST_BITS | np.asarray(stay, np.int64)


_ROW = Struct("8i")
_FIELDS = ("worker", "request", "client", "phase", "first_step", "last_step", "tokens", "stay")


class WorkRecorder:
    """Work of all workers: two plain rows a request in arrays, all others one after the other. The
    plain rows are the first prefill, of the whole prompt unless other tokens are noted, and the
    first decode row of a request's first stay."""

    def __init__(self, prompts: Sequence[int] | memoryview) -> None:
        count = len(prompts)
        self.worker = array("i", [0]) * count
        self.client = array("i", [-1]) * count
        self.prefill_step = array("i", [-1]) * count
        self.prefill_tokens = array("i", prompts)
        self.first_step = array("i", [-1]) * count
        self.last_step = array("i", [-1]) * count
        self.others = bytearray()
        self.stays = StayRecorder()

    def add(self, *row: int) -> None:
        """Add a row that is not plain: the values of ``_FIELDS``, with steps numbered by worker."""
        self.others += _ROW.pack(*row)

    def begin_stay(self, request: int, stay: int, hit: int, turn: int) -> None:
        """Note what a stay on a worker with a prefix cache finds, and its turn in the step."""
        self.stays.begun.extend((request, stay, hit, turn))

    def drop_stay(self, request: int, stay: int) -> None:
        """Drop what was noted of a stay that never began."""
        begun = self.stays.begun
        for at in range(len(begun) - 4, -4, -4):
            if begun[at] == request and begun[at + 1] == stay:
                del begun[at : at + 4]
                return

    def end_stay(self, worker: int, request: int, stay: int, step: int, place: int) -> None:
        """Note that such a stay is freed before a step of its worker, and when it began."""
        self.stays.ended.extend((worker, request, stay, step, place))

    def drop(self, worker: int, phase: int, first_step: int) -> None:
        """Drop the rows that are not plain of a worker's step that never happened."""
        rows = np.frombuffer(bytes(self.others), np.int32).reshape(-1, len(_FIELDS))
        wrong = (rows[:, 0] == worker) & (rows[:, 3] == phase) & (rows[:, 4] == first_step)
        if wrong.any():
            self.others = bytearray(rows[~wrong].tobytes())

    def columns(self) -> dict[str, IntColumn]:
        """Return the columns of all rows: the plain ones by request, then the others."""
        prefill, first = _column(self.prefill_step), _column(self.first_step)
        client, worker = _column(self.client), _column(self.worker)
        rows = np.arange(len(prefill), dtype=np.int32)
        pairs: dict[str, tuple[Any, Any]] = {
            "worker": (worker, worker),
            "request": (rows, rows),
            "client": (client, client),
            "phase": (np.int8(PREFILL), np.int8(DECODE)),
            "first_step": (prefill, first),
            "last_step": (prefill, _column(self.last_step)),
            "tokens": (_column(self.prefill_tokens), np.int8(1)),
            "stay": (np.int8(0), np.int8(0)),
        }
        kept = _in_turn(len(prefill), prefill >= 0, first >= 0) != 0
        every = bool(kept.all())
        columns = {}
        for name, pair in pairs.items():
            column = _in_turn(len(prefill), *pair)
            columns[name] = column if every else column[kept]
        if self.others:
            further = np.frombuffer(self.others, np.int32).reshape(-1, len(_FIELDS))
            for index, name in enumerate(_FIELDS):
                columns[name] = np.concatenate([columns[name], further[:, index]])
        return columns


class StepRecorder:
    """The steps of one worker; each starts where the last one ended, but after a wait. The worker
    appends to the columns ``end_ns``, ``rounds`` and ``phase``."""

    def __init__(self) -> None:
        self.end_ns = array("q")
        self.rounds = array("q")
        self.phase = array("b")
        self.waits: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.end_ns)

    def wait_until(self, moment_ns: int) -> None:
        """Note that the next step begins at a moment, not at the end of the last one."""
        index = len(self.end_ns)
        if self.waits and self.waits[-1][0] == index:
            self.waits.pop()
        self.waits.append((index, moment_ns))

    def columns(self) -> dict[str, IntColumn]:
        """Return the columns of the steps but the worker's."""
        ends = _column(self.end_ns)
        starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        for index, moment in self.waits:
            if index < len(starts):
                starts[index] = moment
        return {
            "phase": _column(self.phase),
            "start_ns": starts,
            "end_ns": ends,
            "rounds": _column(self.rounds),
        }


def timeline(steps: list[StepRecorder], work: WorkRecorder) -> tuple[Steps, Work]:
    """Return the steps of all workers in order of start, then worker, and the work in them."""
    parts = [recorder.columns() for recorder in steps]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    counts = [len(recorder) for recorder in steps]
    columns["worker"] = np.repeat(np.arange(len(steps)), counts)
    rows = work.columns()
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])[:-1]
    worker = rows.pop("worker")
    if work.stays.begun:
        rows |= work.stays.columns(rows)
    if len(steps) > 1:
        order = np.lexsort((columns["worker"], columns["start_ns"]))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        columns = {name: column[order] for name, column in columns.items()}
        for name in ("first_step", "last_step"):
            rows[name] = place[offsets[worker] + rows[name]]
    if work.others or len(steps) > 1:
        order = np.lexsort((rows["phase"], rows["first_step"], rows["stay"], rows["request"]))
        rows = {name: column[order] for name, column in rows.items()}
    return Steps(**columns), Work(**rows)


def _in_turn(count: int, first: Any, second: Any) -> Any:
    """Return two columns (or constants) as one in which their values take turns."""
    both = np.empty((count, 2), np.result_type(first, second))
    both[:, 0], both[:, 1] = first, second
    return both.reshape(-1)


def _column(values: array[int]) -> Any:
    """Return the values in place, in as few bytes as they are kept in."""
    return np.frombuffer(values, values.typecode) if len(values) else np.empty(0, np.int64)
