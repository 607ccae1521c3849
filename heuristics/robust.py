"""Longest first while predictions prove right, the order of arrival when they do not.

Noisy predictions make longest first worse than no predictions: what is predicted short comes last,
and each of it that is long keeps the worker nearly alone. So a share of the clients takes the first
request that has arrived: a fair sample, from which the predictions' skill is learned; below a
threshold the order of arrival takes over. Where distributions are predicted, the order is that of
their 0.9 quantiles: what may be long starts early. Skill and gate go by the predicted length.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from orsched.common.scalars import require_number, set_whole
from orsched.data.length_quantiles import LengthLaw
from orsched.heuristics.gated import GatedParams, GatedPolicy, Offering
from orsched.heuristics.gates import Gate, name_of_gate, require_gate
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information, PredictedView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.simulator.policy import View


LEVEL = 0.9  # starting what was thought short too late costs a makespan more than the reverse


class LongLengths(dict[int, int]):
    """The 0.9 quantile of each request's length, in whole tokens, worked out when it is asked for;
    it may be forgotten (``pop``) when the request is done."""

    def __init__(self, view: PredictedView) -> None:
        super().__init__()
        self._quantiles = view.predicted_quantiles
        self._law = LengthLaw(view.quantile_levels)
        at = [place for place, level in enumerate(view.quantile_levels) if level == LEVEL]
        self._place = at[0] if at else None

    def __missing__(self, request: int) -> int:
        row = self._quantiles(request)
        if not row[0]:  # it has not arrived
            return 0
        if self._place is not None:
            found = row[self._place]
        else:
            found = max(1, round(self._law.quantile(row, LEVEL)))
        self[request] = found
        return found


def long_lengths(view: View) -> LongLengths | None:
    """Return the lengths to plan for; None where no distributions are predicted."""
    if isinstance(view, PredictedView) and view.quantile_levels:
        return LongLengths(view)
    return None


_BITS = 32
_MASK = (1 << _BITS) - 1
_FEW = 64
_ENOUGH = 12  # samples before which predictions are trusted
_KEPT = 200  # samples that count: the newest


@dataclass(frozen=True)
class RobustParams:
    """Parameters of ``RobustPolicy``.

    Attributes:
        gate: as of ``online``.
        sample: one in this many requests that start is the first that has arrived.
        least_skill: predictions are trusted while 1 - (their mean absolute error) / (that of the
            best constant) is at least this: 1 is perfect, 0 says nothing.
    """

    gate: str | Gate | type[Gate] = "shadow_price"
    sample: int = 8
    least_skill: float = 0.65

    def __post_init__(self) -> None:
        require_gate(self.gate)
        set_whole(self, "sample", minimum=2)
        require_number(self.least_skill, "least_skill", -1, 1)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        shown = {"sample": self.sample, "least_skill": self.least_skill}
        return {"gate": name_of_gate(self.gate), **shown}


class Skill:
    """The skill of predictions on a fair sample, in which every request counts once it has ended,
    in the order of starts: a short request does not count before a long one that started
    earlier."""

    def __init__(self, least: float) -> None:
        self.least = least
        self.trusted = True
        self._open: deque[int] = deque()
        self._predicted: dict[int, int] = {}
        self._true: dict[int, int] = {}
        self._pairs: deque[tuple[int, int]] = deque()
        self._lengths: list[int] = []  # the true ones of the pairs, in order
        self._error = 0

    def started(self, request: int, predicted: int) -> None:
        """Add a request to the sample, with its predicted tokens."""
        self._open.append(request)
        self._predicted[request] = predicted

    def finished(self, request: int, tokens: int) -> None:
        """Record how long a request was, and judge again if it is in the sample."""
        if request not in self._predicted:
            return
        self._true[request] = tokens
        if self._open[0] != request:
            return  # one that started earlier has not ended
        while self._open and self._open[0] in self._true:
            first = self._open.popleft()
            self._add(self._predicted.pop(first), self._true.pop(first))
        if len(self._pairs) >= _ENOUGH:
            self.trusted = self.value >= self.least

    def _add(self, guess: int, true: int) -> None:
        """Count a pair, and drop the oldest if there are too many."""
        self._pairs.append((guess, true))
        self._error += abs(true - guess)
        insort(self._lengths, true)
        if len(self._pairs) > _KEPT:
            guess, true = self._pairs.popleft()
            self._error -= abs(true - guess)
            self._lengths.pop(bisect_left(self._lengths, true))

    @property
    def value(self) -> float:
        """1 - mean absolute error / that of the median, 1 where all lengths are equal and right."""
        lengths = self._lengths
        half, odd = divmod(len(lengths), 2)
        # As many lie on either side of the median, which drops out of the distances to it.
        spread = sum(lengths[half + odd :]) - sum(lengths[:half])
        return 1 - self._error / spread if spread else float(not self._error)


class TwoOrders(Offering):
    """One queue in two orders: by length, and by arrival. By length most are in a sorted list,
    which gives up its last faster than a heap its first; newcomers are in a heap until they are as
    many as the list."""

    def __init__(
        self, skill: Skill, sample: int, predicted: Callable[[int], int], requests: int
    ) -> None:
        self.skill, self.sample, self.predicted = skill, sample, predicted
        self._sorted: list[int] = []  # the first comes last
        self._new: list[int] = []
        self._by_arrival: deque[int] = deque()
        self._waits = bytearray(requests)
        self._started = 0
        self.queued = 0  # how many wait

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request; the client does not matter."""
        new = self._new
        heappush(new, key << _BITS | request)
        if len(new) > _FEW + len(self._sorted):
            self._sorted += new
            self._sorted.sort(reverse=True)
            new.clear()
        self._by_arrival.append(request)
        self._waits[request] = 1
        self.queued += 1

    def offer(self, clients: Sequence[int], places: list[int]) -> Iterator[int]:
        """Yield the first of the order in force, one a client; the other order keeps it for now."""
        waits, by_arrival = self._waits, self._by_arrival
        in_order, new = self._sorted, self._new
        sample, trusted = self.sample, self.skill.trusted
        for client in clients:
            if not self.queued:
                break
            sampled = not self._started % sample
            if sampled or not trusted:
                while not waits[request := by_arrival[0]]:
                    by_arrival.popleft()
            elif new or not in_order:
                request = _first(in_order, new, waits)
            else:
                while not waits[request := in_order[-1] & _MASK]:
                    in_order.pop()
            yield request
            if sampled:
                self.skill.started(request, self.predicted(request))
            self._started += 1
            self.queued -= 1
            waits[request] = 0
            places.append(client)

    def servable(self, idle: Collection[int]) -> int:
        """Return the smaller of idle clients and waiting requests."""
        return min(len(idle), self.queued)


