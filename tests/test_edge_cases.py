"""Wrong and extreme input to everything public: a clear error or the trivial answer."""

import json
import math

import numpy as np
import pytest

import orsched
from orsched import Autoscaling, BilinearCost, BlockMemory, Instance, PrefixCache, Requests, Worker
from orsched.checker.certificates import packing_violations
from orsched.cli.commands import run
from orsched.common.errors import InfeasibleError, InputError, TimeLimitError
from orsched.common.registry import names
from orsched.common.units import MAX_TIME_NS
from orsched.instances import with_arrivals
from orsched.instances.predictions import predict
from orsched.models.batch import batch
from orsched.models.full_mip import solve_full_mip, solve_windows_mip
from orsched.models.packing import pack
from tests.brute_force import optimum_ns
from tests.in_order import in_order
from tests.refusals import refusal

METHODS = names("methods")
PLANNING = ("offline", "hybrid", "windows", "exact", "auto")
"""Methods that find the optimum of the trivial instances."""
OBJECTIVES = ("makespan", "mean_jct", "mean_ttft")
NO_LIMITS = [0, -1, math.nan, "1", True]
NO_COUNTS = [0, -1, math.nan, math.inf, "3", True, [3], 0.5]
COST = BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.00061, 0.09, 0.0021, 29.3))


def predicted(prompts, outputs, clients, **worker):
    """An instance with exact predictions, so that every method runs on it."""
    requests, most = Requests(prompts, outputs, predicted_tokens=outputs), max([1, *outputs])
    return Instance(requests, Worker(clients, **worker), "decode", output_limit_tokens=most)


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


def named(field, call, *given, **options):
    """The call is refused, with a field (that one) and what is wrong."""
    error = refusal(call, *given, **options)
    assert error.field == field
    says_what_is_wrong(error)


def says_what_is_wrong(error):
    assert error.field
    assert str(error.problem)


COLOCATED = ("conserve", "echo", "hygen", "slack")
CHUNKING = {"disaggregated", "fcfs_batched", "fleet", "gittins", "mico", "scls", "sjf", "sls"}
CHUNKING |= {"latency_search", "mc_sf", "scls_continuous", "ssjf", "vllm", "vtc", *COLOCATED}
"""Methods that split a prompt that is longer than a stage may be."""


TRIVIAL = {"no request": EMPTY, "one request": ONE, "more clients than requests": MANY_CLIENTS}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("instance", [*TRIVIAL.values(), TWINS], ids=[*TRIVIAL, "duplicates"])
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
@pytest.mark.parametrize("worker", [
    {"prefill_cap_tokens": 3}, {"memory": BlockMemory(1, 4, "whole")},
], ids=["cap", "memory"])  # fmt: skip
def test_a_request_that_never_fits_is_refused_or_named(method, worker):
    """A server refuses what its memory cannot hold; a prompt may be divided, or stops the run."""
    instance = predicted([2, 9], [2, 2], 2, **worker)
    if "memory" in worker:
        result = orsched.solve(instance, method, time_limit=600, iterations=3)
        assert (len(result.instance), sum(result.instance.refused)) == (1, 1)
        assert any("1 of 2 requests fits onto no worker" in note for note in result.notes)
        return
    if method in CHUNKING:
        prefill = orsched.solve(instance, method, time_limit=600, iterations=3).schedule.work
        assert prefill.tokens[prefill.request == 1].max() <= 3
        return
    with pytest.raises(InfeasibleError, match="1"):
        orsched.solve(instance, method, time_limit=600)


WRONG_OPTIONS = {
    "time_limit": [*NO_LIMITS, [1]],
    "seed": [-1, True, 2**62 + 1, 1.5, math.nan, "0", None],
    "iterations": [0, -1, True, 1.5, math.nan, "3"],
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("field", WRONG_OPTIONS)
def test_wrong_options_are_named(method, field):
    for value in WRONG_OPTIONS[field]:
        named(field, orsched.solve, SMALL, method, **{"iterations": 1, field: value})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [math.inf, 1e300])
def test_huge_time_limits_are_none_and_the_largest_seed_is_taken(method, limit):
    result = orsched.solve(SMALL, method, time_limit=limit, seed=2**62, iterations=3)
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
def test_long_times_are_exact(method):
    scale = 2**53
    instance = predicted([3, 2, 4], [4, 3, 2], 2, cost=affine(scale, 1, scale, 1))
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
        says_what_is_wrong(error)
        return
    assert result.checked
    assert result.makespan_ns >= MAX_TIME_NS


SCALED = Autoscaling(startup_ns=0, interval_ns=1)


