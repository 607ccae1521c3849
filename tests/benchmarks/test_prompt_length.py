"""Single long prompts in chunks take what the tables say, in simulator and checker."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from benchmarks.reproductions import prompt_length
from orsched.checker import check
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.continuous.async_scheduling import VLLM
from orsched.instances.datasets import VARIABLE
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

needs_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not name the data sets"
)


def within(tables):
    cost = tables.cost()
    for prompt in prompt_length.PROMPTS:
        summed = tables.summed_s(prompt)
        assert prompt_length.ttft_s(cost, prompt) == pytest.approx(summed, rel=0.001)
    assert prompt_length.MOST_ERROR == 0.03


def test_ttft_is_the_sum_of_the_tables_up_to_128k():
    within(prompt_length.synthetic_tables())


@needs_data
def test_ttft_is_the_sum_of_the_measured_tables():
    within(prompt_length.measured_tables())


def without_contexts(cost):
    return prompt_length.WithoutContexts(
        fixed_ns=cost.fixed_ns, dense=cost.dense, prefill=cost.prefill, decode=cost.decode
    )


def test_without_contexts_the_error_grows_with_the_prompt():
    tables = prompt_length.synthetic_tables()
    cost = tables.cost()
    plain = without_contexts(cost)
    ratios = [prompt_length.ttft_s(plain, p) / tables.summed_s(p) for p in prompt_length.PROMPTS]
    errors = [1 - ratio for ratio in ratios]
    assert errors == sorted(errors)
    assert errors[0] > 0.1
    assert errors[-1] > 0.75


def test_the_checker_refuses_the_times_without_contexts():
    cost = prompt_length.synthetic_tables().cost()
    plain = without_contexts(cost)
    instance = Instance(Requests([8192], [1]), Worker(1, plain), "prefill")
    policy, _ = VLLM.build(instance, Information.NONE, {"max_num_batched_tokens": 2048}, 0)
    schedule = simulate_policy(instance, policy).schedule
    assert check(instance, schedule) == []
    told = instance.replace(workers=replace(instance.worker, cost=cost))
    wrong = check(told, schedule)
    assert sum("a prefill stage, takes" in str(each) for each in wrong) == 3  # all but the first
