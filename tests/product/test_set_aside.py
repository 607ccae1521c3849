"""What policies set aside at admission: under ``whole`` memory the output limit."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.common.registry import resolve
from orsched.solving.method_choice import SETS_ASIDE
from tests.product.cell import Size, information_is_bounded, instance_of_cell, serve
from tests.product.laws import Account
from tests.product.policies import METHODS, POLICIES
from tests.product.test_refusals import plain

SIZE = Size(9, 14, (0.1, 0.3, 0.5, 0.7, 0.9))
UNINFORMED = tuple(policy for policy in POLICIES if "@clairvoyant" not in policy)
WORKLOADS = ("all_at_0", "poisson", "trace_like", "long_and_short")


def most_set_aside(instance, schedule, outputs):
    """Return by how much the blocks of prompts and answers exceed a memory at most."""
    account, prompts = Account(instance, schedule), instance.requests.prompt_tokens
    excess = []
    for number, step in enumerate(account.steps):
        memory = instance.workers[step.worker].memory
        tokens = [int(prompts[s.request] + outputs[s.request]) for s in account.present(number)]
        excess.append(sum(-(-each // memory.block_tokens) for each in tokens) - memory.blocks)
    return max(excess)


@pytest.mark.parametrize("policy", UNINFORMED)
def test_lengths_that_are_not_revealed_change_nothing_under_whole_memory(policy):
    """True lengths decide nothing where the output limit fits for all; predictions only order."""
    for memory, workload in (("whole", "poisson"), ("whole_tight", "all_at_0")):
        cell = plain(policy, memory=memory, workload=workload)
        instance = instance_of_cell(cell, SIZE)
        schedule = serve(instance, cell)
        limit = np.full(len(instance), instance.output_limit_tokens)
        assert most_set_aside(instance, schedule, limit) <= 0
        for cut in SIZE.cuts:
            information_is_bounded(cell, instance, schedule, cut)


@pytest.mark.parametrize("name", METHODS)
def test_who_sets_aside_the_answer_on_paged_memory_is_known(name):
    """Methods that a note names never hold more; slices of the whole limit do not either."""
    excess = []
    for kind in map(str, resolve("methods", name).information):
        for workload in WORKLOADS:
            cell = plain(f"{name}@{kind}", memory="paged_tight", workload=workload)
            instance = instance_of_cell(cell, SIZE)
            outputs = instance.requests.output_tokens
            if kind != "clairvoyant":
                outputs = np.full(len(instance), instance.output_limit_tokens)
            excess.append(most_set_aside(instance, serve(instance, cell), outputs))
    sliced = ("scls", "scls_continuous")
    assert (max(excess) <= 0) == (name in SETS_ASIDE or name in sliced)
