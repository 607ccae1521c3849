"""The policies of Pang's methods: what each promises, on hand-checkable cases."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, Information, InputError, Instance, Requests, Worker
from orsched.costs import AffineCost, BilinearCost, PoolingCost
from orsched.heuristics import pang
from orsched.heuristics.gated import ClientQueues, GatedParams, GatedPolicy, SharedQueue, make_gate
from orsched.heuristics.gates import IdleCost, Waiting, fixed_costs
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from tests.heuristics.building import batch_of
from tests.in_order import in_order
from tests.simulator.instances import instances
from tests.stops import Countdown

UNIT = in_order(AffineCost, 10, 1, 4, 0)


def _run(instance, information="clairvoyant", **params):
    policy = GatedPolicy(GatedParams(**params), Information(information))
    return simulate_policy(instance, policy).schedule


def _pop(queues, client):
    """The request that a client gets, or -1."""
    stage, _ = queues.fill([client], batch_of([0] * 100))
    return stage[0] if stage else -1


def _starts(instance, schedule):
    return schedule.request_times(instance)["prefill_start_ns"].tolist()


@given(instances(most=10), st.sampled_from(["fcfs", "online", "offline", "hybrid"]))
def test_every_method_is_checked_and_bounded(instance, method):
    """INV-10: bound <= makespan; everything that leaves the library passes the checker."""
    if instance.worker.cost.model == "test-context":
        instance = instance.replace(workers=(Worker(2, UNIT),))
    result = orsched.solve(instance, method, iterations=2)
    assert result.checked
    assert result.bound_ns <= result.makespan_ns


def test_fcfs_keeps_the_order_and_stops_at_the_first_that_does_not_fit():
    """Cap 6: the stage takes 4 and stops at 5, although 1 would fit."""
    instance = Instance(
        Requests([4, 5, 1], [1, 1, 1]), Worker(3, UNIT, prefill_cap_tokens=6), first_token="decode"
    )
    schedule = orsched.solve(instance, "fcfs").schedule
    assert _starts(instance, schedule) == [0, 14, 14]


def test_offline_serves_each_request_on_the_client_it_was_packed_to():
    instance = orsched.load("packing")
    params = {"assignment": "packing", "steal": False, "gate": "prefill_first"}
    schedule = _run(instance, **params)
    from orsched.models.packing import pack

    packed = pack(instance.requests.output_tokens.tolist(), instance.worker.clients)
    assert schedule.request_times(instance)["client"].tolist() == packed.assignment


def test_an_idle_client_steals_the_longest_request_of_the_fullest_queue():
    """Algorithm 1: client 1 ends first, its queue is empty, so it takes from client 0's."""
    queues = ClientQueues(2, steal=True)
    for request, client, tokens in ((0, 0, 5), (1, 0, 9), (2, 1, 7)):
        queues.add(request, client, -tokens, tokens)
    assert _pop(queues, 1) == 2
    assert _pop(queues, 1) == 1
    assert _pop(queues, 0) == 0
    assert _pop(queues, 0) == _pop(queues, 1) == -1


def test_without_stealing_an_idle_client_waits():
    queues = ClientQueues(2, steal=False)
    queues.add(0, 0, 0, 5)
    assert _pop(queues, 1) == -1
    assert queues.servable({1}) == 0
    assert queues.servable({0, 1}) == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), max_size=30), st.booleans())
def test_stealing_takes_from_the_fullest_queue_always(entries, shared):
    """The lazy heap agrees with a search over all queues."""
    queues = SharedQueue(4) if shared else ClientQueues(4, steal=True)
    waiting = {}
    for request, (client, tokens) in enumerate(entries):
        queues.add(request, client, -tokens, tokens)
        waiting[request] = (client, tokens)
    client = 0
    while waiting:
        totals = [sum(t for c, t in waiting.values() if c == k) for k in range(4)]
        taken = _pop(queues, client)
        owner, tokens = waiting[taken]
        if shared:
            assert tokens == max(t for _, t in waiting.values())
        elif totals[client]:
            assert owner == client
        else:
            assert totals[owner] == max(totals)
        if not shared:
            assert tokens == max(t for c, t in waiting.values() if c == owner)
        del waiting[taken]
        assert queues.queued == len(waiting)
        client = (client + 1) % 4


