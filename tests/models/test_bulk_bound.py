"""Bounds on bulk work, and bounds where requests find each other's prefixes in a cache."""

from dataclasses import asdict, replace

import numpy as np
import pytest

import orsched
from orsched import InputError, Instance, PrefixCache, Prefixes, ServiceClass, Step, bulk_bound
from orsched.certificates.bulk_parts import Demands
from orsched.certificates.bulk_program import sums_of
from orsched.certificates.scope import Sharing, cut_tokens, relaxed
from orsched.checker.certificates import bound_violations, bulk_violations
from orsched.data.schedule_classes import allowances_of
from orsched.metrics.token_times import request_times
from orsched.models.bounds.bounds import bound, improving_bounds
from orsched.models.bounds.bulk_bound import attainment_bound, bulk_tokens
from orsched.simulator import simulate_policy
from tests.checker.any_mode import COSTS, random_schedule
from tests.forged import without
from tests.in_order import in_order
from tests.models.cases import proven, values_of
from tests.seeds import seeds
from tests.simulator.prefix_workloads import prefix_instance, prefix_params
from tests.simulator.scripted import Script

COST = in_order(orsched.AffineCost, 15_000_000, 70_000, 15_000_000, 20_000)


def attained(instance, schedule, measure):
    """How many requests with limits meet them, from first and last tokens or from all of them."""
    times = request_times(instance, schedule)
    count, rows = 0, Demands.of(instance).rows.tolist()
    in_time = tokens_in_time(instance, schedule) if measure == "in_time" else None
    for row in rows:
        kind = instance.classes[int(instance.requests.service_class[row])]
        arrival = int(instance.requests.arrival_ns[row])
        first, last = (int(times[name][row]) for name in ("first_token_ns", "finish_ns"))
        more = int(instance.requests.output_tokens[row]) - 1
        met = kind.ttft_ns is None or first - arrival <= kind.ttft_ns
        if in_time is not None:
            met &= in_time[row]
        elif kind.tpot_ns is not None and more:
            met &= (last - first) // more <= kind.tpot_ns
        if kind.deadline_ns is not None:
            met &= last - arrival <= kind.deadline_ns
        count += bool(met)
    return count


def tokens_in_time(instance, schedule):
    """Whether each token i of each request comes within ``ttft + i tpot``, by moments asked for."""
    found = []
    ends = np.unique(schedule.steps.end_ns)
    for row in range(len(instance)):
        kind = instance.classes[int(instance.requests.service_class[row])]
        found.append(True)
        if kind.ttft_ns is None or kind.tpot_ns is None:
            continue
        codes = (np.arange(len(instance)) == row).astype(int)
        alone = instance.requests.replace(service_class=codes)
        others = ServiceClass("others", bulk=False), ServiceClass("it", bulk=True)
        only = instance.replace(requests=alone, classes=others)
        there = 0
        for moment in ends.tolist():
            now = bulk_tokens(only, schedule, moment, 0, 1)
            for token in range(there, now):
                due = int(instance.requests.arrival_ns[row]) + kind.ttft_ns + token * kind.tpot_ns
                found[row] &= moment <= due
            there = now
    return found


