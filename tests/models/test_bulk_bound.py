"""No schedule does more bulk work than the bound says, while as many requests meet their limits."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import orsched
from orsched import InputError, Instance, ServiceClass
from orsched.certificates.bulk_parts import Demands
from orsched.certificates.bulk_program import sums_of
from orsched.checker.certificates import bulk_violations
from orsched.metrics.token_times import request_times
from orsched.models.bounds.bulk_bound import attainment_bound, bulk_bound, bulk_tokens
from tests.checker.any_mode import random_schedule
from tests.in_order import in_order

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
        alone = np.zeros(len(instance), int)
        alone[row] = 1
        only = instance.replace(
            requests=instance.requests.replace(service_class=alone),
            classes=(ServiceClass("others", bulk=False), ServiceClass("it", bulk=True)),
        )
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
    codes = dice.choice([0, 1, 1, 2], n)
    instance = instance.replace(
        requests=instance.requests.replace(service_class=codes), classes=kinds
    )
    end = int(schedule.steps.end_ns.max())
    return instance, max(1, int(dice.integers(1, max(2, end + end // 4))))


@pytest.mark.parametrize("seed", range(30))
def test_no_random_schedule_does_more(seed):
    """INV-27: Engines without a policy: pauses, chunks, mixed steps, evictions, unequal workers."""
    dice = np.random.default_rng(seed)
    plain, schedule = random_schedule(seed)
    restarts = int((schedule.work.stay > 0).sum())
    for measure in ("attained", "in_time"):
        instance, moment = with_classes(dice, plain, schedule)
        met, total = attained(instance, schedule, measure), len(Demands.of(instance).rows)
        weights = [int(dice.integers(0, 3)), int(dice.integers(1, 3))]
        credit = str(dice.choice(["output", "prefill"]))
        try:
            bound = bulk_bound(
                instance,
                met / total if total else 0.9,
                moment / 1e9,
                prompt_weight=weights[0],
                output_weight=weights[1],
                credit=credit,
                measure=measure,
                restarts=None if dice.random() < 0.5 else restarts,
                windows=int(dice.choice([1, 4, 30])),
            )
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


@pytest.mark.parametrize("seed", range(6))
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


def test_a_changed_price_does_not_prove_the_value():
    instance = small()
    document = bulk_bound(instance, 0.9).to_dict()
    assert bulk_violations(instance, document) == []
    assert document["certificate"]["prices"]
    for at in range(0, len(document["certificate"]["prices"]), 7):
        broken = copy.deepcopy(document)
        broken["certificate"]["prices"][at][1] //= 2
        assert bulk_violations(instance, broken)
    less = copy.deepcopy(document)
    less["value"] = less["certificate"]["value"] = document["value"] - 1
    assert bulk_violations(instance, less)


def test_sums_of_rounds():
    for begin, end in ((0, 1), (0, 7), (3, 9)):
        rounds = [(11 + k, 5 + 2 * k) for k in range(begin, end)]
        expected = (
            sum(c for c, _ in rounds), sum(h for _, h in rounds), sum(c * h for c, h in rounds)
        )  # fmt: skip
        assert sums_of(11, 5, 2, begin, end) == expected


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("attainment", {"attainment": 1.5}),
        ("attainment", {"attainment": None}),
        ("horizon_s", {"horizon_s": 0}),
        ("horizon_s", {"horizon_s": -1}),
        ("prompt_weight", {"prompt_weight": 0.5}),
        ("credit", {"credit": "all"}),
        ("measure", {"measure": "most"}),
        ("allows", {"allows": ["magic"]}),
        ("restarts", {"restarts": -1}),
        ("windows", {"windows": 0}),
    ],
)
def test_wrong_arguments_are_named(field, changes):
    with pytest.raises(InputError) as error:
        bulk_bound(small(), **changes)
    assert error.value.field == field
