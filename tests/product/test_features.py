"""Features together: 25 pairs of a memory and a fleet, each served and judged on random cases.

The book (``tests.by_the_book``) reads every schedule literally: stays, hits, blocks, figures. What
the table of ``orsched.data.memory`` refuses is refused, and nothing else.
"""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import orsched
from orsched import InputError, Link
from orsched.data.autoscaling import Autoscaling
from orsched.data.memory import REFUSED_PAIRS, PrefixCache, refused_pair
from orsched.heuristics.policy_method import LiveMethod
from orsched.models.bounds.bounds import makespan_bound
from orsched.solving.method_choice import method_named
from tests.by_the_book import require_reported
from tests.heuristics.building import solved
from tests.refusals import refused
from tests.simulator.prefix_workloads import prefix_instance

MEMORIES = ("none", "whole", "paged", "prefix cache", "prefix cache, async")
FLEETS = ("steady", "failures", "autoscaling", "failures and autoscaling", "link")
CELLS = list(product(MEMORIES, FLEETS))
NOT_TOGETHER = {
    ("whole", "link"): "receiver takes blocks",
}


def intervals(rng):
    """Times of availability, the last without end."""
    start, found = rng.choice((0, 0, rng.randint(1, 5000))), []
    for _ in range(rng.randint(0, 4)):
        found.append((start, start + rng.randint(1, 30_000)))
        start = found[-1][1] + rng.randint(1, 20_000)
    return (*found, (start, None))


def case(memory, fleet, seed):
    """A random instance of a cell; ``InputError`` where the two do not go together."""
    rng = random.Random(f"{memory} {fleet} {seed}")
    instance = prefix_instance(seed, 2 if fleet == "link" else rng.randint(1, 3))
    workers, fields = list(instance.workers), {}
    for index, worker in enumerate(workers):
        own = worker.memory
        if memory == "none":
            own = None
        elif not memory.startswith("prefix"):
            own = replace(own, prefix_cache=None, allocation=memory)
        changes = {"memory": own}
        if "failures" in fleet:
            changes["available_ns"] = intervals(rng)
        if fleet == "link":
            changes["role"] = role = ("prefill", "decode")[index]
            if role == "decode" and memory.startswith("prefix"):
                changes["memory"] = replace(own, prefix_cache=None)
        workers[index] = replace(worker, **changes)
    if "autoscaling" in fleet:
        fields["autoscaling"] = Autoscaling(
            startup_ns=rng.choice((0, 2000, 20_000)), interval_ns=rng.choice((500, 3000)),
            cooldown_ns=rng.choice((0, 5000)), target=0.5, least=rng.randint(1, len(workers)),
        )  # fmt: skip
    if fleet == "link":
        fields["link"] = Link(ns_per_token=rng.choice((0, 7)), latency_ns=rng.choice((1, 500)))
    return instance.replace(workers=tuple(workers), **fields)


def require_presence(instance, schedule):
    """Each step is within a time of its worker that it is available, and on."""
    for w, start, end in zip(
        *(getattr(schedule.steps, name).tolist() for name in ("worker", "start_ns", "end_ns")),
        strict=True,
    ):
        up = instance.workers[w].available_ns or ((0, None),)
        assert any(a <= start and (b is None or end <= b) for a, b in up)
        if instance.autoscaling is not None:
            on = [(r.start_ns, r.end_ns) for r in schedule.on_times if r.worker == w]
            assert any(a <= start and (b is None or end <= b) for a, b in on)


def judge(memory, fleet, seed):
    """Serve a case and read it; return what happened: hits, losses, and workers that were off."""
    instance = case(memory, fleet, seed)
    method = "disaggregated" if fleet == "link" else "vllm"
    parameters = {"max_num_batched_tokens": (16, 64, 2048)[seed % 3]}
    if memory.endswith("async") and fleet != "link":
        parameters["async_scheduling"] = True
    schedule = solved(instance, method, **parameters)
    require_presence(instance, schedule)
    bound = makespan_bound(instance, ("mixed", "chunks", "restarts"))
    assert bound.value_ns <= schedule.makespan_ns
    require_reported(instance, schedule.replace(bound=bound.to_dict()))
    return (
        int((schedule.work.hit > 0).sum()),
        len(schedule.lost_steps),
        sum(row.end_ns is not None for row in schedule.on_times),
    )


