"""MICO on random instances: valid, complete, deterministic, blind to what it may not see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, BilinearCost, BlockMemory, Instance, Requests, Worker, check
from orsched.heuristics.mico import Mico, MicoParams
from orsched.simulator import simulate_policy
from tests.in_order import in_order

LIMIT = 20
LENGTHS = st.integers(1, LIMIT)


@st.composite
def memories(draw):
    size = draw(st.sampled_from([1, 4, 16]))
    blocks = -(-50 // size) * draw(st.integers(1, 3))
    return BlockMemory(blocks, size, draw(st.sampled_from(["paged", "whole"])))


@st.composite
def workers(draw):
    affine = st.builds(
        in_order,
        st.just(AffineCost),
        st.integers(0, 50),
        st.integers(0, 5),
        st.integers(0, 50),
        st.integers(0, 5),
    )
    bilinear = st.builds(in_order, st.just(BilinearCost), *[st.integers(0, 10**7)] * 8)
    return Worker(
        draw(st.integers(1, 5)),
        draw(st.one_of(affine, bilinear)),
        draw(st.sampled_from([None, 30, 60])),
        draw(st.one_of(st.none(), memories())),
        padding=draw(st.booleans()),
    )


@st.composite
def instances(draw):
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(1, 30), LENGTHS, st.one_of(st.just(0), st.integers(0, 3000)), LENGTHS
            ),
            min_size=1,
            max_size=25,
        )
    )
    prompts, outputs, arrivals, predicted = zip(*rows, strict=True)
    return Instance(
        Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted),
        tuple(draw(st.lists(workers(), min_size=1, max_size=4))),
        first_token=draw(st.sampled_from(["decode", "prefill"])),
        output_limit_tokens=LIMIT,
    )


PARAMETERS = st.builds(
    MicoParams,
    distribution=st.sampled_from([None, "workload", "quantity"]),
    batching=st.sampled_from(["iteration", "batch"]),
    buckets=st.integers(1, 10),
    longest_tokens=st.sampled_from([None, 5, 100]),
    shares=st.sampled_from(["power", "equal"]),
    backoff=st.booleans(),
    batch_size=st.sampled_from([None, 1, 3]),
    order=st.sampled_from(["arrival", "random", "short_prompt", "long_answer"]),
    insertion=st.sampled_from(["mixed", "decoupled", "cheaper"]),
    trade_off=st.booleans(),
)


def same(one, other):
    """Whether two schedules agree in every row."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b, names in (
            (one.steps, other.steps, ("worker", "phase", "start_ns", "end_ns", "rounds")),
            (one.work, other.work, ("request", "client", "phase", "first_step", "last_step")),
        )
        for name in names
    )


@given(instances(), PARAMETERS)
def test_the_checker_accepts_and_a_second_run_is_the_same(instance, params):
    policy = Mico(params)
    schedule = simulate_policy(instance, policy).schedule
    assert check(instance, schedule) == []
    assert policy.waiting() == 0
    assert policy.distributor.loads == [0] * len(instance.workers)
    assert all(not cloud.batch.expected and not cloud.middles for cloud in policy.clouds)
    assert all(cloud.batch.expected_blocks == 0 for cloud in policy.clouds)
    assert same(schedule, simulate_policy(instance, Mico(params)).schedule)


@pytest.mark.parametrize("batching", ["iteration", "batch"])
@given(instance=instances())
def test_without_information_predictions_make_no_difference(instance, batching):
    params = MicoParams(batching=batching)
    schedule = simulate_policy(instance, Mico(params, "none")).schedule
    assert check(instance, schedule) == []
    bare = instance.replace(requests=instance.requests.replace(predicted_tokens=None))
    assert same(schedule, simulate_policy(bare, Mico(params, "none")).schedule)


@given(instances(), st.integers(1, 5))
def test_only_the_bucket_of_a_prediction_counts(instance, buckets):
    requests = instance.requests
    label = np.minimum(requests.predicted_tokens * buckets // LIMIT, buckets - 1)
    least = np.maximum(1, -(-label * LIMIT // buckets))
    coarse = instance.replace(requests=requests.replace(predicted_tokens=least))
    params = MicoParams(buckets=buckets, trade_off=True)
    one, other = (simulate_policy(each, Mico(params)).schedule for each in (instance, coarse))
    assert same(one, other)


@given(instances())
def test_true_lengths_show_in_no_decision_before_a_finish(instance):
    """With all outputs at the limit, the steps up to the first finish are the same."""
    requests = instance.requests
    longest = requests.replace(output_tokens=np.full(len(instance), LIMIT))
    found = []
    for each in (requests, longest):
        steps, done = [], []

        class Watched(Mico):
            def on_finish(self, view, request, client, done=done):
                done.append(request)
                super().on_finish(view, request, client)

        def watch(view, step, steps=steps, done=done):
            if not done:
                steps.append((view.index, view.now_ns, step))

        simulate_policy(instance.replace(requests=each), Watched(), watch)
        found.append(steps)
    shorter = min(map(len, found))
    assert shorter
    assert found[0][:shorter] == found[1][:shorter]
