"""What requests that keep their limits take of a fleet, beside random policies of every kind."""

import random
from itertools import product

import numpy as np
import pytest

import orsched
from orsched import AffineCost, BilinearCost, Instance, Prefixes, Requests, Worker
from orsched.certificates.fields import Budget, BudgetError
from orsched.certificates.fleet_demand import FAR, UNIT, Demand, Limits, Measure, attained_at_most
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.models.bounds.fleet_bound import AttainmentSearch, measures_for
from orsched.simulator import simulate_policy
from tests.decoding import decoding
from tests.in_order import in_order
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING
from tests.simulator.prefix_workloads import prefix_instance, prefix_params, prefix_policy


def latencies(instance, schedule):
    """TTFT and TPOT of every request, as the metrics have them."""
    times, req = schedule.request_times(instance), instance.requests
    ttft = times["first_token_ns"] - req.arrival_ns
    pace = (times["finish_ns"] - times["first_token_ns"]) // np.maximum(req.output_tokens - 1, 1)
    return ttft, pace


def limits_between(rng, instance, schedule):
    """Limits that some requests keep exactly, others with room, others not at all."""
    ttft, pace = latencies(instance, schedule)
    scale = np.array([rng.choice((1, 1, 1, 2, 0.5)) for _ in ttft])
    own = (ttft * scale).astype(np.int64), (pace * scale).astype(np.int64)
    if rng.random() < 0.3:  # one pair of limits for all
        at = rng.randrange(len(ttft))
        own = np.full(len(ttft), ttft[at]), np.full(len(ttft), pace[at])
    if rng.random() < 0.1:
        own = own[0], np.full(len(ttft), 2**62)
    several = instance.requests.output_tokens >= 2
    kept = (ttft <= own[0]) & (~several | (pace <= own[1]))
    return Limits(np.arange(len(ttft)), *own), kept


def all_measures(demand):
    """What the search would try, and whatever else the kernel takes."""
    yield from measures_for(demand)
    shares = (("clients", 0), ("clients", 40), ("clients", 3000), ("memory", 0))
    for stage, rounds, fixed, share in product(
        range(5), range(5), ("stage", "round", "both"), shares
    ):
        yield Measure(stage, rounds, fixed, *share)


def fullest_window(rng, instance, schedule, said):
    """Hold each window against the time that a fleet has in it; return how full the fullest is."""
    limits, kept = limits_between(rng, instance, schedule)
    weights = [rng.randint(1, 9) for _ in instance.workers]
    if rng.random() < 0.5:
        weights = [1] * len(weights)
    try:
        demand = Demand(instance, limits, instance.workers, weights)
    except ValueError:  # no floor
        return 0.0
    assert demand.possible[kept].all(), said
    first_by = np.minimum(demand.first_by, FAR)
    every = (instance.requests.arrival_ns, first_by, demand.end_by, demand.begin)
    moments = sorted({0, 1, schedule.makespan_ns}.union(*(each.tolist() for each in every)))
    pairs = [sorted(rng.sample(moments, 2)) for _ in range(12)] + [[0, moments[-1]]]
    fullest = 0.0
    for measure in all_measures(demand):
        try:
            work = demand.work(measure)
        except ValueError:
            continue
        for start, end in pairs:
            held = sum(demand.within(work, start, end)[kept].tolist())
            room = sum(weights) * (end - start) * UNIT
            assert held <= room, (said, measure, start, end)
            fullest = max(fullest, held / room if room else 0)
    search = AttainmentSearch(instance, limits, instance.workers, weights)
    found = search.certificate(sum(weights), 0)
    assert kept.sum() <= found["attained"] <= len(instance), said
    assert attained_at_most(instance, limits, instance.workers, found) == found["attained"]
    return fullest


def batching(seed, rng):
    """A random instance of every kind, and a random policy."""
    instance = random_batching_instance(rng)
    return instance, BATCHING[rng.choice(sorted(BATCHING))](seed)


def cached(seed, rng):
    """An instance with prefix caches, below vLLM's policy."""
    instance = prefix_instance(seed, rng.choice((1, 1, 2, 3)))
    return instance, prefix_policy(instance, prefix_params(seed, instance.workers[0].clients))


@pytest.mark.parametrize(("draw", "seeds", "least"), [
    (cached, range(12), 0.1), (cached, range(12, 24), 0.1),
    pytest.param(cached, range(1000, 1200), 0.5, marks=pytest.mark.full),
    (batching, range(12, 24), 0.1), (batching, range(24, 36), 0.1),
    pytest.param(batching, range(1000, 1150), 0.9, marks=pytest.mark.full),
])  # fmt: skip
def test_no_policy_takes_less_in_any_window(draw, seeds, least):
    fullest = 0.0
    for seed in seeds:
        rng = random.Random(seed)
        instance, policy = draw(seed, rng)
        schedule = simulate_policy(instance, policy).schedule
        fullest = max(fullest, fullest_window(rng, instance, schedule, seed))
    assert fullest > least


