"""What a certificate may hold, what verifying it may take, and that it is proven once."""

import copy
import json
import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import orsched
from orsched.certificates.fields import (
    BULK,
    DUE,
    IN_TIME,
    LATENCY,
    MAKESPAN,
    PACKING,
    Budget,
    BudgetError,
)
from orsched.checker import certificates, check
from orsched.checker.certificates import bound_violations, bulk_violations, certificate_violations
from orsched.cli.commands import run
from orsched.common.scalars import DEFAULT_BUDGET
from orsched.data.workers import Worker
from orsched.files import save_instance, save_schedule
from orsched.instances.synthetic import peers_workload
from orsched.models.bounds.bounds import makespan_bound
from tests.certificates.kinds import COST, NO_PACKING, PROOFS, finding, kinds, problem
from tests.certificates.test_bulk_certificates import bulk_documents
from tests.certificates.test_proposals import NAMES
from tests.forged import with_leaf

OTHERS = (
    True, False, None, "", "1", "x", b"1", 1j, [], [1], {}, {"k": 1}, (1,), float("nan"),
    float("inf"), -float("inf"), 0.0, 0.5, 1e300, object(),
)  # fmt: skip
NUMBERS = (-1, 0, 1, 2**31, 2**63, 2**64, -(2**70), 10**30, 10**400, -(10**5000))
MOST_PLACES = 60


