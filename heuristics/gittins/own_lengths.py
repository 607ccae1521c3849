"""Lengths of single requests, where their distributions are predicted one by one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from orsched.heuristics.length_atoms import ATOMS, LengthAtoms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.heuristics.gittins.lengths import Lengths

Group: TypeAlias = tuple[int, int]
"""A service class, and a class of predicted lengths."""

_PRIOR = 16.0
"""Requests that the prior counts as: that of a group is what holds for all of them."""


class OwnLengths:
    """How long one request is: its atoms, each with the chance that is learned for its place.

    Attributes:
        atoms: lengths, the shortest first.
        mean: expected tokens of the request when it is new.
    """

    __slots__ = ("_ahead", "_beyond", "_chances", "atoms", "mean")

    def __init__(self, atoms: list[int], calibration: Calibration, beyond: Lengths) -> None:
        self.atoms = atoms
        self._chances = chances = calibration.chances
        weighed = [atom * chance for atom, chance in zip(atoms, chances, strict=True)]
        weighed[-1] *= calibration.stretch
        tails = zip(accumulate(reversed(weighed)), accumulate(reversed(chances)), strict=True)
        self._ahead = [tokens / chance for tokens, chance in tails]
        self._ahead.reverse()
        self._beyond = beyond
        self.mean = self._ahead[0]

    def left(self, tokens: int) -> float:
        """Return the expected tokens to come of the request when it has yielded some.

        Beyond its last atom, as many as others of its group had that were as long.
        """
        place = bisect_right(self.atoms, tokens)
        if place == ATOMS:
            return self._beyond.left(tokens)
        return self._ahead[place] - tokens

    def rank(self, prefill_ns: float, token_ns: float) -> float:
        """Return the reciprocal of the Gittins index of the new request, in nanoseconds.

        As ``Lengths.rank``, over its own atoms as moments to stop at.
        """
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

    Attributes:
        chances: that a request ends at its first atom, its second, ...
        stretch: how much longer than the last atom those are that end there.
    """

    def __init__(self) -> None:
        self.finished = [0.0] * ATOMS
        self.long = 0.0  # the sum of lengths over last atoms, of those that end at theirs
        self.chances = [1 / ATOMS] * ATOMS
        self.stretch = 1.0

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
            count + _PRIOR * chance for count, chance in zip(self.finished, chances, strict=True)
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
        before = _PRIOR * chances[-1] * (1.0 if prior is None else prior.stretch)
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
        nobody = [0] * (ATOMS + 1)
        alive_at: dict[Group, list[int]] = {}
        together = nobody.copy()
        for group, atoms, tokens in running:
            passed = bisect_right(atoms, tokens)
            alive_at.setdefault(group, nobody.copy())[passed] += 1
            together[passed] += 1
        self.all.learn(together, None)
        for group, calibration in self.groups.items():
            calibration.learn(alive_at.get(group, nobody), self.all)
