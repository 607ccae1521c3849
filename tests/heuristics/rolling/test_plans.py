"""Plans for what is left of a run, and the parts of the policy that follows them."""

from __future__ import annotations

import random
from array import array
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.heuristics.rolling.drift import Drift
from orsched.heuristics.rolling.following import Follower
from orsched.heuristics.rolling.remaining import Remaining, Stage
from orsched.heuristics.rolling.search import make_plan
from orsched.heuristics.rolling.snapshot import DueStage, Plan, Running, Snapshot
from orsched.heuristics.rolling.waiting import Copy, WaitingRequests, entry_of
from tests.heuristics.building import batch_of


def cost_of(left, plan):
    """Replay a plan naively: stages and rounds, after checking that it can be carried out."""
    row = {request: k for k, request in enumerate(left.requests)}
    free, started, end = sorted(left.free_at), [], max(left.free_at)
    for stage in plan:
        assert stage.requests
        for _ in stage.requests:
            assert free[0] <= stage.round
            free.pop(0)
        tokens = sum(left.prompts[row[request]] for request in stage.requests)
        assert left.cap is None or tokens <= left.cap
        assert stage.spare == sum(moment <= stage.round for moment in free)
        free += [stage.round + left.rounds[row[request]] for request in stage.requests]
        free.sort()
        end = max(end, free[-1])
        started += stage.requests
    assert sorted(started) == sorted(left.requests)
    assert [s.round for s in plan] == sorted(s.round for s in plan)
    return len(plan) * left.stage_ns + end * left.round_ns


def least_cost(left):
    """The optimum, by trying all start rounds; without a cap."""
    horizon = max(left.free_at) + sum(left.rounds)
    costs = []
    for times in product(range(horizon), repeat=len(left.requests)):
        free = sorted(left.free_at)
        for now, rounds in sorted(zip(times, left.rounds, strict=True)):
            if free[0] > now:
                break
            free = sorted([*free[1:], now + rounds])
        else:
            costs.append(len(set(times)) * left.stage_ns + free[-1] * left.round_ns)
    return min(costs)


def test_one_stage_when_the_second_client_is_free_soon():
    """Two stages at 0 and 2: 2 x 10 + 6 x 4 = 44; one at 2: 10 + 6 x 4 = 34."""
    left = Remaining((0, 2), (7, 8), (4, 4), (1, 1), 10, 4, None)
    plan = make_plan(left, 2, 0)
    assert plan == (Stage(2, (7, 8), 0),)
    assert cost_of(left, plan) == least_cost(left) == 34


def test_a_cap_splits_a_stage():
    left = Remaining((0, 0), (7, 8), (4, 3), (5, 5), 10, 4, 9)
    plan = make_plan(left, 2, 0)
    assert [len(stage.requests) for stage in plan] == [1, 1]
    assert cost_of(left, plan) == 2 * 10 + 4 * 4


def random_remaining(rng, cap=False):
    clients, n = rng.randint(1, 3), rng.randint(1, 3)
    return Remaining(
        tuple(sorted(rng.randint(0, 4) for _ in range(clients))),
        tuple(rng.sample(range(100), n)),
        tuple(sorted((rng.randint(1, 4) for _ in range(n)), reverse=True)),
        tuple(rng.randint(1, 4) for _ in range(n)),
        rng.choice((1, 5, 20)),
        rng.choice((1, 4)),
        rng.randint(4, 8) if cap else None,
    )


def test_plans_against_the_optimum():
    """No plan is below the optimum, and nearly all are at it."""
    rng, at, count = random.Random(1), 0, 25
    for seed in range(count):
        left = random_remaining(rng)
        cost, least = cost_of(left, make_plan(left, 4, seed)), least_cost(left)
        assert cost >= least
        at += cost == least
    assert at >= 0.8 * count


def test_plans_made_in_a_limited_time_are_plans():
    """However short it is: everybody is served, and nothing beats the optimum."""
    rng = random.Random(3)
    for seed in range(20):
        left = random_remaining(rng)
        plan = make_plan(left, 4, seed, (1e-9, 0.002, 0.05)[seed % 3])
        assert sorted(r for stage in plan for r in stage.requests) == sorted(left.requests)
        assert cost_of(left, plan) >= least_cost(left)


def test_plans_are_valid_reproducible_and_keep_what_was_planned():
    """Under a cap; the previous plan goes in, and what comes out is nothing worse."""
    rng = random.Random(2)
    for seed in range(15):
        left = random_remaining(rng, cap=True)
        plan = make_plan(left, 2, seed)
        assert plan == make_plan(left, 2, seed)
        again = left._replace(previous=plan)
        assert cost_of(again, make_plan(again, 1, seed + 1)) <= cost_of(left, plan)


