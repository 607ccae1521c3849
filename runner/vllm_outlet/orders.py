"""Orders of waiting requests by name: what an order may know, and the key that it gives."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, known_names
from orsched.common.own_code import class_of
from orsched.common.scalars import is_number
from orsched.common.units import NS_PER_S, seconds_to_ns
from orsched.costs import AffineCost
from orsched.data.workers import Worker
from orsched.files import load_cost
from orsched.heuristics.gittins.lengths import LengthModel
from orsched.heuristics.gittins.worker_model import GittinsParams
from orsched.heuristics.prices import Prices
from orsched.simulator.policy import Information, View, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Known(NamedTuple):
    """What an order may know of a request when it comes."""

    name: str  # the engine's name of the request
    place: int  # how many requests came before it
    arrival_ns: int  # when it arrived, on the engine's clock
    prompt_tokens: int  # N^p
    priority: int  # what the client sent as ``priority``; a plan's rank
    service_class: int  # 0 interactive, 1 batch
    length: int | None  # predicted or true output, as the order's information grants; else None


class Order(ABC):
    """Which waiting request is next: the one with the smallest key, then the first that came.

    A key is given once, when the request comes, and kept when it is preempted.
    """

    information: Information = Information.NONE

    def start(self, clients: int, output_limit_tokens: int) -> None:  # noqa: B027
        """Know how many requests run at a time, and how long an answer can be at most."""

    @abstractmethod
    def key(self, request: Known, running: int) -> int:
        """Return the key of a request that has arrived while a number of others run."""

    def on_finish(  # noqa: B027
        self, request: Known, tokens: int, running: Iterable[tuple[Known, int]]
    ) -> None:
        """Record a request that is done; ``running`` have yielded so many tokens each."""


class FirstCome(Order):
    """First come, first served."""

    def key(self, request: Known, running: int) -> int:
        """Return the request's place."""
        return request.place


class PlanRank(Order):
    """By what the client sent as ``priority``, such as the rank in a plan."""

    def key(self, request: Known, running: int) -> int:
        """Return the priority."""
        return request.priority


class ShortestFirst(Order):
    """Shortest predicted (``ssjf``) or true (``sjf``) length first, with aging if asked for.

    ``aging_s`` as in ``ShortestFirstParams``: a wait of so many seconds counts as much as one
    token less.
    """

    def __init__(self, information: Information, aging_s: float | None = None) -> None:
        self.information = information
        self.aging_ns = None if aging_s is None else seconds_to_ns(aging_s, "aging_s")

    def key(self, request: Known, running: int) -> int:
        """Return the length, or with aging the moment at which it would be due."""
        assert request.length is not None
        if self.aging_ns is None:
            return request.length
        return request.length * self.aging_ns + request.arrival_ns


_LEAST_RUNNING = 32.0  # at least this many requests share a round, as in the policy


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
        self.cost = AffineCost() if cost is None else load_cost(cost)

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


def _gittins(information: str = "none", cost: str | None = None, **params: Any) -> Order:
    return GittinsOrder(Information(information), cost, **params)


ORDERS: dict[str, Callable[..., Order]] = {
    "fcfs": FirstCome,
    "plan": PlanRank,
    "ssjf": lambda **params: ShortestFirst(Information.PREDICTED, **params),
    "sjf": lambda **params: ShortestFirst(Information.CLAIRVOYANT, **params),
    "gittins": _gittins,
}
"""Orders by the names of the policies that have them; ``plan`` is the rank in a plan."""


def make_order(settings: dict[str, Any]) -> Order:
    """Return an order from ``{"order": NAME, ...}``, where the rest are its parameters.

    NAME is one of ``ORDERS``, or ``module:Class`` of a subclass of ``Order``. Raises
    ``InputError``.
    """
    params = dict(settings)
    name = params.pop("order", None)
    if not isinstance(name, str):
        raise InputError("no order is named", field="order", remedy=f"one of {', '.join(ORDERS)}")
    make = class_of(name, Order, "order") if ":" in name else ORDERS.get(name)
    if make is None:
        raise InputError(
            f"unknown order {name!r}",
            field="order",
            remedy=f"{known_names(name, ORDERS, 'one of ')}, or module:Class",
        )
    try:
        order = make(**params)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {error}", field="orsched", remedy="see its parameters") from None
    if not isinstance(order, Order):
        raise InputError(
            f"{name} is not an Order",
            field="order",
            remedy="derive it from orsched.runner.vllm_outlet.Order",
        )
    return order


