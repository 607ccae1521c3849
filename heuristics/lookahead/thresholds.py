"""Batches that start when enough requests of a class wait: WAIT and Nested WAIT."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from orsched.heuristics.lookahead.lengths import expected_tokens, volume
from orsched.heuristics.lookahead.phases import phase_of_length
from orsched.heuristics.lookahead.policy import LookAhead
from orsched.step import decode_rounds, evict

if TYPE_CHECKING:
    from orsched.heuristics.lookahead.params import ThresholdParams
    from orsched.policy import Information, View
    from orsched.step import Step


class Thresholds(LookAhead):
    """Starts a batch of a class as soon as its threshold of requests wait (Ao et al., 2504.11320).

    Classes are by length and double: the first ends with ``first`` tokens. The threshold of a class
    is ``threshold``, or by the fluid model the requests of it that a worker whose memory is full
    starts in a round when it starts all classes as often as they have come so far: memory times
    the requests of the class, over the token-rounds of all, at least 1. Without memory, clients and
    rounds take the place of tokens and token-rounds.

    Our choices, where the texts that we have are silent: where nothing runs, what waits starts
    below its threshold, for nobody can say whether more will come; a batch is admitted request by
    request as memory holds at every expected end, as for MC-SF, and the next one is formed when
    all of it is; an iteration goes over all that run.
    """

    def __init__(self, name: str, params: ThresholdParams, information: Information) -> None:
        super().__init__(name, information)
        self.params = params
        self.queues: dict[int, deque[int]] = {}  # class -> requests, in order
        self.batch: deque[int] = deque()
        self.entered: dict[int, int] = {}  # class -> requests that have come to it
        self.work = 0  # token-rounds of all these, or rounds

    @abstractmethod
    def class_of(self, view: View, request: int) -> int:
        """Return the class in which a request waits."""

    @abstractmethod
    def work_of(self, view: View, request: int) -> tuple[int, int]:
        """Return the token-rounds and the rounds that the request takes in its class."""

    def key(self, view: View, request: int) -> int:
        """Return the class."""
        return self.class_of(view, request)

    def pressing(self, view: View, kind: int) -> tuple[int, ...]:
        """Return what is least of the class that goes first, of those that may: its oldest."""
        first = self.queues[kind][0]
        return view.arrival_ns[first], first

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request in its class, and count it."""
        self.enter(view, request)

    def enter(self, view: View, request: int) -> None:
        """Count a request in its class, where it waits."""
        kind = self.class_of(view, request)
        self.queues.setdefault(kind, deque()).append(request)
        self.entered[kind] = self.entered.get(kind, 0) + 1
        self.work += self.work_of(view, request)[view.worker.memory is None]

    def threshold(self, view: View, kind: int) -> int:
        """Return how many of a class have to wait."""
        if self.params.threshold:
            return self.params.threshold
        memory = view.worker.memory
        room = view.worker.clients if memory is None else memory.blocks * memory.block_tokens
        return max(1, room * self.entered[kind] // self.work)

    # -- the queues -----------------------------------------------------------------------

    def waiting(self) -> int:
        """Return how many wait, in classes or a batch."""
        return len(self.batch) + sum(map(len, self.queues.values()))

    def surrender(self) -> int:
        """Give up the last request of the longest class, or of the batch."""
        if not self.queues:
            return self.batch.pop()
        kind = max(self.queues)
        request = self.queues[kind].pop()
        self._tidy(kind)
        return request

    def peek(self, view: View) -> int | None:
        """Return the next of the batch; a new one is formed where a class has enough."""
        if not self.batch:
            ready = [k for k, each in self.queues.items() if len(each) >= self.threshold(view, k)]
            self._form(view, ready)
        return self.batch[0] if self.batch else None

    def take(self) -> None:
        """Start it."""
        self.batch.popleft()

    def _admit(self, view: View) -> list[int]:
        """Admit; where nothing runs and no class has enough, one starts all the same."""
        if not view.running and self.peek(view) is None:
            self._form(view, list(self.queues))
        return super()._admit(view)

    def _form(self, view: View, kinds: list[int]) -> None:
        """Move as many as the threshold of the most pressing class into the batch."""
        if not kinds:
            return
        kind = min(kinds, key=lambda each: self.pressing(view, each))
        queue = self.queues[kind]
        for _ in range(min(len(queue), self.threshold(view, kind))):
            self.batch.append(queue.popleft())
        self._tidy(kind)

    def _tidy(self, kind: int) -> None:
        if not self.queues[kind]:
            del self.queues[kind]


class Wait(Thresholds):
    """WAIT: classes by output length, which is known (Ao et al., arXiv 2504.11320).

    Of the classes that have enough, the one whose oldest request has waited longest goes first.
    Predictions that were too short lead to evictions as for MC-SF; an evicted request waits anew.
    """

    def __init__(self, params: ThresholdParams, information: Information) -> None:
        super().__init__("wait", params, information)

    def length(self, view: View, request: int) -> int:
        """Return the true or predicted tokens."""
        return expected_tokens(view, request, 0.0)

    def class_of(self, view: View, request: int) -> int:
        """Return the class of the length."""
        return phase_of_length(self.length(view, request), self.params.first)

    def work_of(self, view: View, request: int) -> tuple[int, int]:
        """Return the volume and the length."""
        tokens = self.length(view, request)
        return volume(view.prompt_tokens[request], tokens), tokens


class NestedWait(Thresholds):
    """Nested WAIT: lengths unknown, a segment holds those of like age (arXiv 2504.11320).

    A request starts in the first segment; who has not ended with a segment's length comes to the
    next one, which takes in those that have come when they are enough, else they wait. The
    deepest segment that has enough goes first, for it frees the most memory.

    Our choices: memory is foreseen to the end of the segment, for all that are in one, in place of
    the paper's buffer against overflow; who waits between segments is evicted and keeps its tokens,
    where the paper keeps the cache; who finds enough others goes on without.
    """

    def __init__(self, params: ThresholdParams, information: Information) -> None:
        super().__init__("nested_wait", params, information)
        self.until: dict[int, int] = {}  # running request -> tokens with which its segment ends

    def class_of(self, view: View, request: int) -> int:
        """Return the segment of the next token."""
        return phase_of_length(view.generated(request) + 1, self.params.first)

    def length(self, view: View, request: int) -> int:
        """Return the tokens with which the segment ends."""
        return min(self.params.first << self.class_of(view, request), view.output_limit_tokens)

    def pressing(self, view: View, kind: int) -> tuple[int, ...]:
        """Return the depth, deepest first."""
        return (-kind,)

    def work_of(self, view: View, request: int) -> tuple[int, int]:
        """Return what the rest of the segment takes, as if the request stayed to its end."""
        yielded = view.generated(request)
        rounds = self.length(view, request) - yielded
        return volume(view.prompt_tokens[request] + yielded, rounds), rounds

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        self.until.pop(request, None)
        super().on_finish(view, request, client)

    def on_preempt(self, view: View, request: int) -> None:
        """Let an evicted request wait in its segment."""
        self.until.pop(request, None)
        super().on_preempt(view, request)

    def decide(self, view: View) -> Step | None:
        """Pass those on whose segment has ended, or evict them; else as the others."""
        left = None
        if view.running and not view.prefilling:
            for each in view.running:
                if each not in self.until:
                    self.until[each] = self.length(view, each)
            ends = {each: most - view.generated(each) for each, most in self.until.items()}
            done = [each for each, tokens in ends.items() if tokens <= 0]
            if done and (stopped := self._pass_on(view, done)):
                return evict(stopped)
            left = min(
                (self.until[each] - view.generated(each) for each in self.until), default=None
            )
        step = super().decide(view)
        if left is None or step is None or step.prefill or step.preempt or step.rounds <= left:
            return step
        return decode_rounds(left, step.until)

    def _pass_on(self, view: View, done: list[int]) -> list[int]:
        """Let those go on that are enough with who waits in their segment; return the others."""
        stopped = []
        for kind in sorted({self.class_of(view, each) for each in done}, reverse=True):
            here = [each for each in done if self.class_of(view, each) == kind]
            waiting = self.queues.get(kind, ())
            enough = self.threshold(view, kind) if kind in self.entered else 1
            if len(here) + len(waiting) < enough and len(here) < len(view.running):
                stopped += here
                continue
            if waiting:
                self.batch.extendleft(reversed(self.queues.pop(kind)))
            stopped += [each for each in here if not self._goes_on(view, each, kind)]
        return stopped

    def _goes_on(self, view: View, request: int, kind: int) -> bool:
        """Foresee the memory of the next segment, and say if there is enough."""
        if not self._prolong(view, request, len(view.running) == 1):
            return False
        self.entered[kind] = self.entered.get(kind, 0) + 1
        self.work += self.work_of(view, request)[view.worker.memory is None]
        self.until[request] = self.length(view, request)
        return True