@given(st.lists(st.tuples(st.sampled_from("afsptud"), st.integers(0, 30)), max_size=60))
def test_waiting_requests_agree_with_a_list(moves):
    """a: add, f: fill, s: take a snapshot, p: plan some of it, t: take one, u: ask for the
    unplanned, d: drop the plan."""
    queue, copy, there, planned, before = WaitingRequests(), Copy(), {}, set(), {}
    for request, (move, value) in enumerate(moves):
        order = sorted(there, key=lambda r: (there[r], r))
        if move == "a":
            queue.add(request, 0, value, 1)
            there[request] = value
        elif move == "s":
            copy.hand_over(queue.snapshot())
            assert copy.requests() == list(there)
            before = dict(there)
        elif move == "p" and before:
            known = sorted(before, key=lambda r: (before[r], r))
            planned = set(known[:: value % 4 + 1])
            everyone = [entry_of(r, before[r]) for r in reversed(known)]
            spare = [entry_of(r, before[r]) for r in reversed(known) if r not in planned]
            queue.plan(array("q", everyone), array("q", spare))
        elif move == "t" and order:
            queue.take([order[value % len(order)]])
            del there[order[value % len(order)]]
        elif move == "u":
            free = [r for r in order if r not in planned]
            assert queue.unplanned(value) == free[:value]
        elif move == "d":
            queue.unplan()
            planned = set()
        elif move == "f":
            stage, places = queue.fill(range(value % 5), batch_of([1] * 99))
            assert stage == order[: value % 5]
            assert places == list(range(len(stage)))
            for gone in stage:
                del there[gone]
        assert queue.queued == len(there)
        assert queue.servable({1, 2}) == min(2, len(there))


def test_a_plan_tells_who_has_no_stage_longest_last():
    lengths = {1: 3, 5: 6, 6: 2, 7: 6}
    snapshot = Snapshot(
        0, 4, Running({2: [-3]}), 1, 2, [5, 6, 1, 7], [], lengths, [1] * 9, 50, 0, 10, 4, None, 100
    )
    plan = snapshot.plan([Stage(2, (1,), 0), Stage(3, (), 0)])
    assert plan.stages == [DueStage(7, (), 0, 0, []), DueStage(6, (1,), 0, 1, [3])]
    assert [entry & 0xFFFFFFFF for entry in plan.everyone] == [6, 1, 7, 5]
    assert [entry & 0xFFFFFFFF for entry in plan.spare] == [6, 7, 5]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.booleans()), max_size=12),
    st.integers(0, 40),
)
def test_surplus_agrees_with_counting(requests, now):
    """Known and true rounds of requests that start one after the other; the limit is 8."""
    drift = Drift([known for known, _, _ in requests], 8, 0)
    requests = [(min(known, 8), true, told) for known, true, told in requests]
    for request, (known, _, told) in enumerate(requests[: now + 1]):
        drift.start(request, [request], [known] if told else ())
        if request % 3 == 1:
            drift.settle(but=request % 2)
    active = sum(r <= now < r + true for r, (_, true, _) in enumerate(requests))
    early = sum(t <= now - r < k for r, (k, t, _) in enumerate(requests))
    overdue = sum(k <= now - r < t for r, (k, t, _) in enumerate(requests))
    assert drift.surplus(now, active) == early - overdue


def test_a_snapshot_carries_out_what_is_planned_until_its_plan_is_ready():
    """Client ends at 3, one is idle; request 5 starts at 2 by the plan, before round 4."""
    lengths = {1: 3, 5: 6, 6: 2}
    stages = [DueStage(9, (6,), 0), DueStage(2, (5,), 0)]
    snapshot = Snapshot(
        0, 4, Running({1: [0, 1]}), 1, 2, [5, 6], stages, lengths, [1] * 9, 50, 0, 10, 4, None, 100
    )
    left = snapshot.remaining()
    assert left.free_at == (0, 4)
    assert (left.requests, left.rounds) == ((6,), (2,))
    assert left.previous == (Stage(5, (6,), 0),)
    assert snapshot._replace(waiting=[5]).remaining() is None
    overdue = snapshot._replace(now=19, base=19, stages=[])
    assert overdue.remaining().free_at == (0, 3)  # one round, and an eighth of 19 more
    started = snapshot._replace(running=Running({}, [(0, [1])]))
    assert started.remaining() == left  # the same, its end not yet worked out
    assert started._replace(waiting=[]).own().remaining() is None


def test_a_horizon_keeps_every_kind_of_length():
    lengths = {request: request + 1 for request in range(100)}
    snapshot = Snapshot(
        0,
        0,
        Running({}),
        2,
        2,
        list(range(100)),
        [],
        lengths,
        [1] * 100,
        200,
        0,
        10,
        4,
        None,
        10,
    )
    assert snapshot.remaining().rounds == tuple(range(100, 0, -10))