Key = tuple[int, int]


class OrderedRequests:
    """Requests by key; those put back keep places. All is logarithmic but removal, as in vLLM."""

    def __init__(self, key: Callable[[Any], Key]) -> None:
        self._key = key
        self._heap: list[tuple[Key, Any]] = []

    def add_request(self, request: Any) -> None:
        """Queue a request by its key."""
        heappush(self._heap, (self._key(request), request))

    def pop_request(self) -> Any:
        """Remove and return the next request; ``IndexError`` if there is none."""
        return heappop(self._heap)[1]

    def peek_request(self) -> Any:
        """Return the next request; ``IndexError`` if there is none."""
        return self._heap[0][1]

    def some(self, count: int) -> list[Any]:
        """Return up to so many requests from the front of the queue, in no order."""
        return [request for _, request in self._heap[:count]]

    def prepend_request(self, request: Any) -> None:
        """Queue a request that was preempted or passed over, by the key that it has."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Queue several such requests."""
        for request in requests:
            self.add_request(request)

    def remove_request(self, request: Any) -> None:
        """Remove a request; ``ValueError`` if it does not wait."""
        left = [entry for entry in self._heap if entry[1] is not request]
        if len(left) == len(self._heap):
            raise ValueError("the request does not wait")
        self._heap = left
        heapify(self._heap)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Remove those of some requests that wait."""
        gone = {id(request) for request in requests}
        self._heap = [entry for entry in self._heap if id(entry[1]) not in gone]
        heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the requests, the next one first."""
        return (request for _, request in sorted(self._heap, key=lambda entry: entry[0]))


_FIELDS = {Information.PREDICTED: "predicted_tokens", Information.CLAIRVOYANT: "output_tokens"}

logger = logging.getLogger(__name__)


class RequestRegistry:
    """What is known of the requests of an engine, and their keys.

    Lengths and service classes come with the requests, in ``SamplingParams.extra_args`` (of HTTP
    requests: ``vllm_xargs``): ``predicted_tokens``, ``output_tokens``, ``service_class``. A request
    without the length that the order needs counts with its ``max_tokens``, which for a benchmark
    that ignores the end of sequence is the true length. Nothing a client sends raises.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.known: dict[str, Known] = {}
        self.keys: dict[str, Key] = {}
        self.places = 0
        self.warned = False

    def put(self, request: Any, running: int) -> Key:
        """Return the key of a request; it is made when the request is seen for the first time."""
        name = request.request_id
        key = self.keys.get(name)
        if key is None:
            known = self.known[name] = self._known(request)
            self.places += 1
            key = self.keys[name] = (self.order.key(known, running), known.place)
        return key

    def finish(self, request: Any, completed: bool, running: Iterable[Any]) -> None:
        """Forget a request; tell the order of it if it yielded all its tokens."""
        known = self.known.pop(request.request_id, None)
        self.keys.pop(request.request_id, None)
        if known is not None and completed and request.num_output_tokens:
            ages = (
                (self.known[each.request_id], each.num_output_tokens)
                for each in running
                if each.request_id in self.known
            )
            self.order.on_finish(known, request.num_output_tokens, ages)

    def _known(self, request: Any) -> Known:
        params = request.sampling_params
        extra = (None if params is None else params.extra_args) or {}
        return Known(
            request.request_id,
            self.places,
            round(request.arrival_time * NS_PER_S),
            request.num_prompt_tokens,
            request.priority,
            1 if _whole(extra.get("service_class")) else 0,
            self._length(request, extra),
        )

    def _length(self, request: Any, extra: dict[str, Any]) -> int | None:
        information = self.order.information
        if information is Information.NONE:
            return None
        length = _whole(extra.get(_FIELDS[information]))
        if length:
            return length
        if not self.warned:
            self.warned = True
            logger.warning(
                "request %s has no %s in its extra_args: its max_tokens is taken, as for all such",
                request.request_id,
                _FIELDS[information],
            )
        return int(request.max_tokens)


def _whole(value: Any) -> int | None:
    """Return a number that a client sent, at least 0, as a whole number, else None."""
    return int(value) if is_number(value) and 0 <= value < 2**62 else None
