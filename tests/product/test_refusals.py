"""What a policy refuses it refuses with a clear error, before anything runs; nothing is skipped.
And what policies set aside at admission: under ``whole`` memory the output limit."""

import numpy as np
import pytest

from orsched.common.errors import InputError
from orsched.common.registry import names, resolve
from orsched.solving.method_choice import SETS_ASIDE
from tests.by_the_book import Book
from tests.product.cell import Size, content, information_is_bounded, instance_of_cell, serve
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


def require_refusal(cell, fields):
    """Assert that a cell is refused with an error that names one of these fields and a remedy."""
    with pytest.raises(InputError) as caught:
        serve(instance_of_cell(cell, SIZE), cell)
    assert caught.value.field in fields
    assert caught.value.remedy


@pytest.mark.parametrize(("policy", "factor", "level"), REFUSED)
def test_what_is_refused_says_why(policy, factor, level):
    several = {"workers": "two_equal"} if factor == "sharing" else {}
    cell = plain(policy, **several, **{factor: level})
    require_refusal(cell, [refusal_of(policy, factor, level).field])


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
    require_refusal(cell, ("parameters", "workers", *SHARING[sharing]))


@pytest.mark.parametrize(("policy", "field"), [
    ("vllm@none+policy=priority+priority=length", "priority"),
    ("mico@none+distribution=workload", "distribution"),
    ("mico@none+trade_off=true", "trade_off"),
    ("mico@none+order=long_answer", "order"),
    ("scls@none+interval=none", "interval"),
])  # fmt: skip
def test_policies_that_refuse_themselves(policy, field):
    require_refusal(plain(policy), [field])


WHOLE = Size(9, 14, (0.1, 0.3, 0.5, 0.7, 0.9))
UNINFORMED = tuple(policy for policy in POLICIES if "@clairvoyant" not in policy)
WORKLOADS = ("all_at_0", "poisson", "trace_like", "long_and_short")


def most_set_aside(book, outputs):
    """Return by how much the blocks of prompts and answers exceed a memory at most."""
    prompts, excess = book.requests.prompt_tokens, []
    for number, step in enumerate(book.steps):
        memory = book.instance.workers[step.worker].memory
        tokens = [int(prompts[s.request] + outputs[s.request]) for s in book.serving(number)]
        excess.append(sum(-(-each // memory.block_tokens) for each in tokens) - memory.blocks)
    return max(excess)


@pytest.mark.parametrize("policy", UNINFORMED)
def test_lengths_that_are_not_revealed_change_nothing_under_whole_memory(policy):
    """True lengths decide nothing where the output limit fits for all; predictions only order."""
    for memory, workload in (("whole", "poisson"), ("whole_tight", "all_at_0")):
        cell = plain(policy, memory=memory, workload=workload)
        instance = instance_of_cell(cell, WHOLE)
        schedule = serve(instance, cell)
        book = Book(instance, schedule)
        assert most_set_aside(book, np.full(len(instance), instance.output_limit_tokens)) <= 0
        for cut in WHOLE.cuts:
            information_is_bounded(cell, book, schedule, cut)


@pytest.mark.parametrize("name", METHODS)
def test_who_sets_aside_the_answer_on_paged_memory_is_known(name):
    """Methods that a note names never hold more; slices of the whole limit do not either."""
    excess = []
    for kind in map(str, resolve("methods", name).information):
        for workload in WORKLOADS:
            cell = plain(f"{name}@{kind}", memory="paged_tight", workload=workload)
            instance = instance_of_cell(cell, WHOLE)
            outputs = instance.requests.output_tokens
            if kind != "clairvoyant":
                outputs = np.full(len(instance), instance.output_limit_tokens)
            excess.append(most_set_aside(Book(instance, serve(instance, cell)), outputs))
    sliced = ("scls", "scls_continuous")
    assert (max(excess) <= 0) == (name in SETS_ASIDE or name in sliced)
