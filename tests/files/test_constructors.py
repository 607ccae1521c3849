"""The constructors of the library reject what the files reject, whoever calls them."""

import ast
import inspect
import tracemalloc

import numpy as np
import pytest

from orsched import AffineCost, BlockMemory, InputError, Instance, Prefixes, Requests, Worker
from orsched.calibration import Server
from orsched.common.columns import int_column
from orsched.data import requests
from orsched.data.autoscaling import Autoscaling, read_autoscaling
from orsched.data.links import Link, read_link
from orsched.data.schedule import Schedule, Steps, Work
from orsched.instances.failures import Exponential, read_failures
from tests.in_order import in_order
from tests.refusals import refusal

NAN, INF = float("nan"), float("inf")
HUGE = 10**5000  # more digits than Python prints
ONE = Requests([1], [1])
STEPS, WORK = in_order(Steps, [0], [0], [0], [5], [1]), Work([0], [0], [0], [0], [0], [1])

NO_COUNTS = [0, -1, NAN, INF, 1.5, HUGE, -HUGE, 2**63, True, "1", b"1", None, [1], 1j, object()]
NO_COLUMNS = [*([bad] for bad in NO_COUNTS), None, 5, "1", {1}, {"a": 1}, [[1], [1]], [1, [2]]]
NO_COLUMNS += [np.array(["2020-01-01"], "M8[ns]"), np.array([5], "m8[s]"), np.array([True])]
NO_COLUMNS += [np.array([2**63], np.uint64), np.array([NAN], np.float16), [], [1, 1], [True, 2.0]]
NO_COLUMNS += [np.ma.masked_array([1], [True])]


def require(field, call, *given, **named):
    error = refusal(call, *given, **named)
    assert error.field == field
    assert len(str(error)) < 400


def instance(requests=ONE, workers=Worker(1), **more):  # noqa: B008
    return Instance(requests, workers, **more)


def schedule(steps=STEPS, work=WORK):
    return Schedule("0" * 64, steps, work, "m", "none")


def text(value):
    """Short name of a parameter set (``HUGE`` cannot be printed)."""
    return "huge" if isinstance(value, int) and abs(value) > 2**99 else type(value).__name__


@pytest.mark.parametrize("bad", NO_COLUMNS, ids=text)
def test_columns_of_requests(bad):
    require("output_tokens", Requests, [1], bad)
    if bad is not None:  # the default
        require("predicted_tokens", Requests, [1], [1], predicted_tokens=bad)
    if bad is not None and not (isinstance(bad, list) and bad == [0]):  # they may be zero
        require("arrival_ns", Requests, [1], [1], arrival_ns=bad)
        require("service_class", Requests, [1], [1], service_class=bad)


@pytest.mark.parametrize("bad", NO_COLUMNS, ids=text)
def test_quantiles_and_levels(bad):
    def refuse(field, quantiles, levels):
        columns = {"predicted_quantiles": quantiles, "quantile_levels": levels}
        require(field, Requests, [1], [1], **columns)

    if bad is None:
        refuse("quantile_levels", bad, [0.5])
        refuse("predicted_quantiles", [[1]], bad)
    else:
        refuse("quantile_levels", [[1]], bad)
        if not (isinstance(bad, list) and bad == [[1]]):  # one request with one quantile
            refuse("predicted_quantiles", bad, [0.5])


def test_the_row_of_an_id_that_appears_twice_is_named():
    with pytest.raises(InputError, match="row 2, field 'ids': 'a' appears twice"):
        Requests([1, 1, 1], [1, 1, 1], ids=["a", "b", "a"])


def test_memory_is_paged_but_in_a_file_that_does_not_say_so():
    """What files of earlier versions mean stays, and so do the bytes of those that are written."""
    paged, whole = BlockMemory(3, 4), BlockMemory(3, 4, "whole")
    assert paged.allocation == "paged"
    assert whole.to_dict() == {"blocks": 3, "block_tokens": 4}
    for memory in (paged, whole):
        assert BlockMemory.from_dict(memory.to_dict()) == memory


