"""Workers with roles: what goes over links, by hand, by invariants, and as one device would."""

from itertools import pairwise

import numpy as np
import pytest

from orsched import AffineCost, BlockMemory, Instance, Link, PolicyError, Requests, Worker
from orsched.data.step import Step, decode_rounds, evict, prefill_stage
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Policy
from tests.by_the_book import require_reported
from tests.heuristics.building import same, solved
from tests.pools import CONTEXTS, pool_instance, pool_policy, split_on_one_device
from tests.seeds import seeds

SEEDS = range(40)
RULES = ("prefill", "decode")


class Cost(AffineCost):
    """Ten nanoseconds a prompt token, a round of a hundred."""

    def __init__(self):
        super().__init__(
            prefill_fixed_ns=0, prefill_token_ns=10, round_fixed_ns=100, round_client_ns=0
        )


@pytest.mark.parametrize("limit", [None, 0.15])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_pools_do_is_valid_and_conserves_caches_and_link_time(seed, rule, limit):
    """INV-33, INV-34: accepted by the checker and the literal reading. What leaves a worker was
    prefilled there, and is what the other one goes on with. A link is busy with one cache at a
    time, for as long as its tokens take."""
    instance = pool_instance(seed, rule)
    schedule = solved(instance, pool_policy(seed, limit))
    require_reported(instance, schedule)
    sent, work, steps = schedule.transfers, schedule.work, schedule.steps
    if sent is None:  # all prefilled where they decode; most seeds have some, see below
        return
    for k in range(len(sent)):
        mine = work.request == sent.request[k]
        before = mine & (work.stay == sent.stay[k] - 1)
        after = mine & (work.stay == sent.stay[k])
        assert (work.phase[before] == 0).all()
        assert (work.phase[after] == 1).all()
        assert work.tokens[before].sum() == sent.tokens[k]
        assert set(steps.worker[work.first_step[before]]) == {sent.source[k]}
        assert set(steps.worker[work.first_step[after]]) == {sent.target[k]}
        assert steps.end_ns[work.last_step[before]].max() <= sent.start_ns[k]
        assert sent.end_ns[k] <= steps.start_ns[work.first_step[after]].min()
    for source in set(sent.source.tolist()):
        rows = np.flatnonzero(sent.source == source)
        busy = sorted(zip(sent.start_ns[rows].tolist(), sent.end_ns[rows].tolist(), strict=True))
        assert all(a[1] <= b[0] for a, b in pairwise(busy))
        took = sum(end - start for start, end in busy)
        link, tokens = instance.link, int(sent.tokens[rows].sum())
        assert took == len(rows) * link.latency_ns + tokens * link.ns_per_token


def test_most_of_these_instances_have_transfers():
    """The tests around this one are about something."""
    made = [simulate_policy(pool_instance(seed), pool_policy(seed)).schedule for seed in SEEDS]
    assert sum(schedule.transfers is not None for schedule in made) >= 30
    assert sum(int(schedule.work.stay.max()) > 1 for schedule in made) >= 3  # evictions, too


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", seeds(8, 30))
def test_two_roles_on_one_device_with_a_free_link_are_one_worker(seed, rule):
    """INV-35: the same steps at the same times, where neither clients nor memory bind."""
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 60))
    spread = 10**8 * int(draw.integers(1, 20))
    prompts, outputs = draw.integers(1, 200, n), draw.integers(1, 30, n)
    requests = Requests(prompts, outputs, arrival_ns=np.sort(draw.integers(0, spread, n)))
    one = Worker(n, CONTEXTS if seed % 2 else AffineCost())
    alone = Instance(requests, (one,), first_token=rule)
    apart = Instance(requests, split_on_one_device(one), first_token=rule, link=Link())
    expected = solved(alone, "vllm", mode="prefill_first")
    found = solved(apart, "disaggregated", mode="prefill_first")
    for column in ("phase", "start_ns", "end_ns", "rounds"):
        assert (getattr(found.steps, column) == getattr(expected.steps, column)).all()
    times = found.request_times(apart), expected.request_times(alone)
    for column in ("prefill_start_ns", "prefill_end_ns", "first_token_ns", "finish_ns"):
        assert (times[0][column] == times[1][column]).all()