def test_fixed_costs_are_read_off_the_cost_model():
    assert fixed_costs(Worker(200)) == (25_000_000, 29_000_000)
    assert fixed_costs(Worker(4, UNIT, prefill_cap_tokens=1)) == (11, 4)


class _FakeView:
    def __init__(self, worker):
        self.worker, self.rounds = worker, 0


def test_idle_cost_opens_when_idle_rounds_have_paid_for_the_stage():
    """Stage 10, round 4 on 2 clients: an idle client-round costs 2, so 5 of them pay for it."""
    view = _FakeView(Worker(2, UNIT))
    gate = IdleCost()
    gate.start(view)
    waiting = Waiting(clients=1, tokens=3, full=False)
    assert gate.rounds_to_wait(view, waiting) == 5
    view.rounds = 3
    assert gate.rounds_to_wait(view, waiting) == 2
    view.rounds = 4
    assert gate.rounds_to_wait(view, Waiting(2, 3, False)) == 1
    view.rounds = 5
    assert gate.rounds_to_wait(view, Waiting(2, 3, False)) == 0
    gate.stage_taken(view)
    assert gate.rounds_to_wait(view, Waiting(2, 3, False)) == 3
    assert gate.rounds_to_wait(view, Waiting(2, 3, True)) == 0


class _Clock(_FakeView):
    def __init__(self, worker):
        super().__init__(worker)
        self.now_ns, self.running = 0, {0: 0}


def test_waited_time_prices_the_prompts_that_would_be_prefilled():
    """Pooling, 2 tokens squared: prompts of 3 and 2 tokens take 13 ns, one of 5 tokens 25 ns."""
    view = _Clock(Worker(9, in_order(PoolingCost, 10**6, 0, 0, 10**6, 0)))
    gate = make_gate("waited_time")
    gate.start(view)
    for now, wait in ((0, 1), (12, 1), (13, 0)):
        view.now_ns = now
        assert gate.rounds_to_wait(view, Waiting(2, 5, False)) == wait
    gate.stage_taken(view)
    view.now_ns = 20  # the count starts anew with the first decision after the stage
    assert gate.rounds_to_wait(view, Waiting(2, 5, False)) == 1
    view.now_ns = 33
    assert gate.rounds_to_wait(view, Waiting(2, 5, False)) == 0


def test_gates_of_models_without_a_time_for_typical_steps_never_wait():
    """A fit with a negative constant is fine for the long prompts it was fitted to."""
    cost = in_order(BilinearCost, 0, 0, 10**6, -(10**8), 0, 0, 10**6, -(10**8))
    worker = Worker(2, cost)
    assert fixed_costs(worker) == (0, 0)
    instance = Instance(
        Requests([500] * 5, [3] * 5, arrival_ns=[0, 0, 7, 9, 9]), worker, first_token="decode"
    )
    for method in ("online", "hybrid", "fcfs", "offline"):
        assert orsched.solve(instance, method, iterations=2).checked


def test_gates_change_when_not_what():
    """A dearer threshold waits longer and takes fewer stages."""
    instance = orsched.load("pang-100x20")
    stages = [
        orsched.solve(
            instance, "hybrid", parameters={"gate_factor": f, "assignment": "shared"}, iterations=1
        ).schedule.results["prefill_stages"]
        for f in (0.0, 1.0, 100.0)
    ]
    assert stages[0] >= stages[1] >= stages[2]
    assert stages[0] > stages[2]


def test_clairvoyant_methods_use_the_truth_and_predicted_ones_do_not():
    """With predictions swapped, ``predicted`` orders by them; ``clairvoyant`` does not care."""
    worker = Worker(1, UNIT)
    instance = Instance(
        Requests([1, 1], [9, 2], predicted_tokens=[2, 9]), worker, first_token="decode"
    )
    truth = _run(instance, "clairvoyant", assignment="shared")
    believed = _run(instance, "predicted", assignment="shared")
    assert _starts(instance, truth)[0] == 0
    assert _starts(instance, believed)[1] == 0


