"""``boost_s`` and ``crowd``: the order of the keys, the prompt tokens of a step, their limits."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched import AffineCost, Requests, Worker
from orsched.checker import check
from orsched.common.errors import InputError
from orsched.heuristics.gittins.params import GittinsParams
from orsched.instances import with_arrivals
from orsched.instances.streams import stream
from tests.in_order import in_order

S = 10**9


def bursts(seed=0, requests=300):
    draws = stream("tail", seed)
    prompts = np.clip(draws.lognormal(6.5, 1.2, requests), 16, 16_000).astype(int)
    outputs = np.clip(draws.lognormal(5.0, 0.8, requests), 1, 1000).astype(int)
    worker = Worker(128, in_order(AffineCost, 25_000_000, 150_000, 25_000_000, 150_000))
    instance = orsched.Instance(Requests(prompts, outputs), (worker,) * 2, "prefill")
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
    orsched.solve(instance, "gittins+crowd=8", observer=look)
    params = GittinsParams(crowd=8.0)
    assert any(tokens < 2048 and decoding > 8 for decoding, tokens in seen)
    assert all(tokens <= params.prompt_tokens(decoding) for decoding, tokens in seen)


@pytest.mark.parametrize("spec", ["boost_s=5", "crowd=8", "boost_s=5+crowd=8+ttft_s=2"])
@pytest.mark.parametrize("information", ["none", "clairvoyant"])
def test_schedules_are_valid_and_the_information_is_what_it_was(spec, information):
    instance = bursts()
    schedule = orsched.solve(instance, f"gittins@{information}+{spec}").schedule
    assert not check(instance, schedule)
    assert schedule.information == information


def test_the_boost_serves_early_large_requests_before_late_ones_of_middle_size():
    """One client, busy at first; a long prompt, then shorter ones, which it need not wait for."""
    worker = Worker(1, in_order(AffineCost, 1_000_000, 1_000_000, 1_000_000, 1_000_000))
    prompts = [10, 5000, *[1500] * 20]
    arrivals = [0, 1, *range(2, 22)]
    instance = orsched.Instance(
        Requests(prompts, [5000, *[5] * 21], arrival_ns=[a * S // 10 for a in arrivals]),
        worker,
        "prefill",
    )
    ends = {}
    for spec in ("gittins+aging=1000", "gittins+aging=1000+boost_s=1"):
        schedule = orsched.solve(instance, spec).schedule
        ends[spec] = int(schedule.request_times(instance)["finish_ns"][1])
    plain, boosted = ends.values()
    assert boosted < plain


@pytest.mark.parametrize("name", ["boost_s", "crowd"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "x", True, 1e10])
def test_values_that_are_no_positive_numbers_are_refused_with_their_name(name, value):
    with pytest.raises(InputError) as error:
        GittinsParams(**{name: value})
    assert error.value.field == name
