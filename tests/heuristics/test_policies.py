"""The policies of Pang's methods: what each promises, on hand-checkable cases."""

import random
from collections import deque
from types import SimpleNamespace

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
from tests.stops import Countdown

UNIT = in_order(AffineCost, 10, 1, 4, 0)
TWO_BY_TWO, PANG = orsched.load("two-by-two"), orsched.load("pang-100x20")


def alone(prompts, outputs, worker=None, **columns):
    """The requests on one worker; a client alone unless said."""
    return Instance(Requests(prompts, outputs, **columns), worker or Worker(1, UNIT), "decode")


def _run(instance, information="clairvoyant", **params):
    policy = GatedPolicy(GatedParams(**params), Information(information))
    return simulate_policy(instance, policy).schedule


def _pop(queues, client):
    """The request that a client gets, or -1."""
    stage, _ = queues.fill([client], batch_of([0] * 100))
    return stage[0] if stage else -1


def _starts(instance, schedule):
    return schedule.request_times(instance)["prefill_start_ns"].tolist()


def test_fcfs_keeps_the_order_and_stops_at_the_first_that_does_not_fit():
    """Cap 6: the stage takes 4 and stops at 5, although 1 would fit."""
    instance = alone([4, 5, 1], [1, 1, 1], Worker(3, UNIT, prefill_cap_tokens=6))
    assert _starts(instance, orsched.solve(instance, "fcfs").schedule) == [0, 14, 14]


def test_offline_serves_each_request_on_the_client_it_was_packed_to():
    instance = orsched.load("packing")
    schedule = _run(instance, assignment="packing", steal=False, gate="prefill_first")
    packed = pang.pack(instance.requests.output_tokens.tolist(), instance.worker.clients)
    assert schedule.request_times(instance)["client"].tolist() == packed.assignment


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
        if not shared:
            assert owner == client if totals[client] else totals[owner] == max(totals)
        assert tokens == max(t for c, t in waiting.values() if shared or c == owner)
        del waiting[taken]
        assert queues.queued == len(waiting)
        client = (client + 1) % 4


def test_fixed_costs_are_read_off_the_cost_model():
    assert fixed_costs(Worker(200)) == (25_000_000, 29_000_000)
    assert fixed_costs(Worker(4, UNIT, prefill_cap_tokens=1)) == (11, 4)


def test_idle_cost_opens_when_idle_rounds_have_paid_for_the_stage():
    """Stage 10, round 4 on 2 clients: an idle client-round costs 2, so 5 of them pay for it."""
    view = SimpleNamespace(worker=Worker(2, UNIT), rounds=0)
    gate = IdleCost()
    gate.start(view)
    waiting = Waiting(clients=1, tokens=3, full=False)
    assert gate.rounds_to_wait(view, waiting) == 5
    for view.rounds, clients, rounds in ((3, 1, 2), (4, 2, 1), (5, 2, 0)):
        assert gate.rounds_to_wait(view, Waiting(clients, 3, False)) == rounds
    gate.stage_taken(view)
    assert gate.rounds_to_wait(view, Waiting(2, 3, False)) == 3
    assert gate.rounds_to_wait(view, Waiting(2, 3, True)) == 0


def test_the_printed_gate_counts_the_tokens_of_the_decode_stage():
    """Eq. (43): a prompt of 3 tokens takes 13; a round is 4 and 1 a request, so T^d is 1: 3 tokens
    a round. Requests that have ended no longer count; a full stage does not wait."""
    worker = Worker(4, in_order(AffineCost, 10, 1, 4, 1))
    view = SimpleNamespace(worker=worker, rounds=0, running={0: 0, 1: 1, 2: 2})
    gate = make_gate("printed")
    gate.start(view)
    for view.rounds, tokens, wait in ((0, 3, 5), (1, 3, 4), (4, 3, 1), (5, 3, 0), (4, 2, 0)):
        assert gate.rounds_to_wait(view, Waiting(1, tokens, False)) == wait
    gate.stage_taken(view)
    view.running.pop(0)
    assert gate.rounds_to_wait(view, Waiting(1, 3, False)) == 7
    assert gate.rounds_to_wait(view, Waiting(1, 3, True)) == 0


def test_waited_time_prices_the_prompts_that_would_be_prefilled():
    """Pooling, 2 tokens squared: prompts of 3 and 2 tokens take 13 ns, one of 5 tokens 25 ns."""
    worker = Worker(9, in_order(PoolingCost, 10**6, 0, 0, 10**6, 0))
    view = SimpleNamespace(worker=worker, rounds=0, now_ns=0, running={0: 0})
    gate = make_gate("waited_time")
    gate.start(view)
    for view.now_ns, wait in ((0, 1), (12, 1), (13, 0)):
        assert gate.rounds_to_wait(view, Waiting(2, 5, False)) == wait
    gate.stage_taken(view)  # the count starts anew with the first decision after the stage
    for view.now_ns, wait in ((20, 1), (33, 0)):
        assert gate.rounds_to_wait(view, Waiting(2, 5, False)) == wait


