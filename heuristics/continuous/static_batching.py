"""Static batching: a batch is prefilled at once and returned as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from orsched.common.errors import PolicyError
from orsched.common.units import seconds_to_ns
from orsched.data.step import Step, Wait, batch_rounds
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.heuristics.continuous.params import DynamicParams, Ordering, StaticParams, make_queue
from orsched.heuristics.continuous.queues import popped
from orsched.heuristics.policy_method import ANY, PolicyMethod
from orsched.simulator.policy import ClairvoyantView, Information, Policy, View

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.heuristics.continuous.queues import Queue

_ROUNDS = batch_rounds()


class StaticBatching(Policy):
    """Sequence-level batches: none joins or leaves before the longest request is done.

    A worker that is free forms a batch of the next requests once ``size`` wait, or once the
    oldest has waited for ``wait_ns`` (0: at once, with what waits). The batch ends at the first
    request that does not fit: clients, prefill cap (padded on a worker that pads), and the blocks
    that the batch fills if every request yields as many tokens as the longest (blind: as the
    output limit). A batch of one is never refused for memory that the output limit asks for.
    """

    shares_queue = True

    def __init__(
        self,
        name: str,
        information: Information,
        queue: Queue,
        size: int | None,
        wait_ns: int,
    ) -> None:
        self.name = name
        self.information = information
        self.queue = queue
        self.most = size
        self.wait_ns = wait_ns

    def start(self, view: View) -> None:
        """Know the worker."""
        worker = view.worker
        self.size = worker.clients if self.most is None else min(self.most, worker.clients)
        self.all_fit = worker.memory is None and worker.prefill_limit is None
        self.batch = HeldBatch(view)

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        self.queue.put(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        self.queue.forget(request)

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.queue)

    def surrender(self) -> int:
        """Give up the request that is last."""
        return self.queue.surrender()

    def decide(self, view: View) -> Step | Wait | None:
        """Return the rounds of the batch, the prefill stage of the next, or wait."""
        if view.prefilling:
            return self.batch.next_part()
        if view.running:
            return _ROUNDS
        if not self.queue:
            return None
        if self.wait_ns and len(self.queue) < self.size:
            due = view.arrival_ns[self.queue.oldest()] + self.wait_ns
            if due > view.now_ns:
                return Wait(due)
        return self.batch.prefill(self._form(view))

    def _form(self, view: View) -> list[int]:
        queue = self.queue
        left = min(self.size, len(queue))
        if self.all_fit:
            return [queue.pop() for _ in range(left)]
        batch = self.batch.take_offered(popped(queue, left), left)
        if batch:
            return batch
        if not self.batch.holds_alone(queue.first()):
            raise PolicyError(f"request {queue.first()} does not fit into the worker's memory")
        return [queue.pop()]


class HeldBatch(BatchBuilder):
    """A batch that is held until its longest answer is done: memory is for all as if as long."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        # Where lengths are not known, all have the output limit: what is set aside says it.
        self.known = view.output_tokens if isinstance(view, ClairvoyantView) else None
        self.by_length = self.paged and self.known is not None
        self.one_by_one = self.padding or self.by_length

    def open(self, clients: int | None = None) -> Self:
        """Begin a batch."""
        self.output = self.needed = 0
        self.prompts: list[int] = []
        return super().open(clients)

    def reserve(self, request: int, tokens: int) -> bool:
        """Take the memory of a request, and of the others if its answer is longer than theirs."""
        if self.known is None or not self.by_length:
            return super().reserve(request, tokens)
        size, output = self.block_tokens, max(self.output, self.known[request])
        if self.padding:
            needed = (self.count + 1) * -(-(max(self.longest, tokens) + output) // size)
        elif output == self.output:
            needed = self.needed + -(-(tokens + output) // size)
        else:
            needed = sum(-(-(each + output) // size) for each in (*self.prompts, tokens))
        if needed > self.most_blocks:
            return False
        self.output, self.needed = output, needed
        self.prompts.append(tokens)
        return True

    def holds_alone(self, request: int) -> bool:
        """Whether the worker may hold a request, if it yields less than the limit."""
        return self.paged and -(-(self.view.prompt_tokens[request] + 1) // self.block_tokens) <= (
            self.most_blocks
        )


def _static(
    instance: Instance, params: StaticParams, information: Information, seed: int
) -> Policy:
    queue = make_queue(instance, params, information)
    return StaticBatching("static", information, queue, params.batch_size, 0)


def _dynamic(
    instance: Instance, params: DynamicParams, information: Information, seed: int
) -> Policy:
    queue = make_queue(instance, params, information)
    wait_ns = seconds_to_ns(params.batch_wait_timeout_s, "batch_wait_timeout_s")
    return StaticBatching("dynamic", information, queue, params.max_batch_size, wait_ns)


def _one_at_a_time(
    instance: Instance, params: Ordering, information: Information, seed: int
) -> Policy:
    return StaticBatching(
        "one_at_a_time", information, make_queue(instance, params, information), 1, 0
    )


STATIC = PolicyMethod(
    "static",
    ANY,
    "static batches at sequence level: no request leaves before the longest request is done",
    _static,
    StaticParams,
)

DYNAMIC = PolicyMethod(
    "dynamic",
    ANY,
    "static batches, formed when full or when the oldest request has waited long enough",
    _dynamic,
    DynamicParams,
)

ONE_AT_A_TIME = PolicyMethod(
    "one_at_a_time",
    ANY,
    "no batching: one request after the other",
    _one_at_a_time,
    Ordering,
)
