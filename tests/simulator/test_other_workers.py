"""What a policy sees of the other workers, which are in the middle of their steps."""

from __future__ import annotations

import pytest

from orsched.heuristics.gittins import Gittins
from orsched.heuristics.gittins.params import GittinsParams
from orsched.heuristics.scls import ContinuousSlices
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from tests.heuristics.gittins.drawn import drawn
from tests.oracle import oracle


class Looking:
    """Notes at each decision what the views of all workers show."""

    def idle_may_act(self):
        """Let all that sleep be asked, as the oracle does."""
        return True

    def decide(self, view):
        """Note it, and let the policy decide."""
        for each in view.workers:
            running = dict(each.running)
            self.seen.append((each.rounds, each.blocks_unused, each.blocks_free, running))
            self.seen.append((list(each.prefilling.items()), each.blocks_left(1)))
            self.seen.append([(each.to_prefill(r), each.decodes(r)) for r in running])
        return super().decide(view)


class LookingGittins(Looking, Gittins):
    def __init__(self):
        super().__init__(GittinsParams(max_num_batched_tokens=3), Information.NONE)
        self.seen = []


class LookingSlices(Looking, ContinuousSlices):
    def __init__(self):
        super().__init__()
        self.seen = []


@pytest.mark.parametrize("kind", [LookingGittins, LookingSlices])
def test_views_of_workers_in_the_middle_of_steps_agree_with_the_oracle(kind):
    shared = 0
    for seed in range(80):
        instance = drawn(seed)
        ours, theirs = kind(), kind()
        simulate_policy(instance, ours)
        oracle(instance, theirs)
        assert ours.seen == theirs.seen, seed
        shared += len(instance.workers) > 1
    assert shared > 20
