"""The simulator against the naive token-by-token one: plain policies, all batching modes, views."""

import random
from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given

from orsched import Information, PolicyError, check, summarise
from orsched.heuristics.gittins import Gittins
from orsched.heuristics.gittins.worker_model import GittinsParams
from orsched.heuristics.scls import ContinuousSlices
from orsched.simulator import simulate_policy
from tests.heuristics.building import same
from tests.heuristics.gittins.drawn import drawn as drawn_of_gittins
from tests.oracle import oracle
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING, wild
from tests.simulator.instances import instances
from tests.simulator.listening import listening
from tests.simulator.policies import POLICIES

every_policy = pytest.mark.parametrize("name", BATCHING)
few = range(40)
thousands = range(1000, 3000)
every_seed = pytest.mark.parametrize(
    "seeds", [few, pytest.param(thousands, marks=pytest.mark.full)], ids=["few", "thousands"]
)


def drawn(name, seed, *sizes):
    return random_batching_instance(random.Random(f"{name} {seed}"), *sizes)


def in_order(heard):
    """The log with first tokens of one run of rounds by row: nothing says who of them is first."""
    result = []
    for kind, group in groupby(heard, key=lambda call: call[0]):
        calls = list(group)
        result += sorted(calls, key=lambda c: c[1]) if kind == "first token" else calls
    return result


def require_agreement(instance, make, where=None, order=in_order):
    fast, slow = listening(make()), listening(make())
    expected = oracle(instance, slow)
    schedule = simulate_policy(instance, fast).schedule
    for told, known in zip(order(fast.heard), order(slow.heard), strict=False):
        assert told == known, where
    assert len(fast.heard) == len(slow.heard), where
    assert same(schedule, expected), where
    assert schedule.information == expected.information
    assert schedule.instance_sha256 == expected.instance_sha256


@pytest.mark.parametrize("name", POLICIES)
@given(instance=instances())
def test_simulator_and_oracle_agree(name, instance):
    """INV-13: timeline, work, and all that the policy was told are the same."""
    require_agreement(instance, POLICIES[name], order=list)


@every_policy
@every_seed
def test_simulator_and_oracle_agree_on_batches(name, seeds):
    """INV-13: on small instances, in the full runs on some larger ones."""
    for seed in seeds:
        require_agreement(drawn(name, seed), lambda s=seed: BATCHING[name](s), seed)
    for seed in few if seeds == thousands else ():
        require_agreement(drawn(name, -seed, 30, 25), lambda s=seed: BATCHING[name](s), -seed)


@every_policy
@every_seed
def test_the_checker_accepts_every_batching_policy(name, seeds):
    """INV-1 to INV-7: what the simulator makes is valid, and the metrics are right."""
    for seed in seeds:
        instance = drawn(name, seed)
        schedule = simulated(instance, BATCHING[name](seed))
        results = summarise(instance, schedule)
        assert check(instance, schedule.replace(results=results)) == [], seed


def simulated(instance, policy):
    return simulate_policy(instance, policy).schedule


def outcome(run, instance, policy):
    """What became of a run: a schedule, or a refusal; and all decisions until then."""
    try:
        schedule = run(instance, policy)
    except PolicyError:
        schedule = None
    decisions = [call for call in policy.heard if call[0] == "decide"]
    return schedule, decisions


@pytest.mark.parametrize(
    "seeds", [range(300), pytest.param(range(1000, 9000), marks=pytest.mark.full)]
)
def test_simulator_and_oracle_refuse_the_same_steps(seeds):
    """INV-1, INV-3, INV-6, INV-7: each refuses the first impossible step, and no possible one."""
    refused = 0
    for seed in seeds:
        instance = drawn("wild", seed)
        expected, known = outcome(oracle, instance, listening(wild(seed)))
        found, told = outcome(simulated, instance, listening(wild(seed)))
        assert told == known, seed
        assert (found is None) == (expected is None), seed
        assert found is None or same(found, expected), seed
        refused += found is None
    assert 0.1 < refused / len(seeds) < 0.9


def test_the_random_policies_do_everything():
    """The tests above would prove little if the policies did not use what they are for."""
    seen = Counter()

    def observe(view, step):
        ready = sum(view.to_prefill(r) == 0 for r in view.running if r not in step.preempt)
        seen["held"] += step.hold
        seen["evicted"] += len(step.preempt)
        seen["evicted and prefilled at once"] += bool(set(step.preempt) & set(step.prefill))
        seen["partial"] += 0 < len(step.decode or ()) < ready
        seen["chosen clients"] += step.clients is not None

    for name, make in BATCHING.items():
        for seed in few:
            instance = drawn(name, seed)
            schedule = simulate_policy(instance, make(seed), observer=observe).schedule
            work, steps = schedule.work, schedule.steps
            seen["mixed"] += int((steps.phase == 2).sum())
            seen["invalid"] += int((work.phase == 2).sum())
            seen["later stays"] += int((work.stay > 0).sum())
            places = set(zip(work.request.tolist(), steps.worker[work.first_step], strict=True))
            seen["moved"] += len(places) - len(set(work.request.tolist()))
            for worker in instance.workers:
                seen[worker.cost.model] += 1
                seen["padding"] += worker.padding
                seen["none" if worker.memory is None else worker.memory.allocation] += 1
            seen[f"{len(instance.workers)} workers"] += 1
    assert min(seen.values()) >= 20, seen
    assert len(seen) == 22, seen


class Looking:
    """Notes at each decision what the views of all workers show."""

    def idle_may_act(self):
        """Let all that sleep be asked, as the oracle does."""
        return True

    def decide(self, view):
        for each in view.workers:
            running = dict(each.running)
            self.seen.append((each.rounds, each.blocks_unused, each.blocks_free, running))
            self.seen.append((list(each.prefilling.items()), each.blocks_left(1)))
            self.seen.append([(each.to_prefill(r), each.decodes(r)) for r in running])
        return super().decide(view)


class LookingGittins(Looking, Gittins):
    pass


class LookingSlices(Looking, ContinuousSlices):
    pass


FEW_TOKENS = (GittinsParams(max_num_batched_tokens=3), Information.NONE)


@pytest.mark.parametrize(("kind", "given"), [(LookingGittins, FEW_TOKENS), (LookingSlices, ())])
def test_views_of_workers_in_the_middle_of_steps_agree_with_the_oracle(kind, given):
    shared = 0
    for seed in range(80):
        instance = drawn_of_gittins(seed)
        ours, theirs = kind(*given), kind(*given)
        ours.seen, theirs.seen = [], []
        simulate_policy(instance, ours)
        oracle(instance, theirs)
        assert ours.seen == theirs.seen, seed
        shared += len(instance.workers) > 1
    assert shared > 20
