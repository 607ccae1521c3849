"""Autoscaling: by hand, and on random instances with random rules."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import orsched
from orsched import InfeasibleError, InputError, Policy, check
from orsched.data.autoscaling import Autoscaling, OnTime, read_autoscaling
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.models.bounds.bounds import makespan_bound
from tests.heuristics.building import same
from tests.in_order import in_order
from tests.simulator.losses import losing, steady
from tests.simulator.test_losses import ALLOWED, COST, solved

DRAIN = ("vllm", "gittins", "fcfs", "ssjf", "vtc")
RULE = Autoscaling(startup_ns=30, least=1, target=0.5, interval_ns=20, cooldown_ns=100)


def scaled(seed, **changes):
    """A random instance with a random rule, whose first worker holds every request."""
    rng = random.Random(seed)
    plain = steady(losing(seed, rng.choice((1, 2, 4))))
    workers = (replace(plain.workers[0], memory=None), *plain.workers[1:])
    rule = {
        "startup_ns": rng.choice((0, 500, 5000)), "least": rng.choice((1, 1, len(workers))),
        "target": rng.choice((0.1, 0.5, 1.0, 2.0)), "interval_ns": rng.choice((300, 1000, 5000)),
        "cooldown_ns": rng.choice((0, 2000, 20_000)),
    }  # fmt: skip
    return plain.replace(workers=workers, autoscaling=Autoscaling(**{**rule, **changes}))


def by_hand(late=()):
    """Two workers of two clients; four requests at 0, each of 5 and 20 tokens."""
    workers, many = tuple(orsched.Worker(2, COST, name=name) for name in "ab"), 4 + len(late)
    requests = orsched.Requests([5] * many, [20] * many, arrival_ns=[0] * 4 + list(late))
    return orsched.Instance(requests, workers, autoscaling=RULE, first_token="decode")


def test_a_worker_starts_when_it_was_ordered_and_has_started():
    """At 20 four are open and a worker counts with one: ordered then, there at 50."""
    schedule = solved(by_hand())
    assert schedule.on_times[:2] == ((0, 0, 0, None, None), (1, 20, 50, None, None))
    steps = schedule.steps
    assert steps.start_ns[steps.worker == 1].min(initial=10**9) >= 50


def test_a_worker_drains_and_is_off_when_it_is_empty():
    """What comes at 60 is served by the second; alone at 300 nobody else is open."""
    schedule = solved(by_hand(late=(60, 900)))
    second = schedule.on_times[1]
    assert second[:3] == (1, 20, 50)
    assert second.drained_ns % 20 == 0
    assert second.end_ns >= second.drained_ns
    last = schedule.steps.end_ns[schedule.steps.worker == 1].max()
    assert last <= second.end_ns


@pytest.mark.parametrize("policy", DRAIN)
def test_rules_are_followed_on_random_instances(policy):
    """INV-36, INV-37: the checker replays the rule from the schedule alone."""
    starts = drains = 0
    for seed in range(25):
        schedule = solved(scaled(seed), policy)
        starts += sum(row.ordered_ns > 0 for row in schedule.on_times)
        drains += sum(row.drained_ns is not None for row in schedule.on_times)
    assert starts > 10
    assert drains > 5


def test_all_workers_from_the_start_are_as_no_autoscaling():
    for seed in range(6):
        instance = scaled(seed)
        everyone = Autoscaling(startup_ns=10**6, least=len(instance.workers))
        assert same(*(solved(instance.replace(autoscaling=a)) for a in (everyone, None)))


def test_the_future_is_not_known():
    """INV-36: other arrivals later change no decision before them."""
    for seed in range(10):
        instance = scaled(seed, interval_ns=300)
        arrivals = instance.requests.arrival_ns
        last = arrivals.max()
        later = instance.requests.replace(arrival_ns=arrivals + 10**6 * (arrivals == last))
        rows = []
        for case in (instance, instance.replace(requests=later)):
            ordered = {(row.worker, row.ordered_ns) for row in solved(case).on_times}
            rows.append({each for each in ordered if each[1] <= last})
        assert rows[0] == rows[1]


class Wants(FirstComeFirstServed):
    """Says itself how many workers are to be on."""

    drains, many_workers = True, True
    asked: tuple = ()

    def workers_wanted(self, now_ns, open_requests, wanted):
        type(self).asked += ((now_ns, open_requests, wanted),)
        return 10 if open_requests else 1

    def on_preempt(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        return None if view.draining and not view.running else super().decide(view)


def test_a_policy_may_say_how_many():
    Wants.asked = ()
    instance = by_hand().replace(autoscaling=replace(RULE, rule="policy"))
    schedule = solved(instance, Wants())
    assert schedule.on_times[1][:3] == (1, 20, 50)
    assert Wants.asked[0] == (20, 4, 2)


def test_figures_count_what_was_ordered():
    schedule = solved(by_hand(late=(60, 900)))
    figures, makespan = schedule.results["fleet"], schedule.makespan_ns
    rows = schedule.on_times
    ends = [makespan if row.end_ns is None else row.end_ns for row in rows]
    there = sum(end - row.start_ns for row, end in zip(rows, ends, strict=True))
    paid = sum(end - row.ordered_ns for row, end in zip(rows, ends, strict=True))
    assert figures["available_ns"] == there
    assert figures["ordered_ns"] == paid
    assert figures["starts"] == sum(row.ordered_ns > 0 for row in rows)


def test_bounds_of_all_workers_hold():
    """INV-32: as for workers that fail, fewer workers only take schedules away."""
    for seed in range(8):
        instance = scaled(seed)
        assert makespan_bound(instance, ALLOWED).value_ns <= solved(instance).makespan_ns


def test_what_cannot_be_scaled_is_refused():
    plain = by_hand()
    first, second = plain.workers
    with pytest.raises(InputError, match="names 3 workers, and the instance has 1") as caught:
        orsched.simulate(plain, "vllm", workers=1, autoscale="max=3,startup=1")
    assert (caught.value.field, "--workers 3" in str(caught.value)) == ("autoscale", True)
    with pytest.raises(InputError, match="new requests"):
        orsched.simulate(plain, "scls_continuous")
    with pytest.raises(InputError, match="names 3 workers, and the instance has 2"):
        orsched.simulate(plain.replace(autoscaling=Autoscaling(startup_ns=30, least=3)), "vllm")
    with pytest.raises(InputError, match="does not support workers that fail"):
        plain.replace(workers=(replace(first, available_ns=[(0, 50), (60, None)]), second))
    small = replace(first, memory=orsched.BlockMemory(2, 4, "paged"))
    with pytest.raises(InfeasibleError):
        orsched.simulate(plain.replace(workers=(small, second)), "vllm")
    with pytest.raises(InputError, match="come and go"):
        orsched.solve(plain.replace(workers=(first,)), "windows")

    class Stuck(Policy):
        many_workers = drains = True

        def on_preempt(self, view, request):
            pass

        def decide(self, view):
            return None

    with pytest.raises(orsched.common.errors.PolicyError, match="none will arrive"):
        orsched.simulate(by_hand(), Stuck())


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("max=4", None), ("startup=x", None), (5, None), ("startup=1,size=2", None),
        ("startup=1,rule=fast", None), ("startup=1,min=0", "min"), ("startup=1,min=3,max=2", "max"),
        ("startup=1,interval=0", "interval"), ("startup=1,target=0", "target"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused_as_it_was_said(spec, field):
    with pytest.raises(InputError) as caught:
        read_autoscaling(spec)
    assert field in (None, caught.value.field)


def test_specification_and_files_say_the_same(tmp_path):
    rule = read_autoscaling("min=2,max=3,target=0.5,startup=1.5,interval=2,cooldown=0")
    assert rule == in_order(Autoscaling, 1_500_000_000, 2, 3, 0.5, 2 * 10**9, 0)
    instance = orsched.solving.scenario.scenario(orsched.load("pang-100x20"), 4, autoscale=rule)
    assert instance.sha256 != instance.replace(autoscaling=None).sha256
    schedule = orsched.simulate(instance, "vllm").schedule
    for name in ("a.json", "a.parquet"):
        orsched.save_instance(instance, tmp_path / name)
        assert orsched.load(str(tmp_path / name)) == instance
        orsched.save_schedule(schedule, tmp_path / f"s-{name}")
        read = orsched.load_schedule(tmp_path / f"s-{name}")
        assert read.on_times == schedule.on_times
        assert isinstance(read.on_times[0], OnTime)
        assert check(instance, read) == []
