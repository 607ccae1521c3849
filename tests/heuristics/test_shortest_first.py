"""Shortest job first by hand: a step takes 10 ns, and 1 ns for each prompt token and request that
decodes. A request of prompt 1 and n tokens alone takes 11 ns and n - 1 rounds of 11 ns: 11 n."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, Information, InputError, Instance, Requests, Worker
from orsched.heuristics.continuous import engine_steps
from orsched.heuristics.robust import _FEW, LongLengths, Skill, TwoOrders, long_lengths
from orsched.instances import predict
from orsched.simulator import simulate_policy
from orsched.simulator.policy import PredictedView
from tests.heuristics.building import batch_of, built, require_sound, same, solved, starts_of
from tests.in_order import in_order
from tests.random_instances import random_batching_instance, unpadded
from tests.simulator.scripted import OneByOne

COST = in_order(AffineCost, 10, 1, 10, 1)
NAMES = ("ssjf", "sjf", "fcfs_batched")


def run(name, outputs, arrivals=None, predicted=None, clients=1, **params):
    """The schedule of a policy on one worker, prompts of one token."""
    prompts = [1] * len(outputs)
    requests = Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted)
    instance = Instance(requests, Worker(clients, COST), first_token="prefill")
    return solved(instance, name, **params)


def test_the_shortest_predicted_is_next_and_the_oracle_knows_better():
    """0 runs from 0 to 33. 1 (5 tokens, called 2) and 2 (1 token, called 4) wait."""
    case = {"outputs": [3, 5, 1], "arrivals": [0, 1, 2], "predicted": [9, 2, 4]}
    assert starts_of(run("ssjf", batching="none", **case)) == {0: 0, 1: 33, 2: 33 + 55}
    assert starts_of(run("sjf", batching="none", **case)) == {0: 0, 2: 33, 1: 33 + 11}
    assert starts_of(run("fcfs_batched", batching="none", **case)) == {0: 0, 1: 33, 2: 33 + 55}
    ends = {run(name, batching="none", **case).makespan_ns for name in NAMES}
    assert ends == {11 * 9}


def test_ties_go_by_arrival_then_row():
    case = {"outputs": [1] * 4, "arrivals": [0, 6, 5, 5], "predicted": [3] * 4}
    assert list(starts_of(run("ssjf", batching="none", **case))) == [0, 2, 3, 1]


def test_continuous_replaces_who_is_done_by_the_shortest():
    """Two at a time of five clients. 1 and 2 start; 2 is done first, then 0 joins."""
    steps = engine_steps(run("sjf", [5, 3, 2], clients=5, max_batch_size=2))
    assert [step.tokens for step in steps] == [*[{1: 1, 2: 1}] * 2, {0: 1, 1: 1}, *[{0: 1}] * 4]
    by_arrival = engine_steps(run("fcfs_batched", [5, 3, 2], clients=5, max_batch_size=2))
    assert list(next(iter(by_arrival)).tokens) == [0, 1]


def test_nobody_is_preempted_for_a_shorter_one():
    assert starts_of(run("sjf", [9, 1], [0, 5])) == {0: 0, 1: 99}


def test_dynamic_batches_the_shortest_together():
    """Four wait at once, batches of two: the short ones go first, and nobody joins. The prefill
    takes 12 and yields all of 1; 3 has one more round, alone."""
    starts = starts_of(run("sjf", [7, 1, 8, 2], clients=4, batching="dynamic", max_batch_size=2))
    assert starts[1] == starts[3] == 0
    assert starts[0] == starts[2] == (10 + 2) + (10 + 1)


def test_dynamic_starts_when_full_or_after_the_timeout():
    case = {"batching": "dynamic", "max_batch_size": 2, "batch_wait_timeout_s": 100e-9}
    assert starts_of(run("sjf", [3, 1], [0, 30], clients=2, **case)) == {0: 30, 1: 30}
    assert starts_of(run("sjf", [3], [7], clients=2, **case)) == {0: 107}


SHORT = {"outputs": [2, 10, *[2] * 8], "arrivals": [0, 1, *range(2, 162, 20)]}


@pytest.mark.parametrize(("aging_ns", "before"), [(None, 8), (1, 1), (5, 2), (0, 0)])
def test_aging_bounds_who_overtakes(aging_ns, before):
    """Request 1, ten tokens, arrives at 1; short ones of 2 tokens follow at 2, 22, 42 ... every 20
    ns, and overtake if they arrive before 1 + (10 - 2) aging: with 1 ns by 9, only the first; with
    5 ns by 41, the first two; with 0 nobody, first come first served."""
    aging = {} if aging_ns is None else {"aging_s": aging_ns / 1e9}
    starts = starts_of(run("sjf", batching="none", **SHORT, **aging))
    assert sum(starts[row] < starts[1] for row in range(2, 10)) == before


def test_the_latency_of_the_predictor_delays_the_start_alone():
    """Requests are predicted 7 ns after they arrive; the second one while the first is served."""
    case = {"outputs": [2, 1], "arrivals": [0, 10], "predicted": [2, 1], "batching": "none"}
    assert starts_of(run("ssjf", **case)) == {0: 0, 1: 22}
    assert starts_of(run("ssjf", predictor_latency_s=7e-9, **case)) == {0: 7, 1: 29}


def test_a_request_joins_at_the_first_border_after_its_prediction():
    """Continuous: 1 arrives at 15, predicted at 40; borders of 0's rounds: 11, 22, 33, 44."""
    case = {"outputs": [9, 1], "arrivals": [0, 15], "predicted": [9, 1], "clients": 2}
    assert starts_of(run("ssjf", predictor_latency_s=0.0, **case)) == {0: 0, 1: 22}
    shifted = case | {"arrivals": [25, 40], "predictor_latency_s": 25e-9}
    assert starts_of(run("ssjf", **shifted)) == {0: 50, 1: 50 + 22}