def with_classes(dice, instance, schedule):
    """The instance with some requests bulk and limits about what the schedule has, and a moment."""
    n = len(instance)
    times = request_times(instance, schedule)
    ttft = times["first_token_ns"] - instance.requests.arrival_ns
    jct = times["finish_ns"] - instance.requests.arrival_ns

    def limit(values):
        return int(dice.choice(values)) + int(dice.integers(0, 3))

    pace = jct // np.maximum(instance.requests.output_tokens, 1)
    kinds = (
        ServiceClass("interactive", ttft_ns=limit(ttft), tpot_ns=limit(pace)),
        ServiceClass("batch"),
        ServiceClass("soon", ttft_ns=limit(ttft), deadline_ns=limit(jct)),
    )
    requests = instance.requests.replace(service_class=dice.choice([0, 1, 1, 2], n))
    instance = instance.replace(requests=requests, classes=kinds)
    end = int(schedule.steps.end_ns.max())
    return instance, max(1, int(dice.integers(1, max(2, end + end // 4))))


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_no_random_schedule_does_more(seed):
    """INV-27: Engines without a policy: pauses, chunks, mixed steps, evictions, unequal workers."""
    dice = np.random.default_rng(seed)
    plain, schedule = random_schedule(seed)
    restarts = int((schedule.work.stay > 0).sum())
    for measure in ("attained", "in_time"):
        instance, moment = with_classes(dice, plain, schedule)
        met, total = attained(instance, schedule, measure), len(Demands.of(instance).rows)
        options = {
            "prompt_weight": int(dice.integers(0, 3)),
            "output_weight": int(dice.integers(1, 3)),
            "credit": str(dice.choice(["output", "prefill"])),
            "restarts": None if dice.random() < 0.5 else restarts,
            "windows": int(dice.choice([1, 4, 30])),
        }
        share = met / total if total else 0.9
        try:
            bound = bulk_bound(instance, share, moment / 1e9, measure=measure, **options)
        except InputError as error:
            if "no floor" not in str(error):
                raise
            continue
        assert bound.feasible
        assert bound.horizon_ns == moment
        assert bound.done(schedule) <= bound.value
        assert bulk_violations(instance, bound.to_dict()) == []
        most = attainment_bound(instance, moment / 1e9, measure=measure)
        assert met <= most.most_attained


def small(n=12, bulk=30, seed=0, **changes):
    """Interactive requests beside bulk ones on a worker with little memory."""
    dice = np.random.default_rng(seed)
    arrivals = np.concatenate([np.sort(dice.integers(0, 4 * 10**9, n)), np.zeros(bulk, int)])
    prompts = np.concatenate([dice.integers(5, 60, n), dice.integers(100, 400, bulk)])
    outputs = np.concatenate([dice.integers(2, 40, n), dice.integers(2, 50, bulk)])
    codes = np.repeat([0, 1], [n, bulk])
    memory = orsched.BlockMemory(150, 16, "paged")
    return Instance(
        orsched.Requests(prompts, outputs, arrival_ns=arrivals, service_class=codes),
        changes.pop("workers", orsched.Worker(16, COST, memory=memory)),
        classes=(ServiceClass("interactive", ttft_s=0.5, tpot_s=0.05), ServiceClass("batch")),
        first_token="prefill",
        **changes,
    )


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_no_policy_does_more(seed):
    """INV-27: by any moment."""
    instance = small(seed=seed)
    priority = {"policy": "priority", "priority": "service_class"}
    for method, parameters in (
        ("vllm", {**priority, "max_num_batched_tokens": 128}),
        ("vllm", {**priority, "max_num_batched_tokens": 1024}),
        ("vllm", {}),
        ("fcfs", {}),
    ):
        schedule = orsched.simulate(instance, method, parameters=parameters).schedule
        for horizon in (0.5, 2.0, None):
            met = attained(instance, schedule, "attained")
            bound = bulk_bound(instance, met / 12, horizon)
            assert 0 < bound.share(schedule) <= 1


def test_the_bound_is_near_what_a_policy_does():
    """Of equal requests that fill steps there is nothing to choose, and little to gain."""
    requests = orsched.Requests([200] * 600, [40] * 600, service_class=[1] * 600)
    instance = Instance(requests, orsched.Worker(32, COST), first_token="prefill")
    schedule = orsched.simulate(instance, "vllm", parameters={"max_num_batched_tokens": 512})
    assert 0.93 < bulk_bound(instance, 0.0, 10.0).share(schedule.schedule) <= 1


def test_limits_cost_bulk_work():
    """The higher the attainment, the less is left; more workers leave more."""
    instance = small(n=20, bulk=300)
    values = [bulk_bound(instance, share).value for share in (0.0, 0.5, 1.0)]
    assert values[0] > values[1] > values[2]
    two = instance.replace(workers=(instance.worker, instance.worker))
    assert bulk_bound(two, 1.0).value > values[2]


def test_more_windows_prove_more():
    """A burst is seen in windows, and not over all of a long time."""
    arrivals = [0] * 40 + [60 * 10**9]
    requests = orsched.Requests([500] * 41, [2] * 41, arrival_ns=arrivals, service_class=[0] * 41)
    kinds = (ServiceClass("interactive", ttft_s=0.5, tpot_s=0.1),)
    burst = Instance(requests, orsched.Worker(16, COST), first_token="prefill", classes=kinds)
    one, many = (attainment_bound(burst, windows=count).most_attained for count in (1, 200))
    assert many < 25 < one == 41


def test_limits_that_cannot_be_met_are_proven_so():
    instance = small()
    slow = instance.replace(workers=orsched.Worker(16, COST.scaled(4)))
    bound = bulk_bound(slow, 0.9)
    assert (bound.feasible, bound.value, bound.name) == (False, 0, "attained")
    assert bound.most_attained < 11
    assert bulk_violations(slow, bound.to_dict()) == []
    assert bulk_violations(instance, bound.to_dict())


def test_sums_of_rounds():
    for begin, end in ((0, 1), (0, 7), (3, 9)):
        rounds = [(11 + k, 5 + 2 * k) for k in range(begin, end)]
        expected = (
            sum(c for c, _ in rounds), sum(h for _, h in rounds), sum(c * h for c, h in rounds)
        )  # fmt: skip
        assert sums_of(11, 5, 2, begin, end) == expected


WRONG = (
    ("attainment", 1.5), ("attainment", None), ("horizon_s", 0), ("horizon_s", -1),
    ("prompt_weight", 0.5), ("credit", "all"), ("measure", "most"), ("allows", ["magic"]),
    ("restarts", -1), ("windows", 0),
)  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_wrong_arguments_are_named(field, value):
    with pytest.raises(InputError) as error:
        bulk_bound(small(), **{field: value})
    assert error.value.field == field


OBJECTIVES = ("makespan", "mean_jct", "mean_ttft")
DEAR = in_order(orsched.AffineCost, 1, 100, 1, 1)
"""Nearly all time is that of prompt tokens, which hits save."""
FALLING = in_order(orsched.PoolingCost, -1, 10**7, 5 * 10**6, 10**6, 10**6)


def with_cost(instance, cost):
    workers = tuple(replace(worker, cost=cost) for worker in instance.workers)
    return instance.replace(workers=workers)


def served(instance, seed):
    """The schedule of vLLM with parameters drawn from the seed."""
    parameters = asdict(prefix_params(seed, instance.workers[0].clients))
    return orsched.simulate(instance, "vllm", parameters=parameters).schedule


@pytest.mark.parametrize("seed", seeds(5, 16))
def test_no_schedule_with_hits_beats_a_bound(seed):
    """INV-26: whichever objective, cost and steps."""
    plain = prefix_instance(seed, workers=1 + seed % 3 // 2)
    for cost in (plain.workers[0].cost, DEAR, COSTS[seed % len(COSTS)]):
        instance = with_cost(plain, cost)
        schedule = served(instance, seed)
        found = values_of(schedule)
        for objective in OBJECTIVES:
            lower = bound(instance, objective, allows=allowances_of(instance, schedule))
            assert proven(instance, lower, objective).value_ns <= found[objective]


def test_hits_make_schedules_shorter_than_bounds_without_a_cache():
    """Otherwise these tests would pass without any cut."""
    beaten = 0
    for seed in range(14):
        instance = with_cost(prefix_instance(seed), DEAR)
        schedule = served(instance, seed)
        memory = replace(instance.worker.memory, prefix_cache=None)
        uncached = instance.replace(workers=replace(instance.worker, memory=memory))
        allows = allowances_of(instance, schedule)
        found = values_of(schedule)
        beaten += any(
            bound(uncached, objective, allows=allows).value_ns > found[objective]
            for objective in OBJECTIVES
        )
    assert beaten > 1


def test_repeated_prefills_find_their_own_blocks():
    """INV-26: Evicted after each token, a request computes a block at most for the next one."""
    dear_rounds = in_order(orsched.AffineCost, 1, 1, 1000, 1)
    memory = orsched.BlockMemory(20, 4, "paged", PrefixCache("lru"))
    worker = orsched.Worker(1, dear_rounds, memory=memory)
    instance = Instance(
        orsched.Requests([12], [8], service_class=[1]), worker, first_token="prefill"
    )
    again = [Step(preempt=[0], decode=()), Step(prefill=[0])] * 7
    schedule = simulate_policy(instance, Script(Step(prefill=[0]), *again)).schedule
    schedule = schedule.replace(results=orsched.summarise(instance, schedule))
    assert orsched.check(instance, schedule) == []
    allows = allowances_of(instance, schedule)
    assert {"restarts"} <= allows
    uncached = instance.replace(workers=replace(worker, memory=orsched.BlockMemory(20, 4, "paged")))
    for objective in ("makespan", "mean_jct"):
        assert bound(instance, objective, allows=allows).value_ns <= values_of(schedule)[objective]
        assert bound(uncached, objective, allows=allows).value_ns > values_of(schedule)[objective]
    horizon = values_of(schedule)["makespan"] / 1e9
    found = bulk_bound(instance, 0.0, horizon)
    assert found.done(schedule) == 20
    assert found.value >= 20
    assert bulk_bound(instance, 0.0, horizon, restarts=0).value < 20


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_no_schedule_with_hits_does_more_bulk_work(seed):
    """INV-27: by any moment."""
    instance = prefix_instance(seed).with_classes("interactive:ttft=0.00003,tpot=0.000004")
    schedule = served(instance, seed)
    end = int(schedule.steps.end_ns.max())
    restarts = int((schedule.work.stay > 0).sum())
    total = max(1, int((~instance.bulk).sum()))
    for measure in ("attained", "in_time"):
        met = attained(instance, schedule, measure)
        for horizon in (end // 3, end):
            found = bulk_bound(
                instance, met / total, horizon / 1e9, measure=measure, restarts=restarts
            )
            assert found.feasible
            assert found.done(schedule) <= found.value


def shared_prompts(prompts, shared, documents, size=4):
    requests = orsched.Requests(
        prompts, [3] * len(prompts), prefixes=Prefixes.from_documents(documents, shared, size)
    )
    memory = orsched.BlockMemory(100, size, "paged", PrefixCache("lru"))
    return Instance(requests, orsched.Worker(4, COSTS[0], memory=memory), first_token="prefill")


def test_what_a_cache_may_hold_is_cut():
    """Full blocks of two requests, and at least one token is computed."""
    instance = shared_prompts([9, 13, 8, 8, 20], [9, 9, 8, 8, 16], [0, 0, 1, 1, 2])
    assert cut_tokens(instance).tolist() == [8, 8, 4, 4, 0]
    assert relaxed(instance).requests.prompt_tokens.tolist() == [1, 5, 4, 4, 20]
    tree = Sharing.of(instance)
    assert [(s.parent, s.tokens, s.sharers, s.once) for s in tree.segments] == [
        (-1, 8, 2, 8),
        (-1, 4, 2, 4),
        (1, 4, 2, 0),  # both compute the last block of a prompt that is shared whole
    ]
    assert tree.last == [0, 0, 1, 1, -1]
    assert tree.shared == [0, 0, 2, 2, -1]


def test_nothing_is_cut_without_a_cache_nor_of_prefills_that_fall():
    cached = shared_prompts([9, 13], [9, 9], [0, 0])
    memory = orsched.BlockMemory(100, 4, "paged")
    instance = cached.replace(workers=replace(cached.worker, memory=memory))
    assert relaxed(instance) is instance
    assert "cut_tokens" not in bound(instance).certificate
    falling = with_cost(cached, FALLING)
    assert bound(falling).name == "last_arrival"
    assert bound(falling, "mean_jct").name == "arrivals"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_certificate_says_what_is_cut(objective):
    instance = shared_prompts([9, 13, 20], [9, 9, 16], [0, 0, 2])
    found = [bound(instance, objective), *improving_bounds(instance, lambda: False)]
    of_it = found[1:] if objective == "makespan" else found[:1]  # whose best may count the volume
    document = next(each for each in of_it if "cut_tokens" in each.certificate).to_dict()
    claim = document["certificate"]
    assert claim["cut_tokens"] == 16
    wrong = [{**claim, "cut_tokens": other} for other in (0, 1, 15, 17, 16.0)]
    for broken in (without(claim, "cut_tokens"), *wrong):
        assert bound_violations(instance, {**document, "certificate": broken}, objective)
