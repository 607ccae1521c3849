"""MC-SF in the unit rounds of its paper: by hand, and against a literal reading of algorithm 1. A
decode round takes one second whoever is in it, a prefill no time, and memory alone limits who takes
part: a request that starts at round k holds s + (t - k) tokens in round t and ends at k + o."""

import random

import pytest

import orsched
from orsched.common.errors import InfeasibleError
from orsched.heuristics.mc_sf import FutureMemory
from tests.seeds import seeds

ROUND_NS = 10**9
UNIT_COST = orsched.AffineCost(
    prefill_fixed_ns=0, prefill_token_ns=0, round_fixed_ns=ROUND_NS, round_client_ns=0
)
ROUNDS, RULES = 40, ("decode", "prefill")


def unit_instance(prompts, outputs, arrivals, memory):
    """Return the requests in unit rounds, with as many clients as requests."""
    blocks = orsched.BlockMemory(memory, 1, "paged")
    worker = orsched.Worker(len(prompts), UNIT_COST, memory=blocks)
    requests = orsched.Requests(prompts, outputs, arrival_ns=[each * ROUND_NS for each in arrivals])
    return orsched.Instance(requests, worker, "decode", output_limit_tokens=max(outputs))


def held(prompts, outputs, starts, moment):
    """Tokens held in a round by those started: s + (t - k) for k < t <= k + o."""
    return sum(prompts[i] + moment - k for i, k in starts.items() if k < moment <= k + outputs[i])


def admissions(prompts, outputs, arrivals, memory):
    """Return the round in which each request starts: shortest answer first until one fails."""
    starts, moment = {}, 0
    order = sorted(range(len(prompts)), key=lambda i: (outputs[i], arrivals[i], i))
    while len(starts) < len(prompts):
        running = {i: k for i, k in starts.items() if k + outputs[i] > moment}
        for i in order:
            if i in starts or arrivals[i] > moment:
                continue
            trial = {**running, i: moment}
            ends = {k + outputs[j] for j, k in trial.items()}
            if any(held(prompts, outputs, trial, end) > memory for end in ends if end > moment):
                break
            starts[i] = running[i] = moment
        moment += 1
    return starts


def starts_of(instance):
    """The round in which each request starts, in a schedule that the checker has accepted."""
    result = orsched.solve(instance, "mc_sf")
    assert result.checked
    times = result.schedule.request_times(instance)
    starts = times["prefill_start_ns"] // ROUND_NS
    assert (times["prefill_start_ns"] % ROUND_NS == 0).all()
    assert (times["first_token_ns"] == (starts + 1) * ROUND_NS).all()
    return dict(enumerate(starts.tolist()))


def drawn(seed):
    """A small instance: prompts, outputs, arrivals, memory."""
    draw = random.Random(seed)
    memory, n = draw.randint(6, 30), draw.randint(1, 14)
    prompts = [draw.randint(1, 5) for _ in range(n)]
    outputs = [draw.randint(1, memory - s) for s in prompts]
    arrivals = [draw.choice([0, draw.randint(0, ROUNDS)]) for _ in range(n)]
    return prompts, outputs, arrivals, memory


@pytest.mark.parametrize(
    ("prompts", "outputs", "arrivals", "memory", "starts"),
    [
        # In round 2, the end of the first, the three would hold 3 + 4 + 3 tokens.
        ([1, 2, 1], [2, 3, 8], [0, 0, 0], 10, [0, 0, 0]),
        ([1, 2, 1], [2, 3, 8], [0, 0, 0], 9, [0, 0, 1]),
        # (5, 4) runs to round 4; (7, 1) is shorter than (1, 2), and neither fits beside it.
        ([5, 7, 1], [4, 1, 2], [0, 1, 1], 9, [0, 4, 5]),
        # Beside (4, 4), (7, 1) never fits, and (1, 2) would: the first that fails ends it.
        ([4, 7, 1], [4, 1, 2], [0, 1, 1], 11, [0, 4, 4]),
        ([4, 7, 1], [4, 1, 2], [0, 0, 0], 11, [1, 0, 0]),
    ],
)
def test_by_hand(prompts, outputs, arrivals, memory, starts):
    found = starts_of(unit_instance(prompts, outputs, arrivals, memory))
    assert found == dict(enumerate(starts))
    assert found == admissions(prompts, outputs, arrivals, memory)


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_starts_are_those_of_the_literal_rule(seed):
    prompts, outputs, arrivals, memory = drawn(seed)
    starts = admissions(prompts, outputs, arrivals, memory)
    assert starts_of(unit_instance(prompts, outputs, arrivals, memory)) == starts
    ends = {k + outputs[i] for i, k in starts.items()}
    assert all(held(prompts, outputs, starts, end) <= memory for end in ends)


