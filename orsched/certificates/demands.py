"""By when requests with limits need their prefills and rounds, for them to meet the limits."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.certificates.step_rates import Rates
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

NEVER = 2**63 - 1
"""A moment that no limit names."""


@dataclass(frozen=True)
class Demands:
    """When the requests with limits are due, whichever of the usual readings of TPOT is meant.

    Attributes:
        rows: the requests that have limits and are not bulk.
        arrival_ns: of each of them.
        first_ns: by when the prefill must be done, ``NEVER`` without a limit.
        end_ns: by when all tokens must be there, ``NEVER`` without a limit.
        rounds: decode rounds that each needs.
    """

    rows: IntColumn
    arrival_ns: IntColumn
    first_ns: IntColumn
    end_ns: IntColumn
    rounds: IntColumn

    @classmethod
    def of(cls, instance: Instance) -> Demands:
        """Return the demands of an instance's classes.

        A request meets its limits only if its last token comes before ``ttft + (tpot + 1) (n - 1)``
        nanoseconds after its arrival: both if each token i is due at ``ttft + i tpot`` and if the
        mean time a token, rounded down, is at most ``tpot``.
        """
        requests, kinds = instance.requests, instance.classes
        limited = np.array([kind.has_limits and not kind.bulk for kind in kinds])
        rows = np.flatnonzero(limited[requests.service_class])
        codes, arrival = requests.service_class[rows], requests.arrival_ns[rows]
        own = instance.deadlines_ns
        first, end = [], []
        columns = (rows, codes, arrival, requests.output_tokens[rows])
        for row, code, came, tokens in zip(*(c.tolist() for c in columns), strict=True):
            kind = kinds[code]
            deadline = -1 if own is None else int(own[row])
            last = came + deadline if deadline >= 0 else NEVER
            begun = NEVER if kind.ttft_ns is None else came + kind.ttft_ns
            if kind.ttft_ns is not None and (kind.tpot_ns is not None or tokens == 1):
                pace = 0 if kind.tpot_ns is None else kind.tpot_ns + 1
                last = min(last, begun + pace * (tokens - 1))
            end.append(min(last, NEVER))
            first.append(min(begun, last, NEVER))
        rounds = instance.rounds_needed[rows]
        return cls(rows, arrival, np.array(first, np.int64), np.array(end, np.int64), rounds)

    @property
    def horizon_ns(self) -> int:
        """The last moment at which something is due, or the last arrival where nothing is."""
        due = self.end_ns[self.end_ns < NEVER]
        due = np.concatenate([due, self.first_ns[self.first_ns < NEVER], self.arrival_ns])
        return int(due.max(initial=0))


def hopeless(
    instance: Instance, demands: Demands, rates: Rates, computed: IntColumn, measure: str
) -> NDArray[np.bool_]:
    """Return which requests cannot meet their limits even if they are served alone.

    ``computed`` are the prompt tokens that each request of the instance has to compute. By the
    measure ``attained`` the mean round after the first token must be within the limit.
    """
    codes = instance.requests.service_class
    after = instance.first_token == "decode"
    found = np.zeros(len(demands.rows), bool)
    for at, row in enumerate(demands.rows.tolist()):
        a_round = rates.round_fixed + rates.request
        context = int(instance.requests.prompt_tokens[row]) + 1
        a_round += (rates.context + rates.longest) * context
        if rates.again_fixed is not None:
            a_round = min(a_round, rates.again_fixed + rates.again_of(context - 1))
        begun = int(demands.arrival_ns[at]) + rates.prefills.of(int(computed[row]))
        late = begun + after * a_round > int(demands.first_ns[at])
        end = begun + Fraction(int(demands.rounds[at])) * a_round
        pace = instance.classes[int(codes[row])].tpot_ns
        several = int(instance.requests.output_tokens[row]) > 1
        slow = measure == "attained" and pace is not None and several and a_round >= pace + 1
        found[at] = late or slow or end > int(demands.end_ns[at])
    return found
