"""MICO on random instances: valid, complete, deterministic, blind to what it may not see."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.heuristics.mico import Mico, MicoParams
from tests.heuristics.building import require_sound, same, solved
from tests.random_instances import random_batching_instance

INSTANCES = st.integers(0, 2**32).map(
    lambda seed: random_batching_instance(random.Random(seed), most=25, longest=20)
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
