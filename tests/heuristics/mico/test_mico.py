"""MICO by hand: dealing, insertion, batches, memory, trade-off; its laws on any instance."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, BlockMemory, InputError, Instance, Requests, Worker, summarise
from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL
from orsched.heuristics.mico import Mico, MicoParams
from orsched.heuristics.mico.worker_scheduler import WorkerQueue
from orsched.papers import mico as mico_setting
from orsched.papers.mico import cache_lengths, kv_lengths, summed
from tests.heuristics.building import require_sound, same, solved, workers_of
from tests.in_order import in_order
from tests.random_instances import random_batching_instance


def rounds_of(time_ns):
    """A cost of rounds alone: a prefill takes no time."""
    return in_order(AffineCost, 0, 0, time_ns, 0)


UNIT = rounds_of(1)  # times count rounds


def problem(prompts, outputs, workers, predicted=None, arrivals=None, limit=100, **fields):
    fields = {"first_token": "decode", **fields}
    predicted = outputs if predicted is None else predicted
    requests = Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted)
    return Instance(requests, tuple(workers), output_limit_tokens=limit, **fields)


def served(instance, information="predicted", **parameters):
    """Schedule of MICO, which the checker accepts, and the steps as the policy gave them."""
    steps = []
    look = lambda view, step: steps.append((view.now_ns, view.index, step))  # noqa: E731
    return solved(instance, Mico(MicoParams(**parameters), information), observer=look), steps


def clouds_of(schedule, count):
    """Requests by the cloud that served them."""
    owners = workers_of(schedule)
    return [sorted(row for row, owner in owners.items() if owner == k) for k in range(count)]


def test_long_answers_are_spread_and_numbers_alone_are_not():
    """Long and short alternate, so that turns put all long answers on one cloud."""
    outputs = [95, 5, 95, 5, 95, 5, 95, 5]
    instance = problem([1] * 8, outputs, [Worker(2, UNIT)] * 2)
    by_number, _ = served(instance, distribution="quantity", backoff=False)
    assert clouds_of(by_number, 2) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert by_number.makespan_ns == 190
    by_length, _ = served(instance, backoff=False)
    assert clouds_of(by_length, 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert by_length.makespan_ns == 5 + 1 + 95  # the prompt is processed beside a round of others


def test_a_finished_request_is_replaced_at_once():
    instance = problem([3] * 4, [4, 1, 2, 1], [Worker(2, UNIT, padding=True)])
    schedule, _ = served(instance, insertion="mixed")
    steps, work = schedule.steps, schedule.work
    # 1 is done in round 1; 2's prompt goes beside round 2; 0 and 2 are done in round 4.
    assert steps.phase.tolist() == [PREFILL, DECODE, MIXED, DECODE, PREFILL, DECODE]
    assert steps.end_ns.tolist() == [0, 1, 2, 4, 4, 5]
    assert not (work.phase == INVALID).any()


def test_batches_are_held_to_their_end():
    instance = problem([3] * 4, [4, 1, 2, 1], [Worker(2, UNIT, padding=True)])
    schedule, _ = served(instance, batching="batch")
    figures = summarise(instance, schedule)
    assert schedule.makespan_ns == 4 + 2
    assert figures["invalid_tokens"] == 3 + 1
    assert figures["prefill_stages"] == 2
    assert figures["mixed_steps"] == 0


def test_a_cloud_that_is_done_takes_waiting_requests():
    """Everything is predicted alike; cloud 0 gets the requests that are long in truth."""
    outputs = [40, 1, 40, 1, 40, 1]
    instance = problem([1] * 6, outputs, [Worker(1, UNIT)] * 2, predicted=[20] * 6)
    alone, _ = served(instance, backoff=False)
    assert clouds_of(alone, 2) == [[0, 2, 4], [1, 3, 5]]
    assert alone.makespan_ns == 120
    helped, _ = served(instance)
    assert clouds_of(helped, 2) == [[0, 4], [1, 2, 3, 5]]  # taken at 3: the one that is next there
    assert helped.makespan_ns == 80


def test_a_slow_cloud_does_not_take_what_the_fast_one_does_sooner():
    instance = problem([1] * 3, [10] * 3, [Worker(1, UNIT), Worker(1, rounds_of(100))])
    schedule, _ = served(instance)
    assert clouds_of(schedule, 2) == [[0, 1, 2], []]
    assert schedule.makespan_ns == 30


@pytest.mark.parametrize(
    ("clients", "round_ns", "expected"),
    [((2, 1), (1, 1), [8, 4]), ((1, 1), (1, 3), [9, 3]), ((2, 1), (2, 1), [6, 6])],
)
def test_shares_follow_clients_and_speed(clients, round_ns, expected):
    clouds = [Worker(j, rounds_of(c)) for j, c in zip(clients, round_ns, strict=True)]
    instance = problem([1] * 12, [9] * 12, clouds)
    for distribution in ("workload", "quantity"):
        for shares, counts in (("power", expected), ("equal", [6, 6])):
            given = {"distribution": distribution, "shares": shares, "backoff": False}
            schedule, _ = served(instance, **given)
            assert [len(each) for each in clouds_of(schedule, 2)] == counts


def test_the_batch_is_as_large_as_memory_allows_by_the_predictions():
    """30 blocks: prompts of 2 and answers of at most 10 (bucket 0) make 2 of 12, not 3."""
    memory = BlockMemory(30, 1, "paged")
    instance = problem([2] * 4, [8] * 4, [Worker(4, UNIT, memory=memory)])
    schedule, _ = served(instance)
    assert summarise(instance, schedule)["batch_size"]["decode"] == 2
    coarse, _ = served(instance, buckets=1)  # at most 100 tokens each: one at a time
    assert summarise(instance, coarse)["batch_size"]["decode"] == 1
    fixed, _ = served(instance, batch_size=1)
    assert fixed.makespan_ns == 32


def test_who_came_last_leaves_when_predictions_were_too_short():
    memory = BlockMemory(30, 1, "paged")
    for padding in (False, True):
        for batching in ("iteration", "batch"):
            worker = Worker(4, UNIT, memory=memory, padding=padding)
            instance = problem([2] * 3, [25] * 3, [worker], predicted=[5] * 3)
            schedule, steps = served(instance, batching=batching)
            assert summarise(instance, schedule)["restarts"] >= 1
            assert next(step.preempt for _, _, step in steps if step.preempt) == [1]


def test_prompts_go_beside_the_round_or_apart_by_what_is_cheaper():
    """Together the larger fixed part counts once (affine): beside costs 5 more, apart 105."""
    cost = in_order(AffineCost, 100, 5, 100, 0)
    instance = problem([1] * 3, [4, 2, 1], [Worker(2, cost)])
    beside, _ = served(instance)
    assert summarise(instance, beside)["mixed_steps"] == 1
    apart, _ = served(instance, insertion="decoupled")
    assert summarise(instance, apart)["mixed_steps"] == 0
    assert beside.makespan_ns < apart.makespan_ns


def test_an_insertion_waits_while_it_costs_more_than_it_gives():
    """A round takes 1 ns, a prefill 50: not while the other request has 9 rounds left."""
    instance = problem([1] * 3, [10, 1, 10], [Worker(2, in_order(AffineCost, 50, 0, 1, 0))])
    eager, steps = served(instance, insertion="decoupled")
    assert [now for now, _, step in steps if step.prefill] == [0, 51]
    waits, steps = served(instance, insertion="decoupled", trade_off=True, buckets=100)
    assert [now for now, _, step in steps if step.prefill] == [0, 60]
    assert eager.makespan_ns == 51 + 50 + 10
    assert waits.makespan_ns == 60 + 50 + 10


def test_the_order_of_a_cloud():
    instance = problem([5, 3, 4], [10, 55, 95], [Worker(1, UNIT)])
    orders = {"arrival": [0, 1, 2], "short_prompt": [1, 2, 0], "long_answer": [2, 1, 0]}
    for order, expected in orders.items():
        _, steps = served(instance, order=order)
        assert [step.prefill[0] for _, _, step in steps if step.prefill] == expected


def test_a_prefill_longer_than_a_step_goes_in_parts():
    """Evicted with 17 tokens yielded, request 1 has more to prefill than the cap of 6."""
    worker = Worker(2, UNIT, prefill_cap_tokens=6, memory=BlockMemory(30, 1, "paged"))
    instance = problem([2] * 2, [25] * 2, [worker], predicted=[5] * 2)
    schedule, steps = served(instance)
    assert summarise(instance, schedule)["restarts"] == 1
    parts = [step.tokens[0] for _, _, step in steps if step.prefill and step.tokens]
    assert sum(parts) > 6
    assert max(parts) <= 6


def test_lengths_are_not_used_without_information():
    instance = problem([1] * 4, [9] * 4, [Worker(1, UNIT)] * 2)
    schedule, _ = served(instance, "none")
    assert clouds_of(schedule, 2) == [[0, 2], [1, 3]]
    for parameters in ({"distribution": "workload"}, {"trade_off": True}, {"order": "long_answer"}):
        with pytest.raises(InputError, match="not known without information"):
            Mico(MicoParams(**parameters), "none")


KEYS = st.tuples(st.integers(0, 3), st.integers(0, 9))


@given(st.lists(st.one_of(st.none(), st.lists(KEYS, min_size=1, max_size=5)), max_size=20))
def test_the_smallest_key_is_next(waves):
    """A wave of keys is put, None takes one out."""
    line, model, number = WorkerQueue(), [], 0
    for wave in waves:
        if wave is None and model:
            expected = model.pop(0)[2]
            assert line.first() == expected
            assert line.pop() == expected
        elif wave is not None:
            keys = [(rank, arrival, number + i) for i, (rank, arrival) in enumerate(wave)]
            number += len(wave)
            line.extend(keys)
            model = sorted(model + keys)
        assert len(line) == len(model)
    assert [line.pop() for _ in model] == [key[2] for key in model]


def schedule_of(prompts, outputs, clients, **parameters):
    worker = Worker(clients, UNIT, padding=True)
    instance = problem(prompts, outputs, [worker], first_token="prefill")
    return instance, served(instance, **parameters)[0]


def test_a_static_batch_grows_from_its_longest_prompt():
    """Prompts of 3 and 5, answers of 4 and 2: length 5, then three rounds, the last two idle."""
    instance, schedule = schedule_of([3, 5], [4, 2], 2, batching="batch")
    runs = list(kv_lengths(schedule, 0, literal=True))
    assert summed(runs) == 5 + 6 + 7 + 8
    assert runs[0] == (5, 1)
    sums, peaks = cache_lengths(instance, schedule)
    assert sums == {"literal": [26], "engine": [26]}
    assert peaks == {"literal": 8, "engine": 8}


def test_an_insertion_lengthens_everybody_and_the_oldest_releases():
    """0 (prompt 3) and 1 (prompt 3, 2 tokens) begin; 2 (prompt 4, 4 tokens) takes 1's place.
    Lengths: 3; 4 after the round in which 1 is done; 8 with the 4 columns of the insertion; 9 after
    a round in which 0 has its 4th token; then 2 alone has 4 + 1 of them: 6 and 7 in two rounds."""
    instance, schedule = schedule_of([3, 3, 4], [4, 2, 4], 2, insertion="mixed")
    literal = list(kv_lengths(schedule, 0, literal=True))
    assert summed(literal) == 3 + 4 + 8 + 9 + 6 + 7
    # As the engine counts, the insertion is a round for the others: 5, not 8.
    assert summed(list(kv_lengths(schedule, 0, literal=False))) == 3 + 4 + 5 + 6 + 6 + 7
    assert cache_lengths(instance, schedule)[1] == {"literal": 9, "engine": 7}


def test_a_decoupled_insertion_pads_nobody():
    """Prefilled on its own while 0 has a cache of 4, and then beside it from the end."""
    _, schedule = schedule_of([3, 3, 4], [4, 2, 4], 2, insertion="decoupled")
    assert summed(list(kv_lengths(schedule, 0, literal=True))) == 3 + 4 + 4 + 5 + 6 + 7


def test_the_literal_insertion_charges_the_whole_padded_batch():
    cost = in_order(mico_setting.InsertionCost, 100, 7, 100, 0)
    assert cost.mixed_ns([4], 2) == 100 + 7 * 4 * 3
    assert cost.mixed_ns([4, 4], 1) == 100 + 7 * 4 * 3


INSTANCES = st.integers(0, 2**32).map(
    lambda seed: random_batching_instance(random.Random(seed), most=25, longest=20)
)
PARAMETERS = st.builds(
    MicoParams, distribution=st.sampled_from([None, "workload", "quantity"]),
    batching=st.sampled_from(["iteration", "batch"]), buckets=st.integers(1, 10),
    longest_tokens=st.sampled_from([None, 5, 100]), shares=st.sampled_from(["power", "equal"]),
    backoff=st.booleans(), batch_size=st.sampled_from([None, 1, 3]),
    order=st.sampled_from(["arrival", "random", "short_prompt", "long_answer"]),
    insertion=st.sampled_from(["mixed", "decoupled", "cheaper"]), trade_off=st.booleans(),
)  # fmt: skip


@given(INSTANCES, PARAMETERS)
def test_schedules_are_accepted_come_again_and_do_not_show_true_lengths(instance, params):
    require_sound(instance, lambda case: Mico(params))
    policy = Mico(params)
    solved(instance, policy)
    assert policy.waiting() == 0
    assert policy.distributor.loads == [0] * len(instance.workers)
    assert all(not cloud.batch.expected and not cloud.middles for cloud in policy.clouds)
    assert all(cloud.batch.expected_blocks == 0 for cloud in policy.clouds)


@pytest.mark.parametrize("batching", ["iteration", "batch"])
@given(instance=INSTANCES)
def test_without_information_predictions_make_no_difference(instance, batching):
    bare = instance.replace(requests=instance.requests.replace(predicted_tokens=None))
    params = MicoParams(batching=batching)
    assert same(*(solved(case, Mico(params, "none")) for case in (instance, bare)))


@given(INSTANCES, st.integers(1, 5))
def test_only_the_bucket_of_a_prediction_counts(instance, buckets):
    requests, limit = instance.requests, instance.output_limit_tokens
    label = np.minimum(requests.predicted_tokens * buckets // limit, buckets - 1)
    least = np.maximum(1, -(-label * limit // buckets))
    coarse = instance.replace(requests=requests.replace(predicted_tokens=least))
    params = MicoParams(buckets=buckets, trade_off=True)
    assert same(*(solved(case, Mico(params)) for case in (instance, coarse)))
