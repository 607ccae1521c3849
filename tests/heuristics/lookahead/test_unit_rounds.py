"""The policies of the theory papers in their model: by hand, and against a literal reading."""

from __future__ import annotations

import random

import pytest

import orsched
from orsched.costs.unit_rounds import ROUND_NS
from orsched.errors import InfeasibleError, InputError
from orsched.instances.unit_rounds import unit_instance
from orsched.request_times import request_times
from tests.heuristics.lookahead.literal import admissions, held

ROUNDS = 40
LENGTHS_MAY_BE_WRONG = ("mc_sf", "svf", "svf_1bit", "a_max", "a_min", "sorted_f", "gba", "wait")


def starts_of(instance, method, **parameters):
    """The round in which each request starts, in a schedule that the checker has accepted."""
    result = orsched.solve(instance, method, parameters=parameters)
    assert result.checked
    times = request_times(instance, result.schedule)
    starts = times["prefill_start_ns"] // ROUND_NS
    assert (times["prefill_start_ns"] % ROUND_NS == 0).all()
    assert (times["first_token_ns"] == (starts + 1) * ROUND_NS).all()
    return dict(enumerate(starts.tolist()))


def ends_of(instance, method, **parameters):
    schedule = orsched.solve(instance, method, parameters=parameters).schedule
    return (request_times(instance, schedule)["finish_ns"] // ROUND_NS).tolist()


def drawn(seed):
    """A small instance: prompts, outputs, arrivals, memory."""
    draw = random.Random(seed)
    memory, n = draw.randint(6, 30), draw.randint(1, 14)
    prompts = [draw.randint(1, 5) for _ in range(n)]
    outputs = [draw.randint(1, memory - s) for s in prompts]
    arrivals = [draw.choice([0, draw.randint(0, ROUNDS)]) for _ in range(n)]
    return prompts, outputs, arrivals, memory


def volume(prompts, outputs):
    return lambda i: sum(prompts[i] + j for j in range(1, outputs[i] + 1))


def test_mc_sf_by_hand():
    """A (1, 2), B (2, 3) and C (1, 8): in round 2, the end of A, they hold 3 + 4 + 3 tokens.

    With M = 10 all start at once; with 9 C waits for a round: 3 + 4 + 2, then 5 + 3, then 9.
    """
    lengths = [1, 2, 1], [2, 3, 8], [0, 0, 0]
    assert starts_of(unit_instance(*lengths, 10), "mc_sf") == {0: 0, 1: 0, 2: 0}
    assert starts_of(unit_instance(*lengths, 9), "mc_sf") == {0: 0, 1: 0, 2: 1}


def test_the_order_decides_who_waits_for_whom():
    """M = 9. (5, 4) runs to round 4. (7, 1) and (1, 2), there from 1, do not fit beside it.

    Nor beside each other: 8 + 2 or 3 + 8. The first is shorter; its volume is 8, the other's 5.
    """
    instance = unit_instance([5, 7, 1], [4, 1, 2], [0, 1, 1], 9)
    assert starts_of(instance, "mc_sf") == {0: 0, 1: 4, 2: 5}
    assert starts_of(instance, "svf") == {0: 0, 1: 6, 2: 4}


def test_the_first_that_does_not_fit_ends_the_admission():
    """M = 11. Beside (4, 4), (7, 1) never fits, and (1, 2) would: by length it waits behind."""
    instance = unit_instance([4, 7, 1], [4, 1, 2], [0, 0, 0], 11)
    assert starts_of(instance, "mc_sf") == {0: 1, 1: 0, 2: 0}
    later = unit_instance([4, 7, 1], [4, 1, 2], [0, 1, 1], 11)
    assert starts_of(later, "mc_sf") == {0: 0, 1: 4, 2: 4}
    assert starts_of(later, "svf") == {0: 0, 1: 4, 2: 1}


@pytest.mark.parametrize("seed", range(60))
def test_starts_are_those_of_the_literal_rule(seed):
    prompts, outputs, arrivals, memory = drawn(seed)
    instance = unit_instance(prompts, outputs, arrivals, memory)
    by_length = admissions(prompts, outputs, arrivals, memory, outputs.__getitem__)
    assert starts_of(instance, "mc_sf") == by_length
    by_volume = admissions(prompts, outputs, arrivals, memory, volume(prompts, outputs))
    assert starts_of(instance, "svf") == by_volume
    limit = instance.output_limit_tokens
    upper = [min(3 * tokens // 2, limit) for tokens in outputs]
    if all(s + o <= memory for s, o in zip(prompts, upper, strict=True)):
        foreseen = admissions(prompts, outputs, arrivals, memory, upper.__getitem__, upper)
        assert starts_of(instance, "a_max@clairvoyant", width=0.5) == foreseen
    assert starts_of(instance, "a_max@clairvoyant", width=0) == by_length
    assert starts_of(instance, "a_min@clairvoyant", width=0) == by_length
    ends = {k + outputs[i] for i, k in by_length.items()}
    assert all(held(prompts, outputs, by_length, end) <= memory for end in ends)


def test_the_literal_rule_is_more_than_greedy():
    """Some wait that would fit for now, and some start earlier or later by volume."""
    waits = differ = 0
    for seed in range(60):
        prompts, outputs, arrivals, memory = drawn(seed)
        by_length = admissions(prompts, outputs, arrivals, memory, outputs.__getitem__)
        by_volume = admissions(prompts, outputs, arrivals, memory, volume(prompts, outputs))
        differ += by_length != by_volume
        for i, start in by_length.items():
            others = {j: k for j, k in by_length.items() if k < start}
            now = held(prompts, outputs, others, start)
            waits += start > arrivals[i] and now + prompts[i] + 1 <= memory
    assert waits >= 10
    assert differ >= 10


def test_a_min_evicts_the_least_bound_where_it_was_too_low():
    """M = 8, two requests (1, 5), width 4: both are taken for one token and start at once.

    They hold 2 + 2, 3 + 3, 4 + 4 in rounds 1 to 3, and would hold 10 in round 4. The bounds of
    both have risen to 3, so the first row goes; the other ends in round 5. The first keeps its 3
    tokens and, as it is taken to end with the next, waits while 5 + 5 do not fit beside it.
    """
    instance = unit_instance([1, 1], [5, 5], [0, 0], 8)
    assert ends_of(instance, "a_min@clairvoyant", width=4) == [7, 5]
    # Where lengths are known, the second starts in round 4: 6 + 2 in round 5.
    assert ends_of(instance, "a_min@clairvoyant", width=0) == [5, 9]
    assert ends_of(instance, "a_max@clairvoyant", width=4) == [5, 10]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("method", LENGTHS_MAY_BE_WRONG)
def test_any_prediction_ends_in_a_schedule_that_is_accepted(seed, method):
    """Lengths far too short and too long, any block size, both rules: no round overflows."""
    prompts, outputs, arrivals, memory = drawn(seed)
    draw = random.Random(seed)
    predicted = [draw.choice([1, o, memory, draw.randint(1, memory)]) for o in outputs]
    instance = unit_instance(prompts, outputs, arrivals, memory)
    size = draw.choice([1, 3])
    blocks = orsched.BlockMemory(-(-memory // size), size, "paged")
    worker = orsched.Worker(draw.randint(1, 6), orsched.AffineCost(), 7, blocks)
    for workers in (instance.workers, (worker,)):
        other = instance.replace(
            requests=instance.requests.replace(predicted_tokens=predicted),
            workers=workers,
            first_token=draw.choice(["decode", "prefill"]),
        )
        assert orsched.solve(other, f"{method}@predicted").checked


def test_quantiles_are_the_interval():
    """By the upper ends two hold 40 in the end, by the lower ones 4 in round 1."""
    instance = unit_instance([1, 1], [4, 4], [0, 0], 20)
    requests = instance.requests.replace(
        predicted_tokens=[4, 4],
        predicted_quantiles=[[1, 4, 19], [1, 4, 19]],
        quantile_levels=(0.1, 0.5, 0.9),
    )
    told = instance.replace(requests=requests)
    assert starts_of(told, "a_max@predicted") == {0: 0, 1: 4}
    assert starts_of(told, "a_min@predicted") == {0: 0, 1: 0}


def test_a_margin_lengthens_predictions_alone():
    """Two of 4 tokens hold 5 + 5 in the end; of 5 tokens, started two rounds apart, 6 + 4."""
    instance = unit_instance([1, 1], [4, 4], [0, 0], 10)
    told = instance.replace(requests=instance.requests.replace(predicted_tokens=[4, 4]))
    assert starts_of(told, "mc_sf@predicted") == {0: 0, 1: 0}
    assert starts_of(told, "mc_sf@predicted", margin=0.1) == {0: 0, 1: 2}
    assert starts_of(told, "mc_sf", margin=0.1) == {0: 0, 1: 0}


def test_what_is_wrong_is_named():
    instance = unit_instance([1], [4], [0], 5)
    with pytest.raises(InputError) as caught:
        orsched.solve(instance, "mc_sf", parameters={"margin": -1})
    assert caught.value.field == "margin"
    with pytest.raises(InputError) as caught:
        orsched.solve(instance, "a_min@clairvoyant", parameters={"width": "wide"})
    assert caught.value.field == "width"
    worker = orsched.Worker(1, memory=orsched.BlockMemory(4, 1, "paged"))
    with pytest.raises(InfeasibleError, match="memory"):
        orsched.solve(instance.replace(workers=(worker,)), "mc_sf")


def test_waiting_requests_can_be_given_away():
    instance = unit_instance([1] * 9, [1, 1, 9, 1, 1, 9, 1, 1, 9], [0] * 9, 20)
    two = instance.replace(workers=(orsched.Worker(1, orsched.AffineCost()),) * 2)
    parameters = {"dispatch": "round_robin", "steal": True}
    assert orsched.solve(two, "mc_sf", parameters=parameters).checked
