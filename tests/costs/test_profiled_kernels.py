"""Kernel times to a profiled cost model: sums by hand, and what is refused."""

from __future__ import annotations

import pytest

from orsched.common.errors import InputError
from orsched.costs.profiled_kernels import from_kernels

DENSE = [
    ("embedding", 1, 1000),
    ("embedding", 9, 2000),
    ("mlp", 1, 10_000),
    ("mlp", 9, 90_400),
]
ATTENTION = [
    (4, 0, 0, 0, 5000),
    (4, 8, 0, 0, 7000),
    (0, 0, 1, 16, 3000),
    (0, 0, 2, 16, 4000),
    (4, 0, 1, 16, 8600),
    (4, 0, 2, 16, 4900),
    (4, 8, 1, 16, 99_000),  # beside a cached prefix: in no table
]
TIMES = {"embedding": 1, "mlp": 3}


def build(dense=DENSE, attention=ATTENTION, times=TIMES, **options):
    return from_kernels(dense, attention, times_a_step=times, layers=3, **options)


def test_kernels_of_a_step_add_up():
    cost = build(fixed_ns=500)
    assert cost.fixed_ns == 500
    assert cost.dense.axes == ((1, 9),)
    assert cost.dense.times_ns == (1 + 3 * 10, 273)  # 273.2 ns
    assert cost.prefill.axes == ((4,), (0, 8))
    assert cost.prefill.times_ns == (15, 21)
    assert cost.decode.axes == ((0, 4), (1, 2), (16,))
    # Beside 4 tokens: (8.6 - 5) x 3 = 10.8; the second is faster than the tokens alone, so 0.
    assert cost.decode.times_ns == (9, 12, 11, 0)


def test_order_of_rows_plays_no_part():
    assert build(DENSE[::-1], ATTENTION[::-1]) == build()


def test_what_is_done_once_a_sequence_is_a_table_of_its_own():
    times = {**TIMES, "lm_head": 1, "sampler": 2}
    rows = [("lm_head", 1, 4000), ("lm_head", 8, 11_000), ("sampler", 8, 2000)]
    cost = build(times=times, per_sequence=rows)
    assert cost.per_sequence.axes == ((1, 8),)
    assert cost.per_sequence.times_ns == (4 + 2 * 2, 11 + 2 * 2)
    plain = build()
    # Two chunks beside a round of two requests are four sequences: 8 + 7 x 3 / 7.
    assert cost.mixed_ns([4, 4], 2, 32, 16) == plain.mixed_ns([4, 4], 2, 32, 16) + 11
    assert cost.prefill_ns([4, 4]) == plain.prefill_ns([4, 4]) + 9
    assert cost.rounds_ns(3, 2, 32, 16) == plain.rounds_ns(3, 2, 32, 16) + 3 * 9
    assert type(cost).from_dict(cost.to_dict()) == cost
    assert "per_sequence" not in plain.to_dict()


def test_missing_combinations_are_no_reason_to_refuse():
    rows = [*ATTENTION, (8, 0, 0, 0, 9000), (8, 0, 2, 32, 12_000), (0, 0, 2, 32, 7000)]
    cost = build(attention=rows)
    assert cost.prefill.axes == ((4, 8), (0, 8))
    # Nothing was measured with 8 cached before 8 tokens: as its row has one time, that time,
    # and no less than (4, 8), which is 21.
    assert (cost.prefill.filled, cost.prefill.times_ns) == (1, (15, 21, 27, 27))
    assert cost.decode.axes == ((0, 4, 8), (1, 2), (16, 32))
    assert cost.decode.filled == 12 - 6


def test_a_round_is_what_it_adds_to_the_prompts_measured_beside_it():
    """Where a profile has no round beside prompts with nothing cached, the least cached counts."""
    rows = [row for row in ATTENTION if row[:3] != (4, 0, 1)]
    rows[-1] = (4, 8, 1, 16, 9500)
    cost = build(attention=rows)
    # Beside 4 tokens, of which 8 are cached before: (9.5 - 7) x 3 = 7.5, rounded up.
    assert cost.decode.times_ns == (9, 12, 8, 0)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dense": [*DENSE, ("lm_head", 1, 1)]}, "layer"),
        ({"dense": [*DENSE, DENSE[0]]}, "layer"),
        ({"dense": DENSE[:2]}, "layer"),
        ({"dense": []}, "layer"),
        ({"attention": [*ATTENTION, ATTENTION[0]]}, "prefill_chunk"),
        ({"attention": ATTENTION[2:]}, "prefill"),
        ({"attention": ATTENTION[:2]}, "decode"),
        ({"per_sequence": [("lm_head", 1, 5)]}, "layer"),
        ({"fixed_ns": -1}, "fixed_ns"),
        ({"dense": [("mlp", 1, -10_000), ("embedding", 1, 5)]}, "time_ns"),
    ],
)
def test_what_is_refused(changes, field):
    with pytest.raises(InputError) as caught:
        build(**changes)
    assert caught.value.field == field
