"""Workers that sleep cost nothing: who is asked, and that asking all of them changes nothing."""

from dataclasses import replace

import pytest

from orsched import BlockMemory
from orsched.instances.synthetic import peers_workload
from orsched.simulator import simulate_policy
from orsched.simulator.loop import Asleep
from orsched.solving.method_choice import read_spec
from tests.heuristics.building import built, same, solved
from tests.simulator.losses import losing
from tests.simulator.scripted import OneByOne


class State:
    """All that matters of a worker here."""

    clock = None


def test_those_woken_are_asked_in_order_and_later_sleepers_are_not():
    states = [State() for _ in range(6)]
    run = object()
    asleep = Asleep(run, states)
    for index in (4, 1, 3):
        asleep.add(index)
    assert asleep.first_woken() is None
    asleep.wake()
    assert asleep.first_woken() == asleep.first_woken() == 1
    asleep.remove(1)
    asleep.add(2)  # falls asleep after the others were woken
    assert asleep.first_woken() == 3
    asleep.remove(3)
    asleep.add(3)
    assert asleep.first_woken() == 4
    assert [index for index in range(6) if states[index].clock is run] == [2, 3, 4]
    asleep.wake()
    assert asleep.first_woken() == 2
    asleep.settle()
    assert asleep.first_woken() is None
    asleep.discard(0)
    asleep.discard(4)
    assert asleep.order == sorted(asleep) == [2, 3]
    assert states[4].clock is None


def fleet(workers, blocks, seed, rate, requests=300):
    base = peers_workload(requests, rate=rate * workers, seed=seed)
    memory = BlockMemory(blocks, 16, "paged") if blocks else None
    worker = replace(base.worker, memory=memory)
    clients = [128 // (1 + index % 3) for index in range(workers)]
    fleet = (replace(worker, clients=c, name=f"worker-{i}") for i, c in enumerate(clients))
    return base.replace(workers=tuple(fleet))


def policy_of(instance, name):
    spec = read_spec(name)
    return built(instance, spec.name, spec.information, **spec.parameters)


def simulated(instance, name):
    return simulate_policy(instance, policy_of(instance, name))


NAMES = [
    "vllm", "vllm+dispatch=least_work+steal=true",
    "vllm@clairvoyant+policy=priority+priority=length+steal=true", "dynamic+steal=true", "fcfs",
    "gittins", "gittins@clairvoyant", "scls_continuous",
    "scls_continuous+slice_tokens=16+renew=never", "scls_continuous+slice_tokens=32+renew=idle",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("setting", [(12, 700, 1, 8.0), (7, 0, 2, 0.5), (40, 700, 3, 3.0)])
def test_asking_all_that_sleep_makes_the_same_schedule(name, setting, monkeypatch):
    instance = fleet(*setting)
    quick = simulated(instance, name)
    monkeypatch.setattr(type(policy_of(instance, name)), "idle_may_act", lambda self: True)
    plain = simulated(instance, name)
    assert len(plain.decision_ns) >= len(quick.decision_ns)
    assert same(quick.schedule, plain.schedule)


class Clock(OneByOne):
    """Looks at the clocks of all workers whenever a request arrives; one worker serves all."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_arrival(self, view, request):
        super().on_arrival(view, request)
        self.seen.append([each.now_ns for each in view.workers])

    def decide(self, view):
        return super().decide(view) if view.index == 2 else None


def test_the_clocks_of_those_that_sleep_go_on():
    instance = fleet(3, 0, 1, 1.0, requests=20)
    policy = Clock()
    simulate_policy(instance, policy)
    assert [clocks[:2] for clocks in policy.seen] == [
        [arrival] * 2 for arrival in sorted(instance.requests.arrival_ns.tolist())
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_only_worker_is_asked_at_each_arrival_though_it_may_be_lost(name):
    """Nobody is told whom an arrival is for where there is one worker, and that one may sleep."""
    for seed in (0, 1, 9, 14):  # the first requests come while it waits
        instance = losing(seed, 1)
        solved(instance, policy_of(instance, name))


@pytest.mark.parametrize(
    "name", ["vllm", "vllm+dispatch=round_robin", "fcfs", "gittins", "scls_continuous"]
)
def test_only_those_that_may_act_are_asked(name):
    instance = fleet(40, 0, 3, 0.2)
    done = simulated(instance, name)
    # One for each step at most, and one with nothing to do before or after it.
    assert len(done.decision_ns) <= 2 * len(done.schedule.steps) + 40
