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
        worker = view.worker
        self.size = worker.clients if self.most is None else min(self.most, worker.clients)
        self.all_fit = worker.memory is None and worker.prefill_limit is None

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
        queue = self.queue
        left = min(self.size, len(queue))
        if self.all_fit:
            return [queue.pop() for _ in range(left)]
        room, first, pop = _Room(view), queue.first, queue.pop
        if not room.take(first()) and not room.holds_alone(first()):
            raise PolicyError(f"request {first()} does not fit into the worker's memory")
        batch, left, take = [pop()], left - 1, room.take
        while left and take(first()):
            batch.append(pop())
            left -= 1
        return batch


class _Room:
    """What a batch fills, and whether one more request fits."""

    def __init__(self, view: View) -> None:
        worker, memory = view.worker, view.worker.memory
        self.view = view
        self.prompt_tokens = view.prompt_tokens
        self.padding = worker.padding
        self.limit = worker.prefill_limit
        self.memory = memory
        self.paged = memory is not None and memory.is_paged
        self.room = 0 if memory is None else memory.blocks
        self.size = 1 if memory is None else memory.block_tokens
        self.known = view.output_tokens if isinstance(view, ClairvoyantView) else None
        self.outputs = 0 if self.known is not None else view.output_limit_tokens
        self.count = self.prompt_sum = self.longest = self.blocks = 0
        self.prompts: list[int] = []

    def take(self, request: int) -> bool:
        """Let a request be in the batch if it fits; say if so. The first one is in anyway."""
        prompt = self.prompt_tokens[request]
        self.count = count = self.count + 1
        if prompt > self.longest:
            self.longest = prompt
        if self.limit is not None:
            self.prompt_sum += prompt
            tokens = self.longest * count if self.padding else self.prompt_sum
            if tokens > self.limit and count > 1:
                return False
        if not self.paged:
            if self.memory is not None:
                self.blocks += self.view.blocks_of(request)
        elif self.known is None and not self.padding:
            self.blocks += -(-(prompt + self.outputs) // self.size)
        else:
            self._fill(request, prompt)
        return self.blocks <= self.room

    def _fill(self, request: int, prompt: int) -> None:
        """Count the blocks anew if the longest answer may be longer, or all are padded."""
        size = self.size
        longer = self.known is not None and self.known[request] > self.outputs
        if self.known is not None and longer:
            self.outputs = self.known[request]
        self.prompts.append(prompt)
        if self.padding:
            self.blocks = self.count * -(-(self.longest + self.outputs) // size)
        elif longer:
            self.blocks = sum(-(-(each + self.outputs) // size) for each in self.prompts)
        else:
            self.blocks += -(-(prompt + self.outputs) // size)

    def holds_alone(self, request: int) -> bool:
        """Whether the worker may hold a request, if it yields less than the limit."""
        if self.memory is None:
            return True
        if not self.paged:
            return self.view.blocks_of(request) <= self.room
        return self.memory.blocks_held(self.prompt_tokens[request], 1) <= self.room
