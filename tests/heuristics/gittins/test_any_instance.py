"""What holds for the Gittins policy on random workers, memories, arrivals and parameters."""

import random

import pytest

from orsched import AffineCost, BilinearCost, BlockMemory, Worker
from orsched.heuristics.gittins import Gittins, GittinsParams, LengthModel, policy
from orsched.heuristics.gittins.routing import RoutingDecision
from orsched.heuristics.gittins.worker_model import WaitingRequests
from orsched.heuristics.prices import Prices
from orsched.instances import predict
from orsched.instances.synthetic import peers_workload
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, View, WorkerState
from tests.heuristics.building import require_sound, same
from tests.heuristics.gittins.drawn import KNOWN, drawn, params_of, policy_for
from tests.heuristics.gittins.plain import PlainGittins
from tests.in_order import in_order
from tests.oracle import oracle


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 2000), marks=pytest.mark.full)]
)
def test_schedules_are_valid_come_again_are_blind_and_agree_with_the_naive_simulator(known, seeds):
    for seed in seeds:
        instance = drawn(seed)
        schedule = require_sound(instance, lambda case, seed=seed: policy_for(case, known, seed))
        assert same(schedule, oracle(instance, policy_for(instance, known, seed))), seed


@pytest.fixture(autouse=True, params=["few workers", "many workers"])
def in_lists_and_in_columns(request, monkeypatch):
    """Let every test also run as in a large fleet, whose workers are in columns."""
    if request.param == "many workers":
        monkeypatch.setattr(policy, "MANY", 1)


def require_alike(instance, known, params):
    """Both make one schedule; return how many evictions it has."""
    made = []
    for kind in (Gittins, PlainGittins):
        fresh = kind(params, Information(known), instance.requests.service_class)
        made.append(simulate_policy(instance, fresh).schedule)
    assert same(*made)
    return int((made[0].work.stay > 0).sum())


@pytest.mark.parametrize("known", KNOWN)
def test_on_random_workers_and_memories_it_decides_as_without_short_cuts(known):
    evictions = 0
    for seed in range(25):
        instance = drawn(seed, 60, 40)
        evictions += require_alike(instance, known, GittinsParams(**params_of(seed)))
    assert evictions > 20


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("blocks", [None, 400])
@pytest.mark.parametrize("alike", [True, False])
def test_under_load_it_decides_as_without_short_cuts(known, blocks, alike):
    workload = peers_workload(500, rate=60.0)
    memory = None if blocks is None else BlockMemory(blocks, 16, "paged")
    pace = [90_000 + (not alike) * 20_000 * place for place in range(4)]
    costs = [AffineCost(prefill_fixed_ns=20_000_000, prefill_token_ns=each) for each in pace]
    workers = [Worker(24, cost, None, memory) for cost in costs]
    instance = predict(workload.replace(workers=workers), "noise:sigma=0.4")
    require_alike(instance, known, GittinsParams())


def test_most_decisions_of_full_workers_need_no_placing(monkeypatch):
    """The first who waits finds no room: nobody else is asked for."""
    made, kept = [], RoutingDecision.__init__
    noted = lambda *values: made.append(1) or kept(*values)  # noqa: E731
    monkeypatch.setattr(RoutingDecision, "__init__", noted)
    workload = peers_workload(600, rate=60.0)
    worker = Worker(128, AffineCost(), None, BlockMemory(400, 16, "paged"))
    instance = workload.replace(workers=(worker,) * 2)
    done = simulate_policy(instance, Gittins(GittinsParams(), Information.NONE))
    assert 0 < len(made) < len(done.decision_ns) / 2


def test_the_first_of_each_class_stand_in_order():
    rng = random.Random(3)
    queue, lengths = WaitingRequests(), LengthModel(100).all
    for row in range(2000):
        if rng.random() < 0.55 or not len(queue):
            key, size = rng.randint(0, 40), rng.randint(1, 5)
            queue.put((key, row, size, size, row, 0, lengths))
        else:
            queue.pop(rng.randrange(len(queue.heads)))
        waiting = [each for heap in queue.heaps.values() for each in heap]
        sizes = {each[2] for each in waiting}
        firsts = sorted(min(each for each in waiting if each[2] == size) for size in sizes)
        assert queue.heads == firsts
        assert len(queue) == len(waiting)


@pytest.mark.parametrize(
    "cost", [in_order(AffineCost, 30, 2, 20, 3), in_order(BilinearCost, *[3_000_000] * 8)]
)
def test_a_step_goes_beside_a_round_unless_both_take_less_apart(cost):
    state = WorkerState(Worker(8, cost), "prefill", 100)
    prices = Prices(View(state, memoryview(b""), memoryview(b""), None))
    for active in (0, 1, 5, 5, 1):
        for chunks in ([7], [100, 1, 30]):
            stage, one = cost.prefill_ns(chunks), cost.round_ns(active, active * 1024, 1024)
            own = getattr(cost, "mixed_ns", lambda c, *r: cost.prefill_ns(c) + cost.round_ns(*r))
            both = own(chunks, active, active * 1024, 1024)
            beside = active > 0 and stage + one >= both
            assert prices.prefill(chunks, active) == (beside, both if beside else stage)
