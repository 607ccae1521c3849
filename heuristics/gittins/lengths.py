"""The distribution of output lengths, learned from the requests that are done."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEPS = 6
"""Bins for each doubling of the length."""

_GROWTH = 1.25
"""The tables are made again whenever this many times as many requests are done."""

_PRIOR = 2.0
"""Requests that the prior counts as."""

_LIMIT_PRIOR = 0.5
"""Requests of any length up to the limit that every prior has beside: no length is impossible."""


class Lengths:
    """How long the requests of one group are: hazard rates over bins of the length.

    Attributes:
        edges: the bins' upper ends, the last one the output limit.
        mean: expected tokens of a new request.
        rest: expected tokens still to come at the lower end of each bin.
        done: chance to be done by the upper end of each bin.
        spent: expected tokens by the upper end of each bin (of one that stops there at the latest).
    """

    def __init__(self, edges: list[int], center: int | None) -> None:
        self.edges = edges
        self.finished = _prior(edges, center)
        self.tables({})

    def tables(self, running: dict[int, int]) -> None:
        """Make the tables from those finished, and the running ones by the last bin they passed.

        The estimate is that of Kaplan and Meier: a request that still runs is known to be longer
        than what it has yielded, so that short ones, which end first, do not count for more than
        their share.
        """
        edges, finished = self.edges, self.finished
        at_risk, hazards = 0.0, [1.0] * len(edges)
        for place in range(len(edges) - 1, -1, -1):
            at_risk += finished[place] + running.get(place, 0)
            hazards[place] = finished[place] / at_risk
        alive, below, spent = 1.0, 0, 0.0
        self.done, self.spent, alives = [], [], []
        for edge, hazard in zip(edges, hazards, strict=True):
            alives.append(alive)
            width, ends = edge - below, alive * hazard
            spent += (alive - ends) * width + ends * (width + 1) / 2
            alive -= ends
            self.done.append(1 - alive)
            self.spent.append(spent)
            below = edge
        self.done[-1] = 1.0
        self.mean = spent
        before = [0.0, *self.spent[:-1]]
        self._envelope()
        self.rest = [(spent - used) / alive for used, alive in zip(before, alives, strict=True)]

    def left(self, tokens: int) -> float:
        """Return the expected tokens to come of a request that has yielded some."""
        return self.rest[min(bisect_right(self.edges, tokens), len(self.edges) - 1)]

    def rank(self, prefill_ns: float, token_ns: float) -> float:
        """Return the reciprocal of the Gittins index of a new request, in nanoseconds.

        The least, over all moments to stop at, of the expected work until then over the chance to
        be done by then (Gittins 1979; Aalto, Ayesta and Righter 2009). Each moment is a line in
        the prefill's work, so the least of them all is their lower envelope.
        """
        place = self.stops[bisect_right(self.turns, prefill_ns / token_ns if token_ns else 2**62)]
        return (prefill_ns + token_ns * self.spent[place]) / self.done[place]

    def _envelope(self) -> None:
        """Find the moments to stop at, from short prefills to long ones, and where they change."""
        self.stops: list[int] = []
        self.turns: list[float] = []
        for place, (spent, done) in enumerate(zip(self.spent, self.done, strict=True)):
            while self.stops:
                last = self.stops[-1]
                rise = 1 / self.done[last] - 1 / done
                fall = spent / done - self.spent[last] / self.done[last]
                turn = fall / rise if rise > 0 else (-1.0 if fall <= 0 else 2.0**62)
                if turn > (self.turns[-1] if self.turns else 0.0):
                    self.turns.append(turn)
                    break
                self.stops.pop()
                if self.turns:
                    self.turns.pop()
            self.stops.append(place)


def bins(limit: int) -> list[int]:
    """Return the upper ends of bins that grow with the length, up to a limit."""
    edges: list[int] = []
    place = 0
    while not edges or edges[-1] < limit:
        edge = min(limit, round(2 ** (place / _STEPS)))
        if not edges or edge > edges[-1]:
            edges.append(edge)
        place += 1
    return edges


def _prior(edges: list[int], center: int | None) -> list[float]:
    """Return what is taken as finished at first: any length alike, or some near a prediction."""
    limit = edges[-1]
    weights = [0.0] * len(edges)
    wide = _PRIOR if center is None else _LIMIT_PRIOR
    below = 0
    for place, edge in enumerate(edges):
        weights[place] = wide * (edge - below) / limit
        below = edge
    if center is not None:
        weights[bisect_left(edges, min(center, limit))] += _PRIOR
    return weights


class LengthModel:
    """Length distributions by group: a service class, and a class of predicted lengths.

    A group's distribution starts from a prior, any length up to the limit alike or near the
    prediction, and is learned from the requests that are done. So a prediction is worth what
    predictions like it turned out to be worth.

    Attributes:
        all: the distribution of all groups together.
        count: how many requests are done.
    """

    def __init__(self, limit: int) -> None:
        self.edges = bins(limit)
        self.groups: dict[tuple[int, int], Lengths] = {}
        self.all = Lengths(self.edges, None)
        self.count = 0
        self.next = 4

    def group(self, service_class: int, predicted: int | None) -> tuple[int, int]:
        """Return the group of a request; half an octave of predictions is one."""
        if predicted is None:
            return service_class, -1
        return service_class, bisect_left(self.edges, predicted) // (_STEPS // 2)

    def lengths(self, key: tuple[int, int]) -> Lengths:
        """Return the distribution of a group."""
        found = self.groups.get(key)
        if found is None:
            center = None
            if key[1] >= 0:
                place = key[1] * (_STEPS // 2) + _STEPS // 4
                center = self.edges[min(place, len(self.edges) - 1)]
            found = self.groups[key] = Lengths(self.edges, center)
        return found

    def finish(self, key: tuple[int, int], tokens: int) -> bool:
        """Count a request that is done; return whether the tables are due."""
        place = bisect_left(self.edges, min(tokens, self.edges[-1]))
        self.lengths(key).finished[place] += 1
        self.all.finished[place] += 1
        self.count += 1
        return self.count >= self.next

    def learn(self, running: Iterable[tuple[tuple[int, int], int]]) -> None:
        """Make the tables again; ``running`` has the group and the tokens of those that run."""
        self.next = int(self.count * _GROWTH) + 4
        ages: dict[tuple[int, int], dict[int, int]] = {}
        together: dict[int, int] = {}
        for key, tokens in running:
            place = bisect_right(self.edges, tokens) - 1  # the last bin that it has passed
            if place >= 0:
                own = ages.setdefault(key, {})
                own[place] = own.get(place, 0) + 1
                together[place] = together.get(place, 0) + 1
        for key, lengths in self.groups.items():
            lengths.tables(ages.get(key, {}))
        self.all.tables(together)
