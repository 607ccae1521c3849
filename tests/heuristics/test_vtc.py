"""``vtc``: counters by hand, each admission against a literal reading, the theorem's bound."""

import random

import numpy as np
import pytest

from orsched import AffineCost, BlockMemory, Instance, Requests, Worker, simulate
from orsched.heuristics.vtc import FairQueue
from orsched.metrics.token_times import request_times
from tests.seeds import seeds

SHARES = {"a": 8, "b": 3, "c": 1}
PROMPTS = {"a": 60, "b": 200, "c": 30}
ANSWER = 60


def overload(seed, memory=True):
    """More requests than clients, most of them of one tenant; prompts differ by tenant."""
    draw = random.Random(seed)
    n = draw.randint(20, 80)
    tenants = draw.choices("abc", weights=tuple(SHARES.values()), k=n)
    requests = Requests(
        [draw.randint(1, PROMPTS[each]) for each in tenants],
        [draw.randint(1, ANSWER) for _ in range(n)],
        arrival_ns=[draw.choice([0, draw.randint(0, 10**9)]) for _ in range(n)],
        tenant=tenants,
    )
    blocks = draw.choice([None, BlockMemory(40, 16, "whole"), BlockMemory(40, 16, "paged")])
    worker = Worker(draw.randint(1, 8), AffineCost(), memory=blocks if memory else None)
    rule = draw.choice(["prefill", "decode"])
    return Instance(requests, worker, first_token=rule, output_limit_tokens=ANSWER)


def most(instance):
    """Twice U of the theorem: the longest prompt, or the tokens that a batch can hold."""
    worker, longest = instance.worker, int(instance.requests.prompt_tokens.max())
    held = worker.clients * (longest + ANSWER)
    if worker.memory is not None:
        held = min(held, worker.memory.blocks * worker.memory.block_tokens)
    return 2 * max(longest, 2 * held)


def difference(instance, method):
    return simulate(instance, method).schedule.results["fairness"]["service_difference"] or 0


def test_the_service_of_waiting_tenants_differs_by_no_more_than_the_theorem_says():
    """INV-25: at most 2 max(w_p L, w_q M) between any two times, which vllm breaks."""
    broken = 0
    for seed in range(60):
        instance = overload(seed)
        assert difference(instance, "vtc") <= most(instance), seed
        broken += difference(instance, "vllm") > most(instance)
    assert broken >= 5


@pytest.mark.parametrize("seed", range(8))
def test_with_one_tenant_it_does_what_vllm_does(seed):
    instance = overload(seed)
    for tenant in (None, ["a"] * len(instance)):
        requests = instance.requests.replace(tenant=tenant, tenants=None)
        alone = instance.replace(requests=requests)
        schedules = (simulate(alone, name).schedule for name in ("vtc", "vllm"))
        mine, other = (request_times(alone, schedule) for schedule in schedules)
        assert all((mine[name] == other[name]).all() for name in mine)


@pytest.mark.parametrize("seed", range(8))
def test_no_client_rests_while_a_request_waits(seed):
    """No work is wasted: without memory every client is taken while requests wait."""
    instance = overload(seed, memory=False)
    times = request_times(instance, simulate(instance, "vtc").schedule)
    begin, end = times["prefill_start_ns"], times["finish_ns"]
    for arrival, start in zip(instance.requests.arrival_ns, begin, strict=True):
        for moment in begin[(begin > arrival) & (begin < start)]:
            assert ((begin <= moment) & (end > moment)).sum() == instance.worker.clients


