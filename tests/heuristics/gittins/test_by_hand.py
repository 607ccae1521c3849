"""Decisions of the Gittins policy that can be checked by hand."""

import numpy as np
import pytest

from orsched import AffineCost, BlockMemory, Instance, Requests, Worker, solve
from orsched.heuristics.gittins import GittinsParams
from orsched.heuristics.gittins.worker_model import OVERTAKEN
from orsched.instances import predict, with_arrivals
from orsched.instances.streams import stream
from tests.heuristics.building import solved, starts_of, workers_of
from tests.heuristics.gittins.drawn import KNOWN
from tests.in_order import in_order

COST = in_order(AffineCost, 10, 1, 10, 1)
PLAIN = {"aging": 1e9, "gate": 1e9}


def run(prompts, outputs, known="none", clients=4, workers=1, arrivals=None, memory=None,
        predicted=None, classes=None, limit=None, **params):  # fmt: skip
    requests = Requests(
        prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted, service_class=classes
    )
    fleet = (Worker(clients, COST, None, memory),) * workers
    instance = Instance(requests, fleet, "decode", output_limit_tokens=limit)
    schedule = solved(instance, "gittins", known, **PLAIN | params)
    return schedule, schedule.request_times(instance)["finish_ns"].tolist()


@pytest.mark.parametrize(("aging", "ends"), [(1e9, [48 + 60 + 33, 15 + 33]), (0.0, [93, 93 + 48])])
def test_the_shorter_prompt_is_first_where_nothing_is_known_unless_the_index_does_not_age(
    aging, ends
):
    """10 + 5 and three rounds of 11; 10 + 50 and three rounds: without aging first come."""
    assert run([50, 5], [3, 3], clients=1, aging=aging)[1] == ends


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
    for weight, first in ((1.0, 0), (0.1, 1)):
        _, finish = run([20, 30], [3, 3], clients=1, classes=[1, 0], batch_weight=weight)
        assert np.argmin(finish) == first


def test_equal_requests_are_shared_evenly_among_workers():
    schedule, _ = run([7] * 6, [5] * 6, "clairvoyant", clients=6, workers=3)
    assert np.bincount(list(workers_of(schedule).values())).tolist() == [2, 2, 2]


def test_a_long_prefill_goes_where_fewer_requests_are_held_up():
    """Three requests decode, two of them on one worker. Who has waited for long takes the first
    worker that is free."""
    case = [1, 1, 1, 400], [60, 60, 60, 2], "clairvoyant", 4, 2, [0, 0, 0, 300]
    schedule, _ = run(*case)
    chosen = workers_of(schedule)
    running = [sum(chosen[r] == worker for r in range(3)) for worker in (0, 1)]
    assert sorted(running) == [1, 2]
    assert running[chosen[3]] == 1
    assert starts_of(run(*case, ttft_s=0.0)[0])[3] <= starts_of(schedule)[3]


GATE = [1, 1, 1, 1000], [20, 20, 20, 1], "clairvoyant"
CLOSED = {"gate": 1e-6, "gate_aging": 0.0}


def test_a_prefill_waits_behind_the_gate_and_comes_at_last():
    """Three decode two tokens each; 1,000 prompt tokens would hold them up a thousand rounds."""
    _, open_gate = run(*GATE, arrivals=[0, 0, 0, 100])
    _, closed = run(*GATE, arrivals=[0, 0, 0, 100], **CLOSED)
    assert max(closed[:3]) < max(open_gate[:3])
    assert closed[3] > max(closed[:3])


def test_where_memory_runs_out_the_one_with_most_to_come_is_evicted():
    for blocks, evicted in ((24, ({1}, set())), (18, ({1},))):
        given = {"memory": BlockMemory(blocks, 1, "paged"), "reserve": 0.0, "limit": 14}
        work = run([4, 4], [6, 14], "clairvoyant", **given)[0].work
        assert set(work.request[work.stay > 0].tolist()) in evicted


@pytest.mark.parametrize("known", ["none", "predicted"])
def test_nobody_starves_under_a_stream_of_shorter_requests_and_wrong_predictions(known):
    """The long one is predicted longest, and short ones arrive faster than they are served."""
    count = 400
    columns = {"arrivals": [1, *range(0, 25 * count, 25)], "predicted": [2000] + [1] * count}
    weights = {"limit": 2000, "aging": 1.0, "gate": 3.0, "gate_aging": 6.0}
    _, finish = run([300] + [5] * count, [3] + [20] * count, known, 2, **columns, **weights)
    assert finish[0] < max(finish) / 2


S = 10**9


def bursts(seed=0, requests=100):
    draws = stream("tail", seed)
    prompts = np.clip(draws.lognormal(6.5, 1.2, requests), 16, 16_000).astype(int)
    outputs = np.clip(draws.lognormal(5.0, 0.8, requests), 1, 1000).astype(int)
    worker = Worker(128, in_order(AffineCost, 25_000_000, 150_000, 25_000_000, 150_000))
    instance = Instance(Requests(prompts, outputs), (worker,) * 2, "prefill")
    return with_arrivals(instance, "bursts:rate=5,size=40", seed=seed)


def test_a_boost_is_large_for_small_requests_and_nothing_for_large_ones():
    params = GittinsParams(boost_s=20.0, aging=30.0)
    later = [params.later_ns(rank * S) for rank in (0.001, 0.1, 1.0, 10.0, 100.0)]
    assert later == sorted(later)
    assert all(each <= 0 for each in later)
    assert later[0] < -100 * S  # -20 log(20 / 0.03)
    assert later[0] == pytest.approx(20 * S * np.log(1 - np.exp(-0.03 / 20)))
    assert later[-1] == pytest.approx(0, abs=1e-3)


