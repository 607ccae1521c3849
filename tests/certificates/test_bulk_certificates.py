"""No certificate of bulk work verifies with a field of another type, and none raises."""

from __future__ import annotations

import copy

import pytest

from orsched.certificates.bulk_parts import PRICE_SCALE, Program
from orsched.certificates.bulk_program import BulkProgram, Question
from orsched.certificates.fields import BULK, Budget
from orsched.checker.certificates import bulk_violations
from orsched.common.limits import DEFAULT_BUDGET
from orsched.models.bounds.bulk_bound import attainment_bound, bulk_bound
from tests.certificates.test_fields import NUMBERS, at, changed, other_types, places
from tests.models.test_bulk_bound import small

INSTANCE = small(n=4, bulk=6).with_classes("batch")
"""For bulk work; with limits on all, for attainment, it is one of which not all can meet them."""
CROWDED = INSTANCE.with_classes("batch:ttft=0.05,tpot=0.03")


def documents():
    whole = bulk_bound(INSTANCE, 0.75, 0.2, restarts=2, windows=6, allows=["chunks", "restarts"])
    met = attainment_bound(CROWDED, windows=60)
    return {"bulk": (INSTANCE, whole.to_dict()), "attained": (CROWDED, met.to_dict())}


@pytest.fixture(scope="module", params=BULK)
def case(request):
    return documents()[request.param]


def test_the_examples_verify(case):
    instance, document = case
    assert bulk_violations(instance, document) == []
    assert document["certificate"]["prices"]


def test_another_type_is_no_proof(case):
    instance, document = case
    for path in places(document):
        for other in other_types(at(document, path)):
            assert bulk_violations(instance, changed(document, path, other)), (path, other)


def test_another_number_proves_no_other_value(case):
    """Other windows, prices and questions prove what is derived, and nothing else."""
    instance, document = case
    for path in places(document):
        value = at(document, path)
        if type(value) is not int:
            continue
        for other in (*NUMBERS, value + 1, value - 1):
            broken = changed(document, path, other)
            if other != value and not bulk_violations(instance, broken):
                assert broken["certificate"]["value"] == document["certificate"]["value"]


def test_fields_that_are_missing_or_unknown_are_no_proof(case):
    instance, document = case
    claim = document["certificate"]
    for name in claim:
        if name not in ("allows", "restarts"):
            less = copy.deepcopy(document)
            del less["certificate"][name]
            assert bulk_violations(instance, less), name
    assert bulk_violations(instance, changed(document, ("certificate", "more"), 1))
    assert bulk_violations(instance, None)
    assert bulk_violations(instance, {})


def test_a_large_program_is_beyond_its_budget():
    instance, document = documents()["bulk"]
    horizon = document["certificate"]["windows"][-1]
    document["certificate"]["windows"] = [*range(2_000_000), horizon]
    (fault,) = bulk_violations(instance, document)
    assert f"budget of {DEFAULT_BUDGET:,} cells" in fault


def test_any_prices_bound_a_program():
    """x + 2 y, x <= 3, y <= 4, x + y <= 5: 9 at most."""
    program = Program()
    x, y = program.column(3, 1), program.column(4, 2)
    row = program.at_most([(x, 1), (y, 1)], 5)
    assert program.proven([]) == 11
    assert program.proven([(row, PRICE_SCALE)]) == 9
    assert program.proven([(row, 2 * PRICE_SCALE)]) == 10
    for wrong in ([(row, -1)], [(row + 1, 1)], [(row, 1), (row, 1)]):
        with pytest.raises(ValueError, match="price"):
            program.proven(wrong)


def test_a_program_is_of_the_size_that_it_spends():
    question = Question.read(INSTANCE, documents()["bulk"][1]["certificate"])
    budget = Budget(DEFAULT_BUDGET)
    program = BulkProgram(INSTANCE, question, budget)
    entries = sum(map(len, program.rows))
    assert budget.left is not None
    assert entries * 10 < DEFAULT_BUDGET - budget.left