def affine(requests=120, gap_ns=5 * 10**7, memory=None, clients=4):
    """Requests at equal distances on Pang's worker."""
    arrivals = [gap_ns * k for k in range(requests)]
    worker = Worker(clients, AffineCost(), None, memory)
    return Instance(Requests([100] * requests, [20] * requests, arrival_ns=arrivals), worker)


def proven(instance, ttft, tpot, speed, name=None):
    n = len(instance)
    limits = Limits(np.arange(n), np.full(n, ttft), np.full(n, tpot))
    search = AttainmentSearch(instance, limits, instance.workers[:1], [1])
    return search.certificate(speed, 0)["attained"]


def test_twice_the_fleet_keeps_at_least_as_many():
    instance = affine()
    values = [proven(instance, 10**9, 10**8, speed) for speed in range(1, 7)]
    assert values == sorted(values)
    assert values[0] < 120 == values[-1]


def test_tighter_limits_prove_more():
    instance = affine()
    loose = proven(instance, 10**10, 10**8, 1)
    paced = proven(instance, 10**10, 32_000_000, 1)
    assert paced < loose < 120


def test_memory_that_holds_few_proves_more():
    roomy = proven(affine(clients=64), 10**9, 10**8, 1)
    memory = BlockMemory(30, 16, "paged")
    tight = proven(affine(clients=64, memory=memory), 10**9, 10**8, 1)
    assert tight < roomy


def test_without_a_ttft_limit_nothing_has_to_be_done_in_time():
    assert proven(affine(), 2**62, 10**8, 1) == 120


def test_what_is_alone_too_slow_counts_nothing():
    assert proven(affine(), 37_999_999, 10**8, 100) == 0  # 25 ms + 100 x 0.13 ms = 38 ms
    assert proven(affine(), 38_000_000, 29_210_000, 100) == 120
    assert proven(affine(), 38_000_000, 29_209_000, 100) == 0


@pytest.fixture
def case():
    instance = affine()
    limits = Limits(np.arange(120), np.full(120, 10**9), np.full(120, 10**8))
    search = AttainmentSearch(instance, limits, instance.workers, [1])
    return instance, limits, search.certificate(1, 0)


def test_a_certificate_proves_what_it_says(case):
    instance, limits, claim = case
    assert claim["windows"]
    assert attained_at_most(instance, limits, instance.workers, claim) == claim["attained"] < 120


def test_a_larger_fleet_or_later_limits_take_the_proof_away(case):
    instance, limits, claim = case
    faster = {**claim, "speed": 2}
    assert attained_at_most(instance, limits, instance.workers, faster) > claim["attained"]
    later = Limits(limits.rows, limits.ttft_ns * 50, limits.tpot_ns * 50)
    assert attained_at_most(instance, later, instance.workers, claim) > claim["attained"]


@pytest.mark.parametrize("change", [
    {"weights": [0]}, {"weights": [1, 1]}, {"speed": -1}, {"speed": 1.0}, {"one": 0},
    {"bound": "charged"}, {"measures": []},
    {"windows": [{"start_ns": 5, "end_ns": 4, "measure": 0, "weight": 1}]},
    {"windows": [{"start_ns": 0, "end_ns": 4, "measure": 1, "weight": 1}]},
    {"windows": [{"start_ns": 0, "end_ns": 4, "measure": 0, "weight": -1}]},
    {"measures": [{"stage": 4, "round": 4, "fixed": "both", "share": "clients", "pace": 0}]},
    {"measures": [{"stage": 4, "round": 4, "fixed": "round", "share": "memory", "pace": 0}]},
    {"measures": [{"stage": 5, "round": 4, "fixed": "round", "share": "clients", "pace": 0}]},
    {"more": 1},
])  # fmt: skip
def test_forged_certificates_are_refused(case, change):
    instance, limits, claim = case
    with pytest.raises(ValueError, match=r"."):
        attained_at_most(instance, limits, instance.workers, {**claim, **change})


def test_a_certificate_is_verified_within_a_budget(case):
    instance, limits, claim = case
    with pytest.raises(BudgetError):
        attained_at_most(instance, limits, instance.workers, claim, Budget(1000))


def served(instance, schedule=None):
    """Demand with the latencies of first come, first served as the limits."""
    schedule = orsched.solve(instance, "fcfs").schedule if schedule is None else schedule
    limits = Limits(np.arange(len(instance)), *latencies(instance, schedule))
    demand = Demand(instance, limits, instance.workers, [1])
    # TPOT is rounded down: the latest end is up to a nanosecond a token later.
    return demand, schedule.makespan_ns, int(demand.end_by.max())


def share_of(demand, measure, end_ns):
    """What all requests are charged of the time up to a moment."""
    held = sum(demand.within(demand.work(measure), 0, end_ns).tolist())
    return held / (end_ns * UNIT)


def prefills(first):
    """Two prefills that fill [50, 100] on two workers, and a first one within [0, 150]."""
    worker = Worker(1, in_order(AffineCost, 0, 1, 1, 0))
    requests = Requests([first, 50, 50], [1, 1, 1], arrival_ns=[0, 50, 50])
    limits = Limits(np.arange(3), np.array([150, 50, 50]), np.full(3, 2**62))
    return Instance(requests, worker, "prefill"), limits


