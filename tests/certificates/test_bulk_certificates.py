"""No certificate of bulk work verifies with a field of another type, and none raises."""

import pytest

from orsched.certificates.bulk_parts import PRICE_SCALE, Program
from orsched.certificates.bulk_program import BulkProgram, Question
from orsched.certificates.fields import BULK, Budget
from orsched.checker.certificates import bulk_violations
from orsched.common.scalars import DEFAULT_BUDGET
from orsched.models.bounds.bulk_bound import attainment_bound, bulk_bound
from tests.models.test_bulk_bound import small

INSTANCE = small(n=4, bulk=6).with_classes("batch")
"""For bulk work; with limits on all, for attainment, it is one of which not all can meet them."""
CROWDED = INSTANCE.with_classes("batch:ttft=0.05,tpot=0.03")


def bulk_documents():
    """Name -> (instance, a document that proves a bound on it)."""
    whole = bulk_bound(INSTANCE, 0.75, 0.2, restarts=2, windows=6, allows=["chunks", "restarts"])
    met = attainment_bound(CROWDED, windows=60)
    return {"bulk": (INSTANCE, whole.to_dict()), "attained": (CROWDED, met.to_dict())}


@pytest.mark.parametrize("name", BULK)
def test_the_examples_verify(name):
    instance, document = bulk_documents()[name]
    assert bulk_violations(instance, document) == []
    assert document["certificate"]["prices"]
    assert bulk_violations(instance, None)
    assert bulk_violations(instance, {})


def test_a_large_program_is_beyond_its_budget():
    instance, document = bulk_documents()["bulk"]
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
    question = Question.read(INSTANCE, bulk_documents()["bulk"][1]["certificate"])
    budget = Budget(DEFAULT_BUDGET)
    program = BulkProgram(INSTANCE, question, budget)
    entries = sum(map(len, program.rows))
    assert entries * 10 < DEFAULT_BUDGET - budget.left
