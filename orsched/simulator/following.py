"""A run in which requests arrive when others have ended: closed loops and turns of conversations.

Arrivals are known as soon as the end that they follow has happened, and are told like others.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import read_only
from orsched.common.units import NEVER
from orsched.data.requests import NONE, conversations
from orsched.simulator.run_state import RunState

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy, View


class FollowingState(RunState):
    """Requests, arrivals and hooks of such a run; ``arrivals`` are NEVER until they are known."""

    follows = True

    def __init__(self, instance: Instance, policy: Policy) -> None:
        super().__init__(instance, policy)
        requests, n = instance.requests, len(instance)
        self.own_ns: list[int] = requests.arrival_ns.tolist()
        self.known_ns = np.full(n, NEVER, np.int64)
        self.arrivals = read_only(self.known_ns)
        self.order: list[int] = []  # requests whose arrival was told
        self.times: list[int] = []
        self.arrival_order, self.arrival_times = self.order, self.times
        self.pending: list[tuple[int, int]] = []  # known and not told yet
        parent = np.full(n, NONE) if requests.parent is None else requests.parent
        delay = np.full(n, NONE) if requests.delay_ns is None else requests.delay_ns
        self.delays: list[int] = delay.tolist()
        self.next_turns: dict[int, list[int]] = {}
        for row in np.flatnonzero(delay != NONE).tolist():
            self.next_turns.setdefault(int(parent[row]), []).append(row)
        # The first turns that wait for the end of a conversation, the last of them first.
        first = np.flatnonzero(parent == NONE)
        first = first[np.argsort(requests.arrival_ns[first], kind="stable")]
        waits = [] if instance.concurrency is None else first[::-1].tolist()
        self.first: list[int] = conversations(parent)[0].tolist()
        self.unfinished: list[int] = np.bincount(self.first, minlength=n).tolist()
        at_once = max(len(waits) - (instance.concurrency or 0), 0)
        self.waiting = waits[:at_once]
        held = set(self.waiting)
        for row in np.flatnonzero(delay == NONE).tolist():
            if row not in held:
                self._expect(row, 0)

    def _expect(self, request: int, moment_ns: int) -> None:
        """Let a request arrive at a moment, or at its own time if that is later."""
        arrival = self.known_ns[request] = max(moment_ns, self.own_ns[request])
        heappush(self.pending, (int(arrival), request))
        self.next_arrival_ns = self.pending[0][0]

    def finished(self, request: int, now_ns: int) -> None:
        """Let the end of a request set when its next turns and the next first turn arrive."""
        for turn in self.next_turns.get(request, ()):
            self._expect(turn, now_ns + self.delays[turn])
        first = self.first[request]
        self.unfinished[first] -= 1
        if self.waiting and not self.unfinished[first]:
            self._expect(self.waiting.pop(), now_ns)

    def deliver_arrivals(self, view: View) -> bool:
        """Tell the policy of the arrivals up to now; say if there were any."""
        now, pending, any_told = self.now_ns, self.pending, False
        while pending and pending[0][0] <= now:
            moment, request = heappop(pending)
            self.order.append(request)
            self.times.append(moment)
            self.next_arrival_ns = pending[0][0] if pending else NEVER
            self._tell(view, request)
            any_told = True
        return any_told
