"""Steps as CUDA graphs: a step of a few hundred kernels becomes one launch.

What a step does depends on few numbers of the host (``Size``) and on what tensors hold that stay
where they are and are written in place: which slots have a round's rows, what the chunks of prompts
are. So one graph serves all steps of a size, whatever slots they concern. Sizes are rounded up, to
have few; the rest is of no request. Graphs are captured before the first step, as far as a
budget goes; a step without one runs as it is. Which sizes have one follows from the worker's own
sizes and the budget, not from how fast they are captured, so that a run has those of the
calibration.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from warnings import warn

from orsched.runner.worker.layout import REACH_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import torch

WARM_UPS = 2  # steps before a capture: libraries choose and load their kernels in the first
MOST_TOKENS = 512  # of chunks in a graph: kernels of larger steps take longer than launching them
PROMPTS = (8, 64)  # in a graph, at most

Mode = Literal["off", "capture", "rehearse"]


class Budget(NamedTuple):
    """What graphs may be captured before the first step."""

    sizes: int = 512  # how many at most; 200 slots want some 380
    bytes: int = 2 << 30  # of the device's memory


class Size(NamedTuple):
    """What the host decides of a step."""

    rows: int  # requests of its round; 0: no round
    reach: int  # no cache of the round holds more tokens after the step; 0 without a round
    tokens: int = 0  # of chunks of prompts; 0: none
    prompts: int = 0  # how many chunks


class Graphs:
    """Runs steps as graphs.

    ``replays`` counts steps that ran as graphs, ``left_out`` sizes that the budget had no room for.
    In ``idle`` steps of a size change nothing that counts. ``any_reach``, of the kernels for rounds
    and for chunks: whether one graph serves all reaches; chunks are captured only with a kernel
    that does. Modes: ``off`` runs each step as it is; ``capture`` as graphs; ``rehearse`` does all
    of it but the capture, with any kernel on any device: a graph is then the call.
    """

    def __init__(
        self,
        run: Callable[[Size], None],  # reads and writes what stays; waits for nothing
        idle: Callable[[Size], AbstractContextManager[None]],
        slots: int,  # most rows
        length: int,  # longest reach
        any_reach: tuple[bool, bool],
        device: torch.device,  # of the tensors
        mode: Mode,
        budget: Budget,  # for captures
    ) -> None:
        self.run, self.idle = run, idle
        self.length, self.device, self.mode, self.budget = length, device, mode, budget
        self.step = length if any_reach[0] else REACH_STEP
        self.with_chunks = any_reach[1] or mode == "rehearse"
        self.rows, self.mixed_rows = row_buckets(slots), mixed_row_buckets(slots)
        self.tokens = token_buckets(min(MOST_TOKENS, slots * length))
        self.graphs: dict[Size, Any] = {}  # by size
        self.replays = self.left_out = 0
        self.pool: Any = None
        self.stream: Any = None

    @property
    def most(self) -> Size:
        """The largest size of chunks in a graph."""
        return Size(0, 0, self.tokens[-1], PROMPTS[-1])

    def fitting(self, size: Size) -> Size | None:
        """Return the least size at hand that a step fits into; None: it runs as it is."""
        if not self.graphs:
            return None
        rows, reach, tokens, prompts = size
        if tokens > self.tokens[-1] or prompts > PROMPTS[-1]:
            return None
        if rows:
            rows, reach = _above(self.mixed_rows if tokens else self.rows, rows), self._reach(reach)
        if tokens:
            tokens, prompts = _above(self.tokens, tokens), _above(PROMPTS, prompts)
            reach = self.length if rows else 0
        found = Size(rows, reach, tokens, prompts)
        return found if found in self.graphs else None

    def replay(self, size: Size) -> None:
        """Run a step of a size at hand."""
        self.graphs[size].replay()
        self.replays += 1

    def _reach(self, reach: int) -> int:
        return min(self.length, -(-reach // self.step) * self.step)

    def prepare(self, reach: int) -> int:
        """Capture graphs of rounds up to a reach, then of chunks; return how many there are.

        The largest come first: they make the memory pool as large as it gets.
        """
        if self.mode == "off":
            return 0
        held, self.left_out = self._held_bytes(), 0
        for size in self._wanted(reach):
            if size in self.graphs:
                continue
            full = len(self.graphs) >= self.budget.sizes
            if full or self._held_bytes() - held > self.budget.bytes:
                self.left_out += 1
            elif not self._captured_or_off(size):
                return 0
        return len(self.graphs)

    def sizes(self) -> dict[str, Any]:
        """Return the sizes that have a graph, as plain values: each number that occurs."""
        names = ("rows", "reach", "tokens", "prompts")
        columns = [sorted(set(column)) for column in zip(*self.graphs, strict=True)]
        found = dict(zip(names, columns or [[]] * len(names), strict=True))
        return {"graphs": len(self.graphs), "left_out": self.left_out, **found}

    def _wanted(self, reach: int) -> Iterator[Size]:
        reaches = range(self._reach(1), self._reach(reach) + self.step, self.step)
        for rows, each in product(reversed(self.rows), reversed(reaches)):
            yield Size(rows, min(self.length, each))
        if not self.with_chunks:
            return
        for rows in (0, *reversed(self.mixed_rows)):
            for tokens, prompts in product(reversed(self.tokens), reversed(PROMPTS)):
                yield Size(rows, self.length if rows else 0, tokens, prompts)

    def _held_bytes(self) -> int:
        import torch

        if self.device.type != "cuda":
            return 0
        held: int = torch.cuda.memory_reserved(self.device)
        return held

    def _captured_or_off(self, size: Size) -> bool:
        """Capture a size; where the device refuses, steps run as they are from now on."""
        import torch

        try:
            self.graphs[size] = self._capture(size)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.graphs, self.mode = {}, "off"
            warn(f"steps do not run as graphs: {error}", RuntimeWarning, stacklevel=2)
            return False
        return True

    def _capture(self, size: Size) -> Any:
        """Warm up and capture, beside the stream of the steps; nothing that counts changes."""
        with self.idle(size):
            if self.mode == "rehearse":
                for _ in range(WARM_UPS):
                    self.run(size)
                return _Rehearsed(self.run, size)
            return self._captured(size)

    def _captured(self, size: Size) -> Any:
        import torch

        if self.stream is None:
            self.stream = torch.cuda.Stream(self.device)
            self.pool = torch.cuda.graph_pool_handle()
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UPS):
                self.run(size)
        current.wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        # no graph's tensors are read after its replay, and replays follow one another: one pool
        # serves all. Only this thread must leave the device alone meanwhile. The outer context
        # brings the stream back if the capture fails.
        with (
            torch.cuda.stream(current),
            torch.cuda.graph(
                graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"
            ),
        ):
            self.run(size)
        return graph


class _Rehearsed:
    """What stands for a graph where there are none: the call, with the size it was made for."""

    def __init__(self, run: Callable[[Size], None], size: Size) -> None:
        self.run, self.size = run, size

    def replay(self) -> None:
        """Run the step."""
        self.run(self.size)


def _above(buckets: list[int] | tuple[int, ...], number: int) -> int:
    return buckets[bisect_left(buckets, number)]


def row_buckets(slots: int) -> list[int]:
    """Return the rows that rounds have graphs for: at most a quarter more than needed."""
    found, rows = [], 1
    while rows < slots:
        found.append(rows)
        rows += max(1, 2 ** (rows.bit_length() - 3)) if rows >= 4 else 1
    return [*found, slots]


def mixed_row_buckets(slots: int) -> list[int]:
    """Return the rows beside chunks: fewer, since each comes with all sizes of chunks."""
    found, rows = [], 8
    while rows < slots:
        found.append(rows)
        rows += max(8, 2 ** (rows.bit_length() - 2))
    return [*found, slots]


def token_buckets(most: int) -> list[int]:
    """Return the numbers of tokens of chunks that there are graphs for."""
    found, tokens = [], 16
    while tokens < most:
        found.append(tokens)
        tokens += max(16, 2 ** (tokens.bit_length() - 3))
    return [*found, most]
