"""Echo by hand; methods for bulk work on any instance: interactive requests come first."""

import math
import random

import pytest

from orsched import (
    AffineCost,
    InfeasibleError,
    Instance,
    PoolingCost,
    Prefixes,
    Requests,
    ServiceClass,
    Worker,
)
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.heuristics.continuous import engine_steps
from orsched.heuristics.echo import MemoryForecast, PoolingTime, fitted_time, micro_benchmarks
from orsched.heuristics.forecast import KEPT
from orsched.heuristics.slack import AnswerLengths
from tests.heuristics.building import built, require_sound, solved, starts_of
from tests.in_order import in_order
from tests.random_instances import random_batching_instance
from tests.seeds import seeds
from tests.simulator.prefix_workloads import prefix_instance

MS = 1_000_000
COST = in_order(AffineCost, 10 * MS, MS, 10 * MS, 0)  # whatever decodes beside

CLASSES = (ServiceClass("interactive", ttft_s=0.1, tpot_s=0.05), ServiceClass("batch"))
INTERACTIVE, BULK = 0, 1


def instance(rows, clients=8, blocks=100, document=None, shared=0):
    """Return an instance of (class, prompt, output, arrival in ms), with blocks of 4 tokens."""
    kind, prompts, outputs, arrivals = zip(*rows, strict=True)
    documents = document or [-1] * len(rows)
    requests = Requests(
        prompts, outputs, arrival_ns=[each * MS for each in arrivals], service_class=kind,
        prefixes=Prefixes.from_documents(documents, [shared] * len(rows), 4),
    )  # fmt: skip
    memory = BlockMemory(blocks, 4, "paged", PrefixCache())
    worker = Worker(clients, COST, memory=memory)
    return Instance(requests, worker, first_token="prefill", classes=CLASSES)


BESIDE = instance([(INTERACTIVE, 10, 3, 0), (BULK, 100, 1, 0)])
"""An interactive request of 3 tokens, and a bulk request with a prompt of 100 beside it."""


def on_one_client(*document):
    """Three equal bulk requests, one after the other; those of a document share a block."""
    return instance([(BULK, 8, 1, 0)] * 3, clients=1, document=document, shared=4)


