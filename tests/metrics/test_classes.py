"""Numbers by class and by tenant against a literal reading, on random schedules."""

import json
import random
from dataclasses import fields, replace
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import InputError, ServiceClass, check
from orsched.metrics import token_times
from orsched.metrics.class_metrics import TenantService
from orsched.metrics.summary import SLO, distribution, summarise
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from tests.metrics import book_of_classes as book
from tests.metrics.any_schedule import any_schedule

several = settings(max_examples=60)
seeds = st.integers(0, 10**6)


def classed(seed, requests=None):
    """A random schedule whose instance has classes, tenants and deadlines drawn besides."""
    instance, schedule = any_schedule(seed, requests=requests)
    draw, n = random.Random(seed + 1), len(instance)

    def limit(most):
        return draw.choice([None, draw.randint(0, most)])

    kinds = [
        ServiceClass("interactive", ttft_ns=limit(900), tpot_ns=limit(120)),
        ServiceClass("code", ttft_ns=limit(900), deadline_ns=limit(2000)),
        ServiceClass("nightly", deadline_ns=limit(2000)),
    ]
    requests = instance.requests.replace(
        service_class=[draw.randint(0, 2) for _ in range(n)],
        tenant=[draw.choice("abc") for _ in range(n)],
        deadline_ns=[draw.choice([0, draw.randint(1, 2000)]) for _ in range(n)],
    )
    instance = instance.replace(classes=kinds, requests=requests)
    return instance, schedule.replace(instance_sha256=instance.sha256)


@several
@given(seeds)
def test_numbers_by_class_are_those_of_every_token(seed):
    """INV-24: attainment, throughput and recomputation counted token by token."""
    instance, schedule = classed(seed)
    figures = summarise(instance, schedule)["classes"]
    for name, literal in book.class_figures(instance, schedule).items():
        assert {key: figures[name][key] for key in literal} == literal


@several
@given(seeds, st.sampled_from([1, 3, 1 << 21]))
def test_tokens_come_when_a_literal_reading_says(seed, chunk):
    instance, schedule = classed(seed)
    line, everyone = Timeline(instance, schedule), np.ones(len(instance), bool)
    found = {request: {} for request in range(len(instance))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_times, "_CHUNK", chunk)
        for part in token_times.token_times(line, everyone):
            for request, index, time in zip(*(each.tolist() for each in part), strict=True):
                assert index not in found[request]
                found[request][index] = time
    literal = book.token_times(book.Book(instance, schedule))
    assert {r: [by[i] for i in range(len(by))] for r, by in found.items()} == literal


@several
@given(seeds)
def test_latencies_by_class_are_those_of_its_requests(seed):
    instance, schedule = classed(seed)
    figures = summarise(instance, schedule)["classes"]
    times, arrival = request_times(instance, schedule), instance.requests.arrival_ns
    for code, kind in enumerate(instance.classes):
        mine = instance.requests.service_class == code
        ttft = (times["first_token_ns"] - arrival)[mine]
        jct = (times["finish_ns"] - arrival)[mine]
        assert figures[kind.name]["ttft_ns"] == distribution(ttft)
        assert figures[kind.name]["jct_ns"] == distribution(jct)


@several
@given(seeds)
def test_classes_and_tenants_divide_the_whole(seed):
    """INV-24: what classes, and what tenants have, adds up to what all have."""
    instance, schedule = classed(seed)
    results = summarise(instance, schedule)
    for parts in ("classes", "tenants"):
        for name in ("prompt_tokens", "output_tokens"):
            assert sum(part[name] for part in results[parts].values()) == results[name]
        assert sum(part["requests"] for part in results[parts].values()) == len(instance)
    for part in results["classes"].values():
        if part["slo"]:
            assert part["slo"]["in_time"] <= part["requests"]
            assert part["slo"]["tokens_in_time"] <= part["output_tokens"]


@settings(max_examples=25)
@given(seeds, st.integers(2, 5))
def test_the_service_difference_is_that_of_all_pairs_of_times(seed, requests):
    instance, schedule = classed(seed, requests)
    fairness = summarise(instance, schedule)["fairness"]
    assert fairness["service_difference"] == book.service_difference(instance, schedule)


