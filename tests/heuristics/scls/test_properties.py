"""Properties of all policies with slices on random workers, memories and arrivals."""

import random
from collections import Counter

import pytest

from orsched.data.schedule import DECODE, PREFILL
from orsched.heuristics.scls import ABLATION, SlicedPolicy, SliceParams
from orsched.metrics.timeline import Timeline
from tests.heuristics.building import built, require_sound
from tests.random_instances import random_batching_instance, unpadded
from tests.seeds import seeds

NAMES = [*ABLATION, "deepspeed", "continuous", "ils"]


def drawn(name, seed):
    """Return an instance, a maker of policies for it, and the slice (None: the output limit)."""
    rng = random.Random(f"{name}{seed}")
    instance = random_batching_instance(rng)
    tokens = rng.choice([1, 2, 3, 5, 50])
    if name == "ils":
        parallel = rng.choice([None, 1, 2])
        return unpadded(instance), lambda case: built(case, "ils", parallel=parallel), None
    if name == "continuous":
        given = {"slice_tokens": tokens, "renew": rng.choice(["fits", "idle", "never"])}
        kept = tokens if given["renew"] == "never" else None
        return unpadded(instance), lambda case: built(case, "scls_continuous", **given), kept
    values = dict(ABLATION.get(name, {"memory": "deepspeed"}))
    values["interval_s"] = rng.choice([1e-6, 1e-3, 1.0])
    values.setdefault("slice_tokens", tokens)
    if values.get("batch_size"):
        values["batch_size"] = rng.choice([1, 2, 16])
    params = SliceParams(**values)
    return instance, lambda case: SlicedPolicy(params), params.slice_tokens


def tokens_by_stay(instance, schedule):
    """Return tokens that each request yields in each stay."""
    line, work = Timeline(instance, schedule), schedule.work
    found, prefilled = Counter(), Counter()
    columns = (work.request, work.stay, work.phase, work.tokens, line.row_rounds)
    for request, stay, phase, tokens, rounds in zip(*map(list, columns), strict=True):
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
@pytest.mark.parametrize("seed", seeds(10, 40))
def test_schedules_are_valid_and_slices_are_kept(name, seed):
    instance, make, slice_tokens = drawn(name, seed)
    sizes = []

    def watch(view, step):
        memory, batch = view.worker.memory, len(step.prefill)
        if name in ("ils", "continuous") or memory is None or batch < 2:
            return
        longest = max(view.to_prefill(r) for r in step.prefill)
        limit = view.output_limit_tokens
        rounds = limit if not memory.is_paged else min(slice_tokens or limit, limit)
        sizes.append(batch * -(-(longest + rounds) // memory.block_tokens) <= memory.blocks)

    schedule = require_sound(instance, make, observer=watch)
    assert all(sizes)  # a batch is never estimated over memory
    found = tokens_by_stay(instance, schedule)
    served = Counter()
    for (request, _), tokens in found.items():
        served[request] += tokens
    assert served == Counter(dict(enumerate(instance.requests.output_tokens.tolist())))
    if slice_tokens is not None:
        assert max(found.values()) <= slice_tokens
