"""``use_clients=latency``: how many clients are used, by formula and in schedules."""

from __future__ import annotations

from math import sqrt
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from benchmarks import client_choice
from orsched import AffineCost, InputError, Instance, Requests, Worker, check, summarise
from orsched.heuristics.forecast import (
    ArrivalRate,
    KnownEnds,
    LearnedEnds,
    LengthTable,
    SortedLengths,
    recent_lengths,
)
from orsched.heuristics.gated import ClientChoice, GatedParams, GatedPolicy
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.heuristics.robust import RobustParams, RobustPolicy, Skill
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from tests.in_order import in_order
from tests.oracle import oracle
from tests.simulator.instances import instances

BASE = "online+assignment=shared+order=arrival+gate=prefill_first"


def equal(requests, clients, part, arrivals=None):
    cost = in_order(AffineCost, 0, 0, 100, part)
    return Instance(
        Requests([1] * requests, [20] * requests, arrival_ns=arrivals),
        Worker(clients, cost),
        first_token="decode",
    )


def choice_of(instance):
    kept = []

    class First(FirstComeFirstServed):
        def start(self, view):
            super().start(view)
            kept.append((ClientChoice(view), view))

    orsched.solve(instance, First())
    return kept[0]


@pytest.mark.parametrize("requests", [1, 4, 50, 400])
@pytest.mark.parametrize("part", [1, 20])
def test_the_number_is_the_root_of_requests_times_fixed_over_part(requests, part):
    """At most one beside sqrt(R c / d), which need not be whole, and never above R or J."""
    chosen, view = choice_of(equal(3, 64, part))
    found = chosen.most(view, requests)
    wanted = min(requests, 64, sqrt(requests * 100 / part))
    assert abs(found - wanted) <= 1
    times = {b: (100 + part * b) * (requests / b + 1) for b in range(1, min(64, requests) + 1)}
    assert times[found] == pytest.approx(min(times.values()))


def test_batches_of_the_chosen_size_have_the_least_mean_jct_of_all_sizes():
    """Equal lengths, 48 requests: brute force over the number of clients of the worker."""
    means = {
        clients: orsched.solve(equal(48, clients, 20), BASE).schedule.results["jct_ns"]["mean"]
        for clients in range(1, 49)
    }
    found = orsched.solve(equal(48, 48, 20), f"{BASE}+use_clients=latency")
    mean = found.schedule.results["jct_ns"]["mean"]
    assert mean <= 1.02 * min(means.values())
    assert mean < 0.95 * means[48]


def test_where_a_request_costs_a_round_nothing_all_clients_are_used():
    instance = equal(48, 16, 0)
    every, chosen = (
        orsched.solve(instance, f"{BASE}+use_clients={rule}").schedule
        for rule in ("all", "latency")
    )
    assert every.makespan_ns == chosen.makespan_ns


def test_while_arrivals_are_expected_all_are_used():
    instance = equal(60, 30, 20, np.arange(60) * 10)
    used = []
    orsched.solve(
        instance,
        f"{BASE}+use_clients=latency",
        observer=lambda view, step: used.append((view.now_ns, len(view.running))),
    )
    assert max(running for _, running in used) == 30


@pytest.mark.parametrize("method", ["online", "online+assignment=shared", "hybrid@clairvoyant"])
def test_schedules_are_valid_with_every_assignment_that_steals(method):
    instance = client_choice.problem(client_choice.CASES["long caches"]._replace(requests=40), 0)
    schedule = orsched.solve(instance, f"{method}+use_clients=latency", iterations=2).schedule
    assert not check(instance, schedule)


def test_clients_with_queues_of_their_own_are_refused():
    with pytest.raises(InputError) as error:
        GatedParams("packing", steal=False, use_clients="latency")
    assert error.value.field == "use_clients"
    with pytest.raises(InputError):
        GatedParams("shared", use_clients="fewest")


LIMIT = 12


@pytest.mark.parametrize("kept", [1, 4, 50])
@given(lengths=st.lists(st.integers(0, LIMIT), max_size=40))
def test_table_and_order_count_the_newest_alike(kept, lengths):
    table, order = LengthTable(LIMIT, kept), SortedLengths(kept)
    for number, length in enumerate(lengths, 1):
        table.add(length)
        order.add(length)
        newest = lengths[max(0, number - kept) : number]
        assert table.size == order.size == len(newest)
        for border in range(LIMIT + 1):
            count = sum(each <= border for each in newest)
            assert table.at_most[border] == order.at_most[border] == count


def test_what_is_longer_than_the_limit_is_counted_nowhere_but_in_the_size():
    table, order = LengthTable(3, 2), SortedLengths(2)
    for length in (9, 2, 7, 1):
        table.add(length)
        order.add(length)
        assert [table.at_most[x] for x in range(4)] == [order.at_most[x] for x in range(4)]
    assert table.size == order.size == 2


