"""Wrong and extreme input to everything public: a clear error or the trivial answer."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import orsched
from orsched.checker.certificates import packing_violations
from orsched.cli.commands import run
from orsched.common.errors import InfeasibleError, InputError, TimeLimitError
from orsched.common.registry import names
from orsched.common.units import MAX_TIME_NS
from orsched.costs import BilinearCost
from orsched.data.autoscaling import Autoscaling
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances import with_arrivals
from orsched.instances.predictions import predict
from orsched.models.batch import batch
from orsched.models.full_mip import solve_full_mip, solve_windows_mip
from orsched.models.packing import pack
from tests.brute_force import optimum_ns
from tests.in_order import in_order

METHODS = names("methods")
PLANNING = ("offline", "hybrid", "windows", "exact", "auto")
"""Methods that find the optimum of the trivial instances."""
OBJECTIVES = ("makespan", "mean_jct", "mean_ttft")
NOT_NUMBERS = {
    "negative": -1,
    "nan": math.nan,
    "infinite": math.inf,
    "text": "3",
    "bool": True,
    "none": None,
    "list": [3],
    "fraction": 0.5,
    "beyond int64": 2**63,
}
COST = BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.00061, 0.09, 0.0021, 29.3))


def predicted(prompts, outputs, clients, **worker):
    """An instance with exact predictions, so that every method runs on it."""
    requests = Requests(prompts, outputs, predicted_tokens=outputs)
    return Instance(
        requests,
        Worker(clients, **worker),
        output_limit_tokens=max([1, *outputs]),
        first_token="decode",
    )


def affine(*times_ns):
    return in_order(orsched.AffineCost, *times_ns)


def paged(blocks):
    """Blocks of one token with a prefix cache."""
    return BlockMemory(blocks, 1, "paged", PrefixCache("lru"))


EMPTY = predicted([], [], 2)
ONE = predicted([3], [4], 1)
SMALL = predicted([3, 2, 4], [4, 3, 2], 2)
MANY_CLIENTS = predicted([3, 2], [4, 3], 50)
TWINS = predicted([3, 3, 3, 3], [2, 2, 2, 2], 2)


def named(error, field=None):
    """The error names a field (that one) and what to do or what is wrong."""
    assert isinstance(error, InputError)
    assert error.field
    assert field is None or error.field == field, error.field
    assert str(error.problem)


# -- what an instance may hold ----------------------------------------------------------------


@pytest.mark.parametrize("value", NOT_NUMBERS.values(), ids=NOT_NUMBERS)
@pytest.mark.parametrize("field", ["prompt_tokens", "output_tokens", "arrival_ns"])
def test_requests_are_whole_numbers(field, value):
    columns = {"prompt_tokens": [3, 2], "output_tokens": [4, 3], "arrival_ns": [0, 0]}
    columns[field] = [1, value]
    with pytest.raises(InputError) as caught:
        Requests(**columns)
    named(caught.value, field)


@pytest.mark.parametrize("field", ["prompt_tokens", "output_tokens"])
def test_a_request_has_at_least_a_token(field):
    columns = {"prompt_tokens": [3, 2], "output_tokens": [4, 3]} | {field: [1, 0]}
    with pytest.raises(InputError) as caught:
        Requests(**columns)
    named(caught.value, field)
    assert caught.value.row == 1


@pytest.mark.parametrize("clients", [0, *NOT_NUMBERS.values()])
def test_a_worker_has_clients(clients):
    with pytest.raises(InputError) as caught:
        Worker(clients)
    named(caught.value, "clients")


COLOCATED = ("conserve", "echo", "hygen", "slack")
CHUNKING = {"disaggregated", "fcfs_batched", "gittins", "mico", "scls", "scls_continuous", "sjf"}
CHUNKING |= {"latency_search", "mc_sf", "sls", "ssjf", "vllm", "vtc", *COLOCATED}
"""Methods that split a prompt that is longer than a stage may be."""


# -- methods ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "instance",
    [EMPTY, ONE, MANY_CLIENTS, TWINS],
    ids=["no request", "one request", "more clients than requests", "duplicates"],
)
def test_trivial_instances_are_solved(method, instance):
    result = orsched.solve(instance, method, time_limit=600, iterations=3)
    assert result.checked
    optimum = optimum_ns(instance)
    assert result.makespan_ns >= optimum
    if method in PLANNING or len(instance) < 2:
        assert result.makespan_ns == optimum
    if len(instance) == 0:
        assert (result.makespan_ns, result.status) == (0, "optimal")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "worker",
    [{"prefill_cap_tokens": 3}, {"memory": BlockMemory(1, 4, "whole")}],
    ids=["cap", "memory"],
)
def test_a_request_that_never_fits_is_refused_or_named(method, worker):
    """A server refuses what its memory cannot hold; a prompt may be divided, or stops the run."""
    instance = predicted([2, 9], [2, 2], 2, **worker)
    if "memory" in worker:
        result = orsched.solve(instance, method, time_limit=600, iterations=3)
        assert (len(result.instance), sum(result.instance.refused)) == (1, 1)
        assert any("1 of 2 requests fits onto no worker" in note for note in result.notes)
        return
    if method in CHUNKING:
        prefill = orsched.solve(instance, method).schedule.work
        assert prefill.tokens[prefill.request == 1].max() <= 3
        return
    with pytest.raises(InfeasibleError, match="1"):
        orsched.solve(instance, method, time_limit=600)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [0, -1, math.nan, "1", True, [1]])
def test_wrong_time_limits_are_named(method, limit):
    with pytest.raises(InputError) as caught:
        orsched.solve(SMALL, method, time_limit=limit)
    named(caught.value, "time_limit")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [math.inf, 1e300, 1e10])
def test_huge_time_limits_are_none(method, limit):
    result = orsched.solve(SMALL, method, time_limit=limit, iterations=3)
    assert result.checked
    assert result.termination != "time_limit"


@pytest.mark.parametrize("method", METHODS)
def test_a_tiny_time_limit_ends_in_a_checked_answer_or_says_so(method):
    said = ""
    try:
        assert orsched.solve(orsched.load("pang-100x20"), method, time_limit=1e-9).checked
    except TimeLimitError as error:
        said = str(error)
    assert not said or "the time limit ended before" in said


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [-1, True, 2**62 + 1, 1.5, math.nan, "0", None])
def test_wrong_seeds_are_named(method, seed):
    with pytest.raises(InputError) as caught:
        orsched.solve(SMALL, method, seed=seed, iterations=1)
    named(caught.value, "seed")


@pytest.mark.parametrize("method", METHODS)
def test_the_largest_seed_is_taken(method):
    result = orsched.solve(SMALL, method, seed=2**62, iterations=2, time_limit=600)
    assert result.checked


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("iterations", [0, -1, True, 1.5, math.nan, "3"])
def test_wrong_iterations_are_named(method, iterations):
    with pytest.raises(InputError) as caught:
        orsched.solve(SMALL, method, iterations=iterations)
    named(caught.value, "iterations")


@pytest.mark.parametrize("method", METHODS)
def test_long_times_are_exact(method):
    scale = 2**53
    cost = in_order(orsched.AffineCost, scale, 1, scale, 1)
    instance = predicted([3, 2, 4], [4, 3, 2], 2, cost=cost)
    result = orsched.solve(instance, method, time_limit=600, iterations=3)
    results = result.schedule.results
    steps = scale * (results["prefill_stages"] + results["decode_rounds"])
    tokens = instance.requests.prompt_tokens.sum() + 9 + results["invalid_tokens"]
    assert (result.makespan_ns - steps, results["restarts"]) == (tokens, 0)


@pytest.mark.parametrize("method", METHODS)
def test_the_largest_arrival_is_no_sentinel(method):
    """Times that stand for "never" or "no limit" lie beyond what an instance may hold."""
    free = Worker(1, affine(0, 0, 0, 0))
    requests = Requests([1, 1], [1, 1], arrival_ns=[0, MAX_TIME_NS], predicted_tokens=[1, 1])
    instance = Instance(requests, free).with_classes("interactive:ttft=1,tpot=1")
    try:
        result = orsched.solve(instance, method, time_limit=1000.0, iterations=3)
    except InputError as error:  # a method that takes no arrivals says so
        named(error)
        return
    assert result.checked
    assert result.makespan_ns >= MAX_TIME_NS


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Requests([1], [1], arrival_ns=[2**62]), "arrival_ns"),
        (lambda: Requests([1], [1], arrival_ns=[MAX_TIME_NS + 1]), "arrival_ns"),
        (lambda: Requests([1], [1], arrival_s=[2**61 / 10**9 * 1.01]), "arrival_s"),
        (lambda: Requests([1], [1], deadline_ns=[MAX_TIME_NS + 1]), "deadline_ns"),
        (lambda: orsched.SLO(ttft_s=2.4e9), "slo.ttft_s"),
        (lambda: orsched.AffineCost(prefill_fixed_ns=MAX_TIME_NS + 1), "prefill_fixed_ns"),
        (lambda: predicted([3, 2, 4], [4, 3, 2], 2, cost=affine(2**61, 1, 2**61, 1)),
         "requests"),
        (lambda: predicted([2**31 - 1] * 2, [1, 1], 1, cost=affine(0, 2**30, 0, 0)),
         "requests"),
        (lambda: predicted([9], [1], 1, cost=affine(2**60, 0, 0, 0),
                           prefill_cap_tokens=3), "requests"),
        (lambda: Instance(Requests([1], [1], arrival_ns=[MAX_TIME_NS]), Worker(1)), "requests"),
        (lambda: predicted([1], [1], 1, available_ns=((MAX_TIME_NS, None),)), "requests"),
        # What a few bytes ask for is estimated before any work.
        (lambda: predicted([2**28] * 2, [1, 1], 2, memory=paged(2**29)), "workers.memory"),
        (lambda: predicted([9], [9], 1, memory=paged(2**31 - 1)), "workers.memory"),
        (lambda: predicted([2**28] * 2, [1, 1], 2, prefill_cap_tokens=1),
         "workers.prefill_cap_tokens"),
        (lambda: Instance(Requests([3], [4], arrival_ns=[10**9]), Worker(1),
                          autoscaling=Autoscaling(startup_ns=0, interval_ns=1)),
         "autoscaling.interval_ns"),
        (lambda: Instance(Requests([3], [1]), Worker(1),
                          autoscaling=Autoscaling(startup_ns=0, interval_ns=1)),
         "autoscaling.interval_ns"),
    ],
)  # fmt: skip
def test_times_and_sizes_that_do_not_fit_are_refused_at_the_door(make, field):
    """Arrivals, limits, sums of arrivals, start-ups and services; blocks, steps and looks."""
    with pytest.raises(InputError) as caught:
        make()
    named(caught.value, field)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"method": "nobody"}, "method"),
        ({"method": ""}, "method"),
        ({"method": "hybrid@"}, "method"),
        ({"method": "fcfs@clairvoyant"}, "information"),
        ({"method": "hybrid+gate"}, "method"),
        ({"method": "hybrid+nothing=1"}, "parameters"),
        ({"objective": "speed"}, "objective"),
        ({"information": "all"}, "information"),
    ],
)
def test_other_arguments_of_solve_are_named(options, field):
    with pytest.raises(InputError) as caught:
        orsched.solve(SMALL, **options)
    named(caught.value, field)


# -- compare and simulate -----------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1, math.nan, "1", True])
def test_compare_names_wrong_time_limits(limit):
    with pytest.raises(InputError) as caught:
        orsched.compare(SMALL, ("fcfs",), time_limit=limit)
    named(caught.value, "time_limit")


@pytest.mark.parametrize("method", [3, [], object()])
def test_what_is_no_method_is_named(method):
    with pytest.raises(InputError, match="is not a method"):
        orsched.solve(orsched.load("two-by-two"), method)


@pytest.mark.parametrize("instance", ["two-by-two", None, 3])
def test_what_is_no_instance_is_named(instance):
    calls = (
        orsched.solve,
        orsched.compare,
        orsched.bound,
        lambda value: orsched.check(value, orsched.solve(SMALL, "fcfs").schedule),
        lambda value: with_arrivals(value, "poisson:rate=1"),
        lambda value: predict(value, "oracle"),
    )
    for call in calls:
        with pytest.raises(InputError, match="is not an Instance"):
            call(instance)


@pytest.mark.parametrize("schedule", ["plan.json", None, 3])
def test_what_is_no_schedule_is_named(schedule):
    with pytest.raises(InputError, match="is not a schedule"):
        orsched.check(SMALL, schedule)


def test_compare_takes_one_name():
    one = orsched.compare(orsched.load("two-by-two"), "fcfs")
    assert [result.schedule.method for result in one] == ["fcfs"]


def test_compare_of_nothing_is_empty():
    assert len(orsched.compare(SMALL, ())) == 0
    rows = orsched.compare(EMPTY, METHODS, time_limit=600).to_rows()
    assert [row["makespan_s"] for row in rows] == [0.0] * len(METHODS)


@pytest.mark.parametrize("policy", ["nobody", "nobody:Nothing", "math:pi", ":", ""])
def test_simulate_names_wrong_policies(policy):
    with pytest.raises(InputError) as caught:
        orsched.simulate(SMALL, policy)
    named(caught.value, "policy")


@pytest.mark.parametrize("instance", [EMPTY, ONE, MANY_CLIENTS], ids=["none", "one", "clients"])
def test_simulate_takes_trivial_instances(instance):
    result = orsched.simulate(instance, "orsched.heuristics.pang:FirstComeFirstServed")
    assert result.makespan_ns == optimum_ns(instance)


# -- bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("limit", [0, -1, math.nan, "1", True])
def test_bounds_name_wrong_time_limits(objective, limit):
    with pytest.raises(InputError) as caught:
        orsched.bound(SMALL, objective, time_limit=limit)
    named(caught.value, "time_limit")


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("limit", [1e-9, 1e9, 1e300])
def test_bounds_take_any_positive_time(objective, limit):
    assert orsched.bound(SMALL, objective, time_limit=limit).value_ns > 0


@pytest.mark.parametrize("objective", ["", "speed", None, 3, ["makespan"]])
def test_bounds_name_wrong_objectives(objective):
    with pytest.raises(InputError) as caught:
        orsched.bound(SMALL, objective)
    named(caught.value, "objective")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_bounds_of_trivial_instances(objective):
    assert orsched.bound(EMPTY, objective).value_ns == 0
    for instance in (ONE, MANY_CLIENTS):
        value = orsched.bound(instance, objective).value_ns
        results = orsched.solve(instance, "fcfs").schedule.results
        reached = {"makespan": results["makespan_ns"], "mean_jct": results["jct_ns"]["mean"]}
        assert 0 < value <= reached.get(objective, results["ttft_ns"]["mean"])
    with pytest.raises(InfeasibleError):
        orsched.bound(predicted([9], [1], 1, prefill_cap_tokens=3), objective)


# -- packing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", NOT_NUMBERS.values(), ids=NOT_NUMBERS)
def test_packing_names_wrong_times(value):
    with pytest.raises(InputError) as caught:
        pack([1, value], 2)
    named(caught.value, "processing_times")


@pytest.mark.parametrize("clients", [0, *NOT_NUMBERS.values()])
def test_packing_names_wrong_clients(clients):
    if clients == 2**63:
        pytest.skip("more clients than jobs is not an error")
    with pytest.raises(InputError) as caught:
        pack([1, 2], clients)
    named(caught.value, "clients")


@pytest.mark.parametrize("limit", [0, -1, math.nan, "1", True])
def test_packing_names_wrong_time_limits(limit):
    with pytest.raises(InputError) as caught:
        pack([1, 2], 2, time_limit=limit)
    named(caught.value, "time_limit")


@pytest.mark.parametrize(
    ("jobs", "clients", "makespan"),
    [
        ([], 3, 0),
        ([0, 0, 0], 2, 0),
        ([7], 1, 7),
        ([7], 9, 7),
        ([5, 5, 5, 5], 2, 10),
        ([3, 0, 2], 2, 3),
        ([1, 2], 10**9, 2),
        ([2**53 - 1, 1], 2, 2**53 - 1),
        ([2**53] * 512, 512, 2**53),
    ],
)
@pytest.mark.parametrize("limit", [None, 1e-9, 30.0, 1e300])
def test_trivial_packings_are_proven(jobs, clients, makespan, limit):
    result = pack(jobs, clients, time_limit=limit)
    assert (result.makespan, result.optimal) == (makespan, True)
    assert packing_violations(jobs, clients, result) == []


def test_packing_refuses_sums_beyond_62_bits():
    with pytest.raises(InputError) as caught:
        pack([2**53] * 513, 2)
    named(caught.value, "processing_times")


# -- the DP batcher -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, *NOT_NUMBERS.values()])
def test_the_batcher_names_wrong_lengths(value):
    with pytest.raises(InputError) as caught:
        batch([1, value], COST, 4)
    named(caught.value, "lengths")


@pytest.mark.parametrize("value", [0, *NOT_NUMBERS.values()])
@pytest.mark.parametrize("field", ["slice_tokens", "max_batch"])
def test_the_batcher_names_wrong_numbers(field, value):
    options = {"slice_tokens": 4, "max_batch": 2} | {field: value}
    if field == "max_batch" and (value is None or value == 2**63):
        pytest.skip("no limit")
    with pytest.raises(InputError) as caught:
        batch([1, 2], COST, **options)
    named(caught.value, field)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cost": orsched.AffineCost()}, "cost"),
        ({"cost": None}, "cost"),
        ({"memory": 3}, "memory"),
        ({"method": "best"}, "method"),
        ({"method": None}, "method"),
    ],
)
def test_the_batcher_names_other_arguments(change, field):
    with pytest.raises(InputError) as caught:
        batch(**{"lengths": [1, 2], "cost": COST, "slice_tokens": 4} | change)
    named(caught.value, field)


@pytest.mark.parametrize("method", ["reference", "fast", "lines", "auto"])
def test_trivial_batches(method):
    assert len(batch([], COST, 4, method=method).sizes) == 0
    assert list(batch([5], COST, 4, method=method).sizes) == [1]
    assert sum(batch([5] * 7, COST, 4, max_batch=100, method=method).sizes) == 7
    assert sum(batch([5] * 7, COST, 4, max_batch=1, method=method).sizes) == 7


# -- the full MIP -------------------------------------------------------------------------------


@pytest.mark.parametrize("solve", [solve_full_mip, solve_windows_mip])
@pytest.mark.parametrize(
    ("options", "field"),
    [
        *(({"time_limit": value}, "time_limit") for value in (0, -1, math.nan, "1", True)),
        *(({"seed": value}, "seed") for value in (-1, True, 2**63, 1.5, "0")),
        *(({"stages": value}, "stages") for value in (0, -1, True, 1.5, "3", math.nan)),
        *(({"backend": value}, "backend") for value in ("gurobi", None, 3, ["scip"])),
        *(({"max_nonzeros": value}, "max_nonzeros") for value in (-1, True, 1.5, "3", math.nan)),
    ],
)
def test_the_full_mip_names_wrong_arguments(solve, options, field):
    with pytest.raises(InputError) as caught:
        solve(SMALL, **options)
    named(caught.value, field)


@pytest.mark.parametrize("backend", ["scip", "cpsat"])
@pytest.mark.parametrize("instance", [EMPTY, ONE, MANY_CLIENTS], ids=["none", "one", "clients"])
def test_trivial_instances_of_the_full_mip(backend, instance):
    for limit in (None, 1e300, math.inf):
        result = solve_full_mip(instance, backend, time_limit=limit)
        assert (result.makespan_ns, result.status) == (optimum_ns(instance), "optimal")


@pytest.mark.parametrize("backend", ["scip", "cpsat"])
@pytest.mark.parametrize("limit", [math.inf, 1e300])
def test_the_solvers_take_huge_limits_and_seeds(backend, limit):
    result = solve_full_mip(SMALL, backend, time_limit=limit, seed=2**63 - 1, alone=True)
    assert (result.makespan_ns, result.status) == (optimum_ns(SMALL), "optimal")


# -- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["solve", "two-by-two", "--time-limit", "0"], 2, "--time-limit"),
        (["solve", "two-by-two", "--time-limit", "-1"], 2, "--time-limit"),
        (["solve", "two-by-two", "--time-limit", "nan"], 2, "--time-limit"),
        (["solve", "two-by-two", "--time-limit", "inf", "--method", "fcfs"], 0, ""),
        (["solve", "two-by-two", "--time-limit", "x"], 2, "time-limit"),
        (["solve", "two-by-two", "--seed", "-1"], 2, "seed"),
        (["solve", "two-by-two", "--seed", "99999999999999999999"], 2, "seed"),
        (["solve", "two-by-two", "--seed", "1.5"], 2, "seed"),
        (["solve", "two-by-two", "--iterations", "0"], 2, "iterations"),
        (["solve", "two-by-two", "--slo-ttft", "nan"], 2, "slo-ttft"),
        (["solve", "two-by-two", "--slo-ttft", "-1"], 2, "slo-ttft"),
        (["solve", "two-by-two", "--slo-ttft", "1e300"], 2, "slo-ttft"),
        (["solve", "two-by-two", "--method", "nobody"], 2, "nobody"),
        (["solve", "two-by-two", "--param", "x=1"], 2, "x"),
        (["solve", ""], 2, ""),
        (["solve", "/"], 2, "/"),
        (["compare", "two-by-two", "--methods", ","], 2, "method"),
        (["compare", "two-by-two", "--methods", "fcfs,fcfs"], 0, ""),
        (["compare", "two-by-two", "--time-limit", "nan"], 2, "--time-limit"),
        (["compare", "gsm8k", "--seeds", "3:3"], 2, "seeds"),
        (["compare", "gsm8k", "--seeds", "-1:3"], 2, "seeds"),
        (["compare", "gsm8k", "--seeds", "0:1", "--set", "requests=-1"], 2, "requests"),
        (["compare", "gsm8k", "--seeds", "0:1", "--set", "clients=nan"], 2, "clients"),
        (["bound", "two-by-two", "--objective", "speed"], 2, "objective"),
        (["simulate", "two-by-two", "--policy", "nobody"], 2, "nobody"),
        (["generate", "gsm8k", "--seed", "-1"], 2, "seed"),
        (["generate", "gsm8k", "--set", "requests=99999999999"], 2, "requests"),
        (["generate", "uniform", "--set", "requests=3"], 2, "clients"),
        (["check", "two-by-two", "/no/such/file"], 2, "no/such/file"),
        (["nothing"], 2, "nothing"),
    ],
)
def test_the_command_line_names_what_is_wrong(capsys, arguments, code, said):
    assert run(arguments) == code
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert "a bug in orsched" not in err


@pytest.mark.parametrize("method", METHODS)
def test_the_command_line_takes_an_empty_instance(capsys, tmp_path, method):
    path = tmp_path / "empty.json"
    orsched.save_instance(EMPTY, path)
    assert run(["solve", str(path), "--method", method, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan_s"] == 0


def test_numpy_numbers_are_numbers():
    assert orsched.solve(SMALL, "fcfs", seed=np.int64(3)).schedule.seed == 3
    assert pack(np.array([3, 2, 2]), np.int64(2)).makespan == 4
