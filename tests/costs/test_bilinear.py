from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.costs import AffineCost, BilinearCost
from tests.in_order import in_order

COST = BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), (0.00003, 0.08, 0.001, 25.0))


def test_by_hand() -> None:
    # 8 prompts padded to 512: 0.05*8*512 + 8 + 0.02*512 + 20 = 204.8 + 8 + 10.24 + 20 ms
    assert COST.prefill_ns([512] + [10] * 7) == 243_040_000
    # 8 requests at 600: 0.00003*8*600 + 0.64 + 0.6 + 25 = 0.144 + 26.24 ms
    assert COST.round_ns(8, 0, 600) == 26_384_000
    # SCLS eq. (2): the sum over l = 601..700 of the rounds, 0.00124 ms a token more each time
    assert COST.rounds_ns(100, 8, 0, 600) == 100 * 26_384_000 + 1240 * (99 * 100 // 2)


def test_only_the_longest_counts() -> None:
    assert COST.prefill_ns([512, 1]) == COST.prefill_ns([512, 512])
    assert COST.round_ns(8, 1, 600) == COST.round_ns(8, 4800, 600)


def test_each_round_is_rounded_once_half_up() -> None:
    half = in_order(BilinearCost, 0, 0, 0, 0, 0, 0, 500_000, 0)  # half a nanosecond a token
    assert [half.round_ns(1, 0, tokens) for tokens in range(5)] == [0, 1, 1, 2, 2]
    assert half.rounds_ns(4, 1, 0, 1) == 1 + 1 + 2 + 2
    assert half.scaled(10).rounds_ns(4, 1, 0, 1) == 60


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 500))
def test_without_contexts_it_is_the_affine_round(fixed: int, client: int, active: int) -> None:
    cost = in_order(BilinearCost, 0, 0, 0, 0, 0, client * 10**6, 0, fixed * 10**6)
    assert cost.round_ns(active, 0, 77) == in_order(AffineCost, 0, 0, fixed, client).round_ns(
        active
    )


def test_negative_coefficients_are_reported() -> None:
    assert COST.warnings() == ()
    cost = BilinearCost.from_ms((0.05, 1, -0.02, 20), (0, 0.08, 0, -1))
    assert ["p3_fs" in text or "d4_fs" in text for text in cost.warnings()] == [True, True]


def test_a_negative_duration_is_an_input_error() -> None:
    cost = in_order(BilinearCost, 1, 0, 0, -10, 0, 0, -2_000_000, 10_000_000)
    assert cost.prefill_ns([10]) == 0
    with pytest.raises(InputError, match=r"p4_fs=-10"):
        cost.prefill_ns([9])
    assert cost.round_ns(1, 0, 5) == 0
    with pytest.raises(InputError, match=r"d3_fs=-2000000"):
        cost.round_ns(1, 0, 6)
    assert cost.rounds_ns(5, 1, 0, 1) == 8 + 6 + 4 + 2 + 0
    with pytest.raises(InputError, match="context 1 to 6"):
        cost.rounds_ns(6, 1, 0, 1)
    with pytest.raises(InputError, match="context 7 to 7"):
        cost.rounds_ns(1, 1, 0, 7)


@pytest.mark.parametrize("wrong", [(1, 2, 3), (1, 2, 3, 4, 5), None, "abcd"])
def test_from_ms_needs_four_coefficients(wrong: object) -> None:
    with pytest.raises(InputError) as caught:
        BilinearCost.from_ms((1, 2, 3, 4), wrong)  # type: ignore[arg-type]
    assert caught.value.field in ("d", "d1_fs")


def test_from_ms_rounds_to_femtoseconds() -> None:
    cost = BilinearCost.from_ms((0.13, 0, 0, 25), (0, 0.21, 0, 29))
    assert (cost.p1_fs, cost.p4_fs) == (130_000_000_000, 25 * 10**12)
    assert (cost.d2_fs, cost.d4_fs) == (210_000_000_000, 29 * 10**12)
    assert cost.round_ns(200, 0, 0) == 71_000_000
