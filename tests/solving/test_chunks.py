"""Prompts longer than any prefill step: for policies that split them, and only for those."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import orsched
from orsched.common.errors import InfeasibleError
from orsched.common.registry import resolve
from orsched.data.step import Step, decode_rounds
from orsched.heuristics.scls import ContinuousSlices
from orsched.planning.study.cell import execute
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, Policy
from tests.heuristics.gittins.drawn import drawn
from tests.oracle import oracle
from tests.simulator.listening import columns

SPLITTING = ("vllm", "scls", "scls_continuous", "mico", "gittins")


class Halves(Policy):
    """One request after the other, its prompt in steps as long as the worker takes."""

    chunks = True

    def decide(self, view):
        """Prefill what is left as far as it goes, else decode."""
        waiting = [row for row in range(len(view.arrival_ns)) if row >= self.next]
        row = next(iter(view.running), waiting[0] if waiting else -1)
        left = view.to_prefill(row)
        if left:
            self.next = row + 1
            return Step([row], [min(left, view.worker.prefill_limit)], None, ())
        return decode_rounds()

    def start(self, view):
        """Begin with the first row."""
        self.next = 0


def long_prompts(seed, padding=False):
    """An instance on workers that hold every request, whose steps take a part of a prompt."""
    instance = drawn(seed)
    longest = int(instance.requests.prompt_tokens.max())
    rng = random.Random(f"chunks {seed}")
    workers = tuple(
        replace(each, prefill_cap_tokens=rng.randint(1, longest), padding=padding)
        for each in instance.workers
    )
    return instance.replace(workers=workers)


def splits(instance, schedule):
    """Whether some prefill is in parts, as it must be."""
    rows = schedule.work.phase == 0
    prompts = instance.requests.prompt_tokens[schedule.work.request[rows]]
    return bool((schedule.work.tokens[rows] < prompts).any())


@pytest.mark.parametrize("method", SPLITTING)
def test_methods_that_split_prompts_serve_them(method):
    needed = 0
    for seed in range(25):
        instance = long_prompts(seed, padding=seed % 2 == 0 and method in ("scls", "mico"))
        needed += instance.needs_chunks
        result = orsched.solve(instance, method)
        schedule = result.schedule
        assert schedule.bound["value_ns"] <= schedule.makespan_ns
        assert not instance.needs_chunks or splits(instance, schedule)
        policy = resolve("methods", method).build(
            instance, Information(schedule.information), {}, 0
        )[0]
        expected = oracle(instance, policy)
        assert columns(schedule.steps) == columns(expected.steps), seed
        assert columns(schedule.work) == columns(expected.work), seed
    assert needed > 10


@pytest.mark.parametrize(
    "method",
    ["fcfs", "static", "ils", "online", "vllm+chunked_prefill=false", "vllm+mode=prefill_first"],
)
def test_the_others_refuse_them(method):
    seed = next(seed for seed in range(99) if long_prompts(seed).needs_chunks)
    instance = long_prompts(seed)
    instance = instance.replace(workers=instance.workers[:1])
    with pytest.raises(InfeasibleError, match="prefill_cap_tokens"):
        orsched.solve(instance, method)


def test_a_policy_says_that_it_splits():
    instance = orsched.Instance(
        orsched.Requests([5, 3], [2, 2]),
        orsched.Worker(2, prefill_cap_tokens=2),
        first_token="decode",
    )
    assert instance.needs_chunks
    result = orsched.simulate(instance, Halves())
    assert result.schedule.work.tokens[result.schedule.work.phase == 0].tolist() == [2, 2, 1, 2, 1]
    Halves.chunks = False
    try:
        with pytest.raises(InfeasibleError):
            orsched.simulate(instance, Halves())
    finally:
        Halves.chunks = True


def test_dispatchers_and_predictors_pass_it_on():
    seed = next(
        seed for seed in range(99)
        if long_prompts(seed).needs_chunks and len(long_prompts(seed).workers) > 1
    )  # fmt: skip
    instance = long_prompts(seed)
    for method in ("vllm+dispatch=least_work", "ssjf"):
        policy, _ = resolve("methods", method.partition("+")[0]).build(
            instance, Information.PREDICTED, {}, 0
        )
        inner = getattr(policy.policies[0], "inner", policy.policies[0])
        assert policy.chunks == inner.chunks
        if policy.chunks:
            assert orsched.check(instance, simulate_policy(instance, policy).schedule) == []
    assert ContinuousSlices.chunks


def test_a_cell_of_a_study_has_a_bound_for_it(tmp_path):
    instance = long_prompts(next(seed for seed in range(99) if long_prompts(seed).needs_chunks))
    path = tmp_path / "instance.json"
    orsched.save_instance(instance, path)
    content = {
        "instance": {"sha256": instance.sha256}, "seed": 0, "workers": None, "arrivals": None,
        "predictions": None, "iterations": None, "slo": None, "bounds": ["makespan", "mean_jct"],
        "policy": {"name": "gittins", "parameters": {}, "information": None},
    }  # fmt: skip
    record = execute({"key": "k", "problem": "p", "content": content, "path": str(path)})
    assert record["error"] is None
    results = record["results"]
    assert results["bound_ns"] <= results["makespan_ns"]
    assert results["jct_bound_ns"] <= results["jct_ns"]["mean"]
