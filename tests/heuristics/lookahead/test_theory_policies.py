"""Sorted-F, SVF with one bit, GBA, GSA, WAIT, Nested WAIT: by hand, and against literal rules."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

import orsched
from orsched.errors import InputError
from orsched.instances.unit_rounds import unit_instance
from tests.heuristics.lookahead import literal_phases
from tests.heuristics.lookahead.literal import admissions, held
from tests.heuristics.lookahead.test_unit_rounds import drawn, ends_of, starts_of, volume

NEW = ("sorted_f", "svf_1bit", "gba", "gsa", "wait", "nested_wait")


def batches(prompts, outputs, memory):
    """The order of Sorted-F by comparing every batch: output over size squared, size, entries."""
    left, order = sorted(range(len(prompts)), key=lambda i: (outputs[i], i)), []
    while left:
        best = None
        for size in range(1, len(left) + 1):
            for batch in combinations(left, size):
                starts = dict.fromkeys(batch, 0)
                if all(held(prompts, outputs, starts, outputs[i]) <= memory for i in batch):
                    total = sum(outputs[i] for i in batch)
                    key = (total / size**2, -size, [(outputs[i], i) for i in batch])
                    best = min(best or (key, batch), (key, batch))
        order += best[1]
        left = [i for i in left if i not in best[1]]
    return order


def at_zero(seed, most=8):
    prompts, outputs, _, memory = drawn(seed)
    return prompts[:most], outputs[:most], [0] * min(len(prompts), most), memory


@pytest.mark.parametrize("seed", range(40))
def test_sorted_f_takes_the_batches_of_least_output_over_size_squared(seed):
    prompts, outputs, arrivals, memory = at_zero(seed)
    order = batches(prompts, outputs, memory)
    instance = unit_instance(prompts, outputs, arrivals, memory)
    assert starts_of(instance, "sorted_f") == admissions(
        prompts, outputs, arrivals, memory, order.index
    )


def test_sorted_f_by_hand():
    """M = 12, (10, 2) beside three of (1, 3): F is 2 for the short one, 9 / 9 for the three.

    They first end in round 3; shortest first is held up by the long prompt.
    """
    instance = unit_instance([10, 1, 1, 1], [2, 3, 3, 3], [0] * 4, 12)
    for parameters in ({}, {"exact": 0}):
        assert starts_of(instance, "sorted_f", **parameters) == {0: 3, 1: 0, 2: 0, 3: 0}
    assert starts_of(instance, "mc_sf") == {0: 0, 1: 2, 2: 2, 3: 2}


def test_greedy_batches_are_near_those_of_the_comparison():
    """Over many draws no more than a few per cent are lost; with swaps less than without."""
    total = dict.fromkeys(("all", "swaps", "greedy"), 0)
    for seed in range(40):
        instance = unit_instance(*at_zero(seed))
        for name, parameters in (("all", {}), ("swaps", {"exact": 0}),
                                 ("greedy", {"exact": 0, "swaps": 0})):  # fmt: skip
            total[name] += sum(ends_of(instance, "sorted_f", **parameters))
    assert total["all"] <= 1.05 * total["swaps"]
    assert total["swaps"] <= 1.05 * total["all"]
    assert total["greedy"] <= 1.05 * total["all"]


@pytest.mark.parametrize("seed", range(40))
def test_gba_and_gsa_are_those_of_the_literal_rule(seed):
    prompts, outputs, arrivals, memory = at_zero(seed, 14)
    instance = unit_instance(prompts, outputs, arrivals, memory)
    for name, known in (("gba", True), ("gsa", False)):
        ends = literal_phases.phases(prompts, outputs, memory, instance.output_limit_tokens, known)
        assert ends_of(instance, name) == ends, name


def test_evenly_spaced_starts_hold_more_requests():
    """M = 20, s = 0 + 1, o = 8: at once 2 of 9 fit, spaced by 8 / 3 rounds 4 + 7 + 9 do."""
    assert literal_phases.together(1, 8, 20, 9) == 3
    instance = unit_instance([1] * 3, [8] * 3, [0] * 3, 20)
    assert starts_of(instance, "gba") == {0: 0, 1: 3, 2: 6}
    assert starts_of(instance, "mc_sf")[1] == 0


def test_gsa_gives_each_a_slice_before_any_gets_a_longer_one():
    """Alone in memory: the short one ends in round 3, after a token of each of the long ones."""
    instance = unit_instance([1, 1, 1], [4, 4, 1], [0, 0, 0], 5)
    assert ends_of(instance, "gsa") == literal_phases.phases([1] * 3, [4, 4, 1], 5, 5, False)
    assert ends_of(instance, "gsa")[2] < min(ends_of(instance, "gsa")[:2])
    assert starts_of(instance, "gba")[2] == 0


@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("seed", range(25))
def test_wait_is_that_of_the_literal_rule(seed, threshold):
    prompts, outputs, arrivals, memory = drawn(seed)
    instance = unit_instance(prompts, outputs, arrivals, memory)
    starts = literal_phases.wait(prompts, outputs, arrivals, memory, threshold)
    assert starts_of(instance, "wait", threshold=threshold) == starts


def test_wait_waits_for_others_of_its_class():
    """(1, 9) runs; (1, 2) from round 1 on waits for the one of round 4, or for an idle worker."""
    prompts, outputs = [1, 1, 1], [9, 2, 2]
    both = unit_instance(prompts, outputs, [0, 1, 4], 40)
    assert starts_of(both, "wait", threshold=2) == {0: 0, 1: 4, 2: 4}
    assert starts_of(both, "wait", threshold=1) == {0: 0, 1: 1, 2: 4}
    alone = unit_instance(prompts[:2], outputs[:2], [0, 1], 40)
    assert starts_of(alone, "wait", threshold=2) == {0: 0, 1: 9}


def test_the_fluid_threshold_is_what_a_full_memory_starts_in_a_round():
    """Forty (1, 1), 2 tokens for a round each: with M = 10 five start in a round.

    While a long request runs four have to wait for a fifth; it holds 2 of 10 at first, so that the
    five of a batch start over two rounds.
    """
    instance = unit_instance([1] * 40, [1] * 40, [0] * 40, 10)
    starts = list(starts_of(instance, "wait").values())
    assert [starts.count(k) for k in range(8)] == [5] * 8


def test_nested_wait_by_hand():
    """M = 40, threshold 2, segments to 1, 2, 4, 8 tokens.

    Two start together and stay together to the end; a third waits until they are done. Of three
    that start together one ends with its first token, and the others go on, for nothing else runs.
    """
    assert ends_of(unit_instance([1, 1], [5, 5], [0, 0], 40), "nested_wait", threshold=2) == [5, 5]
    three = unit_instance([1] * 3, [5, 5, 1], [0] * 3, 40)
    assert ends_of(three, "nested_wait", threshold=2) == [5, 5, 6]
    assert ends_of(three, "nested_wait", threshold=3) == [5, 5, 1]
    late = unit_instance([1] * 3, [6, 6, 3], [0, 0, 1], 40)
    # The third, alone in its segment, waits from its arrival until the others are done.
    assert ends_of(late, "nested_wait", threshold=2) == [6, 6, 9]
    assert ends_of(late, "nested_wait", threshold=1) == [6, 6, 4]


@pytest.mark.parametrize("seed", range(20))
def test_one_bit_is_the_order_by_the_two_lengths(seed):
    """Where nothing is longer than it is taken for, starts are those of the literal admission."""
    prompts, outputs, arrivals, memory = at_zero(seed, 14)
    instance = unit_instance(prompts, outputs, arrivals, memory)
    split = 1000  # all are short, and taken for the output limit: each runs alone
    starts = starts_of(instance, "svf_1bit", split=split)
    assert sorted(starts, key=starts.get) == sorted(
        range(len(prompts)), key=lambda i: (prompts[i], i)
    )
    longest = max(outputs)
    taken = [longest] * len(outputs)
    if all(s + longest <= memory for s in prompts):
        expected = admissions(
            prompts, outputs, arrivals, memory, volume(prompts, taken), taken
        )  # fmt: skip
        assert starts_of(instance, "svf_1bit", split=longest) == expected


def test_the_bit_is_by_the_median_of_what_has_arrived():
    """Taken for 8, 2, 2 and, longer than the median 2 of all four, 4: least volume first.

    M = 9: in round 2 the first three of that order hold 3 + 3 + 3, the end of the second; the one
    taken for 8 starts a round later, when the third is done: with the last 5 + 4 in round 4.
    """
    starts = starts_of(unit_instance([1] * 4, [8, 2, 1, 7], [0] * 4, 9), "svf_1bit")
    assert (starts[1], starts[2], starts[3]) == (0, 0, 0)
    assert starts[0] == 1
    # A long (1, 7), taken for 4, has more volume than a short (5, 2): 14 against 13.
    assert starts_of(unit_instance([5, 1], [2, 7], [0, 0], 9), "svf_1bit") == {0: 0, 1: 1}


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("method", NEW)
def test_every_worker_ends_in_a_schedule_that_is_accepted(seed, method):
    """Arrivals, clients, blocks, prefill caps, both first-token rules, two workers."""
    prompts, outputs, arrivals, memory = drawn(seed)
    draw = random.Random(seed)
    size = draw.choice([1, 3])
    kind = draw.choice(["paged", "paged", "whole", None])
    blocks = kind and orsched.BlockMemory(-(-memory // size), size, kind)
    if kind == "whole":  # which sets memory aside for the output limit
        blocks = orsched.BlockMemory(-(-3 * memory // size), size, kind)
    worker = orsched.Worker(draw.randint(1, 6), orsched.AffineCost(), draw.choice([2, 7]), blocks)
    instance = unit_instance(prompts, outputs, arrivals, memory).replace(
        workers=(worker,) * draw.randint(1, 2),
        first_token=draw.choice(["decode", "prefill"]),
    )
    parameters = {}
    if method in ("wait", "nested_wait"):
        parameters["threshold"] = draw.randint(0, 3)
    if method in ("gba", "gsa", "wait", "nested_wait"):
        parameters["first"] = draw.randint(1, 3)
    assert orsched.solve(instance, method, parameters=parameters).checked


@pytest.mark.parametrize(
    ("method", "parameter", "value"),
    [
        ("sorted_f", "pool", 0),
        ("sorted_f", "exact", 17),
        ("sorted_f", "swaps", "many"),
        ("svf_1bit", "split", -1),
        ("gba", "first", 0),
        ("gsa", "first", 1.5),
        ("wait", "threshold", -1),
        ("nested_wait", "first", 0),
    ],
)
def test_what_is_wrong_is_named(method, parameter, value):
    instance = unit_instance([1], [4], [0], 5)
    with pytest.raises(InputError) as caught:
        orsched.solve(instance, method, parameters={parameter: value})
    assert caught.value.field == parameter
