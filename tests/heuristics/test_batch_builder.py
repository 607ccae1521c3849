"""What a batch builder admits, against the limits read from scratch."""

from __future__ import annotations

import random
from collections import deque

from orsched.data.memory import BlockMemory
from tests.heuristics.building import batch_of


def drawn(seed):
    """Builder, its limits, and requests: prompts and blocks of each."""
    rng = random.Random(f"batch builder {seed}")
    prompts = [rng.randint(1, 9) for _ in range(rng.randint(1, 12))]
    blocks = [rng.randint(1, 5) for _ in prompts]
    cap = rng.choice((None, rng.randint(9, 30)))
    memory = rng.choice((None, BlockMemory(rng.randint(5, 20), 4, rng.choice(("whole", "paged")))))
    clients, padding = rng.randint(1, 8), rng.random() < 0.5
    own = None if memory is None else blocks
    batch = batch_of(prompts, cap, clients, own, memory=memory, padding=padding)
    return batch, prompts, blocks, cap, memory, clients, padding


def fits(requests, prompts, blocks, cap, memory, clients, padding):
    """Whether all of these fit into one prefill of an empty worker."""
    own, held = [prompts[r] for r in requests], [blocks[r] for r in requests]
    tokens = max(own) * len(own) if padding else sum(own)
    most = max(held) * len(held) if padding and memory and memory.is_paged else sum(held)
    return (
        len(requests) <= clients
        and (cap is None or tokens <= cap)
        and (memory is None or most <= memory.blocks)
    )


def test_it_takes_the_longest_front_of_a_queue_that_fits():
    for seed in range(300):
        batch, prompts, *limits = drawn(seed)
        queue = deque(range(len(prompts)))
        taken = batch.take(queue)
        fitting = [k for k in range(1, len(prompts) + 1) if fits(range(k), prompts, *limits)]
        assert taken == list(range(max(fitting, default=0))), seed
        assert [*taken, *queue] == list(range(len(prompts)))


def test_offered_and_asked_one_by_one_the_same_are_taken():
    for seed in range(300):
        batch, prompts, *_, clients, _ = drawn(seed)
        taken = batch.take(deque(range(len(prompts))))
        asked = []

        def offered(asked, most):
            for request in range(most):
                yield request
                asked.append(request)

        assert (
            batch.take_offered(offered(asked, min(len(prompts), clients)), clients)
            == taken
            == asked
        ), seed
        batch.open()
        admitted = [request for request in range(len(prompts)) if batch.admit(request)]
        assert admitted[: len(taken)] == taken, seed


def test_the_first_may_be_longer_than_a_step_and_memory_can_be_left_out():
    batch = batch_of([30, 1], 20, memory=BlockMemory(1, 4, "whole"), blocks=[9, 9])
    assert not batch.open().admit(0)
    free = type(batch)(batch.view, memory=False)
    assert free.open().admit(0)
    assert not free.admit(1)
