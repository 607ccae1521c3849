"""Schedules of every batching mode, worked out by hand, and what breaks each of them."""

import math

import pytest

from orsched import BlockMemory, check, summarise
from tests.checker.valid import COST, built, edited, kinds, problem
from tests.simulator.instances import ContextCost

P, D, M, I = 0, 1, 2, 2  # noqa: E741

MODES = {
    # Two rounds, an eviction, and the prompt with both tokens anew.
    "restart": (
        problem((4,), (3,), clients=1),
        ((0, P, 0, 38, 1), (0, D, 0, 44, 2), (0, P, 0, 42, 1), (0, D, 0, 22, 1)),
        (
            (0, 0, P, 0, 0, 4, 0), (0, 0, D, 1, 1, 1, 0),
            (0, 0, P, 2, 2, 6, 1), (0, 0, D, 3, 3, 1, 1),
        ),
        {
            "makespan_ns": 146, "busy_client_ns": 146, "restarts": 1, "prefill_stages": 2,
            "decode_rounds": 3, "invalid_tokens": 0, "ttft_ns.max": 60, "jct_ns.max": 146,
            "tpot_ns.max": 43, "batch_size.prefill": 1.0, "batch_size.decode": 1.0,
            "worker_end_ns.min": 146,
        },
    ),
    # Tokens 1 and 3 come from the prefills, token 2 from a round.
    "restart, first token by prefill": (
        problem((4,), (3,), rule="prefill", clients=1),
        ((0, P, 0, 38, 1), (0, D, 0, 22, 1), (0, P, 0, 42, 1)),
        ((0, 0, P, 0, 0, 4, 0), (0, 0, D, 1, 1, 1, 0), (0, 0, P, 2, 2, 6, 1)),
        {"ttft_ns.max": 38, "jct_ns.max": 102, "tpot_ns.max": 32, "restarts": 1},
    ),
    # The first prefill that is completed yields the first token, at 36 + 38.
    "evicted amid the prefill": (
        problem((4,), (1,), rule="prefill", clients=1),
        ((0, P, 0, 36, 1), (0, P, 0, 38, 1)),
        ((0, 0, P, 0, 0, 3, 0), (0, 0, P, 1, 1, 4, 1)),
        {"ttft_ns.max": 74, "restarts": 1, "batch_size.decode": None},
    ),
    # Request 1 is prefilled in chunks of 4 and 3 beside the rounds of request 0.
    "chunks": (
        problem((3, 7), (2, 1)),
        ((0, P, 0, 36, 1), (0, M, 0, 43, 1), (0, M, 0, 41, 1), (0, D, 0, 22, 1)),
        (
            (0, 0, P, 0, 0, 3), (0, 0, D, 1, 2, 1),
            (1, 1, P, 1, 1, 4), (1, 1, P, 2, 2, 3), (1, 1, D, 3, 3, 1),
        ),
        {
            "makespan_ns": 142, "busy_client_ns": 120 + 106, "mixed_steps": 2,
            "prefill_stages": 1, "decode_rounds": 3, "bubble_ns.waiting_for_prefill": 36,
            "bubble_ns.tail": 22, "batch_size.prefill": 1.0, "batch_size.decode": 1.0,
            "ttft_ns.p50": 79, "ttft_ns.max": 142,
        },
    ),
    # Request 0 is done after a round and held for two more.
    "static batch": (
        problem((4, 5), (1, 3)),
        ((0, P, 0, 48, 1), (0, D, 0, 27, 1), (0, D, 0, 54, 2)),
        (
            (0, 0, P, 0, 0, 4), (0, 0, D, 1, 1, 1), (0, 0, I, 2, 2, 1),
            (1, 1, P, 0, 0, 5), (1, 1, D, 1, 2, 1),
        ),
        {
            "invalid_tokens": 2, "bubble_ns.invalid": 54, "busy_client_ns": 204,
            "jct_ns.p50": 129, "ttft_ns.max": 75, "tpot_ns.max": 27, "batch_size.decode": 2.0,
        },
    ),
    # Prompts of 2 and 5 count as 5 and 5; contexts 3 and 6 as 6 and 6, then 7 and 7.
    "padding": (
        problem((2, 5), (2, 2), padding=True, prefill_cap_tokens=10,
                cost=ContextCost(fixed=0, client=0, total=1, most=100)),
        ((0, P, 0, 7 + 25 + 25, 1), (0, D, 0, 12 + 600 + 14 + 700, 2)),
        (
            (0, 0, P, 0, 0, 2), (0, 0, D, 1, 1, 1),
            (1, 1, P, 0, 0, 5), (1, 1, D, 1, 1, 1),
        ),
        {"pad_tokens": 3, "prompt_tokens": 7, "ttft_ns.max": 57 + 612},
    ),
    # Caches of 3 and 2 tokens; both grow, request 1 pauses for a step, both grow.
    "pages": (
        problem((3, 2), (3, 2), memory=BlockMemory(5, 2, "paged")),
        ((0, P, 0, 40, 1), (0, D, 0, 27, 1), (0, D, 0, 22, 1), (0, D, 0, 27, 1)),
        (
            (0, 0, P, 0, 0, 3), (0, 0, D, 1, 3, 1),
            (1, 1, P, 0, 0, 2), (1, 1, D, 1, 1, 1), (1, 1, D, 3, 3, 1),
        ),
        {
            "kv_blocks.peak": 5, "kv_blocks.block_ns": 3 * 40 + 4 * 27 + 5 * 22 + 5 * 27,
            "kv_blocks.mean": 473 / 116, "bubble_ns.other_prefill": 22, "busy_client_ns": 210,
            "batch_size.decode": 5 / 3,
        },
    ),
    # Request 0 begins on worker 0 and ends on worker 1, which has idled for 2.
    "two workers": (
        problem((4, 3), (2, 1), many=2, clients=1),
        (
            (0, P, 0, 38, 1), (1, P, 0, 36, 1), (1, D, 0, 22, 1),
            (0, D, 0, 22, 1), (1, P, 2, 40, 1), (1, D, 0, 22, 1),
        ),
        (
            (0, 0, P, 0, 0, 4, 0), (0, 0, D, 3, 3, 1, 0), (0, 0, P, 4, 4, 5, 1),
            (0, 0, D, 5, 5, 1, 1), (1, 0, P, 1, 1, 3, 0), (1, 0, D, 2, 2, 1, 0),
        ),
        {
            "makespan_ns": 122, "busy_client_ns": 180, "bubble_ns.tail": 62,
            "bubble_ns.no_request": 2, "worker_end_ns.min": 60, "worker_end_ns.max": 122,
            "worker_end_ns.std": 31.0, "restarts": 1, "jct_ns.max": 122, "kv_blocks": None,
        },
    ),
}  # fmt: skip


