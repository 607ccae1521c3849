"""The dispatcher ``prefix``: to the worker that has most of a prompt, then to the least loaded."""

from __future__ import annotations

import numpy as np

import orsched
from orsched.costs import AffineCost
from orsched.data.memory import PrefixCache
from orsched.data.prefixes import Prefixes
from tests.in_order import in_order

COST = in_order(AffineCost, 1000, 10, 1000, 10)


def two_workers(documents, arrivals, prompts=None, cache=None):
    """Requests that begin with 8 tokens of a document, on two workers of 4 clients."""
    count = len(documents)
    memory = orsched.BlockMemory(64, 4, "paged", cache or PrefixCache())
    workers = tuple(orsched.Worker(4, COST, memory=memory, name=f"w{k}") for k in range(2))
    prefixes = Prefixes.from_documents(documents, 8, 4)
    requests = orsched.Requests(
        prompts or [12] * count, [5] * count, arrival_ns=arrivals, prefixes=prefixes
    )
    return orsched.Instance(requests, workers, "prefill")


def worker_of(instance, dispatch):
    """Return the worker of each request."""
    schedule = orsched.simulate(instance, "vllm", parameters={"dispatch": dispatch}).schedule
    first = np.unique(schedule.work.request, return_index=True)[1]
    return schedule.steps.worker[schedule.work.first_step[first]].tolist()


def test_documents_stay_where_they_were_first():
    """Two documents in turn, with gaps: each goes to its worker, whatever is to do there."""
    documents = [0, 1, 1, 1, 0, 1, 0]
    instance = two_workers(documents, [20_000 * k for k in range(len(documents))])
    # The first two find nothing: ties go to the least loaded, then to the first worker.
    assert worker_of(instance, "prefix") == [0] * len(documents)
    together = two_workers(documents, [0, 0, *(20_000 * k for k in range(1, 6))])
    assert worker_of(together, "prefix") == documents


def test_what_a_prompt_cannot_hit_does_not_count():
    """A prompt of 8 tokens hits one block of its 2: at least one token is computed."""
    instance = two_workers([0, 1, 0, 1], [0, 0, 50_000, 50_000], [12, 12, 8, 8])
    assert worker_of(instance, "prefix") == [0, 1, 0, 1]
    schedule = orsched.simulate(instance, "vllm", parameters={"dispatch": "prefix"}).schedule
    assert sorted(schedule.work.hit[schedule.work.hit > 0].tolist()) == [4, 4]


def test_without_caches_it_counts_requests():
    """Nobody hits anything then."""
    instance = two_workers([0, 1, 1, 0, 0], [0, 0, 0, 9_000, 9_000])
    plain = tuple(
        orsched.Worker(4, COST, memory=orsched.BlockMemory(64, 4, "paged"), name=worker.name)
        for worker in instance.workers
    )
    instance = instance.replace(workers=plain, requests=instance.requests.replace(prefixes=None))
    assert worker_of(instance, "prefix") == worker_of(instance, "fewest_requests")