def test_predictions_are_needed():
    with pytest.raises(InputError, match="no predicted lengths"):
        run("ssjf", [1])


MODES = {
    "none": {"batching": "none"},
    "dynamic": {"batching": "dynamic", "max_batch_size": 3, "batch_wait_timeout_s": 2e-8},
    "continuous": {"batching": "continuous"},
    "continuous, 2": {"batching": "continuous", "max_batch_size": 2},
}
MORE = {
    "plain": {},
    "aging": {"aging_s": 1e-8},
    "latency": {"predictor_latency_s": 3e-8},
    "both": {"aging_s": 1e-9, "predictor_latency_s": 1e-8},
}


def instance_of(rng, mode, alone=False):
    """A random instance of one or of several workers that the mode serves."""
    while True:
        instance = random_batching_instance(rng)
        if alone and len(instance.workers) > 1:
            continue
        plain = mode.startswith("continuous")
        return unpadded(instance) if plain else instance


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("mode", MODES)
def test_every_schedule_is_right_comes_again_and_is_blind(mode, more):
    """On any number of workers, under a dispatcher and with stealing."""
    rng = random.Random(f"{mode} {more}")
    for _ in range(25):
        instance = instance_of(rng, mode)
        dispatch = {"dispatch": rng.choice(("round_robin", "least_work")), "steal": True}
        shared = dispatch if len(instance.workers) > 1 else {}
        for name in ("ssjf", "sjf"):
            params = MODES[mode] | MORE[more] | shared
            require_sound(instance, lambda case, n=name, p=params: built(case, n, **p))


@pytest.mark.parametrize("mode", MODES)
def test_who_runs_stays_unless_paged_memory_runs_out(mode):
    rng, seen = random.Random(mode), 0
    while seen < 40:
        instance = instance_of(rng, mode)
        if any(w.memory is not None and w.memory.is_paged for w in instance.workers):
            continue
        seen += 1
        assert not solved(instance, "sjf", **MODES[mode]).work.stay.any()


@pytest.mark.parametrize("mode", MODES)
def test_equal_predictions_are_first_come_first_served(mode):
    rng = random.Random(mode)
    for _ in range(40):
        instance = instance_of(rng, mode, alone=True)
        sevens = np.full(len(instance), 7, np.int64)
        alike = instance.replace(requests=instance.requests.replace(predicted_tokens=sevens))
        assert same(*(solved(alike, name, **MODES[mode]) for name in ("ssjf", "fcfs_batched")))


@pytest.mark.parametrize("mode", MODES)
def test_perfect_predictions_are_the_oracle(mode):
    rng = random.Random(mode)
    for _ in range(40):
        instance = predict(instance_of(rng, mode, alone=True), "oracle")
        if any(w.memory is not None for w in instance.workers):
            continue  # with true lengths the oracle also knows what memory will be needed
        assert same(*(solved(instance, name, **MODES[mode]) for name in ("ssjf", "sjf")))