def mode(name, steps=None, work=None, *, more_steps=(), more_work=(), **worker):
    """An instance and schedule of a mode, with some rows of steps and work replaced."""
    instance, its_steps, its_work, _ = MODES[name]
    if worker:
        spec = {"padding": False, "memory": None, "prefill_cap_tokens": None, "cost": COST}
        old = instance.workers[0]
        spec = {key: worker.get(key, getattr(old, key)) for key in spec}
        requests = instance.requests
        instance = problem(
            requests.prompt_tokens, requests.output_tokens, rule=instance.first_token, **spec
        )
    its_steps = (*edited(its_steps, steps), *more_steps)
    its_work = [(*row, 0)[:7] for row in (*edited(its_work, work), *more_work)]
    its_work.sort(key=lambda row: (row[0], row[6], row[3]))
    return instance, built(instance, its_steps, its_work)


def part(results, path):
    for name in path.split("."):
        results = results[name]
    return results


@pytest.mark.parametrize("name", MODES)
def test_the_schedules_by_hand_are_valid(name):
    """INV-15, INV-17: and their numbers are those worked out by hand."""
    instance, schedule = mode(name)
    results = summarise(instance, schedule)
    assert check(instance, schedule.replace(results=results)) == []
    for path, value in MODES[name][3].items():
        assert (path, part(results, path)) == (path, value)
    clients = sum(worker.clients for worker in instance.workers)
    total = results["busy_client_ns"] + sum(results["bubble_ns"].values())
    assert total == clients * results["makespan_ns"]


def broken(told, name, *changes, **more):
    return set(told.split()), mode(name, *changes, **more)


