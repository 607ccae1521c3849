"""Impossible steps of all batching modes: each is refused by name, here and by the naive one."""

from __future__ import annotations

import pytest

from orsched.common.errors import PolicyError
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.step import FOREVER, Step, Wait, batch_rounds, decode_rounds, evict, prefill_stage
from orsched.data.workers import Worker
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Policy
from tests.in_order import in_order
from tests.oracle import oracle
from tests.simulator.scripted import Script

COST = in_order(AffineCost, 0, 1, 10, 0)


def small(workers=1, **worker):
    """Three requests with prompts of 5, 6 and 7 tokens that yield 2, 3 and 4."""
    owners = tuple(Worker(2, COST, name=f"worker-{i}", **worker) for i in range(workers))
    return Instance(Requests([5, 6, 7], [2, 3, 4]), owners, first_token="decode")


def chunk(request, tokens, **fields):
    return Step(prefill=[request], tokens=[tokens], **{"decode": (), **fields})


BOTH = prefill_stage([0, 1])
PAGES = {"memory": BlockMemory(6, 2, "paged")}

IMPOSSIBLE = {
    "chunk beyond the prefill": ([chunk(0, 6)], "5 left to prefill", {}),
    "chunk beyond the rest": ([chunk(0, 2), chunk(0, 4)], "3 left to prefill", {}),
    "chunk of nothing": ([chunk(0, 0)], "0 tokens of request 0", {}),
    "chunk after the prefill": ([prefill_stage([0]), chunk(0, 1)], "request 0", {}),
    "too few chunks": ([Step([0, 1], tokens=[1], decode=())], "1 numbers of tokens for 2", {}),
    "restart beyond the prefill": (
        [BOTH, decode_rounds(1), evict([0]), chunk(0, 7)],
        "6 left to prefill",
        {},
    ),
    "chunks twice in a step": ([chunk(0, 1), Step([0, 0], decode=())], "twice", {}),
    "client for a request that has one": (
        [chunk(0, 1), chunk(0, 1, clients=[1])],
        "1 clients for 0",
        {},
    ),
    "decode of an unprefilled request": (
        [chunk(0, 2), prefill_stage([1]), Step(decode=[0])],
        "prefill is not complete",
        {},
    ),
    "decode of a waiting request": ([BOTH, Step(decode=[2])], "request 2 is not on", {}),
    "decode twice": ([BOTH, Step(decode=[0, 0])], "twice", {}),
    "decode of no such request": ([BOTH, Step(decode=[3])], "request 3", {}),
    "decode while in prefill": ([chunk(0, 2), decode_rounds()], "without a running", {}),
    "decode of what is evicted": ([BOTH, Step(preempt=[0], decode=[0])], "request 0", {}),
    "decode after all are evicted": ([BOTH, Step(preempt=[0, 1])], "without a running", {}),
    "eviction of a waiting request": ([BOTH, evict([2])], "request 2 .*cannot be evicted", {}),
    "eviction twice": ([BOTH, evict([0, 0])], "cannot be evicted", {}),
    "eviction of no such request": ([evict([-1])], "cannot be evicted", {}),
    "pages overflow by a prefill": ([BOTH, chunk(2, 2)], "memory blocks", {**PAGES, "clients": 3}),
    "pages overflow by a round": ([BOTH, decode_rounds()], "evict", PAGES),
    "pages overflow by a mixed step": (
        [prefill_stage([0]), Step(prefill=[1])],
        "memory blocks",
        PAGES,
    ),
    "padded pages overflow": (
        [chunk(2, 7), chunk(0, 1)],
        "memory blocks",
        {**PAGES, "padding": True},
    ),
    "padded chunks over the cap": (
        [Step([0, 2], tokens=[1, 6], decode=())],
        "12 tokens exceeds the cap 11",
        {"padding": True, "prefill_cap_tokens": 11},
    ),
    "mixed rounds": ([prefill_stage([0]), Step([1], rounds=2)], "2 rounds", {}),
    "a prefill of several rounds": ([Step([0], decode=(), rounds=2)], "2 rounds", {}),
    "a prefill for ever": ([Step([0], decode=(), rounds=FOREVER)], "rounds", {}),
    "held rounds of some": ([BOTH, Step(decode=[0], hold=True)], "static batch", {}),
    "held rounds of nobody": ([chunk(0, 1), batch_rounds()], "without a running", {}),
    "held prefill": ([prefill_stage([0]), Step([1], hold=True)], "hold", {}),
    "no rounds": ([BOTH, Step(rounds=0, hold=True)], "0 rounds", {}),
    "a wait that is over": ([BOTH, Wait(18), Wait(18)], "not in the future", {}),
    "a wait for ever": ([BOTH, None], "waits", {}),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_steps_are_refused_by_name(case):
    steps, words, worker = IMPOSSIBLE[case]
    instance = small(**{k: v for k, v in worker.items() if k != "clients"})
    if "clients" in worker:
        instance = instance.replace(workers=(Worker(3, COST, memory=worker["memory"]),))
    with pytest.raises(PolicyError, match=words) as caught:
        simulate_policy(instance, Script(*steps))
    assert "policy script, step" in str(caught.value)
    with pytest.raises(PolicyError):
        oracle(instance, Script(*steps))


OTHERS = {
    "prefill of a request that runs elsewhere": ([prefill_stage([0])], "request 0"),
    "decode of a request that runs elsewhere": (
        [prefill_stage([1]), Step(decode=[0])],
        "request 0 is not on",
    ),
    "eviction of a request that runs elsewhere": ([evict([0])], "request 0 .*cannot be evicted"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_worker_is_not_asked_for_another_s_requests(case):
    steps, words = OTHERS[case]
    with pytest.raises(PolicyError, match=words) as caught:
        simulate_policy(small(2), Script(prefill_stage([0]), others=[steps]))
    assert "worker-1" in str(caught.value)
    with pytest.raises(PolicyError):
        oracle(small(2), Script(prefill_stage([0]), others=[steps]))


@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_is_asked_for_an_instance_without_requests(workers):
    class Unasked(Script):
        def decide(self, view):
            raise AssertionError("there is nothing to decide")

    instance = small(workers).replace(requests=Requests([], []))
    assert len(simulate_policy(instance, Unasked(others=[[]])).schedule.steps) == 0


def test_workers_that_all_wait_are_refused():
    policies = [Script(prefill_stage([0]), decode_rounds(), others=[[None]]) for _ in range(2)]
    with pytest.raises(PolicyError, match="waits, but 2 requests are unfinished"):
        simulate_policy(small(2), policies[0])
    with pytest.raises(PolicyError):
        oracle(small(2), policies[1])


def test_a_policy_for_one_worker_is_refused_on_several():
    with pytest.raises(PolicyError, match="fcfs is for one worker, the instance has 2"):
        simulate_policy(small(2), FirstComeFirstServed())
    assert len(simulate_policy(small(1), FirstComeFirstServed()).schedule.steps)


@pytest.mark.parametrize("arrivals", [[0, 0, 0], [0, 0, 5_000_000]])
@pytest.mark.parametrize("worker", [2, -1, 0.5, "b"])
def test_a_worker_that_does_not_exist_gets_no_request(arrivals, worker):
    class Lost(Policy):
        name, many_workers, assigns = "lost", True, True

        def on_arrival(self, view, request):
            return worker if request == 2 else 0

        def decide(self, view):
            return None

    workers = [Worker(1), Worker(1, name="b")]
    instance = Instance(
        Requests([1, 1, 1], [1, 1, 1], arrival_ns=arrivals), workers, first_token="decode"
    )
    with pytest.raises(PolicyError, match=f"for worker {worker!r}, where there are 2"):
        simulate_policy(instance, Lost())
