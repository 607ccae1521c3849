"""MICO on random instances: valid, complete, deterministic, blind to what it may not see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, BilinearCost, BlockMemory, Instance, Requests, Worker
from orsched.heuristics.mico import Mico, MicoParams
from tests.heuristics.building import require_sound, same, solved
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
    tens = [st.integers(0, most) for most in (50, 5, 50, 5)]
    affine = st.builds(in_order, st.just(AffineCost), *tens)
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
    arrival = st.one_of(st.just(0), st.integers(0, 3000))
    row = st.tuples(st.integers(1, 30), LENGTHS, arrival, LENGTHS)
    rows = draw(st.lists(row, min_size=1, max_size=25))
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


@given(instances(), PARAMETERS)
def test_schedules_are_accepted_come_again_and_do_not_show_true_lengths(instance, params):
    require_sound(instance, lambda case: Mico(params))
    policy = Mico(params)
    solved(instance, policy)
    assert policy.waiting() == 0
    assert policy.distributor.loads == [0] * len(instance.workers)
    assert all(not cloud.batch.expected and not cloud.middles for cloud in policy.clouds)
    assert all(cloud.batch.expected_blocks == 0 for cloud in policy.clouds)


@pytest.mark.parametrize("batching", ["iteration", "batch"])
@given(instance=instances())
def test_without_information_predictions_make_no_difference(instance, batching):
    bare = instance.replace(requests=instance.requests.replace(predicted_tokens=None))
    params = MicoParams(batching=batching)
    assert same(*(solved(case, Mico(params, "none")) for case in (instance, bare)))


@given(instances(), st.integers(1, 5))
def test_only_the_bucket_of_a_prediction_counts(instance, buckets):
    requests = instance.requests
    label = np.minimum(requests.predicted_tokens * buckets // LIMIT, buckets - 1)
    least = np.maximum(1, -(-label * LIMIT // buckets))
    coarse = instance.replace(requests=requests.replace(predicted_tokens=least))
    params = MicoParams(buckets=buckets, trade_off=True)
    assert same(*(solved(case, Mico(params)) for case in (instance, coarse)))