def test_the_literal_rule_is_more_than_greedy():
    """Some wait that would fit for now."""
    waits = 0
    for seed in range(60):
        prompts, outputs, arrivals, memory = drawn(seed)
        starts = admissions(prompts, outputs, arrivals, memory)
        for i, start in starts.items():
            others = {j: k for j, k in starts.items() if k < start}
            now = held(prompts, outputs, others, start)
            waits += start > arrivals[i] and now + prompts[i] + 1 <= memory
    assert waits >= 10


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_any_prediction_ends_in_a_schedule_that_is_accepted(seed):
    """Lengths far too short and too long, any block size, both rules: no round overflows."""
    prompts, outputs, arrivals, memory = drawn(seed)
    draw = random.Random(seed)
    predicted = [draw.choice([1, o, memory, draw.randint(1, memory)]) for o in outputs]
    instance = unit_instance(prompts, outputs, arrivals, memory)
    size = draw.choice([1, 3])
    blocks = orsched.BlockMemory(-(-memory // size), size, "paged")
    worker = orsched.Worker(draw.randint(1, 6), orsched.AffineCost(), 7, blocks)
    for workers in (instance.workers, (worker,), (worker, worker)):
        requests, rule = instance.requests.replace(predicted_tokens=predicted), draw.choice(RULES)
        other = instance.replace(requests=requests, workers=workers, first_token=rule)
        assert orsched.solve(other, "mc_sf@predicted").checked


def test_a_margin_lengthens_predictions_alone():
    """Two of 4 tokens hold 5 + 5 in the end; of 5 tokens, started two rounds apart, 6 + 4."""
    instance = unit_instance([1, 1], [4, 4], [0, 0], 10).replace(output_limit_tokens=9)
    told = instance.replace(requests=instance.requests.replace(predicted_tokens=[4, 4]))
    for case, margin, second in ((told, 0, 0), (told, 0.1, 2), (instance, 0.1, 0)):
        information = "predicted" if case is told else "clairvoyant"
        given = {"margin": margin}
        result = orsched.solve(case, "mc_sf", information=information, parameters=given)
        starts = result.schedule.request_times(case)["prefill_start_ns"] // ROUND_NS
        assert starts.tolist() == [0, second]


def test_what_is_wrong_is_named():
    instance = unit_instance([1], [4], [0], 5)
    worker = orsched.Worker(1, memory=orsched.BlockMemory(4, 1, "paged"))
    with pytest.raises(InfeasibleError, match="memory"):
        orsched.solve(instance.replace(workers=(worker,)), "mc_sf")


def test_waiting_requests_can_be_given_away():
    instance = unit_instance([1] * 9, [1, 1, 9] * 3, [0] * 9, 20)
    two = instance.replace(workers=(orsched.Worker(1, orsched.AffineCost()),) * 2)
    parameters = {"dispatch": "round_robin", "steal": True}
    assert orsched.solve(two, "mc_sf", parameters=parameters).checked


def filled(caches, size, moment):
    return sum(-(-(base + moment) // size) for base, end in caches.values() if moment <= end)


def within(caches, size, blocks, now):
    last = max((end for _, end in caches.values()), default=now)
    return all(filled(caches, size, moment) <= blocks for moment in range(now, last + 1))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(10))
def test_fits_is_within_the_memory_in_every_round(seed, size):
    """Additions, removals and extensions in any order, as rounds pass."""
    draw = random.Random(seed)
    memory, caches, now = FutureMemory(draw.randint(5, 30) // size + 1, size), {}, 0
    answers = set()
    for request in range(60):
        base, end = draw.randint(1, 9) - now, now + draw.randint(0, 9)
        trial = {**caches, request: (base, end)}
        fits = within(trial, size, memory.blocks, now)
        assert memory.add(request, base, end, always=False) == fits
        answers.add(fits)
        if fits:
            caches = trial
        now += draw.randint(0, 2)
        for each, (base, end) in list(caches.items()):
            if end <= now and draw.random() < 0.7:
                memory.drop(each)
                del caches[each]
            elif end <= now:  # longer than it was expected to be
                caches[each] = (base, now + 1)
        memory.extend(now)
        while not within(caches, size, memory.blocks, now):
            gone = next(iter(caches))
            memory.drop(gone)
            del caches[gone]
        if caches:
            assert memory.first_end == min(end for _, end in caches.values())
    assert answers == {True, False}
