"""Over-sampling: of each group N requests are wanted, and the rest is aborted once N are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import NEVER
from orsched.data.step import ARRIVAL
from orsched.simulator.loop import Loop, Simulated
from orsched.simulator.run_state import DONE, SERVED
from orsched.simulator.worker import WorkerRun

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy, View


def group_rows(instance: Instance, keep: object) -> dict[int, list[int]]:
    """Return the rows of each group; ``InputError`` unless each has ``keep`` requests or more, all
    of which arrive at 0."""
    requests = instance.requests
    if requests.group is None or not len(requests):
        raise InputError("the requests have no groups", field="group", remedy="add the column")
    if requests.arrival_ns.any():
        raise InputError(
            "requests of a group that arrive over time", field="arrival_ns", remedy="let all be 0"
        )
    instance.require_known_arrivals("a group whose last requests are stopped")
    least = int(np.unique(requests.group, return_counts=True)[1].min())
    whole_number(keep, "keep", minimum=1, maximum=least, remedy=f"from 1 to {least}")
    found: dict[int, list[int]] = {}
    for row, group in enumerate(requests.group.tolist()):
        found.setdefault(group, []).append(row)
    return found


class AbortingWorker(WorkerRun):
    """A worker that stops its rounds where requests are to leave it."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.leaving: list[int] = []
        self.stop = False

    def _plan_rounds(self) -> bool:
        if self.stop and self.busy:
            return False
        if self.stop:  # a request is to leave that waits for its next token
            self.target = self.state.rounds + 1
        return super()._plan_rounds()

    def cut(self, moment_ns: int) -> bool:
        """Let rounds in progress end at the first border from a moment on; say if that is earlier
        than they would have ended."""
        self.stop, known = True, (self.until, self.arrival)
        self.until, self.arrival = self.until | ARRIVAL, NEVER
        earlier = self.interrupt(moment_ns)
        self.until, self.arrival = known
        return earlier


class AbortingLoop(Loop):
    """Aborts the rest of a group at the moment at which N of it are done: what waits at once, what
    is on a worker at the end of the round or prefill in progress there. A request whose prefill has
    begun, again after an eviction too, gets a token before it leaves. ``got`` has the tokens of
    each aborted request."""

    worker_type = AbortingWorker
    workers: list[AbortingWorker]  # type: ignore[assignment]

    def __init__(self, instance: Instance, policy: Policy, keep: int) -> None:
        if not policy.aborts:
            raise InputError(
                f"policy {policy.name} cannot abort requests", field="policy", remedy="use vllm"
            )
        self.rows = group_rows(instance, keep)
        self.missing = dict.fromkeys(self.rows, keep)
        self.full: list[int] = []
        self.late: set[int] = set()
        self.got: dict[int, int] = {}
        self.before: dict[int, int] = {}  # tokens of those evicted, when they were last
        self.hollow: set[int] = set()  # those of them whose last stay yielded none
        super().__init__(instance, policy, None, None)

    def _prepare(self) -> None:
        self.told = self.run_state.on_finish
        self.run_state.on_finish = self._finished
        self.heard = self.run_state.on_preempt
        self.run_state.on_preempt = self._evicted
        self.group: list[int] = self.instance.requests.group.tolist()  # type: ignore[union-attr]

    def _finished(self, view: View, request: int, client: int) -> None:
        if self.told is not None:
            self.told(view, request, client)
        group = self.group[request]
        self.missing[group] -= 1
        if self.missing[group] == 0:
            self.full.append(group)
            self.workers[view.index].stop = True

    def _evicted(self, view: View, request: int) -> None:
        tokens = self.run_state.yielded.get(request, 0)
        (self.hollow.discard, self.hollow.add)[tokens == self.before.get(request, 0)](request)
        self.before[request] = tokens
        if self.heard is not None:
            self.heard(view, request)

    def run(self) -> Simulated:
        """Run until each group has its requests."""
        self._serve_alone = self._serve_several  # type: ignore[method-assign]
        return super().run()

    def _ask(self, index: int) -> None:
        worker = self.workers[index]
        worker.state.now_ns = self.run_state.now_ns
        while self.full:
            self._close(self.rows[self.full.pop()], index)
        if self.late:
            here = [request for request in self.late if request in worker.state.running]
            self.late.difference_update(here)
            worker.leaving += here
        self._leave(worker)
        if self.run_state.left:
            super()._ask(index)

    def _close(self, rows: Iterable[int], index: int) -> None:
        """Abort what is left of a group; the worker of the index is free."""
        run_state = self.run_state
        status, yielded = run_state.status, run_state.yielded
        for request in rows:
            if status[request] == DONE:
                continue
            if status[request] == SERVED:
                (worker,) = (each for each in self.workers if request in each.state.running)
                worker.leaving.append(request)
            elif request in self.hollow:
                self.late.add(request)  # evicted in its prefill: it gets a token first
            else:
                status[request] = DONE
                run_state.left -= 1
                self.got[request] = yielded.pop(request, 0)
                self.policy.on_abort(self.views[index], request)
        for worker in self.workers:
            if worker.leaving and worker.state.index != index:
                if not worker.busy:
                    self._leave(worker)
                elif worker.cut(run_state.now_ns):
                    self._expect(worker.state.index, worker.until_ns)

    def _leave(self, worker: AbortingWorker) -> None:
        """Free clients and caches of the aborted requests of a free worker, if they got a token."""
        run_state, view = self.run_state, worker.view
        leaving, worker.leaving = worker.leaving, []
        for request in leaving:
            if run_state.status[request] == DONE:
                continue
            if view.generated(request) <= self.before.get(request, 0):
                worker.leaving.append(request)
                continue
            client = worker.state.running[request]
            run_state.on_preempt = None
            worker.running_set.evict([request])
            run_state.on_preempt = self._evicted
            run_state.status[request] = DONE
            run_state.left -= 1
            self.got[request] = run_state.yielded.pop(request)
            if self.told is not None:
                self.told(view, request, client)
        worker.stop = bool(worker.leaving)


def simulate_keeping(instance: Instance, policy: Policy, keep: int) -> tuple[Simulated, IntColumn]:
    """Run a policy until ``keep`` requests of each group are done; return also how many tokens each
    request has got. Work on requests that are not on any client leaves no rows."""
    loop = AbortingLoop(instance, policy, keep)
    instance.require_feasible(policy.chunks)
    found = loop.run()
    tokens = instance.requests.output_tokens.copy()
    for request, got in loop.got.items():
        tokens[request] = got
    return found, tokens