EVICTED = "evicted amid the prefill"
BROKEN = {
    # -- stays and tokens (INV-1, INV-2, INV-17)
    "the tokens are not prefilled anew": broken(
        "completeness", "restart", {2: (0, P, 0, 38, 1)}, {2: (0, 0, P, 2, 2, 4, 1)}
    ),
    "a token too many is prefilled": broken(
        "completeness", "restart", {2: (0, P, 0, 44, 1)}, {2: (0, 0, P, 2, 2, 7, 1)}
    ),
    "a token too many": broken("completeness", "restart", {3: (0, D, 0, 44, 2)}),
    "a token too few": broken("completeness", "restart", {3: None}, {3: None}),
    "a decode after the prefill that yields the last token": broken(
        "completeness", "restart, first token by prefill", more_steps=[(0, D, 0, 22, 1)],
        more_work=[(0, 0, D, 3, 3, 1, 1)],
    ),
    "a prefill that is never completed": broken(
        "completeness", EVICTED, {1: (0, P, 0, 36, 1)}, {1: (0, 0, P, 1, 1, 3, 1)}
    ),
    "a stay after the last token": broken(
        "completeness", "restart", more_steps=[(0, P, 0, 44, 1)],
        more_work=[(0, 0, P, 4, 4, 7, 2)],
    ),
    "a stay without a prefill": broken(
        "contiguity completeness empty_stage", "restart", None, {2: None}
    ),
    "numbers of stays that begin with 1": broken(
        "contiguity", EVICTED, None, {0: (0, 0, P, 0, 0, 3, 1), 1: (0, 0, P, 1, 1, 4, 2)}
    ),
    "numbers of stays that leave one out": broken(
        "contiguity", EVICTED, None, {1: (0, 0, P, 1, 1, 4, 2)}
    ),
    "a prefill after decoding in one stay": broken(
        "contiguity completeness", "restart", None,
        {2: (0, 0, P, 2, 2, 6, 0), 3: (0, 0, D, 3, 3, 1, 0)},
    ),
    "a later stay that starts first": broken(
        "contiguity completeness", EVICTED, None,
        {0: (0, 0, P, 0, 0, 3, 1), 1: (0, 0, P, 1, 1, 4, 0)},
    ),
    "a stay that starts on another worker before the last one has ended": broken(
        "contiguity", "two workers", {4: (1, P, 1, 40, 1)}
    ),
    "a stay on two workers": broken(
        "contiguity completeness", "two workers", None,
        {2: (0, 0, P, 4, 4, 5, 0), 3: (0, 0, D, 5, 5, 1, 0)},
    ),
    "a row on two workers": broken(
        "contiguity empty_stage", "two workers", None, {1: (0, 0, D, 3, 5, 1, 0)}
    ),
    "two stays at a time on a client": broken(
        "client_overlap contiguity", "chunks", None, {3: (1, 0, P, 2, 2, 3)}
    ),
    "another client for the next chunk": broken(
        "contiguity", EVICTED, {1: (0, P, 0, 32, 1)},
        {0: (0, 1, P, 0, 0, 3, 0), 1: (0, 0, P, 1, 1, 1, 0)}, cost=COST,
    ),
    # -- chunks and mixed steps
    "a chunk too short": broken("completeness time", "chunks", None, {2: (1, 1, P, 1, 1, 3)}),
    "a mixed step without a round": broken(
        "phase completeness", "chunks", None, {1: (0, 0, D, 2, 2, 1)}
    ),
    "a mixed step without a prefill": broken("phase completeness", "chunks", None, {2: None}),
    "a mixed step for nobody": broken(
        "empty_stage completeness", "chunks", None, {1: (0, 0, D, 2, 2, 1), 2: None}
    ),
    "a mixed step of two rounds": broken("phase completeness", "chunks", {1: (0, M, 0, 43, 2)}),
    "a mixed step that takes the time of both parts": broken(
        "time", "chunks", {1: (0, M, 0, 38 + 22, 1)}
    ),
    "a prefill in a decode step": broken("phase time", "chunks", {2: (0, D, 0, 41, 1)}),
    # -- static batches (INV-18)
    "what is discarded counts as a token": broken(
        "completeness", "static batch", None, {2: (0, 0, D, 2, 2, 1)}
    ),
    "a request is discarded before its last token": broken(
        "completeness empty_stage", "static batch", None, {4: (1, 1, D, 1, 1, 1)},
        more_work=[(1, 1, I, 2, 2, 1)],
    ),
    "a held request is not counted": broken("time", "static batch", None, {2: None}),
    "rounds in which all are done": broken(
        "empty_stage", "static batch", more_steps=[(0, D, 0, 27, 1)],
        more_work=[(0, 0, I, 3, 3, 1), (1, 1, I, 3, 3, 1)],
    ),
    "two invalid tokens a round": broken(
        "completeness", "static batch", None, {2: (0, 0, I, 2, 2, 2)}
    ),
    "a client is given away while it is held": broken(
        "client_overlap", "static batch", None, {3: (1, 0, P, 0, 0, 5), 4: (1, 0, D, 1, 2, 1)}
    ),
    # -- padding
    "prompts are not padded": broken("time", "padding", {0: (0, P, 0, 7 + 4 + 25, 1)}),
    "contexts are not padded": broken("time", "padding", {1: (0, D, 0, 9 + 600 + 11 + 700, 2)}),
    "padded tokens over the cap": broken("prefill_cap", "padding", prefill_cap_tokens=9),
    # -- memory (INV-3)
    "a page too few": broken("memory", "pages", memory=BlockMemory(4, 2, "paged")),
    "the whole is set aside": broken("memory", "pages", memory=BlockMemory(4, 2, "whole")),
    "caches are padded": broken(
        "memory", "pages", {0: (0, P, 0, 42, 1)}, padding=True, memory=BlockMemory(5, 2, "paged")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_modes_are_told_apart(name):
    """INV-1, INV-2, INV-3, INV-6, INV-7, INV-17, INV-18, INV-19: each is called by its name."""
    expected, (instance, schedule) = BROKEN[name]
    assert kinds(check(instance, schedule)) == expected


@pytest.mark.parametrize(
    ("blocks", "allocation", "padding"),
    [(5, "paged", False), (6, "paged", True), (5, "whole", False)],
)
def test_memory_that_just_suffices(blocks, allocation, padding):
    """INV-3: in each way of counting, a block less is one too few."""
    first = {0: (0, P, 0, 42 if padding else 40, 1)}
    for given, expected in ((blocks, set()), (blocks - 1, {"memory"})):
        memory = BlockMemory(given, 2, allocation)
        instance, schedule = mode("pages", first, padding=padding, memory=memory)
        assert kinds(check(instance, schedule)) == expected
        held = summarise(instance, schedule)["kv_blocks"]
        assert held["peak"] == blocks


@pytest.mark.parametrize(("instance", "schedule"), [
    mode("chunks", None, {1: (0, 0, D, 1, 1, 1)}, more_work=[(0, 0, D, 2, 2, 1)]),
    mode("static batch", None, {4: (1, 1, D, 1, 1, 1)}, more_work=[(1, 1, D, 2, 2, 1)]),
    mode("pages", None, {1: (0, 0, D, 1, 2, 1)}, more_work=[(0, 0, D, 3, 3, 1)]),
])  # fmt: skip
def test_rows_may_be_split(instance, schedule):
    results = summarise(instance, schedule)
    assert check(instance, schedule.replace(results=results)) == []


def test_the_next_stay_may_start_at_once_on_another_worker():
    """Even in a step that is listed before the one, without duration, that ends the stay before."""
    instance = problem((2,), (1,), many=2, clients=1, cost=ContextCost(0, 0, 0, 0, 0))
    steps = ((0, P, 0, 0, 1), (0, D, 0, 0, 1), (1, P, 0, 0, 1))
    work = ((0, 0, P, 2, 2, 1, 0), (0, 0, P, 0, 0, 2, 1), (0, 0, D, 1, 1, 1, 1))
    schedule = built(instance, steps, work)
    assert check(instance, schedule) == []
    assert check(instance, schedule.replace(results=summarise(instance, schedule))) == []


def test_spread_of_the_ends_of_workers():
    """A worker that does nothing ends at 0."""
    instance = problem((4,), (1,), many=3, clients=1)
    steps, work = ((0, P, 0, 38, 1), (0, D, 0, 22, 1)), ((0, 0, P, 0, 0, 4), (0, 0, D, 1, 1, 1))
    schedule = built(instance, steps, work)
    results = summarise(instance, schedule)
    assert results["worker_end_ns"] == {
        "min": 0, "max": 60, "std": math.sqrt(3 * 3600 - 3600) / 3,
    }  # fmt: skip
    assert check(instance, schedule.replace(results=results)) == []
