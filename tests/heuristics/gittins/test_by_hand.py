"""Decisions of the Gittins policy that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched.common.errors import InputError, PolicyError
from orsched.costs import AffineCost
from orsched.heuristics.gittins import GittinsParams
from orsched.heuristics.gittins.policy import GITTINS
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from tests.in_order import in_order

COST = in_order(AffineCost, 10, 1, 10, 1)
PLAIN = {"aging": 1e9, "gate": 1e9}


def run(prompts, outputs, known="none", clients=4, workers=1, arrivals=None, memory=None,
        predicted=None, classes=None, limit=None, cost=COST, **params):  # fmt: skip
    requests = orsched.Requests(
        prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted, service_class=classes
    )
    worker = orsched.Worker(clients, cost, None, memory)
    instance = orsched.Instance(
        requests, (worker,) * workers, output_limit_tokens=limit, first_token="decode"
    )
    policy, _ = GITTINS.build(instance, Information(known), PLAIN | params, 0)
    schedule = simulate_policy(instance, policy).schedule
    assert orsched.check(instance, schedule) == []
    return schedule, schedule.request_times(instance)["finish_ns"].tolist()


def test_the_shorter_prompt_is_first_where_nothing_is_known_of_lengths():
    _, finish = run([50, 5], [3, 3], clients=1)
    # 10 + 5 and three rounds of 11; then 10 + 50 and three rounds.
    assert finish == [15 + 33 + 60 + 33, 15 + 33]


def test_without_aging_of_the_index_it_is_first_come_first_served():
    _, finish = run([50, 5], [3, 3], clients=1, aging=0.0)
    assert finish == [60 + 33, 60 + 33 + 15 + 33]


@pytest.mark.parametrize("known", ["clairvoyant", "predicted"])
@pytest.mark.parametrize("index", ["gittins", "serpt"])
def test_the_shorter_output_is_first_where_it_is_known(known, index):
    _, finish = run([5, 5], [40, 2], known, clients=1, predicted=[40, 2], index=index)
    assert finish[1] == 15 + 2 * 11 < finish[0]


def test_waiting_makes_up_for_work():
    """One second of work is worth ``aging`` seconds: 45 ns of prefill, 90 ns of waiting."""
    prompts, outputs, arrivals = [1, 50, 5], [30, 1, 1], [0, 0, 85]
    _, early = run(prompts, outputs, "clairvoyant", 1, arrivals=arrivals, aging=1.0)
    assert early[1] < early[2]
    _, late = run(prompts, outputs, "clairvoyant", 1, arrivals=arrivals, aging=2.5)
    assert late[2] < late[1]


def test_interactive_requests_go_before_batch_ones_as_far_as_weights_say():
    prompts, outputs, classes = [20, 30], [3, 3], [1, 0]
    _, finish = run(prompts, outputs, clients=1, classes=classes)
    assert finish[0] < finish[1]
    _, finish = run(prompts, outputs, clients=1, classes=classes, batch_weight=0.1)
    assert finish[1] < finish[0]


def workers_of(schedule):
    """The worker of each request, none of which moved."""
    work = schedule.work
    return dict(zip(work.request.tolist(), schedule.steps.worker[work.first_step], strict=True))


def test_equal_requests_are_shared_evenly_among_workers():
    schedule, _ = run([7] * 6, [5] * 6, "clairvoyant", clients=6, workers=3)
    counts = np.bincount(list(workers_of(schedule).values()), minlength=3)
    assert counts.tolist() == [2, 2, 2]


def test_a_long_prefill_goes_where_fewer_requests_are_held_up():
    """Three requests decode, two of them on one worker."""
    prompts, outputs, arrivals = [1, 1, 1, 400], [60, 60, 60, 2], [0, 0, 0, 300]
    schedule, _ = run(prompts, outputs, "clairvoyant", clients=4, workers=2, arrivals=arrivals)
    chosen = workers_of(schedule)
    running = [sum(chosen[r] == worker for r in range(3)) for worker in (0, 1)]
    assert sorted(running) == [1, 2]
    assert running[chosen[3]] == 1


def test_a_prefill_waits_behind_the_gate_and_comes_at_last():
    """Three decode two tokens each; 1,000 prompt tokens would hold them up a thousand rounds."""
    prompts, outputs, arrivals = [1, 1, 1, 1000], [20, 20, 20, 1], [0, 0, 0, 100]
    _, open_gate = run(prompts, outputs, "clairvoyant", arrivals=arrivals)
    _, closed = run(prompts, outputs, "clairvoyant", arrivals=arrivals, gate=1e-6, gate_aging=0.0)
    assert max(closed[:3]) < max(open_gate[:3])
    assert closed[3] > max(closed[:3])


def test_where_memory_runs_out_the_one_with_most_to_come_is_evicted():
    memory = orsched.BlockMemory(24, 1, "paged")
    prompts, outputs = [4, 4], [6, 14]
    schedule, _ = run(prompts, outputs, "clairvoyant", memory=memory, reserve=0.0, limit=14)
    restarted = set(schedule.work.request[schedule.work.stay > 0].tolist())
    assert restarted <= {1}
    tight = orsched.BlockMemory(18, 1, "paged")
    schedule, _ = run(prompts, outputs, "clairvoyant", memory=tight, reserve=0.0, limit=14)
    assert set(schedule.work.request[schedule.work.stay > 0].tolist()) == {1}


def test_who_does_not_fit_alone_is_named():
    memory = orsched.BlockMemory(12, 1, "paged")
    requests = orsched.Requests([4, 4], [9, 2])
    instance = orsched.Instance(
        requests, orsched.Worker(2, COST, None, memory), first_token="decode"
    )
    policy, _ = GITTINS.build(instance, Information.NONE, {}, 0)
    with pytest.raises((PolicyError, orsched.common.errors.InfeasibleError)):
        simulate_policy(instance, policy)


@pytest.mark.parametrize(("name", "value"), [
    ("index", "longest"), ("aging", -1), ("aging", float("nan")), ("gate", 0), ("gate", True),
    ("ttft_s", -1), ("ttft_s", "2"), ("ttft_s", float("inf")),
    ("max_num_batched_tokens", 0), ("window_s", 0), ("reserve", -0.1), ("batch_weight", 2.0),
])  # fmt: skip
def test_wrong_parameters_are_named(name, value):
    with pytest.raises(InputError) as error:
        GittinsParams(**{name: value})
    assert name in str(error.value)


def test_it_does_not_pad():
    worker = orsched.Worker(2, COST, padding=True)
    instance = orsched.Instance(orsched.Requests([1], [1]), worker, first_token="decode")
    policy, _ = GITTINS.build(instance, Information.NONE, {}, 0)
    with pytest.raises(InputError, match="padding"):
        simulate_policy(instance, policy)


@pytest.mark.parametrize("known", ["none", "predicted"])
def test_nobody_starves_under_a_stream_of_shorter_requests_and_wrong_predictions(known):
    """The long one is predicted longest, and short ones arrive faster than they are served."""
    count = 400
    prompts = [300] + [5] * count
    outputs = [3] + [20] * count
    arrivals = [1] + [25 * i for i in range(count)]
    predicted = [2000] + [1] * count
    _, finish = run(prompts, outputs, known, clients=2, arrivals=arrivals, predicted=predicted,
                    limit=2000, aging=1.0, gate=3.0, gate_aging=6.0)  # fmt: skip
    assert finish[0] < max(finish) / 2
