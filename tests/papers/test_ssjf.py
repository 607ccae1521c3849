"""The setting of SSJF's authors: their rules literally beside the policies; trained heads."""

from itertools import product

import numpy as np
import pytest

from orsched import AffineCost, Instance, Requests, Worker, check
from orsched.instances.predictions import load_confusion
from orsched.papers import find, paper, ssjf_setting
from orsched.papers.ssjf import RERUNS, scored
from orsched.papers.ssjf_setting import AuthorsFcfs, AuthorsShortestFirst, figures, trained
from orsched.simulator import simulate_policy
from tests.in_order import in_order

S = 10**9
MODES = ("none", "dynamic", "continuous")


def job(**given):
    (first, *_) = RERUNS["by_value"].jobs(find("ssjf", 4).settings(False, {}))
    return first | given


def by_the_book_fcfs(arrival, length, size, continuous, wait):
    """Completion times by the loop of ``fcfs.py`` and ``fcfs_dynamic.py``, in whole numbers."""
    queue, left, done, now = list(range(len(arrival))), list(length), {}, 0
    while queue:
        now = max(now, arrival[queue[0]])
        batch = []
        while queue and len(batch) < size and arrival[queue[0]] <= now + wait:
            batch.append(queue.pop(0))
        now = max(now, arrival[batch[-1]]) if len(batch) == size else now + wait
        spent = (min if continuous else max)(left[job] for job in batch)
        now += spent
        for job in batch:
            left[job] -= spent if continuous else left[job]
            if left[job] == 0:
                done[job] = now
            else:
                queue.insert(0, job)
    return done


def by_the_book_sjf(arrival, length, size, continuous, predicted=None):
    """The same of ``sjf.py`` and ``sjf_dynamic.py``; the last job may never be served."""
    queue, left, done, now, before, coming = [], list(length), {}, 0, 0, 0
    waited = [0] * len(arrival)
    while coming < len(arrival) - 1 or queue:
        if not queue:
            now = max(now, arrival[coming])
        while coming < len(arrival) and arrival[coming] <= now:
            queue.append(coming)
            coming += 1
        by_wait = sorted(queue, key=lambda job: -waited[job])
        first = by_wait[0]
        if waited[first] > 100 * S or waited[first] > 10 * left[first]:
            queue = by_wait
        else:
            queue = sorted(queue, key=lambda job: (left if predicted is None else predicted)[job])
        batch, queue = queue[:size], queue[size:]
        spent = (min if continuous else max)(left[job] for job in batch)
        now += spent
        while coming < len(arrival) and arrival[coming] <= now:
            queue.append(coming)
            coming += 1
        for job in batch:
            left[job] -= spent if continuous else left[job]
            if left[job] == 0:
                done[job] = now
            else:
                queue.append(job)
        for job in queue:
            waited[job] += now - before
        before = now
    return done


POINTS = [("rates", 1), ("rates", 9), ("burstiness", 1), ("burstiness", 3)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "value"), POINTS)
@pytest.mark.parametrize("scheduler", ["fcfs", "oracle", "classes"])
def test_schedules_are_those_of_the_authors_rules(mode, kind, value, scheduler):
    for size, seed in product((2, 4), range(2)):
        case = job(mode=mode, kind=kind, scheduler=scheduler, size=size, seed=seed)
        instance = ssjf_setting.workload(case, value)
        schedule = simulate_policy(instance, ssjf_setting.policy_of(case, instance)).schedule
        assert check(instance, schedule) == []
        requests = instance.requests
        lengths = (requests.output_tokens * ssjf_setting.TOKEN_NS).tolist()
        batch = 1 if mode == "none" else size, mode == "continuous"
        inputs = requests.arrival_ns.tolist(), lengths, *batch
        if scheduler == "fcfs":
            expected = by_the_book_fcfs(*inputs, 10 * S)
        else:
            told = requests.predicted_tokens.tolist() if scheduler == "classes" else None
            expected = by_the_book_sjf(*inputs, told)
        found = schedule.request_times(instance)["finish_ns"].tolist()
        assert {row: found[row] for row in expected} == expected
        forgotten = set(range(len(found))) - set(expected)
        late = scheduler != "fcfs" and requests.arrival_ns[-1] > max(found[:-1])
        assert forgotten == ({len(found) - 1} if late else set())


def test_a_request_alone_takes_what_the_authors_give_it():
    instance = ssjf_setting.workload(job(kind="burstiness"), 1)
    schedule = simulate_policy(instance, AuthorsFcfs(1, False, 0)).schedule
    last = len(instance) - 1  # after the largest gap
    tokens = int(instance.requests.output_tokens[last]) - ssjf_setting.OFFSET_TOKENS
    taken = schedule.request_times(instance)["finish_ns"][last] - instance.requests.arrival_ns[last]
    assert taken == S // 10 + tokens * S // 50


def test_throughput_is_that_of_the_first_quarter_and_the_last_may_be_forgotten():
    finish, arrival = np.arange(1.0, 51.0), np.zeros(50)
    told = {"jct_s": 25.5, "throughput_per_s": 12 / 13, "whole_per_s": 1.0}
    assert figures(finish, arrival, True) == told
    arrival[-1] = 49.5
    assert figures(finish, arrival, True) == told | {"jct_s": 25.0}
    assert figures(finish, arrival, False)["jct_s"] == pytest.approx(24.51)


def test_poisson_arrivals_come_in_whole_seconds_and_gamma_gaps_grow():
    draws = np.random.default_rng(0)
    arrivals = ssjf_setting.arrivals_s(job(), 3, draws)
    assert len(arrivals) == 50
    assert (arrivals == arrivals.astype(int)).all()
    assert 10 < arrivals[-1] < 25
    gaps = np.diff(ssjf_setting.arrivals_s(job(kind="burstiness"), 2, draws))
    assert (gaps > 0).all()
    assert (np.diff(gaps) > -1e-9).all()


