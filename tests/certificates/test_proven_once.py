"""A bound that was proven for an instance is not derived again; any other one is."""

from __future__ import annotations

import pytest

import orsched
from orsched.checker import certificates
from orsched.checker.certificates import certificate_violations
from orsched.instances.synthetic import peers_workload


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the bounds that were derived from their certificates."""
    names, derive = [], certificates._differences

    def noted(instance, bound, budget):
        names.append(bound["name"])
        return derive(instance, bound, budget)

    monkeypatch.setattr(certificates, "_differences", noted)
    return names


def test_a_solvers_bound_is_derived_once_for_an_instance(derived: list[str]) -> None:
    result = orsched.solve(peers_workload(40), "fcfs")
    assert derived == [result.schedule.bound["name"]]
    assert orsched.check(peers_workload(40), result.schedule) == []
    assert len(derived) == 2  # another object: nothing is known of it


def test_a_forged_bound_is_refused_beside_the_one_that_was_proven(derived: list[str]) -> None:
    instance = peers_workload(40)
    bound = orsched.bound(instance).to_dict()
    assert certificate_violations(instance, bound) == []
    forged = {**bound, "value_ns": bound["value_ns"] + 1}
    assert certificate_violations(instance, forged)
    assert certificate_violations(instance, {**bound, "certificate": {"bound": "empty"}})
    assert certificate_violations(instance, bound) == []
    other = instance.replace(requests=instance.requests.take(range(20)))
    assert certificate_violations(other, bound)


def test_a_smaller_budget_is_kept_to(derived: list[str]) -> None:
    instance = peers_workload(40)
    bound = orsched.bound(instance).to_dict()
    before = len(derived)
    certificate_violations(instance, bound, budget=10)
    certificate_violations(instance, bound, budget=None)
    assert len(derived) == before + 2
