"""The default dispatcher: suits unequal workers, and knows no lengths."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

import orsched
from benchmarks.dispatching import FLEETS, instance
from orsched import AffineCost, InputError, Instance, Prefixes, Requests, Worker
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.heuristics.dispatching import DEFAULT, DISPATCHERS, Dispatched, Soonest
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.heuristics.policy_method import LiveMethod
from orsched.metrics.summary import summarise
from orsched.simulator import simulate_policy
from orsched.solving.method_choice import method_info, method_named, method_names
from orsched.solving.scenario import scenario, with_workers
from tests.heuristics.building import solved
from tests.heuristics.building import workers_of as last_workers_of
from tests.in_order import in_order
from tests.simulator.scripted import OneByOne


def workers_of(problem, **parameters):
    owners = last_workers_of(solved(problem, "vllm", **parameters))
    return [owners[row] for row in range(len(problem))]


def jct(problem, dispatch):
    schedule = solved(problem, "vllm", dispatch=dispatch)
    return summarise(problem, schedule)["jct_ns"]["mean"]


def test_it_is_the_default():
    assert DISPATCHERS[DEFAULT] is Soonest
    problem = instance("all three", "chat", 0.7, 60, 0)
    assert workers_of(problem) == workers_of(problem, dispatch="soonest")


@pytest.mark.parametrize("fleet", FLEETS)
def test_it_loses_little_where_workers_are_equal_and_gains_where_they_are_not(fleet):
    problem = instance(fleet, "documents", 0.7, 300, 1)
    soonest = jct(problem, "soonest")
    assert soonest <= 1.02 * jct(problem, "fewest_requests")
    assert soonest <= (0.5 if "1/4" in fleet else 1.01) * jct(problem, "round_robin")


def test_a_request_goes_where_it_is_done_first():
    """A worker twice as fast gets all that come one by one; of two alike the first."""
    fast, slow = in_order(AffineCost, 0, 10, 1000, 0), in_order(AffineCost, 0, 20, 2000, 0)
    requests = Requests([5] * 4, [3] * 4, arrival_ns=[0, 10**5, 2 * 10**5, 3 * 10**5])
    three = tuple(Worker(4, cost, name=str(index)) for index, cost in enumerate((slow, fast, fast)))
    assert workers_of(Instance(requests, three, first_token="decode")) == [1] * 4


def test_a_slow_worker_is_used_once_it_is_the_sooner_one():
    """Rounds of 1 and 2 us, one client each: of three at once the second best is the slow one."""
    fast, slow = in_order(AffineCost, 0, 10, 1000, 0), in_order(AffineCost, 0, 10, 2500, 0)
    requests = Requests([5] * 3, [30] * 3, arrival_ns=[0] * 3)
    two = (Worker(1, slow, name="slow"), Worker(1, fast, name="fast"))
    assert workers_of(Instance(requests, two, first_token="decode")) == [1, 1, 0]


def test_outputs_that_are_not_done_change_nothing():
    """It learns from what has finished only: other lengths of the last request, same workers."""
    problem = instance("all three", "chat", 0.9, 80, 1)
    outputs = problem.requests.output_tokens.copy()
    outputs[-1] = 1000 if outputs[-1] < 500 else 1
    other = problem.replace(requests=problem.requests.replace(output_tokens=outputs))
    assert workers_of(problem) == workers_of(other)


@pytest.mark.parametrize("kind", ["soonest", "latency"])
def test_nothing_is_left_open_in_the_end(kind):
    for seed in range(3):
        problem = instance("all three", "chat", 1.2, 120, seed)
        dispatcher = DISPATCHERS[kind]()
        simulate_policy(problem, Dispatched(FirstComeFirstServed, dispatcher, steal=False))
        assert not any(dispatcher.open)
        assert not dispatcher.unstarted
        assert not dispatcher.began
        assert max(map(abs, dispatcher.waiting_ns)) < 1e-3
        assert dispatcher.finished == len(problem)
        assert dispatcher.outputs == problem.requests.output_tokens.sum()


def view_of(workers, prompts):
    views = [SimpleNamespace(worker=worker, index=i) for i, worker in enumerate(workers)]
    for view in views:
        view.workers = views
        view.prompt_tokens = prompts
        view.output_limit_tokens = 100
        size = getattr(view.worker.memory, "block_tokens", 1)
        view.blocks_of = lambda request, size=size: -(-(prompts[request] + 100) // size)
    return views[0]


def plainly(dispatcher, view, request):
    """Return the first worker of the least load among all that can hold the request."""
    loads = list(dispatcher.loads)
    able = (index for index in range(len(loads)) if dispatcher.holds(view, request, index))
    return min(able, key=loads.__getitem__)


@pytest.mark.parametrize("kind", ["fewest_requests", "least_work"])
@pytest.mark.parametrize("rooms", [[None], [None, 50], [20, 50, 20, 400]])
@pytest.mark.parametrize("seed", range(5))
def test_the_heap_finds_whom_a_look_at_all_finds(kind, rooms, seed):
    drawn = random.Random(seed)
    memory = {room: None if room is None else BlockMemory(room, 16, "whole") for room in rooms}
    workers = [Worker(drawn.choice([4, 8]), memory=memory[drawn.choice(rooms)]) for _ in range(9)]
    view = view_of(workers, [drawn.randrange(1, 900) for _ in range(500)])
    dispatcher = DISPATCHERS[kind]()
    dispatcher.start(view)
    placed = []
    for request in range(500):
        expected = plainly(dispatcher, view, request)
        assert dispatcher.choose(view, request) == expected
        placed.append((request, expected))
        while placed and drawn.random() < 0.45:
            done, worker = placed.pop(drawn.randrange(len(placed)))
            dispatcher.on_finish(view.workers[worker], done)
        if drawn.random() < 0.1 and len(dispatcher.away) < 7:
            dispatcher.lose(drawn.randrange(9))
        elif dispatcher.away:
            dispatcher.bring(drawn.choice(sorted(dispatcher.away)))
        assert all(len(heap) <= 4 * 9 + 64 for heap in dispatcher.heaps)


COST = in_order(AffineCost, 1000, 10, 1000, 10)


def two_workers(documents, arrivals, prompts=None, cache=None):
    """Requests that begin with 8 tokens of a document, on two workers of 4 clients."""
    count = len(documents)
    memory = BlockMemory(64, 4, "paged", cache or PrefixCache())
    workers = tuple(Worker(4, COST, memory=memory, name=f"w{k}") for k in range(2))
    columns = {"arrival_ns": arrivals, "prefixes": Prefixes.from_documents(documents, 8, 4)}
    return Instance(Requests(prompts or [12] * count, [5] * count, **columns), workers, "prefill")


def test_documents_stay_where_they_were_first():
    """Two documents in turn, with gaps: each goes to its worker, whatever is to do there."""
    documents = [0, 1, 1, 1, 0, 1, 0]
    instance = two_workers(documents, [20_000 * k for k in range(len(documents))])
    # The first two find nothing: ties go to the least loaded, then to the first worker.
    assert workers_of(instance, dispatch="prefix") == [0] * len(documents)
    together = two_workers(documents, [0, 0, *(20_000 * k for k in range(1, 6))])
    assert workers_of(together, dispatch="prefix") == documents


@pytest.mark.parametrize(("weight", "workers"), [
    (0, [0, 0, 0, 0]), (3, [0, 0, 0, 0]), (5, [0, 0, 0, 1]), (9, [0, 0, 1, 0]),
    (10**9, [0, 0, 1, 0]),
])  # fmt: skip
def test_open_requests_outweigh_cached_tokens(weight, workers):
    """The first is done as three arrive; worker 0 has 8 tokens of each in its cache."""
    instance = two_workers([0] * 4, [0, 50_000, 50_000, 50_000])
    assert workers_of(instance, dispatch="prefix", load_weight=weight) == workers


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "much", True])
def test_a_load_weight_is_a_number_and_of_prefix_alone(wrong):
    instance = two_workers([0, 0], [0, 0])
    with pytest.raises(InputError, match="is not a number from 0"):
        workers_of(instance, dispatch="prefix", load_weight=wrong)
    with pytest.raises(InputError, match="soonest has no load_weight"):
        workers_of(instance, load_weight=2)


@pytest.mark.parametrize(("limit_ns", "workers"), [(None, [0, 0, 1, 0]), (100, [0, 0, 0, 1])])
def test_predicted_latency_weighs_cached_tokens_and_the_queue(limit_ns, workers):
    """Worker 0 has 8 of 12 tokens of the three that arrive; outputs are 5 tokens. The first is done
    there in 40 + 5 x 1,010 + 120 ns. The second: 80 + 5 x 1,020 + 240 there, and 120 + 5 x 1,010 +
    120 on worker 1. The third: 80 + ... there, 240 + ... on worker 1. With a limit of 100 ns
    on the TTFT: 80 there against 120, then 120 against 120, and the queue decides."""
    instance = two_workers([0] * 4, [0, 50_000, 50_000, 50_000])
    if limit_ns is not None:
        kinds = (orsched.ServiceClass("all", ttft_ns=limit_ns),)
        requests = instance.requests.replace(service_class=[0] * 4)
        instance = instance.replace(requests=requests, classes=kinds)
    assert workers_of(instance, dispatch="latency") == workers


def test_predicted_latency_keeps_to_a_cache_with_four_fifths_unless_that_costs_five_seconds():
    """8 of 10 tokens are on worker 0, where prompts wait that take 4 or 6 s."""
    arrivals = [0, 50_000, 50_000, 50_000]
    assert workers_of(two_workers([0] * 4, arrivals, [10] * 4), dispatch="latency") == [0] * 4
    view = view_of([Worker(4, COST), Worker(4, COST)], [10, 10])
    for each, hit in zip(view.workers, (8, 0), strict=True):
        each.prefixes = SimpleNamespace(hit_tokens=lambda request, hit=hit: hit)
    view.classes, view.service_class = (SimpleNamespace(ttft_ns=None, tpot_ns=None),), None
    for waits_ns, chosen in ((4 * 10**9, 0), (6 * 10**9, 1)):
        dispatcher = DISPATCHERS["latency"]()
        dispatcher.start(view)
        dispatcher.waiting_ns[0] = waits_ns
        assert dispatcher.choose(view, 0) == chosen


def test_what_a_prompt_cannot_hit_does_not_count():
    """A prompt of 8 tokens hits one block of its 2: at least one token is computed."""
    instance = two_workers([0, 1, 0, 1], [0, 0, 50_000, 50_000], [12, 12, 8, 8])
    assert workers_of(instance, dispatch="prefix") == [0, 1, 0, 1]
    schedule = orsched.simulate(instance, "vllm", parameters={"dispatch": "prefix"}).schedule
    assert sorted(schedule.work.hit[schedule.work.hit > 0].tolist()) == [4, 4]


def test_without_caches_it_counts_requests():
    """Nobody hits anything then."""
    instance = two_workers([0, 1, 1, 0, 0], [0, 0, 0, 9_000, 9_000])
    plain = tuple(replace(w, memory=BlockMemory(64, 4, "paged")) for w in instance.workers)
    instance = instance.replace(workers=plain, requests=instance.requests.replace(prefixes=None))
    fewest = workers_of(instance, dispatch="fewest_requests")
    assert workers_of(instance, dispatch="prefix") == fewest


POLICIES = [name for name in method_names() if isinstance(method_named(name), LiveMethod)]
INFO = {name: method_info(name) for name in POLICIES}
TOLD = {name: {"dispatch"} & {each.name for each in INFO[name].parameters} for name in POLICIES}
TAKES = [name for name in POLICIES if INFO[name].workers == "one" or TOLD[name]]
CHOOSES = sorted(set(POLICIES) - set(TAKES))


@pytest.mark.parametrize("method", TAKES)
def test_a_dispatcher_of_one_worker_changes_nothing(method):
    """Nor for policies that serve only one."""
    instance = scenario(orsched.load("two-by-two"), predictions="classes")
    given = {"dispatch": "fewest_requests"}
    alone = orsched.solve(instance, method)
    told = orsched.solve(instance, method, parameters=given)
    assert told.schedule.replace(run={}) == alone.schedule.replace(run={})


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("name", "value"), [("dispatch", "round_robin"), ("steal", True)])
@pytest.mark.parametrize("method", CHOOSES)
def test_a_policy_that_chooses_workers_itself_takes_no_dispatcher(method, name, value, workers):
    several = with_workers(scenario(orsched.load("two-by-two"), predictions="classes"), workers)
    with pytest.raises(InputError, match="chooses workers itself") as caught:
        orsched.solve(several, method, parameters={name: value})
    assert caught.value.field == name


def test_an_own_policy_that_chooses_workers_itself_hears_nothing_on_one():
    given = {"dispatch": "least_work", "steal": True}
    told = orsched.simulate(orsched.load("two-by-two"), OneByOne, parameters=given)
    assert told.makespan == orsched.simulate(orsched.load("two-by-two"), OneByOne).makespan
