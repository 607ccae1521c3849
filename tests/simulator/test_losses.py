"""Workers that start, fail, are repaired or scaled: by hand, and on random instances."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import orsched
from orsched import InfeasibleError, InputError, Policy, check
from orsched.data.autoscaling import Autoscaling, OnTime, read_autoscaling
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.heuristics.policy_method import LiveMethod
from orsched.metrics.summary import summarise
from orsched.models.bounds.bounds import makespan_bound
from orsched.simulator import simulate_policy
from orsched.solving.method_choice import method_named, method_names
from tests.heuristics.building import same, steps_of
from tests.heuristics.building import solved as solved_alone
from tests.in_order import in_order
from tests.simulator.losses import losing, steady
from tests.simulator.scripted import COST, OneByOne

ALLOWED = ("mixed", "chunks", "restarts")
ONE_WORKER = {"online", "offline", "hybrid", "robust"}
WAIT_FOR_WORKERS = {"scls", "sls", "scls_continuous", "mico", "disaggregated"}
POLICIES = sorted(
    name
    for name in method_names()
    if name not in ONE_WORKER and isinstance(method_named(name), LiveMethod)
)


def alone(available, output=10):
    """One worker, and a request that is there at the start."""
    worker = orsched.Worker(4, COST, available_ns=available)
    return orsched.Instance(orsched.Requests([5], [output]), worker, first_token="decode")


def rows(schedule):
    return steps_of(schedule, "start_ns", "end_ns", "rounds")


def solved(instance, policy="vllm"):
    """The schedule of a policy with its figures, without bounds, which the checker accepts."""
    schedule = solved_alone(instance, policy)
    return schedule.replace(results=summarise(instance, schedule))


@pytest.mark.parametrize("policy", ["fcfs", "vllm", "gittins"])
def test_a_failure_takes_the_round_in_progress_and_the_cache(policy):
    """Rounds end at 15 and 25; that until 35 is lost at 32. At 50 prompt and two tokens anew."""
    instance = alone([(0, 32), (50, None)])
    schedule = solved(instance, policy)
    assert rows(schedule) == [(0, 5, 1), (5, 25, 2), (50, 57, 1), (57, 137, 8)]
    assert schedule.lost_steps == ((0, 25, 32),)
    assert schedule.work.stay.tolist() == [0, 0, 1, 1]
    assert schedule.work.tokens.tolist() == [5, 1, 7, 1]
    assert schedule.results["fleet"] == {
        "available_ns": 32 + 87, "busy_ns": 25 + 87, "utilization": 112 / 119,
        "lost_steps": 1, "lost_ns": 7, "recomputed_tokens": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("available", "output", "expected", "lost"),
    [
        ([(0, 25), (50, None)], 10, [(0, 5, 1), (5, 25, 2), (50, 57, 1), (57, 137, 8)], ()),
        ([(0, 105), (2000, None)], 10, [(0, 5, 1), (5, 105, 10)], ()),
        ([(0, 4), (10, None)], 2, [(10, 15, 1), (15, 35, 2)], ((0, 0, 4),)),
        ([(7, None)], 1, [(7, 12, 1), (12, 22, 1)], ()),
    ],
    ids=["a step ends at it", "the request does", "a prefill never began", "a late start"],
)
def test_what_a_failure_leaves(available, output, expected, lost):
    """A prefill until 5 that is lost at 4 never began: the stay that counts is the first one."""
    schedule = solved(alone(available, output))
    assert rows(schedule) == expected
    assert schedule.lost_steps == lost
    assert schedule.work.stay.any() == (len(expected) > 2)


def test_a_lost_mixed_step_undoes_the_chunk_and_the_round():
    """Both requests are prefilled by 10, the second lost while it joins the first."""
    requests = orsched.Requests([5, 5], [4, 4], arrival_ns=[0, 6])
    schedule = solved(alone([(0, 18), (20, None)]).replace(requests=requests))
    assert schedule.lost_steps == ((0, 15, 18),)
    assert rows(schedule)[0:2] == [(0, 5, 1), (5, 15, 1)]
    assert rows(schedule)[2][:2] == (20, 31)  # 5 and 1 tokens of the one, 5 of the other


@pytest.mark.parametrize("policy", ["fcfs", "vllm", "gittins"])
def test_another_worker_takes_over(policy):
    """Both serve one of two requests; the first fails for good, the second serves both."""
    first = orsched.Worker(1, COST, name="a", available_ns=[(0, 32)])
    workers = (first, orsched.Worker(1, COST, name="b"))
    instance = orsched.Instance(orsched.Requests([5, 5], [10, 10]), workers, first_token="decode")
    schedule = solved(instance, policy)
    last = schedule.work.last_step[schedule.work.phase == 1]
    assert set(schedule.steps.worker[last].tolist()) >= {1}
    assert schedule.makespan_ns == 105 + 7 + 80


class Greedy(OneByOne):
    """Writes down all that it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def decide(self, view):
        assert view.available
        there = tuple(each.available for each in view.workers)
        self.seen.append((view.now_ns, view.index, there, tuple(view.running)))
        return super().decide(view)