def test_long_limits_take_no_table():
    assert isinstance(recent_lengths(2048), LengthTable)
    assert isinstance(recent_lengths(2**31 - 1), SortedLengths)


UNIT = in_order(AffineCost, 10, 1, 4, 0)  # on two clients an idle client-round costs 2
INFORMATION = ("none", "predicted", "clairvoyant")
POLICIES = (*INFORMATION, "robust")


def policy_of(name, gate="shadow_price"):
    if name == "robust":
        return RobustPolicy(RobustParams(sample=2, least_skill=0.5))
    return GatedPolicy(GatedParams("shared", "longest", gate=gate), Information(name))


def with_predictions(instance):
    """The instance with predictions, wrong ones for every other request."""
    truth = instance.requests.output_tokens
    guess = np.where(np.arange(len(truth)) % 2, truth, truth // 2 + 1)
    return instance.replace(requests=instance.requests.replace(predicted_tokens=guess))


def run(instance, name, **gate):
    return simulate_policy(instance, policy_of(name, **gate)).schedule


def starts(instance, schedule):
    """The rounds that the worker had done at each request's start."""
    steps = schedule.steps
    before = np.concatenate([[0], np.cumsum(np.where(steps.phase == 1, steps.rounds, 0))])
    first = {r: s for r, s, p in zip(schedule.work.request.tolist(),
             schedule.work.first_step.tolist(), schedule.work.phase.tolist(), strict=True)
             if p == 0}  # fmt: skip
    return [int(before[first[request]]) for request in range(len(instance))]


def test_it_waits_for_a_client_that_is_free_soon():
    """One round of one idle client costs 2, a stage 10: both requests start at round 11."""
    instance = Instance(Requests([1] * 4, [11, 10, 5, 5]), Worker(2, UNIT), first_token="decode")
    assert starts(instance, run(instance, "clairvoyant")) == [0, 0, 11, 11]


def test_it_does_not_wait_for_a_client_that_is_busy_for_long():
    """Eight rounds of one idle client would cost 16, more than the stage of 10."""
    instance = Instance(Requests([1] * 4, [11, 3, 3, 3]), Worker(2, UNIT), first_token="decode")
    assert starts(instance, run(instance, "clairvoyant")) == [0, 0, 3, 6]


def test_at_the_end_it_waits_for_no_client():
    """The last request starts at once: another client that becomes free has nothing to take."""
    instance = Instance(Requests([1] * 3, [11, 10, 5]), Worker(2, UNIT), first_token="decode")
    for name in ("none", "clairvoyant"):
        assert starts(instance, run(instance, name)) == [0, 0, 10]


def test_waiting_for_arrivals_never_costs_more_than_the_stage():
    """Requests come every 40 ns, then none: the last one waits for 10 ns worth of time at most."""
    instance = Instance(
        Requests([1] * 6, [30, 2, 2, 2, 2, 2], arrival_ns=[0, 40, 80, 120, 160, 200]),
        Worker(8, UNIT),
        first_token="decode",
    )
    schedule = run(instance, "none")
    times = schedule.request_times(instance)
    waited = times["prefill_start_ns"] - instance.requests.arrival_ns
    # With one running, a waiting request costs a round's 4 ns for 2 requests: 5 rounds of 4 ns,
    # and a round or a stage (11 ns) may be under way when it arrives.
    assert int(waited.max()) <= 5 * 4 + 11 + 4


def test_rate_of_arrivals():
    rate = ArrivalRate()
    rate.note(0)
    rate.note(0)
    assert rate.rate(100) == 0  # all at once: none is expected
    for moment in (10, 20, 30):
        rate.note(moment)
    assert rate.rate(35) > 0
    assert rate.rate(30 + 9 * 10) == 0


class _View:
    first_token = "decode"
    output_limit_tokens = 100


def test_known_ends_weigh_idle_time_against_clients():
    """Ends at 4, 5 and 60; one idle client; each client worth 10, an idle round 1."""
    known = KnownEnds(_View(), [4, 5, 60, 50, 50, 50, 50, 50])
    for request in range(8):
        known.queue(request)
    known.start(0, [0, 1, 2])
    # Until 4: four idle rounds < 10. The clients at 4 and 5: 5 + 1 rounds < 20.
    assert known.wait(0, 1, 5, 4, 1.0, 10.0, 0) == 4
    assert known.wait(0, 1, 5, 4, 4.0, 10.0, 0) == 0
    # At 5 everybody but request 2 has ended: 55 rounds of two clients are too many.
    assert known.wait(5, 2, 5, 4, 1.0, 10.0, 0) == 0
    known.finish(40, 2)
    assert known.mean_error == 20 / 32


def test_learned_ends_know_the_limit():
    learned = LearnedEnds(_View())
    learned.start(0, [0, 1])
    learned.start(50, [2])
    assert learned.finish(30, 0) == 30
    assert learned.hazard(60, 2) == 2 / (30 + 60 + 10 + 50)
    assert not learned.expects_one(60, 10, 0.0)
    assert learned.expects_one(60, 40, 0.0)  # request 1 reaches the limit at round 100


@settings(max_examples=30)
@given(instance=instances())
def test_without_a_fixed_cost_it_never_waits(instance):
    """Stages that cost their tokens only: the gate is ``prefill_first``."""
    worker = Worker(instance.worker.clients, in_order(AffineCost, 0, 3, 5, 2))
    instance = with_predictions(instance.replace(workers=(worker,)))
    for name in INFORMATION:
        ours, first = run(instance, name), run(instance, name, gate="prefill_first")
        assert (ours.steps, ours.work) == (first.steps, first.work)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40)
