"""One queue for all workers (``dispatch=central``), and samples that tell of each other's length
(``lengths=group``)."""

import pytest

from orsched import AffineCost, BlockMemory, InputError, Instance, Requests, Worker, solve
from orsched.heuristics.continuous.queues import GroupQueue
from orsched.instances.rollouts import rollouts
from orsched.planning.oversampling import oversample
from tests.heuristics.building import built, require_sound, solved
from tests.in_order import in_order

COST = in_order(AffineCost, 10, 1, 10, 1)
CENTRAL = {"dispatch": "central"}
GROUPS = {"order": "longest", "lengths": "group"}


def instance_of(memory=None, workers=2, clients=1, **columns):
    columns = {"prompt_tokens": [2] * 6, "output_tokens": [9, 2, 4, 3, 8, 5], **columns}
    return Instance(Requests(**columns), (Worker(clients, COST, None, memory),) * workers)


def starts(schedule):
    """Requests in the order of the starts of their first prefills, those of worker 0 first."""
    work = schedule.work
    rows = work.phase == 0
    begins = schedule.steps.start_ns[work.first_step[rows]]
    workers = schedule.steps.worker[work.first_step[rows]]
    columns = (begins.tolist(), workers.tolist(), work.request[rows].tolist())
    return [row for *_, row in sorted(zip(*columns, strict=True))]


@pytest.mark.parametrize(
    ("name", "known", "params", "rows"),
    [
        ("vllm", "none", {}, [0, 1, 2, 3, 4, 5]),
        ("fcfs", "none", {}, [0, 1, 2, 3, 4, 5]),
        ("vllm", "clairvoyant", {"order": "longest"}, [0, 4, 5, 2, 3, 1]),
        ("fcfs", "clairvoyant", {"order": "shortest"}, [1, 3, 2, 5, 4, 0]),
    ],
)
def test_a_worker_takes_the_next_of_all_when_it_is_free(name, known, params, rows):
    assert starts(solved(instance_of(), name, known, **CENTRAL, **params)) == rows


