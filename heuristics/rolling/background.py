"""Plans made beside the run: in a process of their own, or in a thread.

A process has its own interpreter, so a decision never waits for it. It is a fresh interpreter that
imports what it needs by name: scripts need no guard. It ends when it is closed, when the
last planner that shares it is dropped, and when its parent ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from concurrent.futures import CancelledError, Future
from math import inf
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from orsched.errors import OrschedError
from orsched.heuristics.rolling.search import make_plan
from orsched.subprocess_call import Child

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.heuristics.rolling.snapshot import Plan, Snapshot
    from orsched.subprocess_call import Pipe

    _Job = tuple[Future[Plan], Snapshot, int, int, float]


class Planner:
    """One plan at a time, in the background.

    Args:
        background: ``process`` or ``thread``.

    Attributes:
        took_ns: wall-clock time that each plan took to make.
    """

    def __init__(self, background: str) -> None:
        self._child = _Child() if background == "process" else None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._ready: deque[Future[Plan]] = deque()
        self.took_ns: list[int] = []
        make = plan_snapshot if self._child is None else self._child.plan
        arguments = self._jobs, self._ready, self.took_ns, make
        thread = threading.Thread(None, _work, "orsched-rolling", arguments, daemon=True)
        thread.start()
        self._closer = weakref.finalize(self, _close, self._jobs, self._child, thread)

    def submit(
        self, snapshot: Snapshot, iterations: int, seed: int, seconds: float = inf
    ) -> Future[Plan]:
        """Start to make a plan, within a number of attempts and seconds."""
        future: Future[Plan] = self._ready.pop() if self._ready else Future()
        self._jobs.put((future, snapshot, iterations, seed, seconds))
        return future

    def close(self) -> None:
        """End the process and the thread; an attempt in a thread is not waited for."""
        self._closer()


def _work(
    jobs: SimpleQueue[_Job | None],
    ready: deque[Future[Plan]],
    took_ns: list[int],
    make: Callable[[Snapshot, int, int, float], Plan],
) -> None:
    """Run in the thread: have plans made, and keep a future ready, which takes a while to make."""
    while True:
        if not ready:
            ready.append(Future())
        job = jobs.get()
        if job is None:
            return
        future, snapshot, iterations, seed, seconds = job
        if not future.set_running_or_notify_cancel():
            continue
        begin = perf_counter_ns()
        try:
            plan = make(snapshot.own(), iterations, seed, seconds)
        except Exception as error:
            future.set_exception(error)
        else:
            took_ns.append(perf_counter_ns() - begin)
            future.set_result(plan)
            del plan
        del job, future, snapshot  # nothing is kept alive while this waits


def plan_snapshot(snapshot: Snapshot, iterations: int, seed: int, seconds: float = inf) -> Plan:
    """Return a plan for a snapshot, by rounds of its worker; empty if no request will wait."""
    left = snapshot.remaining()
    return snapshot.plan(() if left is None else make_plan(left, iterations, seed, seconds))


def _close(jobs: SimpleQueue[_Job | None], child: _Child | None, thread: threading.Thread) -> None:
    with contextlib.suppress(Empty):
        while (job := jobs.get_nowait()) is not None:
            job[0].cancel()
    jobs.put(None)
    if child is not None:
        child.ended = True
        child.kill()
        thread.join()
        child.pipe.close()


class _Child(Child):
    """The process that makes plans."""

    ended = False

    def __init__(self) -> None:
        super().__init__("orsched.heuristics.rolling.background:make_plans", waits=True)

    def plan(self, snapshot: Snapshot, iterations: int, seed: int, seconds: float) -> Plan:
        """Have a plan made; raises ``CancelledError`` once the process was ended."""
        try:
            self.pipe.send((snapshot, iterations, seed, seconds))
            kind, value = self.receive()
        except (OSError, EOFError) as error:
            if self.ended:
                raise CancelledError from None
            raise OrschedError(f"the planning process ended with {self.wait()}") from error
        if kind == "raised":
            raise OrschedError(f"in the planning process:\n{value}")
        plan: Plan = value
        return plan


def make_plans(pipe: Pipe) -> None:
    """Run in the process: make plans until the parent ends."""
    while True:
        snapshot, iterations, seed, seconds = pipe.receive()
        answer: tuple[str, Any]
        try:
            answer = ("plan", plan_snapshot(snapshot, iterations, seed, seconds))
        except Exception:
            import traceback

            answer = ("raised", traceback.format_exc())
        pipe.send(answer)