def run(problem, method="echo", **parameters):
    """Return the engine's steps as (start in ms, tokens), and the schedule, which is checked."""
    schedule = solved(problem, method, **parameters)
    steps = [(each.start_ns // MS, each.tokens) for each in engine_steps(schedule)]
    return steps, schedule


def test_bs_evicts_running_bulk_work_for_a_waiting_interactive_request():
    problem = instance([(BULK, 8, 4, 0), (INTERACTIVE, 12, 1, 5)], blocks=4)
    steps, _ = run(problem, configuration="bs")
    assert steps[:3] == [
        (0, {0: 8}),
        (18, {1: 12}),  # 3 of 4 blocks: the bulk request, which has 2, is evicted
        (40, {0: 5}),  # 8 + 1 tokens, of which one block of 4 is still there
    ]


def test_bs_pays_no_regard_to_limits_and_e_does():
    steps, _ = run(BESIDE, configuration="bs")
    assert steps[0] == (0, {0: 10, 1: 100})
    steps, _ = run(BESIDE, configuration="bs-e", estimator="machine")
    assert steps[0] == (0, {0: 10, 1: 80})  # 10 + 10 + 80 ms: the first token is due at 100
    assert steps[1] == (100, {0: 1, 1: 20})  # the second one at 150


def test_without_slack_bulk_work_pauses():
    problem = instance([(INTERACTIVE, 85, 3, 0), (BULK, 100, 1, 0)])
    steps, _ = run(problem, configuration="bs-e", estimator="machine", margin=0.9)
    assert steps[0] == (0, {0: 85})  # 95 of 100 ms; a tenth of that for bulk work is too little
    assert steps[1] == (95, {0: 1})  # 55 ms until it is due: 5 for bulk work
    assert all(time <= 100 + 50 * place for place, (time, _) in enumerate(steps[1:3]))


@pytest.mark.parametrize(("configuration", "order"), [("bs-e", [0, 1, 2]), ("bs-e-s", [0, 2, 1])])
def test_the_scheduler_takes_the_request_that_shares_the_cached_prefix(configuration, order):
    problem = on_one_client(1, 2, 1)
    _, schedule = run(problem, configuration=configuration, estimator="machine")
    assert list(starts_of(schedule)) == order
    assert schedule.work.hit.tolist().count(4) == 1  # request 2 finds the block of request 0


def test_the_other_tokens_of_a_step_count():
    """Eq. (4): beside 12 that decode for nothing, 12 + 4 tokens in 14 ms are better than 12 + 30 in
    40 ms, though 30 in 40 ms are better than 4 in 14 ms."""
    rows = [(BULK, 4, 60, 0)] * 12 + [(BULK, 30, 1, 300), (BULK, 4, 1, 300)]
    problem = instance(rows, clients=13, blocks=1000)
    _, schedule = run(problem, configuration="bs-e-s", estimator="machine")
    assert list(starts_of(schedule))[12:] == [13, 12]


@pytest.mark.parametrize(("configuration", "waits"), [("bs-e-s", False), ("echo", True)])
def test_the_manager_keeps_memory_free_for_interactive_requests(configuration, waits):
    """Request 0 had 5 of 8 blocks for most of the time; both bulk requests need 5 together."""
    rows = [(INTERACTIVE, 20, 2, 0), (BULK, 4, 4, 100), (BULK, 16, 1, 100)]
    problem = instance(rows, blocks=8)
    _, schedule = run(problem, configuration=configuration, estimator="machine", candidates=1)
    first = starts_of(schedule)
    assert (first[1] != first[2]) == waits


def test_task_aware_eviction_is_the_managers():
    problem = instance([(BULK, 8, 1, 0)])
    assert run(problem, configuration="echo")[1].eviction == {"rule": "task_aware"}
    assert run(problem, configuration="bs-e-s")[1].eviction is None  # the worker's own


def test_followers_wait_for_the_prefix_that_is_being_computed():
    rows = [(BULK, 44, 1, 0), (BULK, 44, 1, 0)]
    problem = instance(rows, document=[1, 1], shared=40)
    steps, _ = run(problem, configuration="bs", max_num_batched_tokens=20)
    assert [tokens for _, tokens in steps] == [{0: 20}, {0: 20}, {0: 4, 1: 4}]


def test_limits_can_be_given_in_place_of_those_of_the_classes():
    steps, _ = run(BESIDE, configuration="bs-e", estimator="machine", ttft_s=0.05)
    assert steps[0] == (0, {0: 10, 1: 30})


def test_hygen_keeps_each_step_to_its_budget():
    steps, _ = run(BESIDE, "hygen")
    assert steps[:2] == [(0, {0: 10, 1: 30}), (50, {0: 1, 1: 40})]


def test_hygen_walks_the_prefix_tree():
    assert list(starts_of(run(on_one_client(1, 2, 1), "hygen")[1])) == [0, 2, 1]


def test_conserve_takes_long_steps_alone_and_short_ones_beside_interactive_requests():
    problem = instance([(BULK, 300, 1, 0), (INTERACTIVE, 10, 2, 60)])
    steps, _ = run(problem, "conserve")
    assert steps[:3] == [(0, {0: 90}), (100, {1: 10, 0: 30}), (150, {1: 1, 0: 40})]


def test_conserve_resumes_from_what_is_kept():
    problem = instance([(BULK, 8, 4, 0), (INTERACTIVE, 4, 1, 25)], clients=1)
    steps, schedule = run(problem, "conserve")
    assert steps[:3] == [(0, {0: 8}), (18, {0: 1}), (28, {1: 4})]
    assert schedule.work.hit.max() == 8  # both full blocks of its prompt


def test_slack_spreads_what_is_left_of_the_first_limit():
    """After its first token at 50 ms request 0 has 50 ms in hand and at most 2 tokens to come."""
    problem = instance([(INTERACTIVE, 10, 3, 0), (BULK, 300, 1, 0)])
    steps, _ = run(problem, "slack")
    assert steps[0] == (0, {0: 10, 1: 80})  # due at 100
    assert steps[1] == (100, {0: 1, 1: 40})  # no slack: TPOT


def test_slack_does_the_group_with_most_tokens_a_second_first():
    problem = on_one_client(1, 2, 2)
    assert list(starts_of(run(problem, "slack")[1])) == [1, 2, 0]
    assert list(starts_of(run(problem, "slack", order="tree")[1])) == [0, 1, 2]


def test_the_fit_finds_a_machine_that_follows_the_equations():
    truth = PoolingCost.from_ms(alpha=1e-5, beta=0.05, c=5, gamma=0.004, delta=0.002, lambda_=1.1)
    found = PoolingTime(fitted_time(truth, 64, 8192))
    for load in (([900], 0, 0, 0), ([], 7, 7000, 3000), ([300], 12, 20_000, 4000)):
        assert found.step_ns(*load) == pytest.approx(truth.mixed_ns(*load), rel=1e-3)


def test_the_fit_is_wrong_for_a_machine_that_does_not():
    """A round of eq. (7) has no fixed part and no number of requests."""
    truth = AffineCost(round_fixed_ns=10_000_000, round_client_ns=200_000)
    found = PoolingTime(fitted_time(truth, 64, 8192))
    assert found.step_ns([], 1, 8192, 8192) == found.step_ns([], 64, 64 * 8192, 8192)
    assert found.step_ns([], 0, 0, 0) == 0  # nothing takes no time


def test_benchmarks_keep_to_the_clients():
    rows = micro_benchmarks(AffineCost(), 4, 500)
    assert set(rows.phase) == {"prefill", "decode", "mixed"}
    assert max(rows.count) <= 4
    assert max(rows.column("context_max")) == 500


def test_the_forecast_is_the_mean_over_time_plus_deviations():
    forecast = MemoryForecast(window_s=100.0, sigmas=2.0)
    assert forecast.blocks(0) == 0
    forecast.see(0, 10)
    forecast.see(30_000_000_000, 20)
    mean, variance = 17.5, (0.25 * 100 + 0.75 * 400) - 17.5**2  # 30 s at 10, 90 s at 20
    assert forecast.blocks(120_000_000_000) == math.ceil(mean + 2 * math.sqrt(variance))


def test_the_forecast_forgets():
    forecast = MemoryForecast(window_s=10.0, sigmas=0.0)
    for second, blocks in enumerate([100, 0, 0, 7, 8, *[7] * 10, 8, 7]):
        forecast.see(second * 10**9, blocks)
    assert 7 <= forecast.blocks(17 * 10**9) <= 8
    steady = MemoryForecast(window_s=10.0, sigmas=2.0)  # one value has no deviation
    for second in range(5):
        steady.see(second * 10**9, 40)
    assert steady.blocks(9 * 10**9) == 40


def test_before_any_answer_the_limit_holds():
    lengths = AnswerLengths(500)
    assert lengths.rest(100, 0.9) == 400
    assert lengths.rest(500, 0.9) == 1
    assert lengths.mean == 1.0


def test_rest_is_a_quantile_of_the_longer_ones():
    lengths = AnswerLengths(500)
    for tokens in range(1, 101):
        lengths.add(tokens)
    assert lengths.rest(0, 0.9) == 91
    assert lengths.rest(50, 0.5) == 26  # the 51 .. 100 that are longer: place 25
    assert lengths.rest(99, 1.0) == 1
    assert lengths.rest(100, 0.9) == 400  # none was longer: up to the limit
    assert lengths.mean == 50.5


def test_old_answers_are_forgotten():
    lengths = AnswerLengths(500)
    for tokens in [400] * KEPT + [10] * KEPT:
        lengths.add(tokens)
    assert lengths.mean == 10
    assert lengths.rest(0, 1.0) == 10


METHODS = (
    ("echo", {"configuration": "bs"}), ("echo", {"configuration": "bs-e"}),
    ("echo", {"configuration": "bs-e-s", "buckets": 2}),
    ("echo", {"configuration": "echo", "estimator": "machine", "candidates": 2}), ("hygen", {}),
    ("conserve", {"safepoint_s": 0.001}), ("slack", {"idle_step_s": 0.001}),
    ("slack", {"order": "tree", "quantile": 0.5}),
)  # fmt: skip


every_method = pytest.mark.parametrize(("name", "params"), METHODS, ids=str)


def with_limits(instance, rng, *limits):
    ttft, tpot = (rng.choice((None, *limits)) for _ in range(2))
    interactive = ServiceClass("interactive", ttft_ns=ttft, tpot_ns=tpot, bulk=False)
    return instance.replace(classes=(interactive, ServiceClass("batch")))


def drawn(seed):
    """Return a random instance with one worker that does not pad, and classes with limits."""
    rng = random.Random(seed)
    while True:
        instance = random_batching_instance(rng)
        worker = instance.workers[0]
        if worker.padding:
            continue
        classes = [rng.choice((0, 1)) for _ in range(len(instance))]
        requests = instance.requests.replace(service_class=classes)
        unit = 1 + worker.cost.prefill_ns([1]) + worker.cost.round_ns(1, 2, 2)
        instance = instance.replace(requests=requests, workers=(worker,))
        return with_limits(instance, rng, unit, 10 * unit)


def cached(seed, eviction="lru"):
    """Return a random instance with few blocks and shared prefixes, and classes with limits."""
    return with_limits(prefix_instance(seed, eviction=eviction), random.Random(seed), 2_000, 20_000)


@every_method
@pytest.mark.parametrize("seed", seeds(12, 60))
def test_the_checker_accepts(name, params, seed):
    instance = drawn(seed)
    try:
        instance.require_feasible(True)
    except InfeasibleError:
        return
    solved(instance, name, **params)


@every_method
@pytest.mark.parametrize("seed", seeds(12, 60))
def test_the_checker_accepts_what_is_done_with_a_prefix_cache(name, params, seed):
    instance = cached(seed, ("lru", "task_aware")[seed % 2])
    tokens = random.Random(seed).choice((3, 17, 2048))
    solved(instance, name, **params, max_num_batched_tokens=tokens)


@every_method
@pytest.mark.parametrize("seed", seeds(10, 40))
def test_no_bulk_request_starts_while_an_interactive_one_waits(name, params, seed):
    instance = cached(seed)
    bulk, arrivals = instance.bulk, instance.requests.arrival_ns.tolist()
    begun = set()

    def look(view, step):
        there = {row for row in range(len(instance)) if arrivals[row] <= view.now_ns}
        waiting = {row for row in there - begun if not bulk[row]}
        new = {row for row in step.prefill if row not in view.running}
        assert waiting <= new or not any(bulk[row] for row in new)
        begun.update(new)
        begun.difference_update(step.preempt)

    solved(instance, name, observer=look, **params)


@every_method
def test_the_same_instance_gives_the_same_schedule(name, params):
    require_sound(cached(7), lambda case: built(case, name, **params))


@every_method
@pytest.mark.parametrize("seed", range(6))
def test_a_dispatcher_serves_several_workers(name, params, seed):
    instance = prefix_instance(seed, workers=3)
    schedule = solved(instance, name, **params, dispatch="prefix", steal=True)
    if params.get("configuration") == "echo":
        assert schedule.eviction == {"rule": "task_aware"}