def test_gates_of_models_without_a_time_for_typical_steps_never_wait():
    """A fit with a negative constant is fine for the long prompts it was fitted to."""
    cost = in_order(BilinearCost, 0, 0, 10**6, -(10**8), 0, 0, 10**6, -(10**8))
    worker = Worker(2, cost)
    assert fixed_costs(worker) == (0, 0)
    instance = alone([500] * 5, [3] * 5, worker, arrival_ns=[0, 0, 7, 9, 9])
    for method in ("online", "hybrid", "fcfs", "offline"):
        assert orsched.solve(instance, method, iterations=2).checked


def test_gates_change_when_not_what():
    """A dearer threshold waits longer and takes fewer stages."""
    stages = []
    for factor in (0.0, 1.0, 100.0):
        given = {"gate_factor": factor, "assignment": "shared"}
        result = orsched.solve(PANG, "hybrid", parameters=given, iterations=1)
        stages.append(result.schedule.results["prefill_stages"])
    assert stages[0] >= stages[1] >= stages[2]
    assert stages[0] > stages[2]


def test_clairvoyant_methods_use_the_truth_and_predicted_ones_do_not():
    """With predictions swapped, ``predicted`` orders by them; ``clairvoyant`` does not care."""
    instance = alone([1, 1], [9, 2], predicted_tokens=[2, 9])
    truth = _run(instance, "clairvoyant", assignment="shared")
    believed = _run(instance, "predicted", assignment="shared")
    assert _starts(instance, truth)[0] == 0
    assert _starts(instance, believed)[1] == 0


def test_planning_on_predictions_never_sees_the_truth():
    """INV-8: two instances that differ in the true lengths only get the same plan."""
    requests = PANG.requests.replace(output_tokens=PANG.requests.output_tokens[::-1])
    plans = [
        orsched.solve(each, "hybrid@predicted", iterations=8).schedule.parameters
        for each in (PANG, PANG.replace(requests=requests))
    ]
    assert plans[0] == plans[1]


def test_packing_without_lengths_and_unknown_gates_are_refused():
    with pytest.raises(InputError, match="packing needs"):
        _run(TWO_BY_TWO, "none", assignment="packing")

    with pytest.raises(InputError, match="unknown gate"):
        make_gate("door")


def test_hooks_that_are_set_on_an_object_are_not_called():
    """Which ones a run calls is read from the class (the page *Write your own policy* says so)."""
    heard = []
    policy = FirstComeFirstServed()
    policy.on_finish = lambda view, request, client: heard.append(request)
    simulate_policy(alone([1], [1]), policy)
    assert heard == []

    class Listening(FirstComeFirstServed):
        def on_finish(self, view, request, client):
            heard.append(request)

    simulate_policy(alone([1], [1]), Listening())
    assert heard == [0]


@pytest.mark.parametrize("assignment", ["shared", "round_robin"])
@pytest.mark.parametrize("method", ["online", "hybrid"])
def test_interactive_requests_come_first_where_that_is_asked_for(method, assignment):
    columns = {"predicted_tokens": [4, 3, 2, 1], "service_class": [1, 1, 0, 0]}
    instance = alone([1] * 4, [4, 3, 2, 1], **columns)
    orders = {}
    for priority in ("none", "service_class"):
        spec = f"{method}@predicted+assignment={assignment}+priority={priority}+order=longest"
        spec += "+gate=prefill_first+gate_factor=1.0"
        schedule = orsched.solve(instance, spec, iterations=1).schedule
        orders[priority] = sorted(range(4), key=_starts(instance, schedule).__getitem__)
        assert schedule.parameters["priority"] == priority
    assert orders == {"none": [0, 1, 2, 3], "service_class": [2, 3, 0, 1]}


def test_fcfs_needs_no_start_of_a_class_derived_from_it():
    class Silent(FirstComeFirstServed):
        def start(self, view):
            pass

    found = orsched.simulate(PANG, Silent())
    assert found.makespan_ns == orsched.simulate(PANG, FirstComeFirstServed()).makespan_ns


@pytest.mark.parametrize("method", ["offline", "offline@predicted", "hybrid", "hybrid@predicted"])
def test_packing_gets_a_part_of_the_time_left(monkeypatch, method):
    limits = []
    pack = pang.pack

    def noted(lengths, clients, time_limit=None):
        limits.append(time_limit)
        return pack(lengths, clients, time_limit)

    monkeypatch.setattr(pang, "pack", noted)
    orsched.solve(PANG, method, time_limit=30.0, iterations=1)
    orsched.solve(PANG, method, iterations=1)
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
    result = orsched.solve(PANG, "hybrid@predicted", stop=stop)
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
    room = memory is None or most <= memory.blocks
    return len(requests) <= clients and (cap is None or tokens <= cap) and room


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

        most = min(len(prompts), clients)
        assert batch.take_offered(offered(asked, most), clients) == taken == asked, seed
        batch.open()
        admitted = [request for request in range(len(prompts)) if batch.admit(request)]
        assert admitted[: len(taken)] == taken, seed


def test_the_first_may_be_longer_than_a_step_and_memory_can_be_left_out():
    batch = batch_of([30, 1], 20, memory=BlockMemory(1, 4, "whole"), blocks=[9, 9])
    assert not batch.open().admit(0)
    free = type(batch)(batch.view, memory=False)
    assert free.open().admit(0)
    assert not free.admit(1)
