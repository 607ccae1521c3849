"""The schedulers of SSJF's authors, rule by rule as in their published simulator (Apache-2.0).

They take batches: a new one is formed when the last is through. In dynamic batches that is when the
longest request is done, in continuous ones when the shortest is: the others go back to the queue,
at no cost, and may be left out of the next batch. The two schedulers differ by more than the order:
first come first served waits for a batch to fill, shortest first never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.data.step import FINISH, FOREVER, Step, Wait, batch_rounds, prefill_stage
from orsched.simulator.policy import ClairvoyantView, Information, Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.simulator.policy import View

LONGEST_WAIT_NS = 100 * 10**9
"""Who has waited longer goes first (their ``SJF_STARVATION_WAITING_TIME_THRES``)."""

WAIT_IN_LENGTHS = 10
"""So does who has waited longer than so many times its length (their ``..._COEFFICIENT``)."""


class Batches(Policy):
    """Batch after batch from a queue; subclasses form them.

    Attributes:
        queue: who waits, and in continuous batches who was put back.
        batch: the requests of the current batch that are not done.
    """

    def __init__(self, size: int, continuous: bool) -> None:
        self.size = size
        self.continuous = continuous
        self.queue: list[int] = []
        self.batch: list[int] = []
        self.serving = self.entering = False

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        self.queue.append(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        self.batch.remove(request)

    def form(self, view: View) -> Wait | None:
        """Move requests from the queue into the batch, or say how long to wait for more."""
        raise NotImplementedError

    def put_back(self, view: View) -> None:
        """Return those of the batch that are not done to the queue."""
        raise NotImplementedError

    def decide(self, view: View) -> Step | Wait | None:
        """Return the start of a batch, or its rounds; each step ends with its batch."""
        if self.entering:
            self.entering = False
            return self._rounds()
        if self.serving:
            self.serving = False
            self.put_back(view)
        if not self.queue:
            return None
        wait = self.form(view)
        if wait is not None:
            return wait
        self.serving = True
        new = [request for request in self.batch if request not in view.running]
        if not new:
            return self._rounds()
        self.entering = True
        return prefill_stage(new)

    def _rounds(self) -> Step:
        if self.continuous:
            return Step(decode=list(self.batch), rounds=FOREVER, until=FINISH)
        return batch_rounds()

    def _take(self, count: int) -> None:
        self.batch, self.queue = self.queue[:count], self.queue[count:]


class AuthorsFcfs(Batches):
    """First come first served: a batch that is not full starts ``wait_ns`` after it could."""

    name = "authors_fcfs"
    information = Information.NONE

    def __init__(self, size: int, continuous: bool, wait_ns: int) -> None:
        super().__init__(size, continuous)
        self.wait_ns = wait_ns
        self.due_ns: int | None = None

    def form(self, view: View) -> Wait | None:
        """Take the first of the queue once they fill a batch, or the wait is over."""
        if self.due_ns is None:
            self.due_ns = view.now_ns + self.wait_ns
        if len(self.queue) < self.size and view.now_ns < self.due_ns:
            return Wait(self.due_ns)
        self.due_ns = None
        self._take(self.size)
        return None

    def put_back(self, view: View) -> None:
        """Put them first, the last of the batch before the others."""
        self.queue = self.batch[::-1] + self.queue
        self.batch = []


class AuthorsShortestFirst(Batches):
    """Shortest first, by true remaining tokens or by predicted ones of the whole request.

    The queue is sorted anew for each batch; equals stay as they were. If who has waited longest has
    waited too long the queue is sorted by waiting times instead. That rule reads the true length
    whatever the order is by, as the authors' does: hence the information class. Waiting is
    counted at the end of a batch, for all who are in the queue then, from the end of the batch
    before: also for who has just arrived, and in continuous batches for who was in the batch.

    Args:
        predicted: predicted tokens by request row, None for an order by the true ones.
        rescue: whether there is a rule against starvation.
        peek: whether that rule reads true lengths, else the predicted ones.
    """

    name = "authors_sjf"
    information = Information.CLAIRVOYANT

    def __init__(
        self,
        size: int,
        continuous: bool,
        predicted: Sequence[int] | None = None,
        rescue: bool = True,
        peek: bool = True,
    ) -> None:
        super().__init__(size, continuous)
        self.predicted = predicted
        self.rescue = rescue
        self.peek = peek or predicted is None
        self.waited_for: dict[int, int] = {}
        self.last_end_ns = 0

    def form(self, view: View) -> Wait | None:
        """Take the shortest, or who has waited longest."""
        waited = self.waited_for
        by_wait = sorted(self.queue, key=lambda request: -waited.get(request, 0))
        if self.rescue and self._starves(view, by_wait[0]):
            self.queue = by_wait
        elif self.predicted is None:
            self.queue.sort(key=lambda request: _left(view, request))
        else:
            self.queue.sort(key=self.predicted.__getitem__)
        self._take(self.size)
        return None

    def put_back(self, view: View) -> None:
        """Put them last, and count the waiting time of all."""
        self.queue += self.batch
        self.batch = []
        spent = view.now_ns - self.last_end_ns
        self.last_end_ns = view.now_ns
        for request in self.queue:
            self.waited_for[request] = self.waited_for.get(request, 0) + spent

    def _starves(self, view: View, request: int) -> bool:
        if self.peek:
            tokens = _left(view, request)
        else:
            assert self.predicted is not None
            tokens = max(1, self.predicted[request] - view.generated(request))
        limit = WAIT_IN_LENGTHS * tokens * view.worker.cost.round_ns(1, 0, 0)
        return self.waited_for.get(request, 0) > min(limit, LONGEST_WAIT_NS)


def _left(view: View, request: int) -> int:
    """Return the tokens that a request has still to yield."""
    assert isinstance(view, ClairvoyantView)
    return view.output_tokens[request] - view.generated(request)
