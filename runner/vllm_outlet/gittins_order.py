"""The waiting order of the policy ``gittins``: arrival and Gittins index on learned lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.costs import AffineCost
from orsched.heuristics.gittins.lengths import LengthModel
from orsched.heuristics.gittins.params import GittinsParams
from orsched.heuristics.gittins.prices import Prices
from orsched.policy import Information, View, WorkerState
from orsched.runner.vllm_outlet.orders import Order
from orsched.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.costs import CostModel
    from orsched.runner.vllm_outlet.orders import Known

_LEAST_RUNNING = 32.0
"""At least this many requests share a round, as in the policy."""


class GittinsOrder(Order):
    """Keys of the policy ``gittins`` on one worker; its gates and evictions are not part of it.

    The parameters are those of ``GittinsParams`` that decide which request is next. ``cost`` names
    a cost-model file, such as ``orsched calibrate`` writes; without one the prices are those of the
    default model, which is of another machine than yours.
    """

    def __init__(
        self,
        information: Information = Information.NONE,
        cost: str | None = None,
        *,
        index: str = "gittins",
        aging: float = GittinsParams.aging,
        batch_weight: float = GittinsParams.batch_weight,
    ) -> None:
        self.information = information
        self.params = GittinsParams(index=index, aging=aging, batch_weight=batch_weight)
        self.cost = AffineCost() if cost is None else _read_cost(cost)

    def start(self, clients: int, output_limit_tokens: int) -> None:
        """Begin with nothing learned."""
        nothing = memoryview(b"")
        state = WorkerState(Worker(clients, self.cost), "prefill", output_limit_tokens)
        self.prices = Prices(View(state, nothing, nothing, None))
        self.model = LengthModel(output_limit_tokens)

    def key(self, request: Known, running: int) -> int:
        """Return the arrival, later by the index as expected work."""
        weight = self.params.batch_weight if request.service_class else 1.0
        return request.arrival_ns + int(
            self.params.aging * self._rank_ns(request, running) / weight
        )

    def _rank_ns(self, request: Known, running: int) -> float:
        prices = self.prices
        token_ns = prices.round_ns / max(running, _LEAST_RUNNING) + prices.client_ns
        prefill_ns = prices.token_ns * request.prompt_tokens
        if self.information is Information.CLAIRVOYANT:
            assert request.length is not None
            return prefill_ns + token_ns * request.length
        lengths = self.model.lengths(self._group(request))
        if self.params.index == "serpt":
            return prefill_ns + token_ns * lengths.mean
        return lengths.rank(prefill_ns, token_ns)

    def _group(self, request: Known) -> tuple[int, int]:
        predicted = request.length if self.information is Information.PREDICTED else None
        return self.model.group(request.service_class, predicted)

    def on_finish(self, request: Known, tokens: int, running: Iterable[tuple[Known, int]]) -> None:
        """Learn from the request's length."""
        if self.model.finish(self._group(request), tokens):
            self.model.learn((self._group(each), count) for each, count in running)


def _read_cost(path: str) -> CostModel:
    from orsched.files import load_cost

    return load_cost(path)