@pytest.mark.parametrize(("make", "field"), [
    (lambda: Requests([1], [1], arrival_ns=[2**62]), "arrival_ns"),
    (lambda: Requests([1], [1], arrival_ns=[MAX_TIME_NS + 1]), "arrival_ns"),
    (lambda: Requests([1], [1], arrival_s=[2**61 / 10**9 * 1.01]), "arrival_s"),
    (lambda: Requests([1], [1], deadline_ns=[MAX_TIME_NS + 1]), "deadline_ns"),
    (lambda: orsched.SLO(ttft_s=2.4e9), "slo.ttft_s"),
    (lambda: orsched.AffineCost(prefill_fixed_ns=MAX_TIME_NS + 1), "prefill_fixed_ns"),
    (lambda: predicted([3, 2, 4], [4, 3, 2], 2, cost=affine(2**61, 1, 2**61, 1)), "requests"),
    (lambda: predicted([2**31 - 1] * 2, [1, 1], 1, cost=affine(0, 2**30, 0, 0)), "requests"),
    (lambda: predicted([9], [1], 1, cost=affine(2**60, 0, 0, 0), prefill_cap_tokens=3), "requests"),
    (lambda: Instance(Requests([1], [1], arrival_ns=[MAX_TIME_NS]), Worker(1)), "requests"),
    (lambda: predicted([1], [1], 1, available_ns=((MAX_TIME_NS, None),)), "requests"),
    # What a few bytes ask for is estimated before any work.
    (lambda: predicted([2**28] * 2, [1, 1], 2, memory=paged(2**29)), "workers.memory"),
    (lambda: predicted([9], [9], 1, memory=paged(2**31 - 1)), "workers.memory"),
    (lambda: predicted([2**28] * 2, [1, 1], 2, prefill_cap_tokens=1), "workers.prefill_cap_tokens"),
    (lambda: Instance(Requests([3], [4], arrival_ns=[10**9]), Worker(1), autoscaling=SCALED),
     "autoscaling.interval_ns"),
    (lambda: Instance(Requests([3], [1]), Worker(1), autoscaling=SCALED),
     "autoscaling.interval_ns"),
])  # fmt: skip
def test_times_and_sizes_that_do_not_fit_are_refused_at_the_door(make, field):
    """Arrivals, limits, sums of arrivals, start-ups and services; blocks, steps and looks."""
    named(field, make)


MIP = {
    "time_limit": NO_LIMITS, "seed": [-1, True, 2**63, 1.5, "0"],
    "stages": [0, -1, True, 1.5, "3", math.nan], "backend": ["gurobi", None, 3, ["scip"]],
    "max_nonzeros": [-1, True, 1.5, "3", math.nan],
}  # fmt: skip
LEVELS = orsched.LevelsCost(levels=((9, 5),), round_fixed_ns=1)
WRONG = [
    ("method", lambda method: orsched.solve(SMALL, method),
     ["nobody", "", "hybrid@", "hybrid+gate"]),
    ("information", lambda method: orsched.solve(SMALL, method), ["hybrid@none"]),
    ("parameters", lambda method: orsched.solve(SMALL, method), ["hybrid+nothing=1"]),
    ("objective", lambda value: orsched.solve(SMALL, objective=value), ["speed"]),
    ("information", lambda value: orsched.solve(SMALL, information=value), ["all"]),
    ("time_limit", lambda limit: orsched.compare(SMALL, ("fcfs",), time_limit=limit), NO_LIMITS),
    *(("time_limit", lambda limit, name=name: orsched.bound(SMALL, name, time_limit=limit),
       NO_LIMITS) for name in OBJECTIVES),
    ("objective", lambda name: orsched.bound(SMALL, name), ["", "speed", None, 3, ["makespan"]]),
    ("policy", lambda name: orsched.simulate(SMALL, name),
     ["nobody", "nobody:Nothing", "math:pi", ":", ""]),
    ("lengths", lambda length: batch([1, length], COST, 4), [*NO_COUNTS, None, 2**31, 2**63]),
    ("slice_tokens", lambda tokens: batch([1, 2], COST, tokens, max_batch=2),
     [*NO_COUNTS, None, 2**63]),
    ("max_batch", lambda most: batch([1, 2], COST, 4, max_batch=most), NO_COUNTS),
    ("cost", lambda cost: batch([1, 2], cost, 4), [LEVELS, None]),
    ("memory", lambda memory: batch([1, 2], COST, 4, memory=memory), [3]),
    ("method", lambda method: batch([1, 2], COST, 4, method=method), ["greedy", None]),
    *((field, lambda value, solve=solve, field=field: solve(SMALL, **{field: value}), values)
      for solve in (solve_full_mip, solve_windows_mip) for field, values in MIP.items()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "call", "value"),
    [(field, call, value) for field, call, bad in WRONG for value in bad],
)
def test_wrong_values_are_named(field, call, value):
    named(field, call, value)


