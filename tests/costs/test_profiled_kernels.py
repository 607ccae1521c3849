"""Kernel times to a profiled cost model: sums by hand, and what is refused."""

from __future__ import annotations

import pytest

from orsched.costs.profiled_kernels import from_kernels
from orsched.errors import InputError

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


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dense": [*DENSE, ("lm_head", 1, 1)]}, "layer"),
        ({"dense": [*DENSE, DENSE[0]]}, "layer"),
        ({"dense": DENSE[1:]}, "tokens"),
        ({"dense": []}, "dense"),
        ({"attention": [*ATTENTION, ATTENTION[0]]}, "prefill_chunk"),
        ({"attention": ATTENTION[2:]}, "prefill"),
        ({"attention": ATTENTION[:2]}, "decode"),
        ({"attention": [*ATTENTION[:3], *ATTENTION[4:]]}, "decode"),
        ({"attention": [*ATTENTION, (5, 0, 0, 0, 1)]}, "prefill"),
        ({"fixed_ns": -1}, "fixed_ns"),
        ({"dense": [("mlp", 1, -10_000), ("embedding", 1, 5)]}, "time_ns"),
    ],
)
def test_what_is_refused(changes, field):
    with pytest.raises(InputError) as caught:
        build(**changes)
    assert caught.value.field == field
