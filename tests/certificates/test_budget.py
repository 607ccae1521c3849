"""A certificate has a budget of work and memory: a small file asks for no more."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

import orsched
from orsched.certificates.fields import DEFAULT_BUDGET, Budget, BudgetError
from orsched.checker import certificates, check
from orsched.checker.certificates import (
    bound_violations,
    certificate_violations,
    packing_violations,
)
from orsched.cli.commands import run
from orsched.files import save_instance, save_schedule
from orsched.models.bounds.bounds import makespan_bound
from tests.certificates.kinds import NO_PACKING, PROOFS, finding, kinds
from tests.certificates.test_fields import changed
from tests.certificates.test_ways import NAMES

BEYOND = "budget of 2,000,000,000 cells"


def spent(monkeypatch, verify):
    """What a verification spends."""
    budgets = []
    init = Budget.__init__
    monkeypatch.setattr(Budget, "__init__", lambda *args: (init(*args), budgets.append(args[0]))[0])
    assert verify() == []
    return sum(budget.cells - budget.left for budget in budgets)


@pytest.mark.parametrize("proof", PROOFS)
@pytest.mark.parametrize("value", [99_999_999, 2**200])
def test_a_large_value_asks_for_no_large_table(proof, value):
    rounds, clients = NO_PACKING
    certificate = {"bound": proof, "value": value, **PROOFS[proof]}
    tracemalloc.start()
    found = packing_violations(rounds, clients, finding(proof, value)(rounds, clients))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert any(BEYOND in fault for fault in found)
    assert most < 10_000_000
    assert certificate["value"] == value


@pytest.mark.parametrize("proof", PROOFS)
def test_check_refuses_a_bound_beyond_its_budget(proof, tmp_path, monkeypatch, capsys):
    """A schedule of a kilobyte, whose certificate took a minute and 3.2 GB."""
    instance = kinds()[proof].instance
    kinds()[proof].bound(monkeypatch)
    schedule = orsched.solve(instance, "fcfs").schedule
    path = ("certificate", "decode_rounds", "value")
    broken = schedule.replace(bound=changed(schedule.bound, path, 99_999_999))
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
    broken = changed(document, ("certificate", "prices"), prices * 10**5)
    assert "budget of 100,000,000 cells" in certificate_violations(kind.instance, broken, 10**8)[0]


def test_a_larger_budget_verifies_more():
    kind = kinds()["joint"]
    document = makespan_bound(kind.instance).to_dict()
    small = certificate_violations(kind.instance, document, 10**4)
    assert "larger one (budget=, or --budget" in small[0]
    assert bound_violations(kind.instance, document, budget=10**9) == []
    assert bound_violations(kind.instance, document, budget=None) == []
    assert "budget" in check(kind.instance, _with(kind.instance, document), budget=10)[0].message


def _with(instance, bound):
    return orsched.solve(instance, "fcfs").schedule.replace(bound=bound)


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_takes_a_tenth_of_the_budget_at_most(name, monkeypatch):
    kind = kinds()[name]
    document = kind.bound(monkeypatch).to_dict()
    verify = lambda: bound_violations(kind.instance, document, kind.objective)  # noqa: E731
    assert spent(monkeypatch, verify) <= DEFAULT_BUDGET // 10


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
