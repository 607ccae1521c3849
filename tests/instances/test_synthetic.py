"""Workloads by a law: GSM8K's real prompts with generated outputs, peers, uniform lengths."""

import hashlib
import math

import numpy as np
import pytest

from orsched import AffineCost, BlockMemory
from orsched.instances import synthetic
from orsched.instances.catalog import load_named
from orsched.instances.predictions import Noise, predict
from orsched.instances.synthetic import gsm8k, pang_case, peers_workload, prompt_tokens, uniform
from tests.refusals import refusal


def _digest(column):
    return hashlib.sha256(np.ascontiguousarray(column, dtype="<i8").tobytes()).hexdigest()[:16]


def test_prompts_are_those_of_the_paper():
    prompts = prompt_tokens()
    assert len(prompts) == 1319
    assert round(prompts.mean(), 2) == 68.43
    assert round(prompts.std(), 2) == 25.04
    assert (prompts.min(), prompts.max(), (prompts > 128).sum()) == (24, 191, 37)


def test_outputs_have_the_stated_moments():
    lengths = synthetic.output_tokens(200_000, seed=5)
    standard_error = 188 / math.sqrt(len(lengths))
    assert abs(lengths.mean() - 344.83) < 4 * standard_error
    assert abs(lengths.std() - 187.99) < 1.0
    assert abs((lengths == 512).mean() - 0.538) < 4 * math.sqrt(0.25 / len(lengths))
    assert lengths.min() >= 8
    below = lengths[lengths < 512]
    assert abs(below.mean() - 150) < 1.5


def test_shipped_lengths_are_pinned():
    """A change of numpy's streams shows here; the tests around it say what must still hold."""
    main, small = load_named("gsm8k-llama65b").requests, load_named("pang-100x20").requests
    assert _digest(main.output_tokens) == "9fc9ecc1d7d7d18b"
    assert _digest(main.predicted_tokens) == "84ffdf91d9f5fd3a"
    assert _digest(small.output_tokens) == "3fda93b8d883021e"
    assert _digest(pang_case(0).requests.prompt_tokens) == "a877791a298792f3"


def test_shipped_instances_are_what_they_say():
    main, small = load_named("gsm8k-llama65b"), load_named("pang-100x20")
    assert (len(main), main.worker.clients) == (1319, 200)
    assert (len(small), small.worker.clients) == (100, 20)
    for instance in (main, small):
        assert instance.worker.cost == AffineCost()
        assert instance.worker.memory == BlockMemory(1024, 128, "whole")
        assert instance.worker.prefill_cap_tokens == 2048
        assert instance.first_token == "decode"
        assert instance.output_limit_tokens == 512
        assert "grade-school-math" in instance.source
        assert "MIT" in instance.licence
    assert abs(main.requests.output_tokens.mean() - 344.83) < 3 * 5.2
    assert abs(main.requests.output_tokens.std() - 187.99) < 6
    np.testing.assert_array_equal(small.requests.prompt_tokens, main.requests.prompt_tokens[:100])
    np.testing.assert_array_equal(small.requests.output_tokens, main.requests.output_tokens[:100])


def test_a_seed_gives_the_same_instance_and_another_seed_another():
    assert gsm8k(3) == gsm8k(3)
    assert gsm8k(3).sha256 != gsm8k(4).sha256
    assert pang_case(3) == pang_case(3)
    assert pang_case(3).sha256 != gsm8k(3).sha256
    assert len(gsm8k(requests=0)) == 0


def test_streams_do_not_shift_each_other():
    plain = gsm8k(1, prediction_sigma=None)
    assert plain.requests.predicted_tokens is None
    np.testing.assert_array_equal(plain.requests.output_tokens, gsm8k(1).requests.output_tokens)
    longer = gsm8k(1, requests=3000).requests
    np.testing.assert_array_equal(longer.output_tokens[:1319], plain.requests.output_tokens)
    np.testing.assert_array_equal(longer.prompt_tokens[:1319], prompt_tokens())
    assert set(longer.prompt_tokens.tolist()) <= set(prompt_tokens().tolist())


def test_case_prompts_are_resampled_from_the_real_ones():
    prompts = np.concatenate([pang_case(c).requests.prompt_tokens for c in range(30)])
    assert set(prompts.tolist()) <= set(prompt_tokens().tolist())
    assert abs(prompts.mean() - 68.43) < 4 * 25.04 / math.sqrt(len(prompts))
    assert abs(prompts.std() - 25.04) < 0.5


def test_predictions_are_exact_at_sigma_zero_and_bounded_otherwise():
    instance = gsm8k(0, prediction_sigma=None)
    truth = instance.requests.output_tokens
    np.testing.assert_array_equal(predict(instance, Noise(0.0), 9).requests.predicted_tokens, truth)
    wild = predict(instance, Noise(50.0), 9).requests.predicted_tokens
    assert wild.min() == 1
    assert wild.max() == 512
    noisy = predict(instance, Noise(0.3), 9).requests.predicted_tokens
    free = (noisy < 512) & (noisy > 1) & (truth < 512) & (truth > 50)
    error = np.log(noisy[free] / truth[free])
    assert abs(error.std() - 0.3) < 0.05
    assert abs(error.mean()) < 0.05

    instance = gsm8k(2, prediction_sigma=0.5)  # it carries the predictions of its seed
    again = predict(gsm8k(2, prediction_sigma=None), Noise(0.5), 2)
    assert instance.requests == again.requests


@pytest.mark.parametrize(("make", "arguments", "field"), [
    (gsm8k, {"seed": -1}, "seed"), (gsm8k, {"seed": 1.5}, "seed"),
    (gsm8k, {"requests": -1}, "requests"), (gsm8k, {"clients": 0}, "clients"),
    (gsm8k, {"prediction_sigma": -0.1}, "sigma"), (gsm8k, {"prediction_sigma": math.nan}, "sigma"),
    (gsm8k, {"first_token": "never"}, "first_token"), (uniform, {"rate": 0.0}, "rate"),
    (uniform, {"rate": math.nan}, "rate"),
    (uniform, {"prompt_tokens": (5, 4)}, "prompt_tokens"),
    (uniform, {"output_tokens": (0, 4)}, "output_tokens"),
    (uniform, {"seed": -1}, "seed"), (uniform, {"requests": 2.5}, "requests"),
])  # fmt: skip
def test_wrong_arguments_are_refused(make, arguments, field):
    assert refusal(make, **{"requests": 3, "clients": 2, **arguments}).field == field


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


def test_burst_and_rate_change_times_only():
    spread, burst = peers_workload(requests=100), peers_workload(requests=100, burst=True)
    assert not burst.requests.arrival_ns.any()
    assert spread.requests.arrival_ns.any()
    np.testing.assert_array_equal(spread.requests.prompt_tokens, burst.requests.prompt_tokens)
    np.testing.assert_array_equal(spread.requests.output_tokens, burst.requests.output_tokens)
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
