"""Which cloud gets which request: by groups of length with balanced loads, or by number."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Weighted = tuple[int, int]
"""Tokens of a request (its prompt and the middle of its bucket), and its row."""


class Distributor:
    """Deals requests to clouds in proportion to whole shares.

    Loads are compared per share, so in units of ``load * factor``.

    Attributes:
        loads: M_k, the tokens that each cloud was dealt and has not finished; the paper's counts
            those of prompts alone.
        given: how many requests each cloud was dealt in turn.
    """

    def __init__(self, shares: Sequence[int]) -> None:
        self.shares = list(shares)
        whole = lcm(*shares)
        self.factors = [whole // share for share in shares]
        self.round = sum(shares)
        self.clouds = range(len(shares))
        self.loads = [0] * len(shares)
        self.given = [0] * len(shares)

    def deal(self, groups: Sequence[Sequence[Weighted]]) -> Iterator[tuple[int, Weighted]]:
        """Yield (cloud, request) for groups in descending order of length (section 3.3).

        Each group is dealt in rounds, in which every cloud gets its share. What is left of a group
        makes a round with requests that are borrowed from the groups after it; what is left of
        the last one goes to the clouds one by one.

        After full rounds the loads of two clouds, per share, differ by no more than before, or no
        more than two requests of one round do: a cloud with less gets the heavier ones of a round.
        The number of operations is linear in the requests.
        """
        rest: list[Weighted] = []
        for group in groups:
            start = 0
            if rest:
                start = min(self.round - len(rest), len(group))
                rest += group[:start]
                if len(rest) < self.round:
                    continue
                yield from self._deal_round(rest)
            end = start + (len(group) - start) // self.round * self.round
            for begin in range(start, end, self.round):
                yield from self._deal_round(group[begin : begin + self.round])
            rest = list(group[end:])
        for each in sorted(rest, key=lambda item: (-item[0], item[1])):
            yield self.least_loaded(each[0], self.clouds), each

    def _deal_round(self, requests: Sequence[Weighted]) -> Iterator[tuple[int, Weighted]]:
        """Deal a whole round: the heaviest requests to the clouds with the least load."""
        loads, factors, shares = self.loads, self.factors, self.shares
        if self.round == 1:
            clouds: Sequence[int] = self.clouds
        else:
            clouds = sorted(self.clouds, key=lambda cloud: loads[cloud] * factors[cloud])
            requests = sorted(requests, key=_weight, reverse=True)
        at = 0
        for cloud in clouds:
            for each in requests[at : at + shares[cloud]]:
                loads[cloud] += each[0]
                yield cloud, each
            at += shares[cloud]

    def least_loaded(self, weight: int, clouds: Sequence[int]) -> int:
        """Deal one request to the cloud that has the least load with it; return the cloud."""
        loads, factors = self.loads, self.factors
        chosen = min(clouds, key=lambda cloud: (loads[cloud] + weight) * factors[cloud])
        loads[chosen] += weight
        return chosen

    def in_turn(self, weight: int, clouds: Sequence[int]) -> int:
        """Deal one request to the cloud that was dealt the fewest for its share."""
        given, factors = self.given, self.factors
        chosen = min(clouds, key=lambda cloud: (given[cloud] + 1) * factors[cloud])
        given[chosen] += 1
        self.loads[chosen] += weight
        return chosen

    def done(self, cloud: int, weight: int) -> None:
        """Take a finished request off a cloud's load."""
        self.loads[cloud] -= weight

    def moved(self, source: int, target: int, weight: int) -> None:
        """Count a request for the cloud that took it."""
        self.loads[source] -= weight
        self.loads[target] += weight


def _weight(item: Weighted) -> int:
    return item[0]
