"""The search for latencies: decoded times, moves, optima of small instances, and its manners."""

import itertools
import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import orsched
from orsched import BlockMemory, InputError, Instance, Requests, Worker
from orsched.costs import AffineCost, LevelsCost, LinearCost, splits
from orsched.metrics.objective_values import objective_value
from orsched.models.latency_search import plan_moves as moves
from orsched.models.latency_search.latency_plans import (
    FollowSteps,
    engine,
    listed,
    orders_of,
    plans_of,
    problem_of,
)
from orsched.models.latency_search.method import Search
from orsched.simulator import simulate_policy
from orsched.solving.objectives import objective_named
from tests.brute_force import least_sum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.least_in_any_mode import Search as Exhaustive
from tests.random_instances import random_batching_instance
from tests.stops import TimeUp

OBJECTIVES = ("jct_mean", "ttft_mean", "weighted_jct_mean", "0.25*makespan+0.75*jct_mean")


Plain = SimpleNamespace(module=listed(), is_compiled=False, wait=lambda: None)
"""An engine as it is without numba."""
OnArrays = SimpleNamespace(module=moves, is_compiled=False)
"""The sources of both engines, as they stand."""


def instance(rng, workers=1, cost=None, memory=None, n=14, spread=300):
    requests = Requests(
        [rng.randint(1, 40) for _ in range(n)],
        [rng.randint(1, 12) for _ in range(n)],
        arrival_ns=[rng.randint(0, spread) for _ in range(n)],
        weights=[rng.randint(1, 4) for _ in range(n)],
    )
    cost = in_order(AffineCost, 25, 1, 29, 2) if cost is None else cost
    return Instance(
        requests,
        tuple(Worker(4, cost, 64, memory, f"w{j}") for j in range(workers)),
        first_token=rng.choice(("decode", "prefill")),
    )


def search_of(problem_instance, objective, seed, engine_=Plain, *, mixed=True, chunks=True):
    problem = problem_of(problem_instance, objective_named(objective), mixed=mixed, chunks=chunks)
    search = Search(problem, engine_, np.random.default_rng(seed), mixed=mixed)
    begin = orsched.solve(problem_instance, "fcfs").schedule
    assert search.start(plans_of(problem_instance, begin, problem, mixed=mixed))
    return search


def solved(case, objective="jct_mean", options="", **how):
    return orsched.solve(case, f"latency_search{options}", objective, **how)


def gittins(case):
    """The mean JCT of the policy that begins."""
    return orsched.solve(case, "gittins@clairvoyant").jct_mean_s


@pytest.mark.parametrize("seed", range(12))
def test_what_is_decoded_is_what_the_simulator_makes_of_it(seed):
    rng = random.Random(seed)
    memory = rng.choice((None, BlockMemory(14, 8, "whole"), BlockMemory(28, 4, "paged")))
    case = instance(rng, rng.choice((1, 1, 2, 3)), memory=memory)
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    mixed, chunks = rng.random() < 0.8, rng.random() < 0.7
    search = search_of(case, objective, seed, mixed=mixed, chunks=chunks)
    search.anneal(150, search.best / len(case) * 0.3)
    schedule = search.carry_out(case, "it").schedule
    value = objective_value(case, schedule, objective)
    terms = search.problem.coefficients
    decoded = (search.best - terms.constant) / terms.denominator
    assert decoded == pytest.approx(float(value), rel=1e-12)
    assert orsched.check(case, schedule) == []
    assert mixed or not (schedule.steps.phase == 2).any()


