"""Static batching: a batch is prefilled at once and returned as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.errors import PolicyError
from orsched.policy import ClairvoyantView, Information, Policy, View
from orsched.step import Step, Wait, batch_rounds, prefill_stage

if TYPE_CHECKING:
    from orsched.heuristics.continuous.waiting import Queue

_ROUNDS = batch_rounds()


class StaticBatching(Policy):
    """Sequence-level batches: nobody joins, nobody leaves before the longest request is done.

    A worker that is free forms a batch of the next requests once ``size`` wait, or once the
    oldest has waited for ``wait_ns`` (0: at once, with what is there). The batch ends at the first
    request that does not fit: clients, prefill cap (padded on a worker that pads), and the blocks
    that the batch fills if every request yields as many tokens as the longest (blind: as the
    output limit). A batch of one is never refused for memory that the output limit asks for.
    """

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
        clients = view.worker.clients
        self.size = clients if self.most is None else min(self.most, clients)

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
        if view.running:
            return _ROUNDS
        if not self.queue:
            return None
        if self.wait_ns and len(self.queue) < self.size:
            due = view.arrival_ns[self.queue.oldest()] + self.wait_ns
            if due > view.now_ns:
                return Wait(due)
        return prefill_stage(self._form(view))

    def _form(self, view: View) -> list[int]:
        """Pop the next batch."""
        queue, room = self.queue, _Room(view)
        if not room.take(view, queue.first()) and not room.holds_alone(view, queue.first()):
            raise PolicyError(f"request {queue.first()} does not fit into the worker's memory")
        batch = [queue.pop()]
        while queue and len(batch) < self.size and room.take(view, queue.first()):
            batch.append(queue.pop())
        return batch


class _Room:
    """What a batch fills, and whether one more request fits."""

    def __init__(self, view: View) -> None:
        worker = view.worker
        self.padding = worker.padding
        self.limit = worker.prefill_limit
        self.memory = worker.memory
        self.paged = self.memory is not None and self.memory.is_paged
        self.count = self.prompt_sum = self.longest = self.outputs = self.blocks = 0
        self.prompts: list[int] = []

    def take(self, view: View, request: int) -> bool:
        """Let a request be in the batch if it fits; say if so. The first one is in anyway."""
        prompt = view.prompt_tokens[request]
        first, self.count = not self.count, self.count + 1
        self.longest = max(self.longest, prompt)
        self.prompt_sum += prompt
        if self.limit is not None and not first:
            tokens = self.longest * self.count if self.padding else self.prompt_sum
            if tokens > self.limit:
                return False
        return self.memory is None or self._fill(view, request, prompt) <= self.memory.blocks

    def _fill(self, view: View, request: int, prompt: int) -> int:
        """Return the blocks that the batch fills at most with one more request."""
        if not self.paged:
            self.blocks += view.blocks_of(request)
            return self.blocks
        assert self.memory is not None
        size, known = self.memory.block_tokens, view.output_limit_tokens
        if isinstance(view, ClairvoyantView):
            known = view.output_tokens[request]
        if self.padding:
            self.outputs = max(self.outputs, known)
            return self.count * -(-(self.longest + self.outputs) // size)
        self.prompts.append(prompt)
        if known > self.outputs:
            self.outputs = known
            self.blocks = sum(-(-(each + known) // size) for each in self.prompts)
        else:
            self.blocks += -(-(prompt + self.outputs) // size)
        return self.blocks

    def holds_alone(self, view: View, request: int) -> bool:
        """Whether the worker may hold a request, if it yields less than the limit."""
        if self.memory is None:
            return True
        if not self.paged:
            return view.blocks_of(request) <= self.memory.blocks
        return self.memory.blocks_held(view.prompt_tokens[request], 1) <= self.memory.blocks
