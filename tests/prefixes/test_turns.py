"""Turns of conversations find the blocks of their parents' prompts and answers."""

from __future__ import annotations

import random

import numpy as np
import pytest

import orsched
from orsched import BlockMemory, InputError, Instance, PrefixCache, Prefixes, Requests, Worker
from orsched.data.chains import chains_of
from orsched.metrics.timeline import Timeline, as_arrived
from orsched.simulator import simulate_policy
from tests.by_the_book import Book
from tests.simulator.prefix_workloads import COST, Whimsical, prefix_params, prefix_policy

SIZE = 4


def chat(turns=6, conversations=8, first=260, answer=180, message=60, system=192, **columns):
    """Return conversations turn by turn: a system prompt, then messages and answers."""
    place = np.arange(turns * conversations)
    turn = place // conversations
    prompts = first + turn * (answer + message)
    blocks = system // 16
    return Requests(
        prompts, np.full(len(place), answer),
        parent=np.where(turn == 0, -1, place - conversations),
        prefixes=Prefixes.from_documents(place * 0, 16 * blocks, 16),
        **columns,
    )  # fmt: skip


def computed(schedule):
    return int(schedule.work.tokens[schedule.work.phase == 0].sum())


@pytest.mark.parametrize("delay_s", [0, 1, 60])
def test_vllm_computes_what_no_turn_before_has(delay_s):
    # Of 41,280 prompt tokens: vLLM 0.33's scheduler computes 3,456.
    requests = chat()
    turns = np.where(requests.parent < 0, -1, delay_s * 10**9)
    worker = Worker(64, COST, memory=BlockMemory(4000, 16, prefix_cache=PrefixCache()))
    case = Instance(requests.replace(delay_ns=turns), (worker,))
    result = orsched.simulate(case, "vllm")
    assert int(requests.prompt_tokens.sum()) == 41_280
    assert computed(result.schedule) == 3_456
    # The first one 260 tokens, each other first turn those behind the system prompt, each later
    # turn those behind the full blocks of what is cached: all but the answer's last token.
    later = [260 + k * 240 - (260 + (k - 1) * 240 + 179) // 16 * 16 for k in range(1, 6)]
    assert computed(result.schedule) == 260 + 7 * (260 - 192) + 8 * sum(later)
    alone = Instance(requests.replace(parent=None, delay_ns=None), (worker,), concurrency=8)
    assert computed(orsched.simulate(alone, "vllm").schedule) > 3_456


def test_chains_go_on_over_answers():
    # Prompts of 6 and 12 tokens, an answer of 5: blocks 0 and 1 of the parent end at 4 and 8.
    found = chains_of(Requests([6, 12, 7], [5, 1, 1], parent=[-1, 0, 0]), SIZE)
    assert found.counts.tolist() == [2, 2, 1]  # the last holds the parent's prompt alone
    ids = [found.ids[a : a + n].tolist() for a, n in zip(found.offsets, found.counts, strict=False)]
    assert ids[1] == ids[0]
    assert ids[2] == ids[0][:1]


def test_a_trace_names_the_hashes_of_answers_by_the_next_prompts():
    prefixes = Prefixes([0, 1, 4, 7], [7, 7, 8, 9, 7, 8, 9], SIZE)
    requests = Requests([6, 12, 13], [5, 1, 1], parent=[-1, 0, -1], prefixes=prefixes)
    found = chains_of(requests, SIZE)
    assert found.ids[:2].tolist() == [7, 8]  # row 2 shares the answer's block by its hash
    wrong = Prefixes([0, 1, 4, 4], [7, 1, 8, 9], SIZE)
    with pytest.raises(InputError, match="does not begin with that of its parent") as caught:
        chains_of(requests.replace(prefixes=wrong), SIZE)
    assert (caught.value.row, caught.value.field) == (1, "prefix_ids")


def conversation_instance(seed, workers=1, eviction="lru"):
    """Return random turns, with and without prefixes and delays, on workers with few blocks."""
    rng = random.Random(seed)
    n, size = rng.choice((4, 10, 20)), rng.choice((2, 4, 8))
    n = n if eviction == "lru" else 5  # the literal account counts all users of a block each time
    prompts, outputs, parent, delay, document = [], [], [], [], []
    for row in range(n):
        outputs.append(rng.randint(1, 20))
        if row and rng.random() < 0.7:
            before = rng.randrange(row)
            whole = prompts[before] + outputs[before]
            least = rng.choice((1, prompts[before], whole, whole, whole))
            prompts.append(least + rng.randint(0, 9))
            parent.append(before)
            delay.append(rng.choice((-1, 0, 0, rng.randint(0, 10**5))))
            document.append(document[before])
        else:
            prompts.append(rng.randint(1, 30))
            parent.append(-1)
            delay.append(-1)
            document.append(rng.randint(0, 1))
    shared = [min(prompt, 3 * size) for prompt in prompts]
    prefixes = Prefixes.from_documents(document, shared, size) if seed % 2 else None
    requests = Requests(
        prompts, outputs, parent=parent, delay_ns=delay, prefixes=prefixes,
        arrival_ns=[rng.randint(0, 10**5) for _ in range(n)],
        service_class=[rng.randint(0, 1) for _ in range(n)],
    )  # fmt: skip
    least = -(-max(map(sum, zip(prompts, outputs, strict=True))) // size)
    memory = BlockMemory(
        least + rng.choice((0, 1, least, 4 * least)), size, "paged", PrefixCache(eviction)
    )
    fleet = tuple(
        Worker(rng.choice((2, 4)), COST, memory=memory, name=f"w{k}") for k in range(workers)
    )
    most = rng.choice((None, 1, 2, 5))
    return Instance(requests, fleet, rng.choice(("prefill", "decode")), concurrency=most)


@pytest.mark.parametrize("rule", ["lru", "task_aware", "least_future_use"])
@pytest.mark.parametrize("seed", range(8))
def test_hits_are_those_of_a_literal_account(seed, rule):
    for workers in (1, 2):
        case = conversation_instance(seed, workers, rule)
        params = prefix_params(seed, case.workers[0].clients)
        for policy in (Whimsical(seed), prefix_policy(case, params)):
            schedule = simulate_policy(case, policy).schedule
            assert orsched.check(case, schedule) == []
            book = Book(as_arrived(case, schedule), schedule)
            assert sum(stay.hit for stay in book.stays) == int(schedule.work.hit.sum())


def test_a_hit_of_blocks_that_are_not_there_is_refused():
    requests = Requests([6, 12], [5, 1], parent=[-1, 0], delay_ns=[-1, 0])
    worker = Worker(2, COST, memory=BlockMemory(20, SIZE, prefix_cache=PrefixCache()))
    case = Instance(requests, (worker,))
    schedule = orsched.simulate(case, "vllm").schedule.bare()
    assert schedule.work.hit.max() == 8  # of 6 + 5 tokens the last is not cached
    for wrong in (0, 4):
        columns, found = dict(vars(schedule.work)), schedule.work.hit == 8
        columns["hit"] = np.where(found, wrong, 0)
        columns["tokens"] = np.where(found, 12 - wrong, columns["tokens"])
        work = type(schedule.work)(**columns)
        found = orsched.check(case, schedule.replace(work=work))
        assert "prefix_cache" in {each.kind for each in found}, wrong


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_bounds_hold_where_answers_are_found(seed):
    case = conversation_instance(seed)
    result = orsched.simulate(case, "vllm", bounds=["mean_jct"])
    assert result.checked
    assert result.bound_ns <= result.makespan_ns
    assert Timeline(case, result.schedule).problem is case


def test_caches_with_blocks_of_several_sizes_are_refused():
    requests = Requests([6, 12], [5, 1], parent=[-1, 0])
    memories = [BlockMemory(20, size, prefix_cache=PrefixCache()) for size in (2, 4)]
    with pytest.raises(InputError, match="several sizes"):
        Instance(
            requests,
            tuple(Worker(2, COST, memory=each, name=str(each.block_tokens)) for each in memories),
        )


def test_a_turn_that_follows_at_once_while_prefills_are_held_back_finds_the_answer():
    """The step that it joins begins with an older request, and yet was not planned ahead."""
    memory = BlockMemory(40, SIZE, "paged", PrefixCache())
    requests = Requests(
        [2, 6, 35], [13, 2, 3], arrival_ns=[0, 15, 0], parent=[-1, -1, 0], delay_ns=[-1, -1, 0]
    )
    held = {"async_scheduling": True, "prefill_schedule_interval": 40}
    result = orsched.solve(
        Instance(requests, Worker(4, COST, None, memory)), "vllm", parameters=held
    )
    assert result.checked
    assert result.schedule.work.hit[result.schedule.work.request == 2].tolist() == [12, 0]