@pytest.mark.parametrize("bad", NO_COUNTS, ids=text)
def test_counts(bad):
    require("clients", Worker, bad)
    require("blocks", BlockMemory, bad, 1, "whole")
    require("block_tokens", BlockMemory, 1, bad, "whole")
    require("prefix_block_tokens", Prefixes, [0, 1], [1], bad)
    if bad is not None:  # no cap, the default limit
        require("prefill_cap_tokens", Worker, 1, prefill_cap_tokens=bad)
        require("output_limit_tokens", instance, output_limit_tokens=bad)
    if bad != 0:
        require("round_fixed_ns", AffineCost, round_fixed_ns=bad)
        require("seed", schedule().replace, seed=bad)


def test_other_fields_of_workers_instances_and_prefixes():
    for memory in (5, BlockMemory):
        require("memory", Worker, 1, memory=memory)
    for name in ("", 5):
        require("name", Worker, 1, name=name)
    require("requests", instance, [1])
    for rule in ("both", []):
        require("first_token", instance, first_token=rule)
    for label in ("name", "description", "source", "licence"):
        require(label, instance, **{label: 5})
    require("output_tokens", instance, Requests([1], [9]), output_limit_tokens=8)
    slow = Worker(1, AffineCost(prefill_fixed_ns=2**61))
    require("requests", instance, Requests([1, 1], [1, 1]), slow)
    for prefixes, field in (([0, 1], "prefixes"), (Prefixes([0, 1, 1], [5], 16), "prefix_offsets")):
        require(field, Requests, [1], [1], prefixes=prefixes)
    require("prefix_ids", Prefixes, [0, 1], [-1], 16)


FIELDS = [
    # The first column has no length to match; models are objects, neither classes nor names.
    ("prompt_tokens", lambda bad: Requests(bad, [1]), NO_COLUMNS[:20]),
    ("ids", lambda bad: Requests([1], [1], ids=bad),
     [5, "a", [], ["a", "b"], [""], [5], [None], [b"a"], [["a"]], [HUGE]]),
    ("cost", lambda bad: Worker(1, cost=bad), [None, 5, "affine", AffineCost, {"model": "affine"}]),
    ("workers", lambda bad: instance(workers=bad),
     [None, 5, [], (), "worker", [5], Worker, [Worker(1), None]]),
    ("prefix_offsets", lambda bad: Prefixes(bad, [5], 16),
     [[], [0], [1, 1], [0, 2], [0, 1, 0, 1], [0, -1, 1], "01", [0, NAN]]),
    ("instance_sha256", lambda bad: schedule().replace(instance_sha256=bad),
     [5, "z" * 64, "0" * 63 + "\n", "0" * 64 + "\n"]),
    ("information", lambda bad: schedule().replace(information=bad), ["all", None]),
    ("method", lambda bad: schedule().replace(method=bad), [None]),
    ("instance_name", lambda bad: schedule().replace(instance_name=bad), [5]),
    ("steps", lambda bad: schedule().replace(steps=bad), [None]),
    ("work", lambda bad: schedule().replace(work=bad), [STEPS]),
]  # fmt: skip


@pytest.mark.parametrize(("field", "make", "values"), FIELDS)
def test_single_fields(field, make, values):
    for bad in values:
        require(field, make, bad)


def test_steps_and_work_columns():
    require("steps.end_ns", in_order, Steps, [0], [0], [0], [NAN], [1])
    require("steps.rounds", in_order, Steps, [0], [0], [0], [5], [0])
    require("steps.phase", in_order, Steps, [0], [3], [0], [5], [1])
    require("work.tokens", Work, [0], [0], [0], [0], [0], [0])
    require("work.client", Work, [0], [-1], [0], [0], [0], [1])
    require("work.first_step", schedule, work=Work([0], [0], [0], [1], [0], [1]))