def finishes(policy, arrival_s, tokens):
    """Completion times in seconds of requests of so many tokens of 20 ms, one after the other."""
    requests = Requests([1] * len(tokens), tokens, arrival_s=arrival_s)
    worker = Worker(len(tokens), in_order(AffineCost, 0, 0, ssjf_setting.TOKEN_NS, 0))
    instance = Instance(requests, worker, first_token="decode")
    schedule = simulate_policy(instance, policy).schedule
    assert check(instance, schedule) == []
    return [time / S for time in schedule.request_times(instance)["finish_ns"].tolist()]


def test_first_come_first_served_waits_for_a_pair_and_shortest_first_does_not():
    arrival_s, tokens = [0, 4, 100], [100, 50, 50]
    assert finishes(AuthorsFcfs(2, False, 10 * S), arrival_s, tokens) == [6, 6, 111]
    assert finishes(AuthorsFcfs(2, True, 10 * S), arrival_s, tokens) == [16, 5, 111]
    assert finishes(AuthorsShortestFirst(2, False), arrival_s, tokens) == [2, 5, 101]


def test_continuous_batches_leave_longer_ones_out_and_held_ones_do_not():
    """At 1 s, when the second is done, two shorter ones have come: the first has to wait."""
    arrival_s, tokens = [0, 0, 0.5, 0.5], [500, 50, 100, 100]
    held, kept = AuthorsShortestFirst(2, False), AuthorsShortestFirst(2, True)
    assert finishes(held, arrival_s, tokens) == [10, 10, 12, 12]
    assert finishes(kept, arrival_s, tokens) == [12, 1, 3, 3]


def test_a_request_that_has_waited_ten_lengths_is_rescued():
    """The request of 1 s has waited for 12 s when the shorter ones have come."""
    arrival_s, tokens = [0, 0.5, 11.5, 11.5], [600, 50, 10, 10]
    assert finishes(AuthorsShortestFirst(1, False), arrival_s, tokens)[1] == 13
    never = AuthorsShortestFirst(1, False, rescue=False)
    assert finishes(never, arrival_s, tokens) == [12, 13.4, 12.2, 12.4]


def test_the_oracle_comes_near_the_papers_figures_and_no_order_ends_one_server_earlier():
    """Over few runs, hence with more room than the statements of the figure have."""
    found = paper("ssjf", 4, settings={"seeds": 4, "schedulers": "oracle"}).values
    for mode, printed in (("none", 43.7), ("dynamic", 58.2), ("continuous", 43.0)):
        assert abs(found[f"oracle_{mode}_reduction_%"] - printed) < 6
    assert found["oracle_none_all_requests_x"] == pytest.approx(1)
    own = paper("ssjf", 4, settings={"seeds": 2, "schedulers": "oracle", "plain": 1}).values
    assert 30 < own["oracle_none_reduction_%"] < 60


def test_scores_are_those_of_scikit_learn_and_of_the_measured_classes():
    metrics = pytest.importorskip("sklearn.metrics")
    draws = np.random.default_rng(0)
    wanted, found = draws.integers(0, 4, 300), draws.integers(0, 4, 300)
    matrix = metrics.confusion_matrix(wanted, found)
    accuracy, f1 = scored(matrix)
    assert accuracy == pytest.approx(metrics.accuracy_score(wanted, found))
    assert f1 == pytest.approx(metrics.f1_score(wanted, found, average="weighted"))
    assert scored(load_confusion(5).matrix())[0] == pytest.approx(0.599, abs=5e-4)
    assert scored(load_confusion(3).matrix())[0] == pytest.approx(0.806, abs=5e-4)


@pytest.mark.parametrize("source", ["chat", "bodies"])
def test_every_head_is_kept_and_classes_are_few(source):
    found = trained(source)
    heads = {"binary", "ordinal_mse", "ordinal_l1", "classes", "regression_mse", "regression_l1"}
    assert set(found.told) == {*heads, "ranks", "prompt_length", "lexical"}
    assert len(found.truth) > 1000
    assert min(told.min() for told in found.told.values()) >= 1
    assert len(np.unique(found.told["classes"])) <= 5
    assert len(np.unique(found.told["binary"])) == 2
    assert (found.rounds == 1).all() == (source == "bodies")
    parts = [int(found.of_round(number).sum()) for number in (1, 2, 3)]
    assert sum(parts) == len(found.truth) == int(found.of_round(0).sum())


def test_requests_have_published_lengths_in_the_order_of_the_source():
    case = job(source="chat", seed=3, scheduler="regression_l1")
    told = ssjf_setting.workload(case, 1).requests
    true = ssjf_setting.workload(case | {"scheduler": "oracle"}, 1).requests
    assert told.output_tokens.tolist() == true.output_tokens.tolist()
    assert told.arrival_ns.tolist() == true.arrival_ns.tolist()
    offset = ssjf_setting.OFFSET_TOKENS
    assert 2 <= told.output_tokens.min() - offset < told.output_tokens.max() - offset <= 511
    found = trained("chat")
    draws = ssjf_setting.stream("ssjf/authors/heads", 3)  # the same rows by hand
    rows = draws.integers(0, len(found.truth), ssjf_setting.JOBS)
    predicted = told.predicted_tokens, found.told["regression_l1"]
    for ours, theirs in ((told.output_tokens, found.truth), predicted):
        above = theirs[rows][:, None] > theirs[rows][None, :]
        assert not (ours[:, None] < ours[None, :])[above].any()
    assert np.corrcoef(told.predicted_tokens, told.output_tokens)[0, 1] > 0.4
