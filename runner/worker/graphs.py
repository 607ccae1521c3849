"""Decode rounds as CUDA graphs: a round of a few hundred kernels becomes one launch.

What a round does depends on two numbers of the host, how many slots take part and how far their
caches reach, and on what the slots' tensors hold: those stay where they are and are written in
place. So one graph serves all rounds of a pair of numbers. The numbers are rounded up, to have few
pairs; slots beyond those that are active are masked. A graph is captured when its pair is first
asked for, or before by ``prepare``.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Literal
from warnings import warn

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

WARM_UPS = 2
"""Rounds before a capture: libraries choose and load their kernels in the first."""

Mode = Literal["off", "capture", "rehearse"]


class Rounds:
    """Runs rounds by (rows, reach), as graphs on a GPU.

    Args:
        run: a round; it must read and write tensors that stay, and wait for nothing.
        without_effect: a context in which rounds change nothing that counts.
        slots, length: most rows, longest reach.
        step: reaches are multiples of this; None if how far a round reaches does not matter.
        device: of the tensors.
        mode: ``off`` runs each round as it is, with as many rows as it has; ``capture`` as graphs;
            ``rehearse`` does all of it but the capture, on any device: a graph is then the call.

    Attributes:
        graphs: by (rows, reach).
        replays: how many rounds ran as graphs.
    """

    def __init__(
        self,
        run: Callable[[int, int], None],
        without_effect: Callable[[], AbstractContextManager[None]],
        slots: int,
        length: int,
        step: int | None,
        device: torch.device,
        mode: Mode,
    ) -> None:
        self.run, self.without_effect = run, without_effect
        self.length, self.step, self.device, self.mode = length, step, device, mode
        self.rows = row_buckets(slots)
        self.graphs: dict[tuple[int, int], Any] = {}
        self.replays = 0
        self.pool: Any = None
        self.stream: Any = None

    def __call__(self, rows: int, reach: int) -> None:
        """Run a round over the first ``rows`` slots, whose caches reach no farther than said."""
        reach = self.bucket(reach)
        if self.mode == "off":
            self.run(rows, reach)
            return
        key = self.rows[bisect_left(self.rows, rows)], reach
        if self._has(*key):
            self.graphs[key].replay()
            self.replays += 1
        else:
            self.run(rows, reach)

    def bucket(self, reach: int) -> int:
        """Return a reach that is rounded up."""
        if self.step is None:
            return self.length
        return min(self.length, -(-reach // self.step) * self.step)

    def prepare(self, reach: int) -> int:
        """Capture all graphs up to a reach, those with most rows first; return how many there are.

        The first graphs make the pool as large as it gets; the others share it.
        """
        if self.mode == "off":
            return 0
        step = self.step or self.length
        reaches = {self.bucket(each) for each in range(step, self.bucket(reach) + step, step)}
        for rows in reversed(self.rows):
            for each in sorted(reaches, reverse=True):
                if not self._has(rows, each):
                    return 0
        return len(self.graphs)

    def _has(self, rows: int, reach: int) -> bool:
        """Make sure of a graph; where the device refuses, rounds run as they are from now on."""
        import torch

        if (rows, reach) not in self.graphs:
            try:
                self.graphs[rows, reach] = self._capture(rows, reach)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.graphs, self.mode = {}, "off"
                warn(f"rounds do not run as graphs: {error}", RuntimeWarning, stacklevel=2)
                return False
        return True

    def _capture(self, rows: int, reach: int) -> Any:
        """Warm up and capture, beside the stream of the steps; nothing that counts changes."""
        with self.without_effect():
            if self.mode == "rehearse":
                for _ in range(WARM_UPS):
                    self.run(rows, reach)
                return _Rehearsed(self.run, rows, reach)
            return self._captured(rows, reach)

    def _captured(self, rows: int, reach: int) -> Any:
        import torch

        if self.stream is None:
            self.stream = torch.cuda.Stream(self.device)
            self.pool = torch.cuda.graph_pool_handle()
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UPS):
                self.run(rows, reach)
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
            self.run(rows, reach)
        return graph


class _Rehearsed:
    """What stands for a graph where there are none: the call, with the numbers it was made for."""

    def __init__(self, run: Callable[[int, int], None], rows: int, reach: int) -> None:
        self.run, self.rows, self.reach = run, rows, reach

    def replay(self) -> None:
        """Run the round."""
        self.run(self.rows, self.reach)


def row_buckets(slots: int) -> list[int]:
    """Return the numbers of rows that graphs are made for: at most a quarter more than needed."""
    found, rows = [], 1
    while rows < slots:
        found.append(rows)
        rows += max(1, 2 ** (rows.bit_length() - 3)) if rows >= 4 else 1
    return [*found, slots]
