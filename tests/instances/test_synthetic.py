"""Synthetic workloads have the law they state."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orsched.common.errors import InputError
from orsched.instances.synthetic import peers_workload, uniform


def test_peers_workload_has_the_stated_law():
    req = peers_workload(requests=50_000).requests
    assert 66 < req.prompt_tokens.mean() < 70
    assert 335 < req.output_tokens.mean() < 350
    assert (req.prompt_tokens.min(), req.prompt_tokens.max() <= 1024) == (4, True)
    assert (req.output_tokens.min() >= 2, req.output_tokens.max()) == (True, 2048)
    assert abs(np.log(req.prompt_tokens).std() - 0.8) < 0.02
    gaps = np.diff(req.arrival_ns) / 1e9
    assert (gaps >= 0).all()
    assert abs(gaps.mean() - 0.125) < 4 * 0.125 / math.sqrt(len(gaps))
    assert abs(gaps.std() / gaps.mean() - 1) < 0.03


def test_burst_is_the_same_trace_at_time_zero():
    spread, burst = peers_workload(requests=100), peers_workload(requests=100, burst=True)
    assert not burst.requests.arrival_ns.any()
    assert spread.requests.arrival_ns.any()
    np.testing.assert_array_equal(spread.requests.prompt_tokens, burst.requests.prompt_tokens)
    np.testing.assert_array_equal(spread.requests.output_tokens, burst.requests.output_tokens)


def test_rate_scales_time_only():
    slow, fast = peers_workload(requests=50, rate=1.0), peers_workload(requests=50, rate=2.0)
    difference = slow.requests.arrival_ns - 2 * fast.requests.arrival_ns
    assert np.abs(difference).max() <= 1
    np.testing.assert_array_equal(slow.requests.output_tokens, fast.requests.output_tokens)


def test_uniform_covers_its_ranges():
    instance = uniform(5_000, 10, seed=1, prompt_tokens=(3, 7), output_tokens=(2, 4))
    req = instance.requests
    assert set(req.prompt_tokens.tolist()) == {3, 4, 5, 6, 7}
    assert set(req.output_tokens.tolist()) == {2, 3, 4}
    assert not req.arrival_ns.any()
    assert uniform(5_000, 10, seed=1, rate=5.0).requests.arrival_ns.any()
    assert uniform(10, 2, seed=1) == uniform(10, 2, seed=1)
    assert uniform(10, 2, seed=1) != uniform(10, 2, seed=2)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"rate": 0.0}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"prompt_tokens": (5, 4)}, "prompt_tokens"),
        ({"output_tokens": (0, 4)}, "output_tokens"),
        ({"seed": -1}, "seed"),
        ({"requests": 2.5}, "requests"),
    ],
)
def test_wrong_arguments_are_refused(arguments, field):
    with pytest.raises(InputError) as caught:
        uniform(**{"requests": 3, "clients": 2, **arguments})
    assert caught.value.field == field
