"""The adversarial families: who fails on them, by how much, and who does not."""

from __future__ import annotations

from itertools import pairwise

import pytest

import orsched
from orsched.errors import InputError
from orsched.instances.catalog import generate
from orsched.instances.unit_adversarial import FAMILIES
from orsched.models.unit_rounds import total_latency


def total(family, method, memory):
    instance = generate("unit-adversarial", family=family, memory_tokens=memory)
    return total_latency(instance, orsched.solve(instance, method).schedule)


FCFS = "wait+threshold=1+first=1000"
"""All requests are of one class, and start in the order of arrival."""


@pytest.mark.parametrize(
    ("family", "fails", "holds"),
    [
        ("long-prompts", "mc_sf", "sorted_f"),
        ("long-prompts", "mc_sf", "svf"),
        ("long-first", FCFS, "mc_sf"),
        ("long-first", FCFS, "sorted_f"),
    ],
)
def test_the_loss_is_of_the_order_of_the_root(family, fails, holds):
    ratios = [total(family, fails, m) / total(family, holds, m) for m in (16, 64, 256)]
    for before, after in pairwise(ratios):  # the root doubles
        assert after > 1.4 * before


def test_who_starts_at_once_is_caught_by_the_burst():
    """M = 16: the long request holds 13 tokens in round 12, then 14, 15, 16: no (1, 1) beside it.

    Two tokens are left in round 13 alone. All 16 others end in 13 to 17, eight in each round that
    is free; had they gone first, two rounds would have done, and the long one started in 14.
    """
    instance = generate("unit-adversarial", family="late-burst", memory_tokens=16)
    assert (instance.requests.arrival_ns[1:] == 12 * 10**9).all()
    assert total("late-burst", "mc_sf", 16) == 15 + 1 + 8 * 4 + 7 * 5
    ratios = []
    for memory in (64, 256):
        case = generate("unit-adversarial", family="late-burst", memory_tokens=memory)
        late = memory - int(memory**0.5)
        kept_back = (late + 2) + (memory - 1) + memory * 1.5  # two rounds of half the burst
        ratios.append(total_latency(case, orsched.solve(case, "mc_sf").schedule) / kept_back)
    assert ratios[1] > 1.4 * ratios[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_request_fits_alone(family):
    for memory in (16, 17, 100):
        instance = generate("unit-adversarial", family=family, memory_tokens=memory)
        assert (instance.requests.prompt_tokens + instance.requests.output_tokens).max() == memory


def test_what_is_wrong_is_named():
    for field, value in (("family", "short"), ("family", 3), ("memory_tokens", 15)):
        with pytest.raises(InputError) as caught:
            generate("unit-adversarial", **{field: value})
        assert caught.value.field == field