@pytest.mark.parametrize("name", ["ssjf", "sjf"])
@pytest.mark.parametrize("batching", ["none", "continuous"])
def test_with_aging_nobody_starves(batching, name):
    """Of those that come after a request only early ones start before it, L - 1 agings at most."""
    rng = np.random.default_rng(5)
    aging_ns, n = 40, 400
    outputs = rng.integers(1, 60, n)
    predicted = rng.integers(1, 60, n)
    arrivals = np.sort(rng.integers(0, 20_000, n))
    requests = Requests([1] * n, outputs, arrival_ns=arrivals, predicted_tokens=predicted)
    instance = Instance(requests, Worker(2, COST), first_token="decode")
    known = {"ssjf": predicted, "sjf": outputs}[name]
    overtaken = {}
    for aging in (None, aging_ns / 1e9):
        schedule = solved(instance, name, batching=batching, aging_s=aging)
        starts = schedule.request_times(instance)["prefill_start_ns"]
        overtaken[aging] = 0
        for row in range(n):
            later = (arrivals > arrivals[row]) & (starts < starts[row])
            late = arrivals >= arrivals[row] + (known[row] - 1) * aging_ns
            overtaken[aging] += int((later & late).sum())
    assert overtaken[aging_ns / 1e9] == 0
    assert overtaken[None] > 1_000


def test_the_limit_of_a_batch_holds_and_is_used():
    rng = random.Random(3)
    for _ in range(40):
        instance = instance_of(rng, "continuous", alone=True)
        steps = engine_steps(solved(instance, "sjf", **MODES["continuous, 2"]))
        assert max(len(step.tokens) for step in steps) <= 2
    instance = Instance(Requests([1] * 6, [4] * 6), Worker(6), first_token="decode")
    steps = engine_steps(solved(instance, "sjf", **MODES["continuous, 2"]))
    assert {len(step.tokens) for step in steps} == {2}


def test_nobody_starts_before_the_prediction():
    rng, latency = random.Random(9), 30
    for _ in range(60):
        mode = rng.choice(list(MODES))
        instance = instance_of(rng, mode)
        params = MODES[mode] | {"predictor_latency_s": latency / 1e9}
        starts = solved(instance, "ssjf", **params).request_times(instance)["prefill_start_ns"]
        assert (starts >= instance.requests.arrival_ns + latency).all()


def test_no_batching_takes_as_long_in_any_order():
    """A work-conserving server of one request: order moves the waits, not the makespan."""
    rng = random.Random(1)
    for _ in range(40):
        instance = instance_of(rng, "none", alone=True)
        ends = {solved(instance, name, **MODES["none"]).makespan_ns for name in NAMES}
        assert len(ends) == 1


MOST = 4 * _FEW


def plain(waiting, clients, trusted, sample, started, room):
    """Take from ``waiting``, (key, request) in the order of arrival, what fits; one a client."""
    stage = []
    for _ in clients:
        if not waiting:
            break
        first = not started % sample or not trusted
        entry = waiting[0] if first else min(waiting)
        room -= 1 + entry[1] % 3
        if room < 0:
            break
        waiting.remove(entry)
        stage.append(entry[1])
        started += 1
    return stage, started


@given(st.integers(0, 2**32))
def test_it_takes_what_a_plain_list_takes(seed):
    rng = random.Random(seed)
    keys = [rng.randint(-5, 5) for _ in range(rng.randint(1, MOST))]
    sample, skill = rng.randint(2, 5), Skill(0.5)
    queue = TwoOrders(skill, sample, lambda request: 1, len(keys))
    prompts = [1 + request % 3 for request in range(len(keys))]
    waiting, served, started, arrived = [], [], 0, 0
    while arrived < len(keys) or waiting:
        for _ in range(rng.randint(0, 2 * _FEW)):
            if arrived < len(keys):
                queue.add(arrived, 0, keys[arrived], 1)
                waiting.append((keys[arrived], arrived))
                arrived += 1
        skill.trusted = rng.random() < 0.7
        clients, tokens = range(rng.randint(1, _FEW)), rng.randint(3, 99)
        expected, started = plain(waiting, clients, skill.trusted, sample, started, tokens)
        stage, places = queue.fill(clients, batch_of(prompts, tokens))
        assert stage == expected
        assert places == list(clients)[: len(stage)]
        assert queue.queued == len(waiting)
        served += stage
    assert sorted(served) == list(range(len(keys)))


