r"""A lower bound on what is still to come from each two requests: one of them has to wait.

Each request alone costs its arrival, its stage and its rounds. Of two, i and k, with prompts that
take :math:`P_i, P_k`, coefficients :math:`u` of all that is to come and :math:`f` of last tokens:

* in one stage each takes the other's prompt: :math:`u_i P_k + u_k P_i`;
* if k is prefilled while i decodes, i is late by :math:`P_k`, at :math:`f_i`, and, where k was
  there when i was prefilled, k by :math:`P_i`, at :math:`u_k`;
* if k is prefilled behind the end of i, it waits for what i decodes after k has arrived.

Times of prompts add up over pairs, whoever is in a stage. What a request waits for rounds does not:
it may wait for all others at once. So each pair gets one share of it in as many as there are
others. A running request is behind its prefill; with m waiting, a stage holds no more than these,
so each of them brings it an m-th of the fixed time, too. All is counted in one clock, the time, so
this stands beside the sum of ``relaxation``, not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsched.models.best_first_times.cases import Kind
    from orsched.models.best_first_times.epochs import Epochs, State


class Pairs:
    """The bound, for a case."""

    def __init__(self, epochs: Epochs) -> None:
        self.epochs, self.case = epochs, epochs.case
        self.round = self.case.round_fixed + self.case.round_client
        token = self.case.prompt_token
        self.prompt = {kind: token * kind.prompt for kind in self.case.kinds}

    def least(self, kinds: tuple[Kind, ...], state: State, own: int) -> int:
        """Return the bound; ``own``: rounds alone of all, weighted."""
        epochs, case, clock = self.epochs, self.case, state.clock
        jobs = [
            (max(0, k.arrival - clock), self.prompt[k], k.rounds * self.round, k.weight, k.finish)
            for k in kinds
        ]
        total = own * self.round
        total += sum(u * (r + case.stage + p) for r, p, _, u, _ in jobs)
        running = state.running
        others = max(1, len(jobs) + len(running) - 1)
        share = case.stage // len(jobs)
        for entry in running:
            left = entry // epochs.many * self.round
            finish = epochs.roles[entry % epochs.many].finish
            for r, p, _, u, _ in jobs:
                if left > r:
                    total += min(finish * (p + share), u * (left - r) // others)
        jobs.sort()
        for place, one in enumerate(jobs):
            r, p, d, u, f = one
            for then, q, e, v, g in jobs[place + 1 :]:
                if then == r:
                    both = min(u * q + v * p, f * q + v * p, g * p + u * q)
                    total += min(both, v * p + v * d // others, u * q + u * e // others)
                else:
                    behind = d - max(0, then - r - case.stage - p)
                    if behind > 0:
                        total += min(f * q, v * behind // others)
        return total