def leaves(tree, path=()):
    """The path of everything in a document, tables and lists among it."""
    if path:
        yield path
    if isinstance(tree, dict | list):
        for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(item, (*path, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def places(document):
    """All places of a document, or as many, spread over it."""
    found = list(leaves(document))
    return found[:: -(-len(found) // MOST_PLACES)]


def other_types(value):
    """Values of another type, some of them equal to it."""
    same = [float(value), np.int64(value)] if type(value) is int and abs(value) < 2**53 else []
    return [other for other in (*OTHERS, *same) if type(other) is not type(value)]


def test_the_examples_have_every_kind():
    made = {
        str(kind.bound(pytest.MonkeyPatch()).name) for kind in kinds().values() if not kind.proof
    }
    assert made | {"longest_request"} == {*MAKESPAN, *LATENCY, *DUE, *IN_TIME}
    assert set(PROOFS) < set(PACKING)


def test_a_kind_that_is_proposed_no_more_is_verified_in_old_files():
    """A request that comes at 90 ends a prefill of 9 tokens and 3 rounds of its own later."""
    instance = problem([9, 1, 1], [3, 1, 1], Worker(3, COST), arrivals=[90, 0, 0])
    value = 90 + COST.prefill_ns([9]) + 3 * COST.round_ns(1, 12)
    claim = {"bound": "longest_request", "request": 0, "value_ns": value}
    document = {"name": "longest_request", "value_ns": value, "certificate": claim}
    assert bound_violations(instance, document) == []
    assert makespan_bound(instance).value_ns == value
    more = {**document, "value_ns": value + 1, "certificate": {**claim, "value_ns": value + 1}}
    assert f"re-derived {value}" in bound_violations(instance, more)[0]


def example(name, monkeypatch):
    """Return a document that proves a bound, and what finds faults in one like it."""
    if name in BULK:
        instance, document = bulk_documents()[name]
        return document, lambda other: bulk_violations(instance, other)
    kind = kinds()[name]
    verify = partial(bound_violations, kind.instance, objective=kind.objective)
    return kind.bound(monkeypatch).to_dict(), verify


@pytest.mark.parametrize("name", [*NAMES, *BULK])
def test_another_type_is_no_proof(name, monkeypatch):
    document, verify = example(name, monkeypatch)
    for path in places(document):
        for other in other_types(at(document, path)):
            broken = with_leaf(document, path, other)
            assert verify(broken), (path, other)
            if name not in BULK and kinds()[name].objective == "makespan":
                assert certificate_violations(kinds()[name].instance, broken), (path, other)


@pytest.mark.parametrize("name", [*NAMES, *BULK])
def test_another_number_proves_no_more(name, monkeypatch):
    """Another choice may prove as much as was claimed; never another value."""
    document, verify = example(name, monkeypatch)
    proven = ("certificate", "value") if name in BULK else ("value_ns",)
    for path in places(document):
        value = at(document, path)
        if type(value) is not int:
            continue
        for other in (*NUMBERS, value + 1, value - 1):
            broken = with_leaf(document, path, other)
            if not verify(broken):
                assert at(broken, proven) == at(document, proven), (path, other)


@pytest.mark.parametrize(
    "name", ["joint", "dual", "tree", "charged", "shared", "large requests", *BULK]
)
def test_fields_that_are_missing_or_unknown_are_no_proof(name, monkeypatch):
    document, verify = example(name, monkeypatch)
    optional = ("restarts",) if name in BULK else ()
    shallow = [path for path in leaves(document) if len(path) < 3]
    for path in {(), *places(document), *shallow}:
        if isinstance(at(document, path), dict):
            assert verify(with_leaf(document, (*path, "more"), 1))
        if path and isinstance(path[-1], str) and path[-1] not in optional:
            less = copy.deepcopy(document)
            del at(less, path[:-1])[path[-1]]
            assert verify(less), path


def test_half_a_k_proves_nothing():
    """Of requests above 2/3 of the memory fewer than one go together, was the "proof"."""
    kind = kinds()["large requests"]
    document = orsched.bound(kind.instance).to_dict()
    rounds = document["certificate"]["decode_rounds"]
    assert rounds["k"] == 1
    worth = 2 * rounds["value"]
    for k in (0.5, 1.0, True):
        broken = with_leaf(document, ("certificate", "decode_rounds", "k"), k)
        broken["certificate"]["decode_rounds"]["value"] = worth
        found = certificate_violations(kind.instance, broken)
        assert any("decode_rounds.k is" in fault for fault in found), k


@pytest.mark.parametrize("proof", PROOFS)
def test_packings_of_other_types_are_no_proof(proof):
    rounds, clients = NO_PACKING
    result = finding(proof)(rounds, clients)
    assert certificates.packing_violations(rounds, clients, result) == []
    for path in places(result.certificate):
        for other in other_types(at(result.certificate, path)):
            broken = replace(result, certificate=with_leaf(result.certificate, path, other))
            assert certificates.packing_violations(rounds, clients, broken), (path, other)
    for field in ("makespan", "bound"):
        assert certificates.packing_violations(rounds, clients, replace(result, **{field: 9.0}))


@pytest.mark.parametrize("name", ["joint", "tree", "charged", "large prompts"])
def test_check_says_so_beside_a_schedule(name, monkeypatch):
    kind = kinds()[name]
    kind.bound(monkeypatch)
    schedule = orsched.solve(kind.instance, "fcfs").schedule
    assert check(kind.instance, schedule) == []
    for path in places(schedule.bound)[::7]:
        for other in (None, True, 0.5, "x", 10**5000):
            broken = schedule.replace(bound=with_leaf(schedule.bound, path, other))
            found = check(kind.instance, broken)
            assert any(violation.kind == "bound" for violation in found), (path, other)
            json.dumps([violation.to_dict() for violation in found], allow_nan=False)


BEYOND = "budget of 2,000,000,000 cells"


@pytest.mark.parametrize("proof", PROOFS)
@pytest.mark.parametrize("value", [99_999_999, 2**200])
def test_a_large_value_asks_for_no_large_table(proof, value):
    rounds, clients = NO_PACKING
    tracemalloc.start()
    found = certificates.packing_violations(rounds, clients, finding(proof, value)(rounds, clients))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert any(BEYOND in fault for fault in found)
    assert most < 10_000_000


@pytest.mark.parametrize("proof", PROOFS)
def test_check_refuses_a_bound_beyond_its_budget(proof, tmp_path, monkeypatch, capsys):
    """A schedule of a kilobyte, whose certificate took a minute and 3.2 GB."""
    instance = kinds()[proof].instance
    kinds()[proof].bound(monkeypatch)
    schedule = orsched.solve(instance, "fcfs").schedule
    path = ("certificate", "decode_rounds", "value")
    broken = schedule.replace(bound=with_leaf(schedule.bound, path, 99_999_999))
    assert [v.kind for v in check(instance, broken)] == ["bound"]
    assert BEYOND in check(instance, broken)[0].message
    save_instance(instance, tmp_path / "instance.json")
    save_schedule(broken, tmp_path / "schedule.json")
    assert run(["check", str(tmp_path / "instance.json"), str(tmp_path / "schedule.json")]) == 1
    assert "--budget" in capsys.readouterr().out


def test_many_prices_and_many_proofs_have_one_budget():
    kind = kinds()["joint"]
    document = makespan_bound(kind.instance).to_dict()
    prices = document["certificate"]["prices"]
    broken = with_leaf(document, ("certificate", "prices"), prices * 10**5)
    assert "budget of 100,000,000 cells" in certificate_violations(kind.instance, broken, 10**8)[0]


def test_a_larger_budget_verifies_more():
    kind = kinds()["joint"]
    document = makespan_bound(kind.instance).to_dict()
    small = certificate_violations(kind.instance, document, 10**4)
    assert "larger one (budget=, or --budget" in small[0]
    assert bound_violations(kind.instance, document, budget=10**9) == []
    assert bound_violations(kind.instance, document, budget=None) == []
    schedule = orsched.solve(kind.instance, "fcfs").schedule.replace(bound=document)
    assert "budget" in check(kind.instance, schedule, budget=10)[0].message


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_takes_a_tenth_of_the_budget_at_most(name, monkeypatch):
    document, verify = example(name, monkeypatch)
    budgets, init = [], Budget.__init__
    monkeypatch.setattr(Budget, "__init__", lambda *args: (init(*args), budgets.append(args[0]))[0])
    assert verify(document) == []
    assert sum(budget.cells - budget.left for budget in budgets) <= DEFAULT_BUDGET // 10


def test_no_bound_is_looked_at_beside_a_broken_structure(monkeypatch):
    instance = kinds()["volume"].instance
    schedule = orsched.solve(instance, "fcfs").schedule
    broken = schedule.replace(work=replace(schedule.work, client=schedule.work.client + 99))
    monkeypatch.setattr(certificates, "certificate_violations", None)
    assert {v.kind for v in check(instance, broken)} >= {"client_range"}


def test_a_budget_is_spent_once_and_says_of_what():
    budget = Budget(1000)
    budget.hold(20)
    with pytest.raises(BudgetError, match="more memory than its budget of 1,000 cells"):
        budget.hold(21)
    budget.spend(600)
    with pytest.raises(BudgetError, match="more work"):
        budget.spend(401)
    Budget(None).hold(10**30)
    Budget(None).spend(10**30)


@pytest.fixture
def derived(monkeypatch):
    """Return the names of the bounds that were derived from their certificates."""
    names, derive = [], certificates._differences

    def noted(instance, bound, budget):
        names.append(bound["name"])
        return derive(instance, bound, budget)

    monkeypatch.setattr(certificates, "_differences", noted)
    return names


def test_a_solvers_bound_is_derived_once_for_an_instance(derived):
    result = orsched.solve(peers_workload(40), "fcfs")
    assert derived == [result.schedule.bound["name"]]
    assert orsched.check(peers_workload(40), result.schedule) == []
    assert len(derived) == 2  # another object: nothing is known of it


def test_a_forged_bound_is_refused_beside_the_one_that_was_proven(derived):
    instance = peers_workload(40)
    bound = orsched.bound(instance).to_dict()
    assert certificate_violations(instance, bound) == []
    forged = {**bound, "value_ns": bound["value_ns"] + 1}
    assert certificate_violations(instance, forged)
    assert certificate_violations(instance, {**bound, "certificate": {"bound": "empty"}})
    assert certificate_violations(instance, bound) == []
    other = instance.replace(requests=instance.requests.take(range(20)))
    assert certificate_violations(other, bound)


def test_a_smaller_budget_is_kept_to(derived):
    instance = peers_workload(40)
    bound = orsched.bound(instance).to_dict()
    before = len(derived)
    certificate_violations(instance, bound, budget=10)
    certificate_violations(instance, bound, budget=None)
    assert len(derived) == before + 2