def test_planning_on_predictions_never_sees_the_truth():
    """INV-8: two instances that differ in the true lengths only get the same plan."""
    base = orsched.load("pang-100x20")
    other = base.replace(
        requests=base.requests.replace(output_tokens=base.requests.output_tokens[::-1])
    )
    plans = [
        orsched.solve(i, "hybrid@predicted", iterations=8).schedule.parameters
        for i in (base, other)
    ]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"assignment": "nowhere"}, "assignment"),
        ({"order": "best"}, "order"),
        ({"steal": 1}, "steal"),
        ({"gate": "open"}, "gate"),
        ({"gate_factor": -1}, "gate_factor"),
        ({"gate_factor": float("nan")}, "gate_factor"),
        ({"gate_factor": "2"}, "gate_factor"),
        ({"nonsense": 2}, "parameters"),
    ],
)
def test_wrong_parameters_are_refused(params, field):
    with pytest.raises(InputError) as caught:
        orsched.solve(orsched.load("two-by-two"), "hybrid", parameters=params)
    assert caught.value.field == field


def test_packing_without_lengths_is_refused():
    with pytest.raises(InputError, match="packing needs"):
        _run(orsched.load("two-by-two"), "none", assignment="packing")


def test_unknown_gate_is_refused():
    with pytest.raises(InputError, match="unknown gate"):
        make_gate("door")


@pytest.mark.parametrize(
    ("method", "workers", "problem"),
    [("mico", 2, "mico chooses"), ("gittins", 2, "gittins chooses")],
)
@pytest.mark.parametrize("name", ["dispatch", "steal"])
def test_parameters_of_a_dispatcher_are_refused_where_there_is_none(method, workers, problem, name):
    instance = Instance(
        Requests([1], [1], arrival_ns=None, predicted_tokens=[1]),
        (Worker(1, UNIT),) * workers,
        first_token="decode",
    )
    with pytest.raises(InputError, match=problem) as error:
        orsched.solve(instance, method, parameters={name: "least_work"})
    assert error.value.field == name


def test_an_unknown_method_is_named_as_the_argument_is():
    with pytest.raises(InputError, match="unknown method 'nix'") as error:
        orsched.solve(Instance(Requests([1], [1]), Worker(1, UNIT), first_token="decode"), "nix")
    assert error.value.field == "method"


def test_hooks_that_are_set_on_an_object_are_not_called():
    """Which ones a run calls is read from the class (the page *Write your own policy* says so)."""
    heard = []
    policy = FirstComeFirstServed()
    policy.on_finish = lambda view, request, client: heard.append(request)
    instance = Instance(Requests([1], [1]), Worker(1, UNIT), first_token="decode")
    simulate_policy(instance, policy)
    assert heard == []

    class Listening(FirstComeFirstServed):
        def on_finish(self, view, request, client):
            heard.append(request)

    simulate_policy(instance, Listening())
    assert heard == [0]


@pytest.mark.parametrize("assignment", ["shared", "round_robin"])
@pytest.mark.parametrize("method", ["online", "hybrid"])
def test_interactive_requests_come_first_where_that_is_asked_for(method, assignment):
    requests = Requests(
        [1] * 4,
        [4, 3, 2, 1],
        arrival_ns=None,
        predicted_tokens=[4, 3, 2, 1],
        service_class=[1, 1, 0, 0],
    )
    instance = Instance(requests, Worker(1, UNIT), first_token="decode")
    orders = {}
    for priority in ("none", "service_class"):
        parameters = {
            "assignment": assignment, "order": "longest", "gate": "prefill_first",
            "gate_factor": 1.0, "priority": priority,
        }  # fmt: skip
        result = orsched.solve(
            instance, method, information="predicted", parameters=parameters, iterations=1
        )
        starts = _starts(instance, result.schedule)
        orders[priority] = sorted(range(4), key=starts.__getitem__)
        assert result.schedule.parameters["priority"] == priority
    assert orders == {"none": [0, 1, 2, 3], "service_class": [2, 3, 0, 1]}


def test_fcfs_needs_no_start_of_a_class_derived_from_it():
    class Silent(FirstComeFirstServed):
        def start(self, view):
            pass

    instance = orsched.load("pang-100x20")
    found = orsched.simulate(instance, Silent())
    assert found.makespan_ns == orsched.simulate(instance, FirstComeFirstServed()).makespan_ns