LEVELS = (0.25, 0.5, 0.9)
SEEDS = st.integers(0, 2**32)


def drawn(seed, most=12):
    """Requests on one worker, some of them late, with points and quantiles of their own."""
    rng = random.Random(seed)
    n = rng.randint(1, most)
    late = rng.random() < 0.5
    arrivals = [rng.randint(0, 300) if late else 0 for _ in range(n)]
    rows = [sorted(rng.randint(1, 12) for _ in LEVELS) for _ in range(n)]
    requests = Requests(
        [rng.randint(1, 9) for _ in range(n)], [rng.randint(1, 9) for _ in range(n)],
        arrival_ns=arrivals, predicted_quantiles=rows, quantile_levels=LEVELS,
    )  # fmt: skip
    worker = Worker(rng.randint(1, 4), in_order(AffineCost, 30, 1, 10, 1), rng.choice((None, 12)))
    return Instance(requests, worker, output_limit_tokens=12, first_token="decode")


@given(SEEDS)
def test_quantiles_of_one_length_decide_as_the_length_does(seed):
    instance = drawn(seed)
    points = instance.requests.predicted_tokens
    rows = np.repeat(np.asarray(points)[:, None], len(LEVELS), axis=1)
    told = [{}, {"predicted_quantiles": rows, "quantile_levels": LEVELS}]
    plain = instance.requests.replace(predicted_quantiles=None, quantile_levels=None)
    cases = [instance.replace(requests=plain.replace(predicted_tokens=points, **e)) for e in told]
    assert same(*(solved(case, "robust", "predicted") for case in cases))


@given(SEEDS)
def test_any_instance_with_distributions_is_served_and_checked(seed):
    require_sound(drawn(seed), lambda case: built(case, "robust", "predicted"))


def test_of_equal_medians_the_one_that_may_be_long_is_first():
    rows = [[8, 9, 10], [8, 9, 11], [8, 9, 60]]
    requests = Requests([4] * 3, [9] * 3, predicted_quantiles=rows, quantile_levels=LEVELS)
    worker = Worker(1, in_order(AffineCost, 10, 1, 10, 1))
    instance = Instance(requests, worker, "decode", output_limit_tokens=99)
    # One in eight that robust starts is the first that has arrived, the first of all among them.
    assert list(starts_of(solved(instance, "robust", "predicted"))) == [0, 2, 1]


class Looks(OneByOne):
    """Reads what would be planned for before any has arrived."""

    information = Information.PREDICTED

    def start(self, view):
        self.long = long_lengths(view)
        self.before = [] if self.long is None else [self.long[row] for row in range(3)]


@pytest.mark.parametrize(("levels", "wanted"), [((0.5, 0.9), [30, 9, 7]), ((0.1, 0.25, 0.5), None)])
def test_it_is_the_quantile_at_nine_tenths(levels, wanted):
    """Given, or as the outer piece goes on: from 0.25 to 0.5 by 0.67449, from there by 1.28155."""
    rows = [[20, 30], [9, 9], [5, 7]] if len(levels) == 2 else [[7, 10, 25], [9] * 3, [4, 5, 7]]
    told = {"predicted_quantiles": rows, "quantile_levels": levels}
    requests = Requests([4] * 3, [5] * 3, arrival_ns=[50, 60, 70], **told)
    policy = Looks()
    simulate_policy(Instance(requests, Worker(2), first_token="decode"), policy)
    assert isinstance(policy.long, LongLengths)
    assert policy.before == [0, 0, 0]
    found = [policy.long[row] for row in range(3)]
    if wanted is None:
        ratio = 1.2815515655 / 0.6744897502
        wanted = [round(last * (last / left) ** ratio) for left, last in ((10, 25), (9, 9), (5, 7))]
    assert found == wanted


def test_without_distributions_there_is_nothing_to_plan_for():
    requests = Requests([4], [5], predicted_tokens=[6])
    policy = Looks()
    simulate_policy(Instance(requests, Worker(2), first_token="decode"), policy)
    assert policy.long is None
    assert PredictedView.quantile_levels == ()