@pytest.mark.parametrize("workers", [1, 3])
def test_linear_times_are_those_of_the_model_up_to_rounding(workers):
    cost = in_order(LinearCost, *(10**6 * x for x in (25000, 1000, 11, 29000, 2000, 7, 3000, 5)))
    case = instance(random.Random(5), workers, cost, spread=300_000)
    search = search_of(case, "jct_mean", 0)
    search.anneal(100, search.best / len(case) * 0.1)
    schedule = search.carry_out(case, "it").schedule
    decoded = (search.best - search.problem.coefficients.constant) / len(case)
    assert decoded == pytest.approx(float(objective_value(case, schedule, "jct_mean")), rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_values_kept_along_the_way_are_those_of_a_fresh_decoding(seed):
    case = instance(random.Random(seed), 2, memory=BlockMemory(28, 4, "paged"), n=40)
    search = search_of(case, "0.5*makespan+0.5*ttft_mean", seed)
    for _ in range(4):
        search.anneal(60, search.best / len(case) * 0.2)
        kept = search.value
        assert search.engine.module.evaluate_all(search.tables) == pytest.approx(kept, rel=1e-12)
        tables = search.tables
        ordered = [tables.sequences[j, : tables.lengths[j]].tolist() for j in range(2)]
        assert sorted(i for order in ordered for i in order) == list(range(40))


def test_compiled_moves_do_what_the_plain_ones_do():
    pytest.importorskip("numba")
    engine().wait()
    assert engine().is_compiled
    found = []
    for each in (OnArrays, Plain, engine()):
        case = instance(random.Random(3), 2, memory=BlockMemory(28, 4, "paged"), n=30)
        search = search_of(case, "jct_mean", 7, each)
        search.anneal(400, search.best / len(case) * 0.1)
        tables = search.tables
        found.append((search.value, search.best, tables.counts.tolist(), tables.whole.tolist()))
        assert tables.counts.sum() > 20
    assert found[0] == found[1] == found[2]


def test_without_numba_many_requests_have_fewer_plans_and_moves(monkeypatch):
    """INV: what an iteration decodes is limited, and so are the first plans of a policy."""
    decoded, tried, plain = [], [], listed()

    def all_of(tables):
        decoded.append(len(tables.whole))
        return plain.evaluate_all(tables)

    def moved(tables, value, best, draws, thresholds):
        tried.append(len(thresholds))
        return plain.run_moves(tables, value, best, draws, thresholds)

    module = SimpleNamespace(evaluate_all=all_of, run_moves=moved, evaluate=plain.evaluate)
    monkeypatch.setattr(Plain, "module", module)
    monkeypatch.setattr("orsched.models.latency_search.method.engine", lambda: Plain)
    monkeypatch.setattr("orsched.models.latency_search.method.PLAIN_REQUESTS", 60 * 30)
    case = instance(random.Random(2), n=30)
    assert solved(case, iterations=2).jct_mean_s <= gittins(case)
    assert sum(tried) == 2 * 100  # of 60 in parts of 50
    assert len(decoded) <= 6 * 60 + 2
    decoded.clear()
    assert solved(case, stop=TimeUp()).checked
    assert len(decoded) <= 1
    assert sum(tried) == 2 * 100


def tiny(seed, n, longest, cap):
    rng = random.Random(seed)
    prompts, outputs = ([rng.randint(1, most) for _ in range(n)] for most in longest)
    worker = Worker(2, in_order(AffineCost, 5, 1, 7, 2), cap)
    rule = rng.choice(("decode", "prefill"))
    return Instance(Requests(prompts, outputs), worker, first_token=rule)


@pytest.mark.parametrize("seed", range(6))
def test_without_mixed_steps_small_optima_are_found(seed):
    case = tiny(seed, 5, (9, 6), 12)
    for objective, named in (("jct_mean", "mean_jct"), ("ttft_mean", "mean_ttft")):
        found = solved(case, objective, "+mixed=false+chunks=false", iterations=3)
        value = objective_value(case, found.schedule, objective)
        assert value * 5 == least_sum_ns(case, named)


@pytest.mark.parametrize("seed", range(4))
def test_with_mixed_steps_small_optima_are_found(seed):
    case = tiny(seed, 4, (4, 4), 6)
    found = solved(case, options="+chunks=false", iterations=3)
    least = Exhaustive(case, {"mixed"}, "mean_jct").least()
    assert objective_value(case, found.schedule, "jct_mean") * 4 == least


def test_any_instance_gets_a_schedule_that_is_no_worse_than_the_one_given():
    rng, made = random.Random(11), 0
    while made < 25:
        case = random_batching_instance(rng)
        padding = any(worker.padding for worker in case.workers)
        if padding or len({worker.memory for worker in case.workers}) > 1:
            continue
        made += 1
        given = orsched.solve(case, "fcfs_batched").schedule
        objective = rng.choice(OBJECTIVES)
        found = solved(case, objective, iterations=1, initial_schedule=given)
        assert found.checked
        values = [objective_value(case, each, objective) for each in (found.schedule, given)]
        assert values[0] <= values[1]


def test_a_seed_repeats_its_schedule_and_iterations_do_not_make_it_worse():
    case = instance(random.Random(2), 2, n=30)
    values = []
    for _ in range(2):
        seen = []
        found = solved(case, iterations=3, seed=4, callback=seen.append)
        values.append(found)
        assert [each.iteration for each in seen] == [0, 1, 2, 3]
        assert all(a.value >= b.value for a, b in itertools.pairwise(seen))
        assert seen[-1].value == pytest.approx(float(found.objective_value) * 1e9)
    assert values[0].schedule.work == values[1].schedule.work
    assert values[0].jct_mean_s < gittins(case)


def test_a_time_limit_and_a_gap_end_it():
    case = instance(random.Random(2), n=30)
    found = solved(case, stop=TimeUp(2))
    assert found.termination == "time_limit"
    assert found.objective_bound > 0
    assert solved(case, gap=0.99).termination == "target_gap"


def test_it_takes_up_where_another_search_has_ended():
    case = instance(random.Random(8), 2, n=30)
    first = solved(case, iterations=3)
    again = solved(case, iterations=1, seed=1, initial_schedule=first.schedule)
    assert again.jct_mean_s <= first.jct_mean_s
    orders = orders_of(case, first.schedule)
    assert sorted(i for order in orders for i in order) == list(range(30))


@pytest.mark.parametrize(("workers", "field"), [
    ((Worker(2, padding=True),), "padding"),
    ((Worker(2, available_ns=((5, None),)),), "available_ns"),
    ((Worker(2), Worker(2, memory=BlockMemory(9, 9, "whole"), name="b")), "memory"),
])  # fmt: skip
def test_workers_that_it_does_not_plan_for_are_refused(workers, field):
    with pytest.raises(InputError) as caught:
        solved(decoding([1], [1], workers), iterations=1)
    assert caught.value.field == field
    assert caught.value.remedy


def test_a_cost_without_lines_is_searched_beside_and_carried_out_itself():
    cost = LevelsCost(levels=((16, 40), (32, 60), (64, 90)), round_fixed_ns=30)
    assert splits(cost)
    case = instance(random.Random(1), cost=cost, n=12)
    found = solved(case, iterations=2)
    assert found.checked
    assert found.jct_mean_s <= gittins(case)


def test_steps_of_requests_to_come_wait_for_them():
    worker = Worker(1, in_order(AffineCost, 5, 1, 7, 2))
    case = decoding([3, 3], [2, 2], worker, arrival_ns=[0, 1000])
    problem = problem_of(case, objective_named("jct_mean"), mixed=True, chunks=True)
    search = Search(problem, Plain, np.random.default_rng(0), mixed=True)
    search.start(plans_of(case, orsched.solve(case, "fcfs").schedule, problem, mixed=True))
    policy = FollowSteps(search.steps(), "it")
    assert simulate_policy(case, policy).schedule.makespan_ns == 1000 + 8 + 18
    assert search.tables.tried[0] == 1026


def test_a_request_that_ends_with_its_prefill_needs_room_beside_those_that_decode():
    """Prefilled in a stage, it ends at once: 6 blocks beside the 6 of the first are 12 of 11."""
    worker = Worker(2, in_order(AffineCost, 25, 1, 29, 2), memory=BlockMemory(11, 1, "paged"))
    requests = Requests([3, 5, 1, 6], [6, 3, 6, 1], arrival_ns=[24, 39, 59, 82])
    case = Instance(requests, worker, first_token="prefill")
    assert solved(case, "makespan", iterations=2).checked


def test_an_edit_of_what_a_kernel_calls_is_seen_by_the_cache(tmp_path):
    pytest.importorskip("numba")
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "high.py").write_text(
        "from kernels.low import f\n\n\ndef g(x):\n    return 2 * f(x)\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kernels import high, low; "
        "from orsched.models.compiled_kernels import compiled_copies; "
        "print(compiled_copies(low, high).g(1))"
    )
    seen = []
    for added in ("1", "10"):
        (package / "low.py").write_text(f"def f(x):\n    return x + {added}\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        seen.append(int(done.stdout))
    assert seen == [4, 22]