def _first(in_order: list[int], new: list[int], waits: bytearray) -> int:
    """Return the first of both lists that waits, and drop those before it; some one waits."""
    while True:
        if in_order and (not new or in_order[-1] < new[0]):
            if waits[request := in_order[-1] & _MASK]:
                return request
            in_order.pop()
        elif new:
            if waits[request := new[0] & _MASK]:
                return request
            heappop(new)


class RobustPolicy(GatedPolicy):
    """Longest predicted first as long as predictions prove right, under a gate."""

    def __init__(
        self, params: RobustParams, information: Information = Information.PREDICTED
    ) -> None:
        super().__init__(GatedParams("shared", "longest", gate=params.gate), information, "robust")
        self.robust = params

    def start(self, view: View) -> None:
        """Set up the queue and the sample."""
        super().start(view)
        self.points, self.long = self.lengths, long_lengths(view)
        if self.long is not None:
            self.lengths = self.long
        self.skill = Skill(self.robust.least_skill)
        requests = len(view.prompt_tokens)
        self.queues = TwoOrders(self.skill, self.robust.sample, self._predicted, requests)
        self.limit = view.output_limit_tokens
        self.first = int(view.first_token == "prefill")
        self.begin: dict[int, int] = {}

    def _predicted(self, request: int) -> int:
        assert self.points is not None
        return min(self.points[request], self.limit)

    def _take(self, view: View, idle: list[int]) -> tuple[list[int], list[int]]:
        """Remember when requests start."""
        stage, places = super()._take(view, idle)
        self.begin.update(dict.fromkeys(stage, view.rounds))
        return stage, places

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Mark the client idle, and learn from the request."""
        super().on_finish(view, request, client)
        if self.long is not None:
            self.long.pop(request, None)
        self.skill.finished(request, view.rounds - self.begin.pop(request) + self.first)


def _make(
    instance: Instance, params: RobustParams, information: Information, seed: int
) -> RobustPolicy:
    for worker in instance.workers:
        instance.replace(workers=worker).require_stages("robust")
    return RobustPolicy(params, information)


ROBUST = PolicyMethod(
    "robust",
    (Information.PREDICTED,),
    "longest first under the derived gate while the predictions prove right, else as they arrive",
    _make,
    RobustParams,
)