def test_schedules_are_equal_by_value_and_not_hashable():
    twin = schedule(in_order(Steps, [0], [0], [0], [5], [1]))
    assert schedule() == twin
    assert schedule() != twin.replace(seed=1)
    assert schedule() != twin.replace(steps=in_order(Steps, [0], [0], [0], [6], [1]))
    assert STEPS != WORK
    for value in (schedule(), STEPS, WORK):
        with pytest.raises(TypeError):
            hash(value)


@pytest.mark.parametrize("bad", [*(b for b in NO_COUNTS if b not in (0, None)), {}], ids=text)
def test_links_failures_and_autoscaling(bad):
    """What is a whole number of something."""
    for name in ("ns_per_token", "latency_ns"):
        require(name, Link, **{name: bad})
    for name in ("startup_ns", "least", "most", "interval_ns", "cooldown_ns"):
        require(name, Autoscaling, **({"startup_ns": 1} | {name: bad}))
    require("schedule", Autoscaling, startup_ns=1, schedule=[2, bad])
    require("available_ns", Worker, 1, available_ns=[(0, bad)])
    for name in ("clients", "block_tokens", "token_budget", "memory_blocks"):
        require(name, Server, **({"clients": 1} | {name: bad}))


@pytest.mark.parametrize(
    "bad", [-1, NAN, INF, HUGE, -HUGE, True, "1", b"1", None, [1], 1j], ids=text
)
def test_seconds_and_rates(bad):
    for name in ("mtbf", "mttr", "horizon"):
        require(name, Exponential, **({"mtbf": 1, "mttr": 1} | {name: bad}))
    for name in ("startup", "interval", "cooldown", "target"):
        require(name, read_autoscaling, {"startup": 1} | {name: bad})
    require("latency", Link.of_bandwidth, 1, 1, bad)
    for name, pair in (("bandwidth", (bad, 1)), ("kv_bytes", (1, bad))):
        if bad != HUGE:  # a number, if a large one
            require(name, Link.of_bandwidth, *pair)


@pytest.mark.parametrize("bad", [5, HUGE, b"x", [1], {1}, 1j, np.array([1, 2])], ids=text)
def test_names_of_roles_rules_and_laws(bad):
    require("role", Worker, 1, role=bad)
    require("rule", Autoscaling, startup_ns=1, rule=bad)
    require("failures", read_failures, bad)
    require("failures", read_failures, {"law": bad, "mtbf": 1, "mttr": 1})
    require("autoscale", read_autoscaling, bad)
    require("link", read_link, bad)


def test_the_signature_of_requests_for_type_checkers_is_the_real_one():
    tree = ast.parse(inspect.getsource(requests))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    (made,) = [node for node in functions if node.name == "__init__"]
    told, named = made.args.args, made.args.kwonlyargs
    real = inspect.signature(Requests.__init__).parameters.values()
    assert [each.arg for each in told] == [p.name for p in real if p.kind is not p.KEYWORD_ONLY]
    assert [each.arg for each in named] == [p.name for p in real if p.kind is p.KEYWORD_ONLY]
    assert [p.name for p in real if p.default is p.empty] == [each.arg for each in told]
    given = Requests([3], [4], arrival_s=[1.5], deadline_s=[0.25])
    assert (given.arrival_s.tolist(), given.deadline_s.tolist()) == ([1.5], [0.25])


# -- columns of several types are read item by item: exactly, and without copies of what is long --


def test_whole_numbers_do_not_go_through_floats_and_inexact_floats_are_refused():
    for other in (0.0, np.float64(0), np.int64(0), np.uint8(0)):
        assert int_column([9007199254740993, other], "x").tolist() == [9007199254740993, 0]
    error = refusal(int_column, [1, 9007199254740994.0], "x")
    assert "9007199254740994.0 is not a whole number" in str(error)


def test_a_long_text_among_numbers_costs_its_own_length():
    values = [1] * 3_000
    values[1_700] = "x" * 200_000
    tracemalloc.start()
    try:
        error = refusal(int_column, values, "x")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (error.row, "is not a whole number" in str(error)) == (1_700, True)
    assert most < 10_000_000
