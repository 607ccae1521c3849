from __future__ import annotations

import pytest

from orsched.common.errors import InputError
from orsched.costs import CostModel, LevelsCost

LEVELS = ((512, 91_560_000), (2048, 291_240_000), (5000, 675_000_000))


def test_a_stage_takes_the_time_of_the_smallest_level_that_holds_it() -> None:
    cost = LevelsCost(levels=LEVELS, round_fixed_ns=71_000_000)
    expected = [(1, 0), (512, 0), (513, 1), (2048, 1), (2049, 2), (5000, 2)]
    for tokens, level in expected:
        assert cost.prefill_ns([tokens]) == LEVELS[level][1]
    assert cost.prefill_ns([2000, 48]) == LEVELS[1][1]
    assert cost.prefill_ns([2000, 49]) == LEVELS[2][1]
    assert cost.prefill_limit == 5000
    assert isinstance(cost, CostModel)


def test_more_tokens_never_take_less_time() -> None:
    cost = LevelsCost(levels=LEVELS, round_fixed_ns=71_000_000)
    times = [cost.prefill_ns([tokens]) for tokens in range(1, 5001)]
    assert times == sorted(times)
    assert set(times) == {time for _, time in LEVELS}


def test_over_the_largest_level_is_an_input_error() -> None:
    with pytest.raises(InputError, match="5001 tokens is over the largest level, 5000"):
        LevelsCost(levels=LEVELS, round_fixed_ns=71_000_000).prefill_ns([5000, 1])


def test_a_round_is_constant() -> None:
    cost = LevelsCost(levels=LEVELS, round_fixed_ns=71_000_000)
    assert cost.round_ns(200) == cost.round_ns(1, 7, 7) == 71_000_000
    assert cost.rounds_ns(10**9, 200) == 10**9 * cost.round_ns(200)
    assert cost.rounds_ns(0, 200) == 0


@pytest.mark.parametrize(
    ("levels", "row"),
    [
        ([], None),
        ({}, None),
        (None, None),
        ("levels", None),
        ([[5, 1], 7], 1),
        ([[5, 1], [7]], 1),
        ([[0, 1]], 0),
        ([[-1, 1]], 0),
        ([[5, -1]], 0),
        ([[5, 1.5]], 0),
        ([[5, None]], 0),
        ([[True, 1]], 0),
        ([["5", 1]], 0),
        ([[5, float("nan")]], 0),
        ([[5, 2**62 + 1]], 0),
        ([[5, 1], [5, 2]], 1),
        ([[5, 1], [4, 2]], 1),
        ([[5, 3], [9, 2]], 1),
    ],
)
def test_malformed_levels(levels: object, row: int | None) -> None:
    with pytest.raises(InputError) as caught:
        LevelsCost.from_dict({"levels": levels, "round_fixed_ns": 1})
    assert (caught.value.field, caught.value.row) == ("levels", row)
