"""The distribution of output lengths, learned from the requests that are done."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from math import exp, log
from typing import TYPE_CHECKING, TypeAlias

from orsched.data.length_quantiles import LengthLaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_STEPS = 6  # bins for each doubling of the length

_GROWTH = 1.25  # the tables are made again whenever this many times as many requests are done

_PRIOR = 2.0  # requests that the prior counts as

_LIMIT_PRIOR = 0.5  # requests of any length up to the limit in every prior: none is impossible


class Lengths:
    """How long the requests of one group are: hazard rates over bins of the length. By bin:
    ``rest``, expected tokens still to come at its lower end; ``done``, chance to be done by its
    upper end; ``spent``, expected tokens by then (of one that stops there at the latest)."""

    def __init__(self, edges: list[int], center: int | None) -> None:
        self.edges = edges  # the bins' upper ends, the last one the output limit
        self.finished = _prior(edges, center)
        self.tables({})

    def tables(self, running: dict[int, int]) -> None:
        """Make the tables from those finished, and the running ones by the last bin they passed:
        the estimate of Kaplan and Meier. A request that still runs is known to be longer than what
        it has yielded, so that short ones, which end first, do not count for more than their
        share."""
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
        self.mean = spent  # expected tokens of a new request
        before = [0.0, *self.spent[:-1]]
        self._envelope()
        self.rest = [(spent - used) / alive for used, alive in zip(before, alives, strict=True)]

    def left(self, tokens: int) -> float:
        """Return the expected tokens to come of a request that has yielded some."""
        return self.rest[min(bisect_right(self.edges, tokens), len(self.edges) - 1)]

    def rank(self, prefill_ns: float, token_ns: float) -> float:
        """Return the reciprocal of the Gittins index of a new request, in nanoseconds: the least,
        over all moments to stop at, of the expected work until then over the chance to be done by
        then (Gittins 1979; Aalto, Ayesta and Righter 2009). Each moment is a line in the prefill's
        work, so the least of them all is their lower envelope."""
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
    """Return what is taken as finished at first: each length equally, or some near a prediction."""
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
    """Length distributions by group: a service class, and a class of predicted lengths. Each starts
    from a prior, each length up to the limit equally or near the prediction, and is learned from
    the requests that are done: a prediction is worth what predictions like it turned out to be
    worth."""

    def __init__(self, limit: int) -> None:
        self.edges = bins(limit)
        self.groups: dict[tuple[int, int], Lengths] = {}
        self.all = Lengths(self.edges, None)  # the distribution of all groups together
        self.count = 0  # how many requests are done
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


ATOMS = 16  # lengths that stand for a distribution


class LengthAtoms:
    """Reads quantiles at shared levels as ``ATOMS`` equally likely lengths, the shortest first:
    each is the middle of its share of the distribution, as ``LengthLaw`` reads it, a whole length
    from 1 to the output limit. Equal quantiles are one length."""

    def __init__(self, levels: tuple[float, ...], limit: int) -> None:
        law = LengthLaw(levels)
        middles = [(2 * place + 1) / (2 * ATOMS) for place in range(ATOMS)]
        self._places = [law.place(level) for level in middles]
        self._limit, self._most = limit, log(limit)

    def of(self, quantiles: Sequence[int]) -> list[int]:
        """Return the lengths of a request with these quantiles."""
        if quantiles[0] == quantiles[-1]:
            return [min(quantiles[0], self._limit)] * ATOMS
        logs = [log(each) for each in quantiles]
        most, found = self._most, []
        for left, share in self._places:
            low = logs[left]
            found.append(round(exp(min(max(low + share * (logs[left + 1] - low), 0.0), most))))
        return found

    def mean(self, quantiles: Sequence[int]) -> int:
        """Return the mean length of a request with these quantiles, in whole tokens."""
        return max(1, round(sum(self.of(quantiles)) / ATOMS))


Group: TypeAlias = tuple[int, int]  # a service class, and a class of predicted lengths

_OWN_PRIOR = 16.0  # requests that the prior, what holds for all groups, counts as


class OwnLengths:
    """How long one request is: its atoms, each with the chance that is learned for its place."""

    __slots__ = ("_ahead", "_beyond", "_chances", "atoms", "mean")

    def __init__(self, atoms: list[int], calibration: Calibration, beyond: Lengths) -> None:
        self.atoms = atoms  # lengths, the shortest first
        self._chances = chances = calibration.chances
        weighed = [atom * chance for atom, chance in zip(atoms, chances, strict=True)]
        weighed[-1] *= calibration.stretch
        tails = zip(accumulate(reversed(weighed)), accumulate(reversed(chances)), strict=True)
        self._ahead = [tokens / chance for tokens, chance in tails]
        self._ahead.reverse()
        self._beyond = beyond
        self.mean = self._ahead[0]  # expected tokens of the request when it is new

    def left(self, tokens: int) -> float:
        """Return the expected tokens to come of the request when it has yielded some; beyond its
        last atom, as many as others of its group had that were as long."""
        place = bisect_right(self.atoms, tokens)
        if place == ATOMS:
            return self._beyond.left(tokens)
        return self._ahead[place] - tokens

    def rank(self, prefill_ns: float, token_ns: float) -> float:
        """As ``Lengths.rank``, over the request's own atoms as moments to stop at."""
        alive, spent, below, done = 1.0, 0.0, 0, 0.0
        best = prefill_ns + token_ns * self.mean
        for atom, chance in zip(self.atoms[:-1], self._chances, strict=False):
            spent += alive * (atom - below)
            below, alive, done = atom, alive - chance, done + chance
            found = (prefill_ns + token_ns * spent) / done
            if found < best:
                best = found
        return best