@pytest.mark.parametrize("method", ["offline", "offline@predicted", "hybrid", "hybrid@predicted"])
def test_packing_gets_a_part_of_the_time_left(monkeypatch, method):
    limits = []
    pack = pang.pack

    def noted(lengths, clients, time_limit=None):
        limits.append(time_limit)
        return pack(lengths, clients, time_limit)

    monkeypatch.setattr(pang, "pack", noted)
    instance = orsched.load("pang-100x20")
    orsched.solve(instance, method, time_limit=30.0, iterations=1)
    orsched.solve(instance, method, iterations=1)
    assert limits[0] is not None
    assert 0 < limits[0] <= 7.5
    assert limits[1] is None


@pytest.mark.parametrize(("limit", "runs"), [(25.0, 2), (15.0, 0), (5.0, 0), (0.0, 0)])
def test_a_predicting_search_leaves_time_for_the_run_on_the_truth(monkeypatch, limit, runs):
    stop, done = Countdown(limit), []
    simulate = pang.simulate_policy

    def slow(*args, **kwargs):
        simulated = simulate(*args, **kwargs)
        stop.now += 10
        kwargs["deadline"]()
        done.append(simulated)
        return simulated

    monkeypatch.setattr(pang, "simulate_policy", slow)
    monkeypatch.setattr(pang, "perf_counter", lambda: stop.now)
    instance = orsched.load("pang-100x20")
    result = orsched.solve(instance, "hybrid@predicted", stop=stop)
    assert result.checked
    assert result.schedule.information == "predicted"
    assert len(done) == runs
    late = "time ended before hybrid had a schedule; this is that of fcfs"
    assert (late in result.notes) == (not runs)


def drawn(seed):
    """Builder, its limits, and requests: prompts and blocks of each."""
    rng = random.Random(f"batch builder {seed}")
    prompts = [rng.randint(1, 9) for _ in range(rng.randint(1, 12))]
    blocks = [rng.randint(1, 5) for _ in prompts]
    cap = rng.choice((None, rng.randint(9, 30)))
    memory = rng.choice((None, BlockMemory(rng.randint(5, 20), 4, rng.choice(("whole", "paged")))))
    clients, padding = rng.randint(1, 8), rng.random() < 0.5
    own = None if memory is None else blocks
    batch = batch_of(prompts, cap, clients, own, memory=memory, padding=padding)
    return batch, prompts, blocks, cap, memory, clients, padding


def fits(requests, prompts, blocks, cap, memory, clients, padding):
    """Whether all of these fit into one prefill of an empty worker."""
    own, held = [prompts[r] for r in requests], [blocks[r] for r in requests]
    tokens = max(own) * len(own) if padding else sum(own)
    most = max(held) * len(held) if padding and memory and memory.is_paged else sum(held)
    return (
        len(requests) <= clients
        and (cap is None or tokens <= cap)
        and (memory is None or most <= memory.blocks)
    )


def test_it_takes_the_longest_front_of_a_queue_that_fits():
    for seed in range(300):
        batch, prompts, *limits = drawn(seed)
        queue = deque(range(len(prompts)))
        taken = batch.take(queue)
        fitting = [k for k in range(1, len(prompts) + 1) if fits(range(k), prompts, *limits)]
        assert taken == list(range(max(fitting, default=0))), seed
        assert [*taken, *queue] == list(range(len(prompts)))


def test_offered_and_asked_one_by_one_the_same_are_taken():
    for seed in range(300):
        batch, prompts, *_, clients, _ = drawn(seed)
        taken = batch.take(deque(range(len(prompts))))
        asked = []

        def offered(asked, most):
            for request in range(most):
                yield request
                asked.append(request)

        assert (
            batch.take_offered(offered(asked, min(len(prompts), clients)), clients)
            == taken
            == asked
        ), seed
        batch.open()
        admitted = [request for request in range(len(prompts)) if batch.admit(request)]
        assert admitted[: len(taken)] == taken, seed


def test_the_first_may_be_longer_than_a_step_and_memory_can_be_left_out():
    batch = batch_of([30, 1], 20, memory=BlockMemory(1, 4, "whole"), blocks=[9, 9])
    assert not batch.open().admit(0)
    free = type(batch)(batch.view, memory=False)
    assert free.open().admit(0)
    assert not free.admit(1)
