"""The requests of an engine as an order sees them: keys are given once and forgotten at the end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from orsched.common.scalars import is_number
from orsched.common.units import NS_PER_S
from orsched.runner.vllm_outlet.orders import Known
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.runner.vllm_outlet.orders import Order
    from orsched.runner.vllm_outlet.waiting import Key

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