def follower(waiting, stages, budget=5.0, clients=8):
    queue, drift = WaitingRequests(), Drift([8] * 99, 99, 0)
    for request in waiting:
        queue.add(request, 0, request, 1)
    plan = Follower(queue, drift, clients, budget)
    planned = {r for stage in stages for r in stage.requests}
    entries = sorted((entry_of(r, r) for r in waiting), reverse=True)
    spare = [entry for entry in entries if entry & 0xFFFFFFFF not in planned]
    queue.snapshot()
    plan.adopt(Plan(stages, array("q", entries), array("q", spare)), 0)
    return plan, drift


def test_surplus_clients_take_others_and_a_stage_out_of_turn():
    """Request 9 was to end at 8 and ends at 2: after 5 idle rounds its client is put to use."""
    plan, drift = follower([1, 2, 3], [DueStage(20, (1, 2), 0)], clients=1)
    drift.start(0, [9])
    assert plan.rounds_left(0, 0) == 20  # of the plan just taken up
    assert plan.rounds_left(2, 1) == 6
    assert plan.rounds_left(7, 1) == 0
    assert plan.choose(7, 1, 99) == [3]  # nobody planned for it


def test_a_stage_as_planned_is_known_as_such():
    """What its tokens and rounds are is in the plan; with one more request it is another stage."""
    stage = DueStage(20, (1, 2), 0, 7, (8, 8))
    plan, drift = follower([1, 2], [stage])
    assert plan.choose(20, 2, 99) == [1, 2]
    assert plan.whole == stage
    drift.start(20, [1, 2], stage.rounds)
    assert drift.surplus(27, 0) == 2
    assert drift.surplus(28, 0) == 0
    for gone, idle, chosen in (([], 3, [1, 2, 7]), ([7, 2], 2, [1]), ([7], 1, [1])):
        plan, _ = follower([1, 2, 7], [stage])
        plan.waiting.take(gone)
        assert plan.choose(20, idle, 99) == chosen
        assert plan.whole is None


@pytest.mark.parametrize("gone", [[], [2], [7]])
def test_a_stage_looked_at_before_is_looked_at_again_after_a_start(gone):
    plan, _ = follower([1, 2, 7], [DueStage(20, (1, 2), 1)])
    plan.check()
    plan.waiting.take(gone)
    assert plan.choose(20, 3, 99) == ([1, 7] if gone == [2] else [1, 2])


def test_a_look_at_one_stage_says_nothing_of_another_at_the_same_round():
    plan, _ = follower([1, 2, 3], [DueStage(20, (3,), 0), DueStage(20, (1, 2), 0)])
    plan.waiting.take([3])
    plan.check()
    assert plan.choose(20, 2, 99) == [1, 2]  # which do not fit
    assert plan.choose(20, 2, 99) == []


def test_what_has_no_client_is_late_and_too_many_end_the_plan():
    stages = [DueStage(30, (4,), 0), DueStage(20, (1, 2, 3), 0)]
    plan, _ = follower([1, 2, 3, 4], stages)
    assert plan.choose(20, 2, 99) == [1, 2]
    assert plan.late == [3]
    assert plan.owed() == [DueStage(30, (3, 4), 0)]
    plan, _ = follower(range(10), [DueStage(20, tuple(range(10)), 0)])
    plan.choose(20, 5, 99)
    assert not plan.stages
    assert not plan.late


@pytest.mark.parametrize("spare", [0, 1])
def test_a_stage_takes_more_only_for_clients_that_the_plan_does_not_keep(spare):
    plan, _ = follower([1, 2, 7], [DueStage(20, (1, 2), spare)])
    assert plan.choose(20, 3, 99) == ([1, 2] if spare else [1, 2, 7])


def test_others_are_no_more_than_are_likely_to_fit():
    plan, _ = follower([1, 2, 7, 8, 9], [DueStage(20, (1, 2), 0)])
    assert plan.choose(20, 8, 3) == [1, 2, 7]


def test_who_started_before_their_turn_is_not_chosen_again():
    """Request 3 comes after the snapshot and is pulled with 1; both do not fit: 1 has its turn."""
    stages = [DueStage(30, (2,), 0), DueStage(20, (1,), 0)]
    plan, drift = follower([1, 2], stages, clients=2)
    drift.start(0, [9, 10])
    assert plan.rounds_left(2, 2) == 18  # just taken up: the surplus counts from here on
    assert plan.rounds_left(2, 2) == 3
    assert plan.rounds_left(7, 2) == 0
    assert plan.choose(7, 2, 99) == [1, 2]  # nobody is without a stage
    plan.postpone([1])
    plan.waiting.take([2])
    assert plan.late == []
    assert plan.choose(20, 1, 99) == [1]
    plan.waiting.take([1])
    assert plan.choose(30, 1, 99) == []


def test_a_plan_for_more_clients_than_memory_holds_now_is_not_carried_on():
    """Two start together in the plan so far, but there is room for one client only by now."""
    left = Remaining((3,), (0, 1), (4, 5), (2, 2), 10, 4, None, (Stage(3, (0, 1), 0),))
    assert cost_of(left, make_plan(left, 0, 0, 1.0)) > 0
