from __future__ import annotations

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.costs import PoolingCost
from tests.in_order import in_order

COST = PoolingCost.from_ms(alpha=2e-6, beta=0.1, c=18.5, gamma=0.003, delta=0.011, lambda_=1.2)


def test_by_hand() -> None:
    # 2e-6 * 1000^2 + 0.1 * 1000 = 102 ms; 100 tokens take 10.02 ms, below the floor of 18.5 ms
    assert COST.prefill_ns([1000]) == 102_000_000
    assert COST.prefill_ns([100]) == 18_500_000
    assert COST.prefill_ns([1000, 100]) == 120_500_000
    # contexts 300, 600, 900: 0.003 * 900 + 0.011 * 600 = 2.7 + 6.6 ms
    assert COST.round_ns(3, 1800, 900) == 9_300_000
    # both pools grow by one token a round: 0.014 ms
    assert COST.rounds_ns(10, 3, 1800, 900) == 93_000_000 + 14_000 * 45


def test_the_floor_meets_the_parabola() -> None:
    below, above = 184, 185  # 2e-6 l^2 + 0.1 l = 18.5 at l = 184.3
    assert COST.prefill_ns([below]) == COST.prefill_ns([1]) == 18_500_000
    assert COST.prefill_ns([above]) == 18_568_450


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.lists(st.integers(1, 999), min_size=1))
def test_a_round_is_the_rounded_fraction(gamma: int, delta: int, lengths: list[int]) -> None:
    cost = in_order(PoolingCost, 0, 0, 0, gamma, delta)
    exact = gamma * max(lengths) + delta * Fraction(sum(lengths), len(lengths))
    expected = floor(exact / 10**6 + Fraction(1, 2))
    assert cost.round_ns(len(lengths), sum(lengths), max(lengths)) == expected


def test_a_mixed_step() -> None:
    # 102 ms of prefill beside 9.3 ms of decode: 1.2 * 102 - 0.2 * 9.3 ms
    assert COST.mixed_ns([1000], 3, 1800, 900) == 120_540_000
    assert COST.mixed_ns([], 3, 1800, 900) == COST.round_ns(3, 1800, 900)
    assert COST.mixed_ns([1000], 0, 0, 0) == COST.prefill_ns([1000])
    assert COST.scaled(7).mixed_ns([1000], 3, 1800, 900) == 7 * 120_540_000


@given(st.integers(-(10**6), 3 * 10**6), st.lists(st.integers(1, 3000), min_size=1, max_size=3))
def test_lambda_is_not_clipped(lambda_ppm: int, prompts: list[int]) -> None:
    cost = in_order(PoolingCost, 2_000_000, 10**11, 185 * 10**11, 3 * 10**9, 11 * 10**9, lambda_ppm)
    prefill, decode = cost.prefill_ns(prompts), cost.round_ns(3, 180_000, 90_000)
    larger, smaller = max(prefill, decode), min(prefill, decode)
    exact = Fraction(lambda_ppm, 10**6) * larger + (1 - Fraction(lambda_ppm, 10**6)) * smaller
    if exact < 0:
        with pytest.raises(InputError, match="lambda_ppm"):
            cost.mixed_ns(prompts, 3, 180_000, 90_000)
        return
    mixed = cost.mixed_ns(prompts, 3, 180_000, 90_000)
    assert mixed == floor(exact + Fraction(1, 2))  # both parts are whole nanoseconds here
    assert (mixed > larger) <= (lambda_ppm > 10**6)
    assert (mixed < smaller) <= (lambda_ppm < 0)


def test_negative_coefficients_are_reported() -> None:
    assert COST.warnings() == ()
    doubtful = in_order(PoolingCost, -1, 0, 0, -1, 0, -1).warnings()
    assert [text.split()[2] for text in doubtful] == ["alpha_fs", "gamma_fs", "lambda_ppm"]


def test_a_negative_duration_is_an_input_error() -> None:
    cost = in_order(PoolingCost, -5, 0, 0, -3_000_000, 2_000_000)
    assert cost.prefill_ns([100]) == 0  # the maximum with c keeps it at 0
    with pytest.raises(InputError, match="gamma_fs=-3000000"):
        cost.round_ns(2, 10, 5)
    # contexts 1 and 5 of mean 3 with gamma = -1, delta = 2: 6 - 5 ns, one more each round
    growing = in_order(PoolingCost, 0, 0, 0, -1_000_000, 2_000_000)
    assert growing.rounds_ns(3, 2, 6, 5) == 1 + 2 + 3
    falling = in_order(PoolingCost, 0, 0, 0, -2_000_000, 1_500_000)
    assert falling.round_ns(1, 0, 0) == 0
    with pytest.raises(InputError, match="at context 1 "):
        falling.rounds_ns(2, 1, 0, 0)


def test_a_round_needs_an_active_request() -> None:
    with pytest.raises(InputError, match="without an active request"):
        COST.round_ns(0, 0, 0)
    assert COST.rounds_ns(0, 0, 0, 0) == 0


@pytest.mark.parametrize("name", ["alpha", "beta", "c", "gamma", "delta", "lambda_"])
@pytest.mark.parametrize("wrong", [None, True, float("nan"), float("inf"), 1e300])
def test_from_ms_names_the_wrong_coefficient(name: str, wrong: object) -> None:
    values = {"alpha": 0, "beta": 0, "c": 0, "gamma": 0, "delta": 0, name: wrong}
    with pytest.raises(InputError) as caught:
        PoolingCost.from_ms(**values)  # type: ignore[arg-type]
    assert caught.value.field is not None
    assert caught.value.field.startswith(name.rstrip("_"))