def judge_all(seeds):
    """Judge all cells; return the sums of what happened by cell."""
    happened = {}
    for cell in CELLS:
        for seed in seeds:
            if cell in NOT_TOGETHER:
                refused(NOT_TOGETHER[cell], case, *cell, seed)
                continue
            try:
                found = judge(*cell, seed)
            except Exception as error:
                error.add_note(f"in the case {cell}, {seed}")
                raise
            before = happened.get(cell, (0, 0, 0))
            happened[cell] = tuple(a + b for a, b in zip(before, found, strict=True))
    return happened


def require_seen(happened, *, everywhere):
    """Hits, losses and ends were met in the cells that can have them, and in no other."""
    able = {
        cell: (cell[0].startswith("prefix"), "failures" in cell[1], "autoscaling" in cell[1])
        for cell in happened
    }
    for cell, counts in happened.items():
        for count, can in zip(counts, able[cell], strict=True):
            assert (count > 0) == can if everywhere else can or not count, cell
    assert all(sum(counts) > 0 for counts in zip(*happened.values(), strict=True))


def test_every_pair_of_a_memory_and_a_fleet():
    assert len(CELLS) == 25
    require_seen(judge_all((3, 5)), everywhere=False)


@pytest.mark.full
def test_every_pair_on_forty_cases():
    require_seen(judge_all(range(40)), everywhere=True)


@pytest.mark.full
@pytest.mark.parametrize("policy", ["fcfs", "gittins", "vtc", "slack"])
def test_other_policies_on_prefix_caches_that_come_and_go(policy):
    assert isinstance(method_named(policy), LiveMethod)
    for seed, fleet in product(range(8), FLEETS[1:4]):
        instance = case("prefix cache", fleet, seed)
        require_reported(instance, solved(instance, policy))


def test_what_a_link_and_prefix_caches_cannot_do_is_refused():
    """A receiver with a cache, one that evicts by users, and a link that takes no time."""
    instance = case("prefix cache", "link", 3)
    first, second = instance.workers
    refused("role prefill alone", instance.replace,
            workers=(first, replace(second, memory=first.memory)))  # fmt: skip
    counting = replace(first, memory=replace(first.memory, prefix_cache=PrefixCache("task_aware")))
    for wrong in (instance.replace(link=Link()), instance.replace(workers=(counting, second))):
        refused("role prefill alone", solved, wrong, "disaggregated")


def test_a_worker_that_was_gone_has_forgotten():
    """By hand: the second request would hit three blocks of the first, had none failed between."""
    requests = orsched.Requests(
        [8, 8], [1, 1], arrival_ns=[0, 10**9],
        prefixes=orsched.Prefixes.from_documents([0, 0], [8, 8], 2),
    )  # fmt: skip
    memory = orsched.BlockMemory(20, 2, "paged", PrefixCache())
    worker = orsched.Worker(2, orsched.AffineCost(), memory=memory)
    found = {}
    for name, times in (("stays", ()), ("fails", ((0, 4 * 10**8), (5 * 10**8, None)))):
        instance = orsched.Instance(requests, replace(worker, available_ns=times))
        found[name] = solved(instance, "vllm").work.hit.tolist()
    assert max(found["stays"]) == 6
    assert max(found["fails"]) == 0


def test_the_table_of_refused_pairs_is_the_one_of_the_page(repo_root):
    page = Path(repo_root, "docs", "fleets.md").read_text()
    shown = [line for line in page.partition("| feature | with | reason |")[2].splitlines() if line]
    assert shown[1:] == [f"| {one} | {other} | {why} |" for one, other, _, why, _ in REFUSED_PAIRS]
    for one, other, field, why, remedy in REFUSED_PAIRS:
        error = refused_pair(other, one)
        assert isinstance(error, InputError)
        assert (error.problem, error.field, error.remedy) == (why, field, remedy)