def test_nobody_knows_of_a_failure_before_it_happens():
    """INV-29: until the first change all decisions are those of a fleet that never changes."""
    for seed in range(15):
        instance = losing(seed)
        plain = instance.replace(
            workers=tuple(
                replace(worker, memory=None, available_ns=((0, 9000 + index), (20_000, None)))
                for index, worker in enumerate(instance.workers)
            )
        )
        told, never = Greedy(), Greedy()
        simulate_policy(plain, told)
        simulate_policy(steady(plain), never)
        before = [each for each in never.seen if each[0] < 9000]
        assert before
        assert told.seen[: len(before)] == before
        assert len(told.seen) > len(before)


def test_a_view_does_not_hold_the_times():
    class Looks(Greedy):
        def decide(self, view):
            assert all(each.worker.available_ns == () for each in view.workers)
            return super().decide(view)

    orsched.simulate(losing(1).replace(workers=alone([(0, 9000), (9500, None)]).workers), Looks())


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_survives_losses(policy):
    """INV-29, INV-30: of the registry; those for one worker, and those that wait, say so."""
    lost = 0
    for seed in range(6):
        for workers in (1, 3):
            instance = losing(seed, workers)
            lost += len(solved(instance, policy).lost_steps)
    assert lost
    for seed in range(4):
        instance = losing(seed, repaired=False)
        if policy in WAIT_FOR_WORKERS:
            with pytest.raises(InputError, match="stays away"):
                orsched.simulate(instance, policy)
        else:
            solved(instance, policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_prefilled_anew_keeps_the_cap(policy):
    """Prompt and yielded tokens of several, or of one alone, may be more than a stage takes."""
    lost = 0
    for seed in range(6):
        instance = losing(seed, 2)
        workers = (replace(each, prefill_cap_tokens=60) for each in instance.workers)
        lost += len(solved(instance.replace(workers=tuple(workers)), policy).lost_steps)
    assert lost


@pytest.mark.parametrize("policy", ["vllm", "fcfs", "gittins", "scls", "mico"])
def test_workers_that_never_fail_are_as_workers_without_times(policy):
    """The loop for changes does what the other one does where nothing changes."""
    for seed in range(4):
        plain = steady(losing(seed))
        fleet = tuple(replace(each, available_ns=((0, None),)) for each in plain.workers)
        assert same(*(solved(case, policy) for case in (plain, plain.replace(workers=fleet))))


def test_a_bound_for_workers_that_stay_holds_for_those_that_do_not():
    """INV-32: unavailability only removes schedules, so that it does not change a bound."""
    for seed in range(8):
        instance = losing(seed)
        names = ("cost", "clients", "memory")
        first = {name: getattr(instance.workers[0], name) for name in names}
        alike = instance.replace(workers=tuple(replace(w, **first) for w in instance.workers))
        for problem in (instance, alike):
            makespan = solved(problem, "vllm").makespan_ns
            lower = makespan_bound(steady(problem), ALLOWED).value_ns
            assert max(lower, makespan_bound(problem, ALLOWED).value_ns) <= makespan
        assert makespan_bound(alike, ALLOWED).value_ns == lower


def test_no_worker_left_is_said():
    with pytest.raises(InfeasibleError, match="failed for good by 32 ns"):
        orsched.simulate(alone([(0, 32)]), "vllm")


def test_what_cannot_be_lost_is_refused():
    counts = orsched.data.memory.PrefixCache("task_aware")
    memory = orsched.BlockMemory(100, 4, "paged", counts)
    fails = alone([(0, 32), (50, None)])
    with pytest.raises(InputError, match="count who will ask do not support failures"):
        orsched.simulate(fails.replace(workers=replace(fails.worker, memory=memory)), "vllm")
    for policy in ("online", "windows", "exact"):
        with pytest.raises(InputError, match="come and go"):
            orsched.solve(fails, policy)

    class Forgets(Policy):
        name, many_workers = "forgets", True

        def decide(self, view):
            return None

    with pytest.raises(InputError, match="does not place requests again"):
        orsched.simulate(fails, Forgets())


def test_figures_of_the_fleet_add_up():
    """Available time is busy, lost or idle, and what is lost is no more than what was there."""
    for seed in range(10):
        instance = losing(seed)
        schedule = solved(instance)
        figures, steps = schedule.results["fleet"], schedule.steps
        assert figures["busy_ns"] == int((steps.end_ns - steps.start_ns).sum())
        assert figures["busy_ns"] + figures["lost_ns"] <= figures["available_ns"]
        there = np.zeros(schedule.makespan_ns, np.int64)
        for worker in instance.workers:
            for start, end in worker.available_ns:
                there[start:end] += 1
        assert figures["available_ns"] == int(there.sum())


class _CountedTimes(tuple):
    """Times of a worker that count how often somebody goes through them."""

    passes = 0

    def __iter__(self):
        type(self).passes += 1
        return super().__iter__()


def test_times_are_not_gone_through_at_each_failure():
    """Simulation and check are linear in failures: a thousand cost no more passes than ten."""
    passes = []
    for failures in (10, 1000):
        times = [(30 * i, 30 * i + 20) for i in range(failures)] + [(30 * failures, None)]
        worker = alone(times).workers[0]
        instance = alone(times).replace(workers=(worker,))
        object.__setattr__(worker, "available_ns", _CountedTimes(worker.available_ns))
        assert instance.workers[0] is worker
        _CountedTimes.passes = 0
        schedule = solved(instance)
        assert len(schedule.lost_steps) >= failures - 3
        passes.append(_CountedTimes.passes)
    assert passes[0] == passes[1] > 0


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


def test_a_schedule_is_followed_look_by_look():
    """One worker at first, both from 20 on, there at 50, one again from 60; the checker replays."""
    rule = Autoscaling(startup_ns=30, interval_ns=20, schedule="1/2/2/1")
    assert (rule.rule, rule.first, rule.cooldown_ns) == ("schedule", 1, 0)
    assert [rule.scheduled(now) for now in (0, 19, 20, 59, 60, 10**6)] == [1, 1, 2, 2, 1, 1]
    assert Autoscaling.from_dict(rule.to_dict()) == rule
    instance = by_hand(late=(60, 900)).replace(autoscaling=rule)
    first, second = solved(instance).on_times
    assert (first, second[:4]) == ((0, 0, 0, None, None), (1, 20, 50, 60))
    other = instance.replace(autoscaling=replace(rule, schedule=(1, 2, 1)))
    assert check(other, solved(instance).replace(instance_sha256=other.sha256))
    for seed in range(8):
        many = len(scaled(seed).workers)
        steps = [1 + (seed + k) % many for k in range(9)]
        schedule = solved(scaled(seed, schedule=steps, least=1))  # checked
        assert {row.worker for row in schedule.on_times if not row.ordered_ns} == {*range(steps[0])}


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
    with pytest.raises(InputError, match="fails for good"):
        plain.replace(workers=(replace(first, available_ns=[(0, 50)]), second))
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
