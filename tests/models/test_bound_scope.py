"""Bounds beside random policies of all modes, and beside the best schedules with such steps."""

import random

import pytest

from orsched import BlockMemory, InfeasibleError, InputError, Instance, Requests, Worker, costs
from orsched.checker import check
from orsched.checker.certificates import bound_violations
from orsched.costs import AffineCost, PoolingCost
from orsched.data.schedule_classes import ALLOWANCES, allowances_of
from orsched.instances import catalog
from orsched.models.bounds.bounds import bound, bound_for, makespan_bound
from orsched.models.bounds.latency_bounds import OBJECTIVES
from orsched.simulator import simulate_policy
from tests.decoding import decoding
from tests.forged import leaves, with_leaf
from tests.in_order import in_order
from tests.models.cases import proven
from tests.models.least_in_any_mode import Search
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING, TokenBudget

SETS = [tuple(a for k, a in enumerate(ALLOWANCES) if 1 << k & bits) for bits in range(8)]


def mean(schedule, instance, objective):
    """Sum over the requests of JCT or TTFT, divided and rounded down as the bounds are."""
    times = schedule.request_times(instance)
    column = times["finish_ns" if objective == "mean_jct" else "first_token_ns"]
    total = sum(column.tolist()) - sum(instance.requests.arrival_ns.tolist())
    return total // max(1, len(instance))


def sweep(seeds, names):
    """Check the bounds of random instances beside random policies; return what was allowed."""
    seen = set()
    for seed in seeds:
        instance = random_batching_instance(random.Random(seed))
        lower = makespan_bound(instance)
        for name in names:
            schedule = simulate_policy(instance, BATCHING[name](seed)).schedule
            needed = allowances_of(instance, schedule)
            seen.add(needed)
            found = bound_for(instance, schedule, lower)
            assert found.value_ns <= schedule.makespan_ns, (seed, name)
            assert found is lower or lower.allows < needed or not lower.allows >= needed
            bounded = schedule.replace(bound=found.to_dict())
            assert not check(instance, bounded), (seed, name)
            for objective in OBJECTIVES:
                latency = proven(instance, bound(instance, objective, allows=needed), objective)
                assert latency.value_ns <= mean(schedule, instance, objective), (seed, name)
    return seen


@pytest.mark.parametrize("name", sorted(BATCHING))
def test_no_policy_beats_the_bounds_for_its_schedules(name):
    assert sweep(range(15), [name])


@pytest.mark.full
def test_no_policy_beats_the_bounds_on_many_instances():
    assert len(sweep(range(15, 700), sorted(BATCHING))) == 12  # moves where requests restart


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 30), marks=pytest.mark.full)])
def test_whoever_allows_more_proves_less(seeds):
    """A set of allowances includes the schedules of each smaller one."""
    for seed in seeds:
        instance = random_batching_instance(random.Random(seed))
        instance = instance.replace(workers=instance.workers[0])
        for objective in ("makespan", *OBJECTIVES):
            values = {}
            for allows in SETS:
                found = proven(instance, bound(instance, objective, allows=allows), objective)
                assert set(allows) <= found.allows
                values[frozenset(allows)] = found.value_ns
            for some, value in values.items():
                assert all(value >= values[more] for more in values if some < more), (seed, some)


COSTS = (
    lambda draw: in_order(costs.AffineCost, *(draw() for _ in range(4))),
    lambda draw: costs.LevelsCost(
        levels=tuple(zip((2, 7), sorted((draw(), draw())), strict=True)), round_fixed_ns=draw()
    ),
    *(
        lambda draw, model=model, of=of: in_order(model, *(draw() * 10**5 for _ in range(of)))
        for model, of in (
            *((costs.BilinearCost, 8), (costs.PoolingCost, 5)),
            *((costs.RooflineCost, 5), (costs.LinearCost, 8)),
        )
    ),
)