@pytest.mark.parametrize(("start", "end", "charged"), [
    (0, 150, 120), (10, 150, 110), (10, 130, 90), (50, 100, 20), (60, 90, 0), (200, 300, 0),
])  # fmt: skip
def test_a_prefill_is_charged_what_does_not_fit_outside_the_window(start, end, charged):
    instance, limits = prefills(120)
    demand = Demand(instance, limits, instance.workers, [3])
    for parts in (4, 2):
        work = demand.work(Measure(parts, 4, "round", "clients", 0))
        assert demand.within(work, start, end)[0] == charged * 3 * UNIT * parts // 4


def test_a_request_does_not_run_on_two_workers_at_once():
    # As one machine of twice the speed, 250 ns fit into [0, 150] and 100 into [50, 100].
    instance, limits = prefills(150)
    search = AttainmentSearch(instance, limits, instance.workers, [1])
    assert [search.certificate(speed, 0)["attained"] for speed in (1, 2, 3)] == [1, 2, 3]


def test_full_clients_are_charged_their_rounds_whole():
    instance = affine(requests=4, gap_ns=0)
    demand, makespan, end = served(instance)
    assert makespan == 77_000_000 + 19 * 29_840_000
    charged = 4 * 13_000_000 + 19 * 29_840_000  # all but the fixed time of the stage
    found = share_of(demand, Measure(4, 4, "round", "clients", 0), end)
    assert found == pytest.approx(charged / end, rel=1e-9)


def test_contexts_are_charged_as_they_grow():
    # A round is 1,000 ns a context token.
    cost = in_order(BilinearCost, 0, 10**6, 0, 10**8, 0, 0, 10**9, 0)
    instance = decoding([3], [30], Worker(1, cost))
    demand, makespan, end = served(instance)
    assert makespan == 101 + 1000 * (30 * 3 + 30 * 31 // 2)
    found = share_of(demand, Measure(4, 4, "both", "clients", 0), end)
    assert 0.93 < found <= 1  # token j after the first is charged as the j-th, not the next one


def test_blocks_in_use_are_charged_what_they_keep_from_others():
    memory = BlockMemory(10, 16, "paged")
    worker = Worker(64, in_order(AffineCost, 0, 1, 10**6, 1), None, memory)
    instance = decoding([70, 70], [10, 10], worker)
    demand, _, end = served(instance)
    found = share_of(demand, Measure(4, 4, "round", "memory", 0), end)
    assert 0.9 < found <= 1
    assert share_of(demand, Measure(4, 4, "round", "clients", 0), end) < 0.1


def test_the_latest_end_is_the_last_moment_that_tpot_rounds_down_to_its_limit():
    worker = Worker(1, in_order(AffineCost, 0, 0, 1, 0))
    instance = Instance(Requests([5] * 4, [1, 2, 4, 8]), worker, "prefill")
    limits = Limits(np.arange(4), np.full(4, 100), np.full(4, 10))
    demand = Demand(instance, limits, instance.workers, [1])
    for after, between in zip((0, 1, 3, 7), demand.between.tolist(), strict=True):
        kept = [x for x in range(200) if after and x // after <= 10]
        assert between == max(kept, default=0)
    assert (demand.end_by == 100 + demand.between).all()


def test_a_restart_may_yield_the_next_token_sooner_than_a_round():
    cheap = in_order(AffineCost, 5, 1, 1000, 1)
    instance = Instance(Requests([40], [9]), Worker(2, cheap), "prefill")
    limits = Limits(np.arange(1), np.full(1, 10**6), np.full(1, 10**6))
    assert Demand(instance, limits, instance.workers, [1]).gap.tolist() == [46]
    by_decode = instance.replace(first_token="decode")
    assert Demand(by_decode, limits, instance.workers, [1]).gap.tolist() == [1001]
    cached = Worker(2, cheap, None, BlockMemory(20, 16, "paged", PrefixCache()))
    assert Demand(instance, limits, [cached], [1]).gap.tolist() == [6]


def test_what_others_have_is_neither_computed_nor_held_for_certain():
    worker = Worker(4, AffineCost(), None, BlockMemory(40, 16, "paged", PrefixCache()))
    prefixes = Prefixes.from_documents([0, 0, -1], [64, 64, 0], 16)
    requests = Requests([64, 100, 100], [9, 9, 9], prefixes=prefixes)
    instance = Instance(requests, worker, "decode")
    limits = Limits(np.arange(3), np.full(3, 10**12), np.full(3, 10**12))
    demand = Demand(instance, limits, [worker], [1])
    assert demand.computed.tolist() == [16, 36, 100]
    charged = demand.work(Measure(4, 4, "round", "memory", 0))
    held = 29_000_000 * UNIT // (40 * 16)
    own = 210_000 * UNIT
    assert charged.token.tolist() == [own, own + held * 20, own + held * 84]
    prefills = [130_000 * UNIT * tokens for tokens in (16, 36, 100)]
    assert (charged.first - charged.token).tolist() == prefills
