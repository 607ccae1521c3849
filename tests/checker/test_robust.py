"""The checker never raises, however wrong a schedule is; and what it shares with other parts."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, BlockMemory, InputError, Instance, Requests, Worker, check
from orsched.checker import ViolationKind
from orsched.data.schedule import Schedule, Steps, Work
from tests.checker.any_mode import random_schedule
from tests.checker.valid import valid_schedules, with_value
from tests.decoding import decoding
from tests.in_order import in_order
from tests.simulator.instances import ContextCost

VALID = valid_schedules()


class PickyCost(ContextCost):
    """Raises for everything."""

    def mixed_ns(self, prompts, active, context_sum, context_max):
        raise RuntimeError

    def prefill_ns(self, prompts):
        raise ZeroDivisionError("no")

    def round_ns(self, active, context_sum, context_max):
        raise KeyError(active)


class HugeCost(AffineCost):
    """Answers with numbers that no column holds."""

    def prefill_ns(self, prompts):
        return 2**70 if len(prompts) > 1 else -1

    def round_ns(self, active, context_sum=0, context_max=0):
        return 2**70


class SmallAtFirst(ContextCost):
    """Can be built into an instance, and then explodes."""

    def round_ns(self, active, context_sum, context_max):
        return 1 if context_max > 6 else 2**80

    def prefill_ns(self, prompts):
        return 1


REQUESTS = Requests([3, 4, 5, 2], [2, 1, 3, 4], arrival_ns=[0, 5, 0, 9])
ONES = in_order(AffineCost, 1, 1, 1, 1)


def instance_with(cost):
    # The instance asks its cost model about the largest case only.
    worker = Worker(2, ONES, 9, BlockMemory(9, 2, "whole"))
    plain = Instance(REQUESTS, worker, first_token="decode")
    object.__setattr__(plain.workers[0], "cost", cost)
    return plain


TWO = (
    Worker(2, ContextCost(), 9, BlockMemory(9, 2, "paged"), padding=True),
    Worker(1, ONES, None, BlockMemory(40, 3, "paged"), "b"),
)
INSTANCES = [
    *map(instance_with, (ONES, ContextCost(), PickyCost(), HugeCost(), SmallAtFirst())),
    decoding([], [], (Worker(1), Worker(2, ContextCost(), name="b"))),
    Instance(REQUESTS, TWO, first_token="prefill"),
]
BIG = (2**31, 2**40, 2**62)
LAST = 2**62 - 1


def numbers(high, low=0):
    small = st.integers(low, min(high, 6))
    return small | small | st.sampled_from([x for x in (*BIG, high) if low <= x <= high])


KEYS = (
    "value_ns", "name", "certificate", "bound", "slo", "ttft_ns", "mean", "bubble_ns", "x"
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def schedules(draw):
    """Any schedule that can be built at all."""
    n, m = draw(st.integers(0, 6)), draw(st.integers(0, 8))

    def column(size, high, low=0):
        return draw(st.lists(numbers(high, low), min_size=size, max_size=size))

    limits = ((2**31, 0), (2, 0), (LAST, 0), (LAST, 0), (LAST, 1))
    steps = in_order(Steps, *(column(n, *each) for each in limits))
    places = st.lists(st.integers(0, max(n - 1, 0)), min_size=m if n else 0, max_size=m if n else 0)
    first, last = draw(places), draw(places)
    m = len(first)
    before = [column(m, high) for high in (2**31, 2**31, 2)]
    work = Work(*before, first, last, column(m, 2**31 - 1, 1), column(m, 2**31))
    method = draw(st.sampled_from(("fcfs", "x", "")))
    information = draw(st.sampled_from(("none", "clairvoyant")))
    said = {"results": draw(JSON), "bound": draw(JSON)}
    return Schedule("0" * 64, steps, work, method, information, **said)


@pytest.mark.parametrize("times", ["model", "measured"])
@given(schedule=schedules())
def test_any_schedule_gets_an_answer(times, schedule):
    for instance in INSTANCES:
        found = check(instance, schedule, times=times)
        assert found  # at least the hash is wrong
        json.dumps([violation.to_dict() for violation in found], allow_nan=False)


@pytest.mark.parametrize("name", VALID)
def test_a_valid_schedule_for_another_instance_gets_an_answer(name):
    _, schedule = VALID[name]
    for instance in [*INSTANCES, *(other for other, _ in VALID.values())]:
        right = instance.sha256 == schedule.instance_sha256
        assert (check(instance, schedule) == []) == right


class Awkward:
    """Neither compares nor prints."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __repr__(self):
        raise RuntimeError("no text")


