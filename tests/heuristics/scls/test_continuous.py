"""Iteration level and slices on continuous batching, by hand."""

import pytest

from orsched import AffineCost, BlockMemory, InputError, Instance, Requests, Worker, summarise
from orsched.heuristics.scls import ContinuousParams, ContinuousSlices, IterationLevel
from orsched.heuristics.scls.continuous import ILS, IterationParams
from orsched.metrics.timeline import Timeline
from orsched.simulator.policy import Information
from tests.heuristics.scls.parts import MS, instance, run, steps
from tests.in_order import in_order

COST = in_order(AffineCost, 0, MS, MS, 0)
"""A stage takes 1 ms a token, a round 1 ms, a step with both their sum."""

PREFILL, DECODE, MIXED = 0, 1, 2


def continuous(prompts, outputs, workers=1, blocks=10, clients=8, cap=None):
    memory = None if blocks is None else BlockMemory(blocks, 1, "paged")
    worker = Worker(clients, COST, cap, memory)
    return Instance(Requests(prompts, outputs), (worker,) * workers, first_token="decode")


def slices(problem, *params, **named):
    """The schedule under continuous slices, and its restarts."""
    schedule, _ = run(problem, ContinuousSlices(ContinuousParams(*params, **named)))
    return schedule, summarise(problem, schedule)["restarts"]


def test_iteration_level_sets_the_output_limit_aside():
    problem = continuous([2, 2], [6, 6])
    schedule, _ = run(problem, IterationLevel())
    # 2 + 6 blocks each of 10: one after the other.
    assert [s[2] for s in steps(schedule) if s[1] == PREFILL] == [0, 8]


def test_iteration_level_lets_requests_join_beside_a_round():
    problem = continuous([2, 2, 2], [4, 2, 2], blocks=None)
    schedule, _ = run(problem, IterationLevel(IterationParams(2)))
    # 0 and 1 prefill to 4 ms, decode to 6; 2 joins beside the third round of 0.
    assert steps(schedule) == [
        (0, PREFILL, 0, 4, 1), (0, DECODE, 4, 6, 2), (0, MIXED, 6, 9, 1), (0, DECODE, 9, 10, 1),
        (0, DECODE, 10, 11, 1),
    ]  # fmt: skip


def test_iteration_level_takes_turns():
    problem = continuous([1, 2, 3], [1, 1, 1], workers=2)
    policy, values = ILS.build(problem, Information.NONE, {}, 0)
    schedule, _ = run(problem, policy)
    assert values == {
        "parallel": None,
        "dispatch": "round_robin",
        "steal": False,
        "load_weight": 0.0,
    }
    assert [s[:4] for s in steps(schedule)[:2]] == [(0, PREFILL, 0, 4), (1, PREFILL, 0, 2)]


def test_a_slice_reserves_less_than_the_output_limit():
    problem = continuous([2, 2], [6, 6])
    schedule, restarts = slices(problem, 3)
    # Both reserve 2 + 3. After three rounds only one can have 2 + 6: request 0 goes back, and is
    # prefilled anew, 2 + 3 tokens, when request 1 has left.
    assert steps(schedule) == [
        (0, PREFILL, 0, 4, 1), (0, DECODE, 4, 7, 3), (0, DECODE, 7, 10, 3),
        (0, PREFILL, 10, 15, 1), (0, DECODE, 15, 18, 3),
    ]  # fmt: skip
    assert restarts == 1


@pytest.mark.parametrize(("renew", "restarts"), [("fits", 0), ("idle", 0), ("never", 1)])
def test_without_anybody_waiting_a_request_stays(renew, restarts):
    assert slices(continuous([2], [6]), 3, renew)[1] == restarts


def test_who_waits_ends_a_stay_only_if_it_is_to():
    """Request 2 waits for a client: under "idle" 0 and 1 make room after a slice, then 2 does."""
    problem = continuous([2, 2, 2], [6, 6, 6], clients=2, blocks=100)
    assert slices(problem, 3, "fits")[1] == 0
    assert slices(problem, 3, "idle")[1] >= 2


def test_requests_go_to_the_worker_with_the_most_free_memory():
    problem = continuous([7, 1, 1, 1], [2] * 4, workers=2, blocks=20)
    schedule, _ = slices(problem, 2)
    # 9 blocks on worker 0; then 3, 6 and 9 on worker 1.
    workers = Timeline(problem, schedule).row_worker.tolist()
    places = set(zip(schedule.work.request.tolist(), workers, strict=True))
    assert places == {(0, 0), (1, 1), (2, 1), (3, 1)}


def test_without_memory_the_fewest_requests_decide():
    problem = continuous([1] * 4, [2] * 4, workers=2, blocks=None)
    schedule, _ = slices(problem)
    assert summarise(problem, schedule)["batch_size"]["prefill"] == 2


def test_long_prompts_are_prefilled_in_chunks():
    problem = continuous([4, 4], [5, 5], cap=4, blocks=None)
    schedule, _ = slices(problem, 2, renew="never")
    tokens = schedule.work.tokens[schedule.work.phase == PREFILL].tolist()
    assert max(tokens) == 4
    # Stays of 4, 6 and 8 tokens to prefill, each request.
    assert sum(tokens) == 2 * (4 + 6 + 8)


@pytest.mark.parametrize("policy", [IterationLevel(), ContinuousSlices()])
def test_workers_that_pad_are_refused(policy):
    with pytest.raises(InputError, match="pads its batches") as error:
        run(instance([1], [1]), policy)
    assert error.value.field == "padding"