@given(instance=instances())
def test_schedules_are_valid_and_reproducible(name, instance):
    """INV-1 to INV-7, INV-9, INV-13: checker, second run and oracle agree."""
    instance = with_predictions(instance)
    schedule = run(instance, name)
    assert check(instance, schedule.replace(results=summarise(instance, schedule))) == []
    for other in (run(instance, name), oracle(instance, policy_of(name))):
        assert (schedule.steps, schedule.work) == (other.steps, other.work)


@pytest.mark.parametrize("name", ["none", "predicted", "robust"])
@settings(max_examples=40)
@given(instance=instances())
def test_the_future_does_not_matter(name, instance):
    """INV-8: longer outputs of what has not ended change nothing before the first end."""
    instance = with_predictions(instance)
    req = instance.requests
    output = np.minimum(req.output_tokens + 3, instance.output_limit_tokens)
    longer = instance.replace(requests=req.replace(output_tokens=output))
    ours, theirs = run(instance, name), run(longer, name)
    if not len(instance):
        return
    border = int(ours.request_times(instance)["finish_ns"].min())
    mine, other = (
        [r for r in zip(s.work.request.tolist(), s.work.client.tolist(),
                        s.steps.start_ns[s.work.first_step].tolist(), strict=True)
         if r[2] < border]
        for s in (ours, theirs)
    )  # fmt: skip
    assert mine == other


def test_skill_is_judged_on_the_sample_in_order():
    skill = Skill(0.5)
    for request in range(20):
        skill.started(request, 10)
    for request in range(1, 20):
        skill.finished(request, 10 if request % 2 else 30)
    assert skill.trusted  # request 0 runs: nothing is known for certain
    skill.finished(0, 30)
    assert not skill.trusted
    skill.finished(99, 1)  # not in the sample
    assert skill.value == 1 - 200 / 200


@pytest.mark.parametrize("seed", range(4))
def test_skill_counts_the_newest_pairs(seed):
    """The skill that is kept up to date is that of its definition, over the 200 newest pairs."""
    random, count = Random(seed), 450
    pairs = [(random.randint(1, 30), random.randint(1, 30)) for _ in range(count)]
    skill = Skill(-0.3)
    for request, (guess, _) in enumerate(pairs):
        skill.started(request, guess)
    order = sorted(range(count), key=lambda request: request + random.randint(0, 30))
    trusted, ended, known = True, set(), 0
    for request in order:
        skill.finished(request, pairs[request][1])
        ended.add(request)
        while known in ended:
            known += 1
        if known:
            value = skill_of(pairs[max(0, known - 200) : known])
            assert skill.value == value
            trusted = value >= -0.3 if known >= 12 else trusted
        assert skill.trusted == trusted


def skill_of(pairs):
    """1 - the error of the guesses over that of the median as a guess for all."""
    middle = sorted(true for _, true in pairs)[len(pairs) // 2]
    error = sum(abs(guess - true) for guess, true in pairs)
    spread = sum(abs(middle - true) for _, true in pairs)
    return 1 - error / spread if spread else float(error == 0)


def test_robust_forgets_predictions_that_are_wrong():
    """Predictions in reverse: once that shows, requests start in the order of arrival."""
    n = 200
    truth = np.where(np.arange(n) % 2, 40, 4)
    requests = Requests([1] * n, truth, arrival_ns=None, predicted_tokens=44 - truth)
    instance = Instance(requests, Worker(4, UNIT), output_limit_tokens=44, first_token="decode")
    policy = policy_of("robust")
    simulate_policy(instance, policy)
    assert not policy.skill.trusted
    right = instance.replace(requests=requests.replace(predicted_tokens=truth))
    policy = policy_of("robust")
    simulate_policy(right, policy)
    assert policy.skill.trusted
