"""How many clients to use now: the online choice of Pang's J (the page *Gates* has the rule).

With b requests a round takes t(b). In batches of b, R requests of like length take R / b times
as many rounds as one, and are done after t(b) (R / b + 1) / 2 of it in the mean. That is least at
the fewer clients the fewer are left: under t(b) = c + d b at b = sqrt(R c / d).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.heuristics.forecast import ArrivalRate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.simulator.policy import View

RULES = ("all", "latency")
"""``all``: every client of the worker; ``latency``: those that make the term above least."""

_GROWTH = 1.5
"""Times of rounds are worked out again whenever so many times as many requests have ended."""


class ClientChoice:
    """Chooses how many clients to use, by the times of rounds and the requests in the system.

    While arrivals are expected R is not known, and more than what is there: then it uses all.
    Contexts, where times depend on them, are those of a mean request in the middle of its answer,
    by the requests seen so far: the prompts of those that came, the tokens of those that ended.

    Args:
        view: the worker.
    """

    def __init__(self, view: View) -> None:
        self.arrivals = ArrivalRate()
        self.worker = view.worker
        self.came = self.prompts = self.ended = self.outputs = 0
        self.next = 1
        self.limit = view.output_limit_tokens
        self._counts = np.arange(1, view.worker.clients + 1, dtype=np.float64)
        self._times: NDArray[np.float64] | None = None
        self._kept = -1, 0

    def arrived(self, view: View, request: int) -> None:
        """Count a prompt."""
        self.arrivals.note(view.arrival_ns[request])
        self.came += 1
        self.prompts += view.prompt_tokens[request]

    def finished(self, tokens: int) -> None:
        """Count the tokens of a request that has ended."""
        self.ended += 1
        self.outputs += tokens
        if self.ended >= self.next:
            self.next = int(self.ended * _GROWTH) + 1
            if self.worker.cost.context_matters:
                self._times = None

    def most(self, view: View, requests: int) -> int:
        """Return how many clients to use with so many requests that wait or run, at least 1."""
        if self.arrivals.rate(view.now_ns) > 0:
            return len(self._counts)
        if self._kept[0] != requests:
            self._kept = requests, self._best(requests)
        return self._kept[1]

    def _best(self, requests: int) -> int:
        if self._times is None:
            self._times = self._rounds()
        count = min(max(1, requests), len(self._counts))
        times, counts = self._times[:count], self._counts[:count]
        value = times * (requests / counts + 1.0)
        # Of equal values the most clients: nobody waits for nothing.
        return count - int(np.argmin(value[::-1]))

    def _rounds(self) -> NDArray[np.float64]:
        """Return the time of a round with 1, 2, ... requests."""
        prompt = self.prompts / self.came if self.came else 0.0
        output = self.outputs / self.ended if self.ended else self.limit / 2
        context = max(1, round(prompt + output / 2))
        cost = self.worker.cost
        return np.array(
            [cost.round_ns(b, b * context, context) for b in range(1, len(self._counts) + 1)],
            dtype=np.float64,
        )
