"""``use_clients=latency``: how many clients are used, by formula and in schedules."""

from math import sqrt
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import client_choice
from orsched import AffineCost, Information, Instance, Requests, Worker, check, solve, summarise
from orsched.heuristics import forecast
from orsched.heuristics.forecast import LengthTable, SortedLengths
from orsched.heuristics.gated import ClientChoice, GatedParams, GatedPolicy
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.heuristics.robust import RobustParams, RobustPolicy, Skill
from orsched.simulator import simulate_policy
from tests.heuristics.building import require_sound, same, starts_of
from tests.in_order import in_order
from tests.oracle import oracle
from tests.simulator.instances import instances

BASE = "online+assignment=shared+order=arrival+gate=prefill_first"


def equal(requests, clients, part, arrivals=None):
    table = Requests([1] * requests, [20] * requests, arrival_ns=arrivals)
    worker = Worker(clients, in_order(AffineCost, 0, 0, 100, part))
    return Instance(table, worker, first_token="decode")


def choice_of(instance):
    kept = []

    class First(FirstComeFirstServed):
        def start(self, view):
            super().start(view)
            kept.append((ClientChoice(view), view))

    solve(instance, First())
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
        clients: solve(equal(48, clients, 20), BASE).schedule.results["jct_ns"]["mean"]
        for clients in range(1, 49)
    }
    found = solve(equal(48, 48, 20), f"{BASE}+use_clients=latency")
    mean = found.schedule.results["jct_ns"]["mean"]
    assert mean <= 1.02 * min(means.values())
    assert mean < 0.95 * means[48]


def test_where_a_request_costs_a_round_nothing_all_clients_are_used():
    instance = equal(48, 16, 0)
    rules = (solve(instance, f"{BASE}+use_clients={rule}") for rule in ("all", "latency"))
    assert len({result.makespan_ns for result in rules}) == 1


def test_while_arrivals_are_expected_all_are_used():
    instance = equal(60, 30, 20, np.arange(60) * 10)
    used = []
    look = lambda view, step: used.append(len(view.running))  # noqa: E731
    solve(instance, f"{BASE}+use_clients=latency", observer=look)
    assert max(used) == 30


@pytest.mark.parametrize("method", ["online", "online+assignment=shared", "hybrid@clairvoyant"])
def test_schedules_are_valid_with_every_assignment_that_steals(method):
    instance = client_choice.problem(client_choice.CASES["long caches"]._replace(requests=40), 0)
    schedule = solve(instance, f"{method}+use_clients=latency", iterations=2).schedule
    assert not check(instance, schedule)


LIMIT = 12


@pytest.mark.parametrize("kept", [1, 4, 50])
@given(lengths=st.lists(st.integers(0, LIMIT + 3), max_size=40))
def test_table_and_order_count_the_newest_alike(kept, lengths):
    """What is longer than the limit is counted nowhere but in the size."""
    table, order = LengthTable(LIMIT, kept), SortedLengths(kept)
    for number, length in enumerate(lengths, 1):
        table.add(length)
        order.add(length)
        newest = lengths[max(0, number - kept) : number]
        assert table.size == order.size == len(newest)
        for border in range(LIMIT + 1):
            count = sum(each <= border for each in newest)
            assert table.at_most[border] == order.at_most[border] == count


def test_long_limits_take_no_table():
    assert isinstance(forecast.recent_lengths(2048), LengthTable)
    assert isinstance(forecast.recent_lengths(2**31 - 1), SortedLengths)


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


@pytest.mark.parametrize(
    ("outputs", "names", "rounds"),
    [
        ([11, 10, 5, 5], ["clairvoyant"], [0, 0, 11, 11]),
        ([11, 3, 3, 3], ["clairvoyant"], [0, 0, 3, 6]),
        ([11, 10, 5], ["none", "clairvoyant"], [0, 0, 10]),
    ],
    ids=["soon free: one idle round costs 2, a stage 10", "eight idle rounds cost 16", "the last"],
)
def test_it_waits_for_a_client_that_is_free_soon(outputs, names, rounds):
    """Not for one that is busy for long, nor at the end, when another has nothing to take."""
    instance = Instance(Requests([1] * len(outputs), outputs), Worker(2, UNIT), "decode")
    for name in names:
        schedule = run(instance, name)
        steps, starts = schedule.steps, starts_of(schedule)
        done = np.where(steps.phase == 1, steps.rounds, 0)
        found = [int(done[steps.start_ns < starts[row]].sum()) for row in range(len(instance))]
        assert found == rounds


def test_waiting_for_arrivals_never_costs_more_than_the_stage():
    """Requests come every 40 ns, then none: the last one waits for 10 ns worth of time at most."""
    requests = Requests([1] * 6, [30, 2, 2, 2, 2, 2], arrival_ns=[0, 40, 80, 120, 160, 200])
    instance = Instance(requests, Worker(8, UNIT), first_token="decode")
    times = run(instance, "none").request_times(instance)
    waited = times["prefill_start_ns"] - instance.requests.arrival_ns
    # With one running, a waiting request costs a round's 4 ns for 2 requests: 5 rounds of 4 ns,
    # and a round or a stage (11 ns) may be under way when it arrives.
    assert int(waited.max()) <= 5 * 4 + 11 + 4


def test_rate_of_arrivals():
    rate = forecast.ArrivalRate()
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
    known = forecast.KnownEnds(_View(), [4, 5, 60, 50, 50, 50, 50, 50])
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
    learned = forecast.LearnedEnds(_View())
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
        assert same(run(instance, name), run(instance, name, gate="prefill_first"))


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40)
@given(instance=instances())
def test_schedules_are_valid_reproducible_and_blind(name, instance):
    """INV-1 to INV-9, INV-13: checker, second run and oracle agree; the future does not matter."""
    instance = with_predictions(instance)
    schedule = require_sound(instance, lambda case: policy_of(name))
    assert check(instance, schedule.replace(results=summarise(instance, schedule))) == []
    assert same(schedule, oracle(instance, policy_of(name)))


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
    truth = np.where(np.arange(200) % 2, 40, 4)
    for guess, trusted in ((44 - truth, False), (truth, True)):
        requests = Requests([1] * 200, truth, arrival_ns=None, predicted_tokens=guess)
        policy = policy_of("robust")
        instance = Instance(requests, Worker(4, UNIT), "decode", output_limit_tokens=44)
        simulate_policy(instance, policy)
        assert policy.skill.trusted == trusted