class Literal:
    """Algorithm 2 of the paper over a finished schedule, one step after the other."""

    def __init__(self, instance, schedule):
        self.requests = instance.requests
        self.by_prefill = instance.first_token == "prefill"
        self.clients = instance.worker.clients
        self.schedule = schedule
        self.counters = dict.fromkeys(range(3), 0)
        self.waiting, self.running, self.left = [], {}, None

    def arrive(self, now):
        order = np.argsort(self.requests.arrival_ns, kind="stable").tolist()
        for request in order:
            if request in self.seen or self.requests.arrival_ns[request] > now:
                continue
            self.seen.add(request)
            tenant = int(self.requests.tenant[request])
            others = {int(self.requests.tenant[each]) for each in self.waiting}
            if tenant not in others:
                least = min((self.counters[each] for each in others), default=None)
                if least is None:
                    least = 0 if self.left is None else self.counters[self.left]
                self.counters[tenant] = max(self.counters[tenant], least)
            self.waiting.append(request)

    def admit(self):
        def key(request):
            tenant = int(self.requests.tenant[request])
            ahead = [r for r in self.waiting if self.requests.tenant[r] == tenant]
            arrival = int(self.requests.arrival_ns[ahead[0]])
            return self.counters[tenant], arrival, tenant, ahead.index(request)

        request = min(self.waiting, key=key)
        self.waiting.remove(request)
        self.left = int(self.requests.tenant[request])
        self.counters[self.left] += int(self.requests.prompt_tokens[request])
        return request

    def admissions(self):
        """Yield which requests each step should admit, and which it does."""
        self.seen = set()
        steps, work = self.schedule.steps, self.schedule.work
        for step in range(len(steps)):
            self.arrive(int(steps.start_ns[step]))
            found = set(work.request[(work.first_step == step) & (work.phase == 0)].tolist())
            yield {self.admit() for _ in found}, found
            rows = (work.first_step <= step) & (work.last_step >= step)
            for request, phase in zip(work.request[rows], work.phase[rows], strict=True):
                tokens = int(steps.rounds[step]) if phase == 1 else int(self.by_prefill)
                self.counters[int(self.requests.tenant[request])] += 2 * tokens


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_each_admission_is_that_of_the_algorithm(seed):
    """INV-25: counters, lifts and ties, worked out anew from the schedule."""
    instance = overload(seed, memory=False)
    rows = list(Literal(instance, simulate(instance, "vtc").schedule).admissions())
    assert sum(len(found) for _, found in rows) == len(instance)
    assert all(expected == found for expected, found in rows)


class Seen:
    """What a queue asks of a view."""

    def __init__(self, tenant, prompts):
        self.tenant, self.prompt_tokens, self.arrival_ns = tenant, prompts, range(len(tenant))


def test_a_tenant_that_returns_is_lifted_and_saves_nothing_up():
    queue = FairQueue(1, 2)
    view = Seen([0, 0, 0, 1, 1, 2], [10, 20, 30, 5, 5, 1])
    for request in (0, 1, 2):
        queue.put(view, request)
    assert queue.pop() == 0
    queue.served(0, 7)
    assert queue.counters == {0: 10 + 14}
    queue.put(view, 3)  # was idle: no credit for the 24 that tenant 0 has had
    assert queue.counters[1] == 24
    assert queue.first() == 1  # of two alike the earlier request
    assert [queue.pop(), queue.pop()] == [1, 3]
    assert queue.counters == {0: 44, 1: 29}
    queue.put(view, 4)  # nothing of tenant 1 waits: to the least of those that wait
    assert queue.counters[1] == 44
    assert [queue.pop(), queue.pop()] == [2, 4]
    queue.put(view, 5)  # nobody waits: to that of the tenant whose request left last
    assert queue.counters[2] == queue.counters[1] == 49


def test_a_preempted_request_is_the_next_of_its_tenant_and_counts_once():
    queue = FairQueue(1, 2)
    view = Seen([0, 0, 1], [10, 10, 10])
    for request in (0, 1, 2):
        queue.put(view, request)
    assert [queue.pop(), queue.pop()] == [0, 2]
    assert queue.victim([0, 2]) == 2
    queue.served(0, 1)
    assert queue.victim([0, 2]) == 0
    queue.put_back(0)
    assert len(queue) == 2
    assert queue.pop() == 0
    assert queue.counters == {0: 12, 1: 10}
    assert queue.oldest() == 1
    assert queue.surrender() == 1
    assert len(queue) == 0
