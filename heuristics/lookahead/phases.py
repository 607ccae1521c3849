"""Phases of doubling lengths, in which requests start evenly spaced: GBA and GSA."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from orsched.heuristics.lookahead.lengths import expected_tokens
from orsched.heuristics.lookahead.policy import LookAhead
from orsched.step import decode_rounds, evict

if TYPE_CHECKING:
    from orsched.heuristics.lookahead.params import PhaseParams
    from orsched.policy import Information, View
    from orsched.step import Step


class Phases(LookAhead):
    """Serves requests in phases, whose lengths double, and staggers the starts within a phase.

    In a phase whose requests run for t rounds with c at a time, one starts every t/c rounds. Those
    that run have then reached evenly spread ages, so that the memory that they hold stays level,
    and c is the most for which it suffices: half as much for growth as with starts all at once
    (Feng et al., arXiv 2601.22996, abstract: a geometric phase structure and a staggered pipeline).

    Our choices, where we have the abstract alone: lengths start at ``first`` and double exactly; a
    phase begins when the last has ended and nothing runs, and is the one of the least length that
    has requests; its c is worked out then from the longest prompt that waits in it; within it
    requests go in the order of arrival; those that arrive join the phase of their length, the
    present one too. Starts that came late may follow at once. On top of the spacing memory has to
    hold at every expected end, as for MC-SF, which matters where arrivals have longer prompts.
    """

    paced = True

    def __init__(self, name: str, params: PhaseParams, information: Information) -> None:
        super().__init__(name, information)
        self.first = params.first
        self.queues: dict[int, deque[int]] = {}  # phase -> requests, in order
        self.phase = -1
        self.begin = self.started = self.together = 0
        self.span = 1

    @abstractmethod
    def phase_of(self, view: View, request: int) -> int:
        """Return the phase in which a request is to run next."""

    @abstractmethod
    def ages(self, view: View, phase: int) -> tuple[int, int]:
        """Return the tokens that requests have yielded before a phase, and the most after it."""

    def limit_of(self, phase: int) -> int:
        """Return the length of a phase in tokens."""
        return self.first << phase

    def key(self, view: View, request: int) -> int:
        """Return the phase."""
        return self.phase_of(view, request)

    # -- the queues -----------------------------------------------------------------------

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request in its phase."""
        self.queues.setdefault(self.phase_of(view, request), deque()).append(request)

    def waiting(self) -> int:
        """Return how many wait in all phases."""
        return sum(map(len, self.queues.values()))

    def surrender(self) -> int:
        """Give up the last request of the longest phase."""
        phase = max(self.queues)
        request = self.queues[phase].pop()
        self._tidy(phase)
        return request

    def peek(self, view: View) -> int | None:
        """Return the next request of the phase if its turn has come."""
        queue = self.queues.get(self.phase)
        if not queue:
            return None
        passed = (view.rounds - self.begin) * self.together
        return queue[0] if self.started * self.span <= passed else None

    def take(self) -> None:
        """Start it."""
        self.queues[self.phase].popleft()
        self._tidy(self.phase)
        self.started += 1

    def _tidy(self, phase: int) -> None:
        if not self.queues[phase]:
            del self.queues[phase]

    # -- the phases -----------------------------------------------------------------------

    def _admit(self, view: View) -> list[int]:
        """Begin the next phase, or the present one anew, where nothing runs; admit."""
        if not view.running:
            self._begin(view)
        return super()._admit(view)

    def _begin(self, view: View) -> None:
        self.phase = min(self.queues)
        before, after = self.ages(view, self.phase)
        self.begin, self.started, self.span = view.rounds, 0, max(after - before, 1)
        prompt = max(view.prompt_tokens[each] for each in self.queues[self.phase])
        self.together = self._most_together(view, prompt + before)

    def _most_together(self, view: View, held: int) -> int:
        """Return how many evenly spread requests memory holds, at least 1."""
        memory, clients = view.worker.memory, view.worker.clients
        if memory is None:
            return clients
        size, span = memory.block_tokens, self.span

        def blocks(count: int) -> int:
            grown = (held - (each * span // -count) for each in range(1, count + 1))
            return sum(-(tokens // -size) for tokens in grown)

        low, high = 1, min(clients, memory.blocks)
        while low < high:
            middle = (low + high + 1) // 2
            if blocks(middle) <= memory.blocks:
                low = middle
            else:
                high = middle - 1
        return low


class GeometricBatching(Phases):
    """GBA: a phase takes the requests of at most its length, and all of the last one's, whole.

    Memory is foreseen for true or predicted lengths; the spacing is that of the longest in the
    phase. Predictions that were too short lead to evictions as for MC-SF.
    """

    def __init__(self, params: PhaseParams, information: Information) -> None:
        super().__init__("gba", params, information)

    def length(self, view: View, request: int) -> int:
        """Return the true or predicted tokens."""
        return expected_tokens(view, request, 0.0)

    def phase_of(self, view: View, request: int) -> int:
        """Return the first phase that is as long as the request."""
        return phase_of_length(self.length(view, request), self.first)

    def ages(self, view: View, phase: int) -> tuple[int, int]:
        """Return 0 and the length of the longest request that waits in the phase."""
        return 0, max(self.length(view, each) for each in self.queues[phase])


class GeometricSlicing(Phases):
    """GSA: lengths unknown; who has not ended with the phase's length goes to the next phase.

    In the paper such a request is killed and starts again without its tokens. Here an evicted
    request keeps its tokens and its cache is made anew, so that a phase takes the tokens from the
    last phase's length to its own, and c counts what caches hold then. A request that has arrived
    later starts with the first phase, before those that wait for longer ones. Who is alone at the
    end of a phase goes on.
    """

    def __init__(self, params: PhaseParams, information: Information) -> None:
        super().__init__("gsa", params, information)

    def length(self, view: View, request: int) -> int:
        """Return the tokens with which its phase ends."""
        return min(self.limit_of(self.phase_of(view, request)), view.output_limit_tokens)

    def phase_of(self, view: View, request: int) -> int:
        """Return the first phase that is longer than what the request has yielded."""
        return phase_of_length(view.generated(request) + 1, self.first)

    def ages(self, view: View, phase: int) -> tuple[int, int]:
        """Return the lengths of the last phase and of this one."""
        before = self.limit_of(phase - 1) if phase else 0
        return before, min(self.limit_of(phase), view.output_limit_tokens)

    def decide(self, view: View) -> Step | None:
        """Evict those whose phase has ended, else as the others; look again at its next end."""
        left = None
        if view.running and not view.prefilling and self.phase >= 0:
            yielded = {each: view.generated(each) for each in view.running}
            length = self._length_now(view, max(yielded.values()))
            if length < view.output_limit_tokens:
                if done := [each for each, tokens in yielded.items() if tokens >= length]:
                    return evict(done)
                left = length - max(yielded.values())
        step = super().decide(view)
        if left is None or step is None or step.prefill or step.preempt or step.rounds <= left:
            return step
        return decode_rounds(left, step.until)

    def _length_now(self, view: View, most: int) -> int:
        """Return the length of the phase; the next one begins where one is alone at its end."""
        length = self.limit_of(self.phase)
        if most < length or len(view.running) > 1 or self.waiting():
            return length
        request = next(iter(view.running))
        self.phase = self.phase_of(view, request)
        self._prolong(view, request, alone=True)
        return self.limit_of(self.phase)


def phase_of_length(tokens: int, first: int) -> int:
    """Return the least p with tokens <= first * 2**p."""
    return (-(tokens // -first) - 1).bit_length()