NO_INSTANCES = ["two-by-two", None, 3]
OTHER_KINDS = [
    ("a method", lambda value: orsched.solve(SMALL, value), [3, [], object()]),
    ("a schedule", lambda value: orsched.check(SMALL, value), ["plan.json", None, 3]),
    *(("an Instance", call, NO_INSTANCES) for call in (
        orsched.solve,
        orsched.compare,
        orsched.bound,
        lambda value: orsched.check(value, orsched.solve(SMALL, "fcfs").schedule),
        lambda value: with_arrivals(value, "poisson:rate=1"),
        lambda value: predict(value, "oracle"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "call", "values"), OTHER_KINDS)
def test_what_is_no_method_schedule_or_instance_is_named(kind, call, values):
    for value in values:
        assert f"is not {kind}" in str(refusal(call, value))


def test_compare_takes_one_name_and_none():
    one = orsched.compare(orsched.load("two-by-two"), "fcfs")
    assert [result.schedule.method for result in one] == ["fcfs"]
    assert len(orsched.compare(SMALL, ())) == 0
    rows = orsched.compare(EMPTY, METHODS, time_limit=600).to_rows()
    assert [row["makespan_s"] for row in rows] == [0.0] * len(METHODS)


@pytest.mark.parametrize("instance", TRIVIAL.values(), ids=TRIVIAL)
def test_simulate_takes_trivial_instances(instance):
    result = orsched.simulate(instance, "orsched.heuristics.pang:FirstComeFirstServed")
    assert result.makespan_ns == optimum_ns(instance)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("limit", [1e-9, 1e9, 1e300])
def test_bounds_take_any_positive_time(objective, limit):
    assert orsched.bound(SMALL, objective, time_limit=limit).value_ns > 0


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


@pytest.mark.parametrize(("jobs", "clients", "makespan"), [
    ([], 3, 0), ([0, 0, 0], 2, 0), ([7], 1, 7), ([7], 9, 7), ([5, 5, 5, 5], 2, 10),
    ([3, 0, 2], 2, 3), ([1, 2], 10**9, 2), ([2**53 - 1, 1], 2, 2**53 - 1),
    ([2**53] * 512, 512, 2**53), ([0, 0, 7], 2**40, 7), ([2**50] * 7, 3, 3 * 2**50),
])  # fmt: skip
@pytest.mark.parametrize("limit", [None, 1e-9, 1e300])
def test_trivial_packings_are_proven(jobs, clients, makespan, limit):
    result = pack(jobs, clients, time_limit=limit)
    assert (result.makespan, result.optimal) == (makespan, True)
    assert packing_violations(jobs, clients, result) == []


@pytest.mark.parametrize("method", ["reference", "fast", "lines", "auto"])
def test_trivial_batches(method):
    assert len(batch([], COST, 4, method=method).sizes) == 0
    assert list(batch([5], COST, 4, method=method).sizes) == [1]
    assert sum(batch([5] * 7, COST, 4, max_batch=100, method=method).sizes) == 7
    assert sum(batch([5] * 7, COST, 4, max_batch=1, method=method).sizes) == 7


@pytest.mark.parametrize("backend", ["scip", "cpsat"])
@pytest.mark.parametrize("instance", TRIVIAL.values(), ids=TRIVIAL)
def test_trivial_instances_of_the_full_mip(backend, instance):
    for limit in (None, 1e300, math.inf):
        result = solve_full_mip(instance, backend, time_limit=limit)
        assert (result.makespan_ns, result.status) == (optimum_ns(instance), "optimal")


@pytest.mark.parametrize("backend", ["scip", "cpsat"])
@pytest.mark.parametrize("limit", [math.inf, 1e300])
def test_the_solvers_take_huge_limits_and_seeds(backend, limit):
    result = solve_full_mip(SMALL, backend, time_limit=limit, seed=2**63 - 1, alone=True)
    assert (result.makespan_ns, result.status) == (optimum_ns(SMALL), "optimal")


@pytest.mark.parametrize("method", METHODS)
def test_the_command_line_takes_an_empty_instance(capsys, tmp_path, method):
    path = tmp_path / "empty.json"
    orsched.save_instance(EMPTY, path)
    assert run(["solve", str(path), "--method", method, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan_s"] == 0


def test_numpy_numbers_are_numbers():
    assert orsched.solve(SMALL, "fcfs", seed=np.int64(3)).schedule.seed == 3
    assert pack(np.array([3, 2, 2]), np.int64(2)).makespan == 4