class Calibration:
    """Where the lengths of a group end in the distributions that were predicted for them.

    If predictions are right each of the atoms is as likely as any other. What is learned are the
    hazards of the atoms' places, by the estimate of Kaplan and Meier as in ``Lengths``: so a
    distribution is worth what distributions like it turned out to be.
    """

    def __init__(self) -> None:
        self.finished = [0.0] * ATOMS
        self.long = 0.0  # the sum of lengths over last atoms, of those that end at theirs
        self.chances = [1 / ATOMS] * ATOMS  # that a request ends at its first atom, its second, ...
        self.stretch = 1.0  # how much longer than the last atom those are that end there

    def finish(self, atoms: list[int], tokens: int) -> None:
        """Count a request that is done, at the nearest of its atoms."""
        place = min(bisect_left(atoms, tokens), ATOMS - 1)
        if place and tokens * tokens < atoms[place - 1] * atoms[place]:
            place -= 1
        first, end = bisect_left(atoms, atoms[place]), bisect_right(atoms, atoms[place])
        for each in range(first, end):
            self.finished[each] += 1 / (end - first)
        if end == ATOMS:
            self.long += max(1.0, tokens / atoms[-1]) / (end - first)

    def learn(self, alive_at: Sequence[int], prior: Calibration | None) -> None:
        """Learn again; ``alive_at`` counts those that run, by the atoms that they have passed."""
        chances = [1 / ATOMS] * ATOMS if prior is None else prior.chances
        counted = [
            count + _OWN_PRIOR * chance
            for count, chance in zip(self.finished, chances, strict=True)
        ]
        at_risk, hazards = 0.0, [1.0] * ATOMS
        for place in range(ATOMS - 1, -1, -1):
            at_risk += counted[place] + alive_at[place + 1]
            hazards[place] = counted[place] / at_risk
        hazards[-1], alive, found = 1.0, 1.0, []
        for hazard in hazards:
            found.append(alive * hazard)
            alive *= 1 - hazard
        self.chances = found
        before = _OWN_PRIOR * chances[-1] * (1.0 if prior is None else prior.stretch)
        self.stretch = (self.long + before) / counted[-1]


class Calibrations:
    """One calibration for each group of requests, and one of all, which they start from."""

    def __init__(self, levels: tuple[float, ...], limit: int) -> None:
        self.law = LengthAtoms(levels, limit)
        self.all = Calibration()
        self.groups: dict[Group, Calibration] = {}

    def of(self, group: Group) -> Calibration:
        """Return the calibration of a group; of a new one that of all, until it learns."""
        found = self.groups.get(group)
        if found is None:
            found = self.groups[group] = Calibration()
            found.chances, found.stretch = self.all.chances, self.all.stretch
        return found

    def finish(self, group: Group, atoms: list[int], tokens: int) -> None:
        """Count a request that is done."""
        self.of(group).finish(atoms, tokens)
        self.all.finish(atoms, tokens)

    def learn(self, running: Iterable[tuple[Group, Sequence[int], int]]) -> None:
        """Learn again; ``running`` has the group, the atoms and the tokens of those that run."""
        none_alive = [0] * (ATOMS + 1)
        alive_at: dict[Group, list[int]] = {}
        together = none_alive.copy()
        for group, atoms, tokens in running:
            passed = bisect_right(atoms, tokens)
            alive_at.setdefault(group, none_alive.copy())[passed] += 1
            together[passed] += 1
        self.all.learn(together, None)
        for group, calibration in self.groups.items():
            calibration.learn(alive_at.get(group, none_alive), self.all)