@several
@given(seeds)
def test_the_service_of_a_tenant_ends_at_its_tokens(seed):
    instance, schedule = classed(seed)
    if not len(instance):
        return
    service = TenantService(Timeline(instance, schedule))
    requests = instance.requests
    for row, tenant in zip(service.service, service.tenants, strict=True):
        mine = requests.tenant == tenant
        total = requests.prompt_tokens[mine].sum() + 2 * requests.output_tokens[mine].sum()
        assert row[-1] == total
        assert (np.diff(row) >= 0).all()


@several
@given(seeds)
def test_the_checker_agrees_with_and_without_other_limits(seed):
    instance, schedule = classed(seed)
    for slo in (None, SLO(ttft_ns=50, tpot_ns=20), SLO(ttft_ns=2**61, tpot_ns=2**61)):
        results = summarise(instance, schedule, slo)
        assert check(instance, schedule.replace(results=results)) == []


def test_wrong_missing_and_unknown_numbers_are_found():
    instance, schedule = classed(3)
    results = summarise(instance, schedule)
    wrong = {
        "classes.code.output_tokens": -1, "classes.code.deadline": None, "classes.fast": {},
        "classes.code": None, "tenants.z": {}, "fairness.compared": 9, "fairness": None,
        "classes": 7,
    }  # fmt: skip
    for field, value in wrong.items():
        broken = json.loads(json.dumps(results))
        *parts, last = field.split(".")
        where = reduce(dict.__getitem__, parts, broken)
        where[last] = value
        if value is None:  # left out
            del where[last]
        found = check(instance, schedule.replace(results=broken))
        assert [each.field for each in found] == [f"results.{field}"], field


def test_limits_that_are_given_take_the_place_of_those_of_interactive_requests():
    instance, schedule = classed(3)
    limit = SLO(ttft_ns=10**9, tpot_ns=10**9)
    results = summarise(instance, schedule, limit)
    interactive = results["classes"]["interactive"]["slo"]
    assert (interactive["ttft_ns"], interactive["tpot_ns"]) == (10**9, 10**9)
    assert interactive["token_attainment"] == 1
    bulk = [kind.bulk for kind in instance.classes]
    assert bulk == [False, instance.classes[1].ttft_ns is None, True]
    judged = (~np.array(bulk)[instance.requests.service_class]).sum()
    assert results["slo"]["attained"] == judged
    assert results["slo"]["attainment"] == 1


def test_instances_without_classes_and_tenants_have_the_numbers_of_before():
    instance, schedule = any_schedule(3)
    results = summarise(instance, schedule)
    assert not {"classes", "tenants", "fairness"} & set(results)


def test_attainment_is_asked_for_by_name():
    instance, _ = classed(3)
    instance = instance.with_classes("interactive:ttft=1", "nightly")
    requests = instance.requests.replace(tenant=None, tenants=None, deadline_ns=None)
    result = orsched.simulate(instance.replace(requests=requests), "fcfs")
    share = result.schedule.results["classes"]["interactive"]["slo"]["attainment"]
    assert result.attainment() == share
    for name, says in (("nightly", "has no limits"), ("fast", "is not a class")):
        with pytest.raises(InputError, match=says) as caught:
            result.attainment(name)
        assert caught.value.field == "class"
        assert caught.value.remedy
    plain = orsched.simulate(orsched.load("two-by-two"), "fcfs")
    with pytest.raises(InputError, match="is not a class"):
        plain.attainment()


@pytest.mark.parametrize("seed", range(10))
def test_the_checker_answers_on_broken_schedules_too(seed):
    """Whatever a column of a schedule says, it is refused without an exception."""
    instance, schedule = classed(seed, 5)
    schedule = schedule.replace(results=summarise(instance, schedule))
    draw = random.Random(seed)
    for _ in range(20):
        table = draw.choice(["steps", "work"])
        columns = getattr(schedule, table)
        name = draw.choice(fields(columns)).name
        values = getattr(columns, name).copy()
        if not len(values):
            continue
        values[draw.randrange(len(values))] = draw.choice([0, 1, 2, 7, 10**6, 2**30])
        try:
            broken = schedule.replace(**{table: replace(columns, **{name: values})})
        except InputError:
            continue
        assert isinstance(check(instance, broken), list)
