"""Dispatchers: the worker that each arriving request is given to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from orsched.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from orsched.policy import View


class Dispatcher(ABC):
    """Chooses a worker at each arrival; told of finishes, it can keep count of what is open."""

    name: ClassVar[str]

    def start(self, view: View) -> None:
        """See the workers before the first arrival."""
        self.workers = len(view.workers)

    @abstractmethod
    def choose(self, view: View, request: int) -> int:
        """Return the index of the worker that gets an arriving request."""

    def on_finish(self, view: View, request: int) -> None:  # noqa: B027
        """Take note of a finish on the worker of the view."""

    def moved(self, view: View, request: int, source: int, target: int) -> None:  # noqa: B027
        """Take note of a request that was stolen by another worker before it started."""


class RoundRobin(Dispatcher):
    """Each worker in turn (the baseline of SCLS and MICO)."""

    name = "round_robin"

    def start(self, view: View) -> None:
        """Begin with the first worker."""
        super().start(view)
        self.next = 0

    def choose(self, view: View, request: int) -> int:
        """Return the next worker."""
        chosen = self.next
        self.next = (chosen + 1) % self.workers
        return chosen


class FewestRequests(Dispatcher):
    """The worker with the fewest unfinished requests for each of its clients; ties go first."""

    name = "fewest_requests"

    def start(self, view: View) -> None:
        """Begin with nothing open."""
        super().start(view)
        self.open = [0] * self.workers
        self.loads = [0.0] * self.workers
        self.clients = [each.worker.clients for each in view.workers]

    def choose(self, view: View, request: int) -> int:
        """Return the least loaded worker."""
        chosen = self.loads.index(min(self.loads))
        self._add(chosen, self._weight(view, request))
        return chosen

    def on_finish(self, view: View, request: int) -> None:
        """Take the request off its worker."""
        self._add(view.index, -self._weight(view, request))

    def moved(self, view: View, request: int, source: int, target: int) -> None:
        """Let a stolen request count for the thief."""
        weight = self._weight(view, request)
        self._add(source, -weight)
        self._add(target, weight)

    def _add(self, worker: int, weight: int) -> None:
        self.open[worker] += weight
        self.loads[worker] = self.open[worker] / self.clients[worker]

    def _weight(self, view: View, request: int) -> int:
        return 1


class LeastWork(FewestRequests):
    """The worker with the least open work in tokens for each of its clients.

    A request counts with its prompt and its predicted (clairvoyant: true) output tokens; without
    information on lengths with its prompt alone.
    """

    name = "least_work"

    def _weight(self, view: View, request: int) -> int:
        tokens = view.prompt_tokens[request]
        if isinstance(view, PredictedView):
            tokens += view.predicted_tokens[request]
        elif isinstance(view, ClairvoyantView):
            tokens += view.output_tokens[request]
        return tokens


DISPATCHERS: dict[str, type[Dispatcher]] = {
    kind.name: kind for kind in (RoundRobin, FewestRequests, LeastWork)
}