def test_without_a_boost_a_key_grows_with_the_index_as_before():
    params = GittinsParams(aging=30.0)
    assert params.later_ns(2.5) == 75.0
    assert GittinsParams(aging=30.0, ttft_s=1e-9).later_ns(2.5) == 2.0


def test_a_limit_on_ttft_limits_the_boost_too():
    assert GittinsParams(boost_s=20.0, ttft_s=1.0).later_ns(1) == -2 * S
    assert GittinsParams(boost_s=20.0, ttft_s=0.0).later_ns(1) == 0


def test_the_more_decode_the_fewer_prompt_tokens_down_to_a_quarter():
    params = GittinsParams(crowd=16, max_num_batched_tokens=2048)
    found = [params.prompt_tokens(decoding) for decoding in (0, 16, 17, 32, 64, 65, 10_000)]
    assert found == [2048, 2048, 1927, 1024, 512, 512, 512]
    assert GittinsParams().prompt_tokens(10_000) == 2048
    assert GittinsParams(crowd=1, max_num_batched_tokens=1).prompt_tokens(9) == 1


def test_no_step_has_more_prompt_tokens_than_its_crowd_allows():
    seen = []

    def look(view, step):
        if step.tokens:
            decoding = len(view.running) - len(view.prefilling)
            seen.append((decoding, sum(step.tokens)))

    instance = bursts()
    solve(instance, "gittins+crowd=8", observer=look)
    params = GittinsParams(crowd=8.0)
    assert any(tokens < 2048 and decoding > 8 for decoding, tokens in seen)
    assert all(tokens <= params.prompt_tokens(decoding) for decoding, tokens in seen)


@pytest.mark.parametrize("spec", ["boost_s=5", "crowd=8", "boost_s=5+crowd=8+ttft_s=2"])
@pytest.mark.parametrize("information", ["none", "clairvoyant"])
def test_schedules_are_valid_and_the_information_is_what_it_was(spec, information):
    instance = bursts()
    result = solve(instance, f"gittins@{information}+{spec}")
    assert result.checked
    assert result.schedule.information == information


def test_the_boost_serves_early_large_requests_before_late_ones_of_middle_size():
    """One client, busy at first; a long prompt, then shorter ones, which it need not wait for."""
    worker = Worker(1, in_order(AffineCost, 1_000_000, 1_000_000, 1_000_000, 1_000_000))
    arrivals = [each * S // 10 for each in (0, 1, *range(2, 22))]
    requests = Requests([10, 5000, *[1500] * 20], [5000, *[5] * 21], arrival_ns=arrivals)
    instance = Instance(requests, worker, "prefill")
    ends = []
    for spec in ("gittins+aging=1000", "gittins+aging=1000+boost_s=1"):
        schedule = solve(instance, spec).schedule
        ends.append(int(schedule.request_times(instance)["finish_ns"][1]))
    assert ends[1] < ends[0]


every_information = pytest.mark.parametrize("known", KNOWN)
NS = 1e-9


def backlog(seed, workers=1):
    """Requests of all sizes that come faster than they are served."""
    draws = np.random.default_rng(seed)
    prompts, outputs = draws.integers(1, 400, 80), draws.integers(1, 40, 80)
    arrivals = np.sort(draws.integers(0, 9_000, 80))
    requests = Requests(prompts, outputs, arrival_ns=arrivals)
    instance = Instance(requests, (Worker(6, COST),) * workers, "prefill")
    return predict(instance, "noise:sigma=0.5", seed)


def starts(instance, known, **params):
    schedule = solved(instance, "gittins", known, **params)
    return schedule.request_times(instance)["prefill_start_ns"]


def overtaken_by(instance, started):
    """The most by which a request came before one that started earlier, in nanoseconds."""
    arrival = instance.requests.arrival_ns
    order = np.argsort(started, kind="stable")
    earlier = [arrival[started < started[row]].max(initial=0) - arrival[row] for row in order]
    return max(earlier)


@every_information
def test_none_is_overtaken_by_one_that_comes_later_than_the_limit_says(known):
    """With the gate open on one worker only the index overtakes."""
    broken = 0
    for seed in range(12):
        instance = backlog(seed)
        kept = starts(instance, known, gate=1e9, ttft_s=500 * NS)
        assert overtaken_by(instance, kept) <= OVERTAKEN * 500, seed
        broken += overtaken_by(instance, starts(instance, known, gate=1e9)) > OVERTAKEN * 500
    assert broken > 6


@every_information
def test_with_a_limit_of_0_it_is_first_come_first_served(known):
    for seed in range(12):
        for workers in (1, 3):
            instance = backlog(seed, workers)
            assert overtaken_by(instance, starts(instance, known, ttft_s=0.0)) <= 0, seed


def test_who_has_waited_so_long_passes_the_gate():
    """Three decode twenty tokens each; the gate alone would let them end first."""
    never, soon = (
        starts_of(run(*GATE, arrivals=[0, 0, 0, 100], **CLOSED, **limit)[0])[3]
        for limit in ({}, {"ttft_s": 50 * NS})
    )
    # The worker looks again after four rounds of 13 ns.
    assert 50 <= soon - 100 <= 50 + 4 * 13 < never - 100


@every_information
def test_without_a_limit_nothing_changes_and_a_long_one_changes_nothing(known):
    for seed in range(6):
        instance = backlog(seed, workers=2)
        never = starts(instance, known, ttft_s=1e6)
        assert never.tolist() == starts(instance, known).tolist()