POLICIES = [
    "vllm",
    "fcfs",
    "static",
    "dynamic",
    "one_at_a_time",
    "ils",
    "sjf",
    "ssjf",
    "fcfs_batched",
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("memory", [None, BlockMemory(9, 2)])
def test_policies_with_one_queue_serve_all_and_are_blind(policy, memory):
    given = instance_of(memory, clients=2, predicted_tokens=[5] * 6, arrival_ns=[0, 0, 3, 9, 9, 90])
    schedule = require_sound(given, lambda instance: built(instance, policy, **CENTRAL))
    assert set(schedule.steps.worker.tolist()) == {0, 1}


def test_an_evicted_request_goes_on_wherever_there_is_room():
    """Blocks of 1. Both hold 2 + 6 + ... on worker 0 of 10 blocks, until one gives way."""
    given = instance_of(BlockMemory(11, 1), clients=2, output_tokens=[9] * 6)
    schedule = solved(given, "vllm", **CENTRAL)
    assert int(schedule.work.stay.max()) > 0
    assert set(schedule.work.request.tolist()) == set(range(6))


@pytest.mark.parametrize("policy", ["vtc", "hygen", "mc_sf"])
def test_a_policy_without_such_a_queue_is_refused(policy):
    with pytest.raises(InputError, match="no queue that workers can share") as caught:
        solve(instance_of(BlockMemory(99, 2)), policy, parameters=CENTRAL)
    assert caught.value.field == "dispatch"


def test_workers_that_hold_different_requests_are_refused():
    workers = (Worker(1, COST, None, BlockMemory(9, 2)), Worker(1, COST, None, BlockMemory(8, 2)))
    with pytest.raises(InputError, match="these differ in memory") as caught:
        solve(Instance(Requests([2], [2]), workers), "vllm", parameters=CENTRAL)
    assert caught.value.field == "dispatch"


class Seen:
    """What a queue sees of requests."""

    def __init__(self, group):
        self.group = group


def test_groups_are_probed_then_the_longest_is_next():
    queue = GroupQueue("longest")
    for request in range(9):
        queue.put(Seen([0, 0, 0, 1, 1, 1, 2, 2, 2]), request)
    assert [queue.pop() for _ in range(4)] == [0, 3, 6, 1]  # one of each, then again
    queue.learn(0, 50)  # groups 1 and 2 have none done: next is the one with the fewest begun
    assert [queue.pop() for _ in range(2)] == [4, 7]
    queue.learn(3, 70)
    queue.learn(6, 60)
    assert queue.first() == 5
    queue.learn(4, 20)  # a mean of 45
    assert [queue.pop() for _ in range(3)] == [8, 2, 5]
    queue.put_back(8)
    queue.put_back(5)
    assert (len(queue), queue.oldest(), queue.surrender(), queue.pop()) == (2, 5, 5, 8)


def test_shortest_turns_the_order_of_what_is_known():
    queue = GroupQueue("shortest")
    for request in range(4):
        queue.put(Seen([0, 0, 1, 1]), request)
    assert [queue.pop(), queue.pop()] == [0, 2]
    queue.learn(0, 5)
    queue.learn(2, 4)
    assert [queue.pop(), queue.pop()] == [3, 1]


@pytest.mark.parametrize("memory", [None, BlockMemory(24, 1)])
@pytest.mark.parametrize("sharing", [CENTRAL, {}, {"steal": True}])
def test_what_is_learned_of_groups_is_what_was_seen(memory, sharing):
    """No length of an unfinished request changes a decision; with evictions, too."""
    given = instance_of(
        memory, clients=2, prompt_tokens=[2] * 12, output_tokens=[9, 1, 2, 12, 7, 1] * 2,
        group=[0, 0, 1, 1, 2, 2] * 2,
    )  # fmt: skip
    require_sound(given, lambda each: built(each, "vllm", **sharing, **GROUPS))


def test_lengths_that_are_learned_are_those_of_the_requests(monkeypatch):
    learned, learn = {}, GroupQueue.learn
    monkeypatch.setattr(
        GroupQueue,
        "learn",
        lambda queue, request, tokens: (
            learned.update({request: tokens}),
            learn(queue, request, tokens),
        ),
    )
    given = instance_of(BlockMemory(12, 1), clients=2, group=[0, 1] * 3)
    schedule = solved(given, "vllm", **CENTRAL, **GROUPS)
    assert int(schedule.work.stay.max()) > 0
    assert learned == dict(enumerate([9, 2, 4, 3, 8, 5]))


def test_without_groups_each_request_is_one():
    assert starts(solved(instance_of(), "vllm", **CENTRAL, **GROUPS)) == list(range(6))


@pytest.mark.parametrize(
    "params",
    [{"lengths": "group"}, {**GROUPS, "order": "volume"}, {**GROUPS, "async_scheduling": True}],
)
def test_groups_order_by_length_alone(params):
    with pytest.raises(InputError, match="lengths=group") as caught:
        solve(instance_of(group=[0] * 6), "vllm", parameters=params)
    assert caught.value.field == "lengths"


def test_history_beats_groups_and_groups_beat_rows_where_there_are_many_samples():
    given = rollouts(seed=1, prompts=8, samples=64, clients=8, history_sigma=0.3)

    def makespan(information, **params):
        params = {"max_num_batched_tokens": "ridge", **CENTRAL, **params}
        return solved(given, "vllm", information, **params).makespan_ns

    row = makespan("none")
    group = makespan("none", **GROUPS)
    history = makespan("predicted", order="longest")
    assert history < group < row


def test_what_waits_in_the_queue_leaves_it_when_its_group_has_enough():
    found = oversample(instance_of(group=[0, 0, 0, 1, 1, 1]), "vllm+dispatch=central", keep=1)
    assert found.violations == ()
    assert found.aborted.tolist() == [0, 2, 4, 5]