@pytest.mark.parametrize("mode", ["mixed", "decode_first", "prefill_first"])
@pytest.mark.parametrize("seed", range(10))
def test_a_worker_of_both_roles_is_the_aggregated_one(seed, mode):
    """INV-35: with one worker of both roles, whatever binds, a link changes nothing."""
    worker = Worker(4, memory=BlockMemory(40, 16, "paged"))
    one = Instance(pool_instance(2 * seed + 1).requests, worker, first_token="decode")
    linked = one.replace(link=Link(ns_per_token=1000, latency_ns=1000))
    found = solved(linked, "disaggregated", mode=mode)
    assert same(found, solved(one, "vllm", mode=mode))
    assert found.transfers is None


LINK = Link(ns_per_token=7, latency_ns=50)


def two_workers(prompts, outputs, link=LINK, **fields):
    roles = {"p": "prefill", "d": "decode"}
    workers = tuple(Worker(4, Cost(), role=roles[name], name=name, **fields) for name in roles)
    return Instance(Requests(prompts, outputs), workers, first_token="prefill", link=link)


def test_transfers_by_hand():
    """Two prompts of 10 and 20 tokens, prefilled together; their caches go one after the other."""
    instance = two_workers([10, 20], [3, 2])
    schedule = solved(instance, "disaggregated")
    sent = schedule.transfers
    assert schedule.steps.end_ns[0] == 300
    assert sent.request.tolist() == [0, 1]
    assert sent.start_ns.tolist() == [300, 300 + 50 + 70]
    assert sent.end_ns.tolist() == [420, 420 + 50 + 140]
    assert sent.tokens.tolist() == [10, 20]
    # Request 0 decodes from 420 on; the second cache comes at 610, within its second round.
    assert schedule.request_times(instance)["finish_ns"].tolist() == [620, 720]
    assert schedule.request_times(instance)["first_token_ns"].tolist() == [300, 300]


def test_one_token_needs_no_transfer():
    """Under the rule prefill a request of one token is done by its prefill."""
    schedule = solved(two_workers([10], [1]), "disaggregated")
    assert schedule.transfers is None
    assert schedule.makespan_ns == 100


def test_a_full_decoder_lets_caches_wait():
    """A cache is sent when the worker that decodes has blocks for it and for a token."""
    memory, link = BlockMemory(3, 16, "paged"), Link(ns_per_token=1, latency_ns=0)
    instance = two_workers([16, 16], [4, 4], link, memory=memory)
    schedule = solved(instance, "disaggregated")
    first_done = schedule.request_times(instance)["finish_ns"].min()
    assert schedule.transfers.start_ns[1] >= first_done


class Scripted(Policy):
    """Prefills all, hands all to worker 1, and lets a test say what else is done."""

    name, many_workers, assigns, roles = "scripted", True, True, True

    def __init__(self, target=1, receive=None, decides=None):
        self.target, self.receive, self.decides = target, receive, decides
        self.handed = []

    def on_prefilled(self, view, request):
        self.handed.append(request)
        return self.target

    def decide(self, view):
        if view.index == 0 and not self.handed and not view.running:
            return prefill_stage([0])
        if view.index == 1:
            if self.decides is not None:
                return self.decides(view)
            if self.handed and not view.receiving and not view.running:
                return Step(receive=self.receive or self.handed, decode=())
            if view.running:
                return decode_rounds()
        return None


def evicting(view):
    """Take request 0, and evict it as soon as its cache has come."""
    if view.running:
        return evict([0])
    taken = view.receiving or not view.workers[0].sending
    return None if taken else Step(receive=[0], decode=())


@pytest.mark.parametrize(("policy", "message"), [
    ("vllm", "knows no workers that prefill alone"),
    (Scripted(target=None), "on_prefilled has to name a worker"),
    (Scripted(target=0), "cannot take it"),
    (Scripted(target=5), "named the worker 5, of 2"),
    (Scripted(receive=[1]), "request 1 is not handed to this worker"),
    (Scripted(receive=[0, 0]), "request 0 is not handed to this worker"),
    (Scripted(decides=lambda view: prefill_stage([1])), "d does not prefill"),
    (Scripted(decides=lambda view: evicting(view)), "it decodes before an eviction"),
])  # fmt: skip
def test_steps_that_cannot_be(policy, message):
    """What a policy may not do with roles and caches is said in words."""
    with pytest.raises(PolicyError, match=message):
        solved(two_workers([10, 20], [3, 2]), policy)