def experts(draw):
    """Of which a token reads some, and many tokens all: the time bends down, and up again."""
    curve = [(1, draw()), (2, draw()), (3, draw() // 4), (5, draw())]
    pieces = tuple((start, slope * 10**5) for start, slope in curve)
    sizes = (draw() * 10**5 for _ in range(5))
    return in_order(costs.RooflineCost, *sizes, pieces=pieces, request_fs=draw() * 10**5)


def tiny_instance(rng, kinds=COSTS):
    """One worker and requests of three tokens at most, which all fit."""
    n = rng.choice((1, 2, 2, 3, 3))
    prompts, outputs = ([rng.randint(1, 3) for _ in range(n)] for _ in range(2))
    arrivals = [rng.choice((0, 0, rng.randint(0, 60))) for _ in range(n)]
    sizes = (0, 1, rng.randint(1, 30), rng.randint(1, 300))
    cost, cap = rng.choice(kinds)(lambda: rng.choice(sizes)), rng.choice((None, rng.randint(3, 6)))
    memory = BlockMemory(rng.randint(6, 9), 1, "whole") if rng.random() < 0.67 else None
    worker = Worker(rng.choice((1, 2, 2, 3)), cost, cap, memory, padding=rng.random() < 0.3)
    rule = rng.choice(("decode", "prefill"))
    return Instance(Requests(prompts, outputs, arrival_ns=arrivals), worker, first_token=rule)


def against_the_best(seeds, kinds=COSTS):
    """Compare bounds with the best of all schedules; return how many bounds are met."""
    met = 0
    for seed in seeds:
        rng = random.Random(seed)
        instance, allows = tiny_instance(rng, kinds), rng.choice(SETS)
        at_once = instance.replace(
            requests=instance.requests.replace(arrival_ns=[0] * len(instance))
        )
        for objective in ("makespan", *OBJECTIVES):
            problem = instance if objective == "makespan" else at_once
            found = proven(problem, bound(problem, objective, allows=allows), objective)
            least = Search(problem, allows, objective).least()
            least = least if objective == "makespan" else least // len(problem)
            assert found.value_ns <= least, (seed, objective)
            met += found.value_ns == least
    return met


@pytest.mark.parametrize(
    ("kinds", "seeds", "met"),
    [
        (COSTS, range(50), 50), ((experts,), range(60), 20),
        pytest.param(COSTS, range(10_000, 13_000), 3_000, marks=pytest.mark.full),
        pytest.param((experts,), range(3_000), 900, marks=pytest.mark.full),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_the_bounds_hold_for_the_best_of_all_schedules(kinds, seeds, met):
    assert against_the_best(seeds, kinds) > met


BEATEN = {
    "chunks": decoding([3] * 3, [1] * 3, Worker(3, in_order(AffineCost, 10, 0, 0, 0), 5)),
    "mixed": decoding(
        [1] * 4, [6, 1, 1, 1], Worker(2, in_order(AffineCost, 50, 0, 50, 0), prefill_cap_tokens=1)
    ),
    "restarts": decoding([1] * 3, [3] * 3, Worker(2, in_order(AffineCost, 0, 0, 10, 0))),
    "restarts that yield": Instance(
        Requests([1], [3]), Worker(1, in_order(AffineCost, 1, 0, 10, 0)), first_token="prefill"
    ),
}


@pytest.mark.parametrize("case", BEATEN)
def test_each_allowance_can_beat_the_bounds_that_lack_it(case):
    """Chunks fill stages, restarts divide requests among clients, and prefills may be cheaper."""
    instance, allows = BEATEN[case], (case.split()[0],)
    least = Search(instance, allows).least()
    assert bound(instance, allows=allows).value_ns <= least < makespan_bound(instance).value_ns


def faulty(instance, schedule, bound):
    """What the checker says of a schedule with a bound, as its kind and field."""
    return {(v.kind.value, v.field) for v in check(instance, schedule.replace(bound=bound))}


def test_changed_certificates_are_refused_or_prove_no_more():
    """Whatever is changed: the checker finds it, or the value is not above the best schedule."""
    refused = 0
    for seed in range(40):
        rng = random.Random(seed)
        instance, allows = tiny_instance(rng), rng.choice(SETS[1:])
        least = Search(instance, allows).least()
        good = bound(instance, allows=allows).to_dict()
        for path, value in leaves(good):
            for other in [value - 1, value + 1, 2 * value] if type(value) is int else ["", 1]:
                bad = with_leaf(good, path, other)
                found = [] if bad == good else bound_violations(instance, bad)
                assert found or bad["value_ns"] <= least, (seed, path, other)
                refused += bool(found)
    assert refused > 300


def test_a_bound_for_other_schedules_is_refused():
    """Each way of batching needs its allowance, stated in order, once and in the certificate."""
    seen = set()
    for seed in range(20):
        instance = random_batching_instance(random.Random(seed))
        schedule = simulate_policy(instance, BATCHING["anything"](seed)).schedule
        needed = allowances_of(instance, schedule)
        for allows in SETS:
            found = bound(instance, allows=allows)
            wrong = faulty(instance, schedule, found.to_dict())
            if needed <= found.allows:
                assert wrong == set()
            else:
                assert ("bound", "bound.certificate") in wrong
                seen |= needed - found.allows
        if needed and found.certificate.get("allows"):
            for allows in (["restarts", "chunks"], ["chunks"] * 2, [], ["all"], "chunks", None):
                bad = {**found.to_dict(), "certificate": {**found.certificate, "allows": allows}}
                assert faulty(instance, schedule, bad)
    assert seen == set(ALLOWANCES)


def test_the_bound_for_a_schedule_is_computed_once(monkeypatch):
    instance = BEATEN["mixed"]
    schedule = simulate_policy(instance, BATCHING["token-budget"](0)).schedule
    assert allowances_of(instance, schedule) == {"mixed"}
    lower = makespan_bound(instance)
    first = bound_for(instance, schedule, lower)
    monkeypatch.setattr("orsched.models.bounds.bounds.bound", None)
    assert bound_for(instance, schedule, lower, time_limit=1) is first
    assert bound_for(instance, schedule, first) is first
    assert bound_for(instance, schedule, None) is None


def test_rounds_proven_by_dual_prices_are_used_again():
    """Mixed steps save fixed parts of stages, but no rounds."""
    instance = catalog.generate("gsm8k", seed=1, requests=60, clients=12)
    lower, schedule = bound(instance), simulate_policy(instance, TokenBudget(0)).schedule
    assert "duals" in lower.certificate["decode_rounds"]
    found = proven(instance, bound_for(instance, schedule, lower))
    allows = allowances_of(instance, schedule)
    assert bound(instance, allows=allows).value_ns < found.value_ns <= lower.value_ns
    assert not check(instance, schedule.replace(bound=found.to_dict()))


def test_a_prompt_above_the_cap_can_be_bounded_in_chunks():
    instance = decoding([5, 2], [1, 1], Worker(2, in_order(AffineCost, 1, 1, 1, 1), 3))
    with pytest.raises(InfeasibleError):
        bound(instance)
    with pytest.raises(InputError, match="'padding'"):
        bound(instance, allows=("padding",))
    for objective in ("makespan", *OBJECTIVES):
        found = proven(instance, bound(instance, objective, allows=("chunks",)), objective)
        least = Search(instance, ("chunks",), objective).least()
        assert 0 < found.value_ns <= (least if objective == "makespan" else least // 2)


@pytest.mark.parametrize("alpha", [-1, 0])
def test_padding_may_make_a_falling_prefill_shorter(alpha):
    """Where a longer prompt is faster, nothing is proven of a worker that pads."""
    cost = in_order(PoolingCost, alpha * 10**5, 10**6, 0, 1, 1)
    instance = decoding([5, 9], [2, 2], Worker(2, cost, padding=True))
    assert (bound(instance).name == "last_arrival") == (alpha < 0)
    assert bound(instance.replace(workers=Worker(2, cost))).name != "last_arrival"
