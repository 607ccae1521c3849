"""``a_min`` keeps lower ends: the decisions are those of looking at all intervals anew."""

from __future__ import annotations

import random

import pytest

from orsched.heuristics.lookahead.lengths import interval
from orsched.heuristics.lookahead.orders import ShortestPossible
from orsched.heuristics.lookahead.params import IntervalParams
from orsched.instances.unit_rounds import unit_rounds
from orsched.policy import Information
from orsched.simulator import simulate_policy


class Anew(ShortestPossible):
    def length(self, view, request):
        return max(interval(view, request, self.width)[0], view.generated(request))

    def victim(self, view):
        return min(view.running, key=lambda request: (self.length(view, request), request))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("online", [False, True])
def test_kept_lower_ends_decide_the_same(seed, online):
    instance = unit_rounds(seed, online, rate=1.5 if online else None)
    draw = random.Random(seed)
    requests = instance.requests
    wrong = [max(1, round(o * draw.uniform(0.4, 1.6))) for o in requests.output_tokens]
    instance = instance.replace(requests=requests.replace(predicted_tokens=wrong))
    evictions = 0
    for information in (Information.PREDICTED, Information.CLAIRVOYANT):
        for width in (0.2, 1.0, 4.0):
            ours, literal = (
                simulate_policy(instance, policy(IntervalParams(width=width), information)).schedule
                for policy in (ShortestPossible, Anew)
            )
            for column in ("request", "first_step", "last_step", "stay"):
                assert getattr(ours.work, column).tolist() == getattr(literal.work, column).tolist()
            evictions += int(ours.work.stay.max())
    assert evictions
