"""What a policy refuses it refuses with a clear error, before anything runs; nothing is skipped."""

from __future__ import annotations

import pytest

from orsched.common.errors import InputError
from orsched.common.registry import names
from tests.product.cell import Size, content, instance_of_cell, serve
from tests.product.modes import FACTORS
from tests.product.policies import (
    METHODS,
    POLICIES,
    REFUSALS,
    SEARCHES,
    SHARING,
    is_dispatched,
    refusal_of,
)

SIZE = Size(6, 8, ())
REFUSED = [
    (policy, factor, level)
    for policy in POLICIES
    for factor, levels in {**FACTORS, "sharing": tuple(SHARING)}.items()
    for level in levels
    if refusal_of(policy, factor, level) is not None
]


def plain(policy, **modes):
    """A cell in which everything else is as simple as it can be."""
    cell = {name: levels[0] for name, levels in FACTORS.items()}
    return {"policy": policy, "sharing": "as_it_is", **cell, **modes}


def require_refusal(cell, refusals):
    """Assert that a cell is refused with an error that names field and remedy."""
    with pytest.raises(InputError) as caught:
        serve(instance_of_cell(cell, SIZE), cell)
    assert caught.value.field in {refusal.field for refusal in refusals}
    assert caught.value.remedy


@pytest.mark.parametrize(("policy", "factor", "level"), REFUSED)
def test_what_is_refused_says_why(policy, factor, level):
    several = {"workers": "two_equal"} if factor == "sharing" else {}
    require_refusal(
        plain(policy, **several, **{factor: level}), [refusal_of(policy, factor, level)]
    )


def test_every_refusal_is_one_of_a_policy():
    used = {refusal_of(*refused) for refused in REFUSED}
    assert used == set(REFUSALS)


def test_every_registered_method_is_in_the_product_or_a_search():
    assert set(METHODS) | set(SEARCHES) == set(names("methods"))
    assert {policy.partition("@")[0] for policy in POLICIES} == set(METHODS)
    assert len(set(POLICIES)) == len(POLICIES)


@pytest.mark.parametrize("sharing", [name for name in SHARING if name != "as_it_is"])
@pytest.mark.parametrize("method", METHODS)
def test_dispatchers_where_there_is_nothing_to_dispatch(method, sharing):
    """On one worker they change nothing; methods that serve several themselves refuse them."""
    policy = next(each for each in POLICIES if each.startswith(f"{method}@"))
    if is_dispatched(policy):
        cell = plain(policy, workers="one", sharing=sharing)
        instance = instance_of_cell(cell, SIZE)
        alone = serve(instance, {**cell, "sharing": "as_it_is"})
        assert content(serve(instance, cell)) == content(alone)
        return
    cell = plain(policy, workers="two_equal", sharing=sharing)
    with pytest.raises(InputError) as caught:
        serve(instance_of_cell(cell, SIZE), cell)
    assert caught.value.field in ("parameters", "workers", *SHARING[sharing])


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ("vllm@none+policy=priority+priority=length", "priority"),
        ("mico@none+distribution=workload", "distribution"),
        ("mico@none+trade_off=true", "trade_off"),
        ("mico@none+order=long_answer", "order"),
        ("scls@none+interval=none", "interval"),
    ],
)
def test_policies_that_refuse_themselves(policy, field):
    cell = plain(policy)
    with pytest.raises(InputError) as caught:
        serve(instance_of_cell(cell, SIZE), cell)
    assert caught.value.field == field
    assert caught.value.remedy
