"""Properties of all policies with slices on random workers, memories and arrivals."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

import orsched
from orsched import Information, check
from orsched.data.schedule import DECODE, PREFILL
from orsched.heuristics.scls import (
    ABLATION,
    ContinuousParams,
    ContinuousSlices,
    SlicedPolicy,
    SliceParams,
)
from orsched.heuristics.scls.continuous import ILS
from orsched.metrics.timeline import Timeline
from orsched.simulator import simulate_policy
from tests.random_instances import random_batching_instance

NAMES = [*ABLATION, "deepspeed", "continuous", "ils"]


def drawn(name, seed):
    """Return an instance, a maker of policies for it, and the slice (None: the output limit)."""
    rng = random.Random(f"{name}{seed}")
    instance = random_batching_instance(rng)
    tokens = rng.choice([1, 2, 3, 5, 50])
    if name in ("ils", "continuous"):
        workers = tuple(replace(w, padding=False) for w in instance.workers)
        instance = instance.replace(workers=workers)
    if name == "ils":
        parallel = rng.choice([None, 1, 2])
        return (
            instance,
            lambda: ILS.build(instance, Information.NONE, {"parallel": parallel}, 0)[0],
            None,
        )
    if name == "continuous":
        params = ContinuousParams(tokens, rng.choice(["fits", "idle", "never"]))
        return (
            instance,
            lambda: ContinuousSlices(params),
            tokens if params.renew == "never" else None,
        )
    values = dict(ABLATION.get(name, {"memory": "deepspeed"}))
    values["interval_s"] = rng.choice([1e-6, 1e-3, 1.0])
    if "slice_tokens" not in values:
        values["slice_tokens"] = tokens
    if values.get("batch_size"):
        values["batch_size"] = rng.choice([1, 2, 16])
    params = SliceParams(**values)
    return instance, lambda: SlicedPolicy(params), params.slice_tokens


def tokens_by_stay(instance, schedule):
    """Return tokens that each request yields in each stay."""
    line, work = Timeline(instance, schedule), schedule.work
    found, prefilled = Counter(), Counter()
    rows = zip(
        work.request.tolist(), work.stay.tolist(), work.phase.tolist(), work.tokens.tolist(),
        line.row_rounds.tolist(), strict=True,
    )  # fmt: skip
    for request, stay, phase, tokens, rounds in rows:
        if phase == DECODE:
            found[request, stay] += rounds
        elif phase == PREFILL:
            prefilled[request, stay] += tokens
    if instance.first_token == "prefill":
        before = Counter()
        for (request, stay), tokens in sorted(prefilled.items()):
            due = int(instance.requests.prompt_tokens[request]) + before[request]
            found[request, stay] += tokens == due
            before[request] += found[request, stay]
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(40))
def test_schedules_are_valid_and_slices_are_kept(name, seed):
    instance, make, slice_tokens = drawn(name, seed)
    sizes = []

    def watch(view, step):
        memory, policy_slice = view.worker.memory, slice_tokens
        batch = len(step.prefill)
        if name in ("ils", "continuous") or memory is None or batch < 2:
            return
        longest = max(view.to_prefill(r) for r in step.prefill)
        limit = view.output_limit_tokens
        rounds = limit if not memory.is_paged else min(policy_slice or limit, limit)
        sizes.append(batch * -(-(longest + rounds) // memory.block_tokens) <= memory.blocks)

    schedule = simulate_policy(instance, make(), watch).schedule
    assert check(instance, schedule) == []
    assert all(sizes)  # a batch is never estimated over memory
    found = tokens_by_stay(instance, schedule)
    served = Counter()
    for (request, _), tokens in found.items():
        served[request] += tokens
    assert served == Counter(dict(enumerate(instance.requests.output_tokens.tolist())))
    if slice_tokens is not None:
        assert max(found.values()) <= slice_tokens
    again = simulate_policy(instance, make()).schedule
    assert again.steps == schedule.steps
    assert again.work == schedule.work


@pytest.mark.parametrize("name", ["sls", "ils", "scls", "scls_continuous"])
def test_methods_are_registered_and_need_no_information(name):
    instance = random_batching_instance(random.Random(3), longest=4)
    instance = instance.replace(workers=tuple(replace(w, padding=False) for w in instance.workers))
    result = orsched.solve(instance, method=name)
    assert result.schedule.information == "none"
    assert check(instance, result.schedule) == []
