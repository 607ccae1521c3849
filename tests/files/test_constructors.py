"""The constructors of the library reject what the files reject, whoever calls them."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.calibration import Server
from orsched.common.errors import InputError
from orsched.costs import AffineCost
from orsched.data.autoscaling import Autoscaling, read_autoscaling
from orsched.data.instance import Instance
from orsched.data.links import Link, read_link
from orsched.data.memory import BlockMemory
from orsched.data.requests import Prefixes, Requests
from orsched.data.schedule import Schedule, Steps, Work
from orsched.data.workers import Worker
from orsched.instances.failures import Exponential, read_failures
from tests.in_order import in_order

NAN, INF = float("nan"), float("inf")
HUGE = 10**5000  # more digits than Python prints
ONE = Requests([1], [1])
STEPS, WORK = in_order(Steps, [0], [0], [0], [5], [1]), Work([0], [0], [0], [0], [0], [1])

NO_COUNTS = [0, -1, NAN, INF, 1.5, HUGE, -HUGE, 2**63, True, "1", b"1", None, [1], 1j, object()]
NO_COLUMNS = [*([bad] for bad in NO_COUNTS), None, 5, "1", {1}, {"a": 1}, [[1], [1]], [1, [2]]]
NO_COLUMNS += [np.array(["2020-01-01"], "M8[ns]"), np.array([5], "m8[s]"), np.array([True])]
NO_COLUMNS += [np.array([2**63], np.uint64), np.array([NAN], np.float16), [], [1, 1], [True, 2.0]]
NO_COLUMNS += [np.ma.masked_array([1], [True])]


def require(field, call):
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.field == field
    assert len(str(caught.value)) < 400


def text(value):
    """Short name of a parameter set (``HUGE`` cannot be printed)."""
    return "huge" if isinstance(value, int) and abs(value) > 2**99 else type(value).__name__


@pytest.mark.parametrize("bad", NO_COLUMNS, ids=text)
def test_token_columns(bad):
    require("output_tokens", lambda: Requests([1], bad))
    if bad is not None:  # the default
        require("predicted_tokens", lambda: Requests([1], [1], predicted_tokens=bad))


@pytest.mark.parametrize("bad", NO_COLUMNS, ids=text)
def test_quantiles_and_levels(bad):
    def make(quantiles, levels):
        return lambda: Requests([1], [1], predicted_quantiles=quantiles, quantile_levels=levels)

    if bad is None:
        require("quantile_levels", make(bad, [0.5]))
        require("predicted_quantiles", make([[1]], bad))
    else:
        require("quantile_levels", make([[1]], bad))
        if not (isinstance(bad, list) and bad == [[1]]):  # one request with one quantile
            require("predicted_quantiles", make(bad, [0.5]))


@pytest.mark.parametrize("bad", [b for b in NO_COLUMNS if b is not None and b != [0]], ids=text)
def test_columns_that_may_be_zero(bad):
    require("arrival_ns", lambda: Requests([1], [1], arrival_ns=bad))
    require("service_class", lambda: Requests([1], [1], service_class=bad))


@pytest.mark.parametrize("bad", NO_COLUMNS[:20], ids=text)
def test_the_first_column_has_no_length_to_match(bad):
    require("prompt_tokens", lambda: Requests(bad, [1]))


@pytest.mark.parametrize(
    "bad", [5, "a", [], ["a", "b"], [""], [5], [None], [b"a"], [["a"]], [HUGE]], ids=text
)
def test_ids(bad):
    require("ids", lambda: Requests([1], [1], ids=bad))


def test_ids_are_unique_and_the_row_is_named():
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
    require("clients", lambda: Worker(bad))
    require("blocks", lambda: BlockMemory(bad, 1, "whole"))
    require("block_tokens", lambda: BlockMemory(1, bad, "whole"))
    require("prefix_block_tokens", lambda: Prefixes([0, 1], [1], bad))
    if bad is not None:  # no cap, the default limit
        require("prefill_cap_tokens", lambda: Worker(1, prefill_cap_tokens=bad))
        require(
            "output_limit_tokens",
            lambda: Instance(ONE, Worker(1), output_limit_tokens=bad, first_token="decode"),
        )
    if bad != 0:
        require("round_fixed_ns", lambda: AffineCost(round_fixed_ns=bad))
        schedule = Schedule("0" * 64, STEPS, WORK, "m", "none")
        require("seed", lambda: schedule.replace(seed=bad))


@pytest.mark.parametrize("bad", [None, 5, "affine", AffineCost, {"model": "affine"}], ids=text)
def test_models_are_objects_not_classes_or_names(bad):
    require("cost", lambda: Worker(1, cost=bad))


def test_workers_memory_and_labels():
    require("memory", lambda: Worker(1, memory=5))
    require("memory", lambda: Worker(1, memory=BlockMemory))
    require("name", lambda: Worker(1, name=""))
    require("name", lambda: Worker(1, name=5))


@pytest.mark.parametrize("bad", [None, 5, [], (), "worker", [5], Worker, [Worker(1), None]])
def test_instances_need_workers(bad):
    require("workers", lambda: Instance(ONE, bad, first_token="decode"))


def test_other_fields_of_instances():
    require("requests", lambda: Instance([1], Worker(1), first_token="decode"))
    require("first_token", lambda: Instance(ONE, Worker(1), first_token="both"))
    require("first_token", lambda: Instance(ONE, Worker(1), first_token=[]))
    for label in ("name", "description", "source", "licence"):
        require(label, lambda label=label: Instance(ONE, Worker(1), **{label: 5}))
    require(
        "output_tokens",
        lambda: Instance(
            Requests([1], [9]), Worker(1), output_limit_tokens=8, first_token="decode"
        ),
    )
    slow = Worker(1, AffineCost(prefill_fixed_ns=2**61))
    require("requests", lambda: Instance(Requests([1, 1], [1, 1]), slow, first_token="decode"))


@pytest.mark.parametrize(
    "offsets", [[], [0], [1, 1], [0, 2], [0, 1, 0, 1], [0, -1, 1], "01", [0, NAN]]
)
def test_prefix_offsets(offsets):
    require("prefix_offsets", lambda: Prefixes(offsets, [5], 16))


def test_prefixes_of_requests():
    require("prefixes", lambda: Requests([1], [1], prefixes=[0, 1]))
    two = Prefixes([0, 1, 1], [5], 16)
    require("prefix_offsets", lambda: Requests([1], [1], prefixes=two))
    require("prefix_ids", lambda: Prefixes([0, 1], [-1], 16))


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("instance_sha256", 5),
        ("instance_sha256", "z" * 64),
        ("instance_sha256", "0" * 63 + "\n"),
        ("instance_sha256", "0" * 64 + "\n"),
        ("information", "all"),
        ("information", None),
        ("method", None),
        ("instance_name", 5),
        ("steps", None),
        ("work", STEPS),
    ],
)
def test_schedules(field, bad):
    schedule = Schedule("0" * 64, STEPS, WORK, "m", "none")
    require(field, lambda: schedule.replace(**{field: bad}))


def test_steps_and_work_columns():
    require("steps.end_ns", lambda: in_order(Steps, [0], [0], [0], [NAN], [1]))
    require("steps.rounds", lambda: in_order(Steps, [0], [0], [0], [5], [0]))
    require("steps.phase", lambda: in_order(Steps, [0], [3], [0], [5], [1]))
    require("work.tokens", lambda: Work([0], [0], [0], [0], [0], [0]))
    require("work.client", lambda: Work([0], [-1], [0], [0], [0], [1]))
    late = Work([0], [0], [0], [1], [0], [1])
    require("work.first_step", lambda: Schedule("0" * 64, STEPS, late, "m", "none"))


def test_schedules_are_equal_by_value_and_not_hashable():
    schedule = Schedule("0" * 64, STEPS, WORK, "m", "none")
    twin = Schedule("0" * 64, in_order(Steps, [0], [0], [0], [5], [1]), WORK, "m", "none")
    assert schedule == twin
    assert schedule != twin.replace(seed=1)
    assert schedule != twin.replace(steps=in_order(Steps, [0], [0], [0], [6], [1]))
    assert schedule.steps != WORK
    for value in (schedule, STEPS, WORK):
        with pytest.raises(TypeError):
            hash(value)


def test_no_requests_are_an_instance():
    instance = Instance(Requests([], []), Worker(1), first_token="decode")
    assert len(instance) == 0
    assert instance.summary()["requests"] == 0


@pytest.mark.parametrize("bad", [*(b for b in NO_COUNTS if b not in (0, None)), {}], ids=text)
def test_links_failures_and_autoscaling(bad):
    """What is a whole number of something."""
    for name in ("ns_per_token", "latency_ns"):
        require(name, lambda name=name: Link(**{name: bad}))
    for name in ("startup_ns", "least", "most", "interval_ns", "cooldown_ns"):
        require(name, lambda name=name: Autoscaling(**({"startup_ns": 1} | {name: bad})))
    require(
        "available_ns", lambda: Worker(1, in_order(AffineCost, 0, 1, 1, 1), available_ns=[(0, bad)])
    )
    for name in ("clients", "block_tokens", "token_budget", "memory_blocks"):
        require(name, lambda name=name: Server(**({"clients": 1} | {name: bad})))


@pytest.mark.parametrize(
    "bad", [-1, NAN, INF, HUGE, -HUGE, True, "1", b"1", None, [1], 1j], ids=text
)
def test_seconds_and_rates(bad):
    for name in ("mtbf", "mttr", "horizon"):
        require(name, lambda name=name: Exponential(**({"mtbf": 1, "mttr": 1} | {name: bad})))
    for name in ("startup", "interval", "cooldown", "target"):
        require(name, lambda name=name: read_autoscaling({"startup": 1} | {name: bad}))
    require("latency", lambda: Link.of_bandwidth(1, 1, bad))
    for name, pair in (("bandwidth", (bad, 1)), ("kv_bytes", (1, bad))):
        if bad != HUGE:  # a number, if a large one
            require(name, lambda pair=pair: Link.of_bandwidth(*pair))


@pytest.mark.parametrize("bad", [5, HUGE, b"x", [1], {1}, 1j, np.array([1, 2])], ids=text)
def test_names_of_roles_rules_and_laws(bad):
    require("role", lambda: Worker(1, in_order(AffineCost, 0, 1, 1, 1), role=bad))
    require("rule", lambda: Autoscaling(startup_ns=1, rule=bad))
    require("failures", lambda: read_failures(bad))
    require("failures", lambda: read_failures({"law": bad, "mtbf": 1, "mttr": 1}))
    require("autoscale", lambda: read_autoscaling(bad))
    require("link", lambda: read_link(bad))