def deep(levels):
    tree = []
    for _ in range(levels):
        tree = [tree]
    return tree


@pytest.mark.parametrize("thing", [Awkward(), deep(100_000), np.arange(3), {1, 2}, b"x", 10**400])
def test_things_that_are_no_json(thing):
    instance, schedule = VALID["plain"]
    leaf = {**schedule.results, "makespan_ns": thing}
    slo = {**schedule.results, "slo": {**schedule.results["slo"], "attained": thing}}
    limit = {**schedule.results, "slo": {**schedule.results["slo"], "ttft_ns": thing}}
    for changed in (
        *({"results": results} for results in (thing, leaf, slo, limit)),
        *({"bound": {**schedule.bound, name: thing}} for name in schedule.bound),
        {"bound": thing},
    ):
        found = check(instance, schedule.replace(**changed))
        assert found
        json.dumps([violation.to_dict() for violation in found], allow_nan=False)


@given(seed=st.integers(0, 300), other=st.integers(0, 5), data=st.data())
def test_broken_schedules_of_all_modes_get_an_answer(seed, other, data):
    """Some values of a valid schedule are replaced by any others."""
    instance, schedule = random_schedule(seed, 4)
    for _ in range(data.draw(st.integers(1, 4))):
        table = data.draw(st.sampled_from(["steps", "work"]))
        columns = vars(getattr(schedule, table))
        name = data.draw(st.sampled_from(sorted(columns)))
        row = data.draw(st.integers(0, len(columns[name]) - 1))
        try:
            schedule = with_value(schedule, table, name, row, data.draw(numbers(2**62)))
        except InputError:
            continue
    schedule = schedule.replace(results={"makespan_ns": 0})
    for judge in (instance, INSTANCES[other], INSTANCES[-1]):
        for times in ("model", "measured"):
            assert check(judge, schedule, times=times)  # the results are no more than a part


def test_what_a_cost_model_refuses_is_a_wrong_time():
    _, schedule = VALID["plain"]
    found = check(instance_with(PickyCost()), schedule)
    assert any("refuses" in violation.message for violation in found)


SHARED = {
    "common.columns", "metrics.class_metrics", "metrics.prefix_blocks", "metrics.prefix_replay",
    "metrics.summary", "metrics.timeline", "metrics.timeline_rows", "metrics.token_times",
}  # fmt: skip
"""The one reading of a schedule, which ``tests/by_the_book.py`` is held against."""

FOREIGN = (
    "simulator", "heuristics", "runner", "data.step", "solving.solver", "planning", "views",
    "instances", "models.packing", "models.pcmax", "models.windows", "models.full_mip",
)  # fmt: skip
"""What makes schedules, searches or shows: none of it is there when the checker is."""

CODE = """
import importlib, pkgutil, sys
import orsched.checker
for module in pkgutil.iter_modules(orsched.checker.__path__):
    importlib.import_module(f"orsched.checker.{module.name}")
print(*(name.removeprefix("orsched.") for name in sys.modules if name.startswith("orsched.")))
"""


def test_the_checker_shares_no_code_with_what_makes_schedules(tmp_path):
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = set(done.stdout.split())
    assert loaded >= SHARED
    assert [name for name in loaded for part in FOREIGN if f"{name}.".startswith(f"{part}.")] == []


@pytest.fixture(scope="module")
def page(repo_root):
    return (repo_root / "docs" / "guarantees.md").read_text(encoding="utf-8")


def test_each_invariant_is_cited_by_a_test_and_numbers_are_consecutive(page, repo_root):
    numbers = re.findall(r"^\| (INV-\d+) \|", page, flags=re.MULTILINE)
    assert numbers == [f"INV-{i}" for i in range(1, len(numbers) + 1)]
    texts = [path.read_text(encoding="utf-8") for path in (repo_root / "tests").rglob("*.py")]
    cited = {number for text in texts for number in re.findall(r"INV-[1-9]\d*", text)}
    assert cited == set(numbers) == set(re.findall(r"INV-\d+", page))


def test_each_kind_of_violation_is_explained(page):
    assert {kind.value for kind in ViolationKind} <= set(re.findall(r"`(\w+)`", page))
