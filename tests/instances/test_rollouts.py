"""Rollouts: groups of samples whose lengths are alike, last epoch's lengths, shared prompts."""

import numpy as np
import pytest

from orsched import BlockMemory, PrefixCache, simulate
from orsched.instances.catalog import generate
from orsched.instances.rollouts import rollout_requests, rollouts
from tests.refusals import refusal


def test_the_numbers_are_those_that_the_tables_were_measured_on():
    """r1024 and r8192: sums of tokens, as counted when the bounds were first worked out."""
    for sizes, prompts, outputs in (
        ((64, 16, 16_384, 1), 214_672, 2_285_633),
        ((512, 16, 32_768, 2), 1_718_976, 21_145_908),
    ):
        table = rollout_requests(*sizes)
        assert len(table) == sizes[0] * sizes[1]
        found = int(table.prompt_tokens.sum()), int(table.output_tokens.sum())
        assert found == (prompts, outputs)


def test_a_group_shares_its_prompt_and_its_lengths_are_alike():
    table = rollout_requests(400, 8, 10**6, seed=3)
    logs = np.log(table.output_tokens).reshape(400, 8)
    assert (table.prompt_tokens.reshape(400, 8).std(axis=1) == 0).all()
    assert table.group.tolist() == np.arange(400).repeat(8).tolist()
    assert abs(logs.mean() - np.log(1_800)) < 4 * 0.77 / 20
    assert abs(logs.var(axis=1, ddof=1).mean() - 0.45**2) < 0.02
    assert abs(logs.mean(axis=1).var(ddof=1) - (0.75**2 + 0.45**2 / 8)) < 0.15


def test_history_predicts_with_noise_and_leaves_the_lengths():
    plain, seen = (rollout_requests(50, 16, 16_384, 1, sigma) for sigma in (None, 0.3))
    assert plain.predicted_tokens is None
    assert seen.replace(predicted_tokens=None) == plain
    errors = np.log(seen.predicted_tokens / seen.output_tokens)
    assert abs(errors.std() - 0.3) < 0.03
    assert rollout_requests(5, 2, 999, 1, 0.0).predicted_tokens.max() <= 999


def test_the_generator_makes_a_fleet_whose_groups_share_their_prompts():
    instance = generate("rollouts", seed=2, prompts=3, samples=4, workers=2, clients=8)
    assert [worker.clients for worker in instance.workers] == [8, 8]
    assert instance.requests == rollout_requests(3, 4, 16_384, 2)
    cached = rollouts(2, 3, 4, workers=2, clients=8, memory_blocks=4_000, prefix_cache=True)
    assert cached.workers[0].memory == BlockMemory(4_000, 16, "paged", PrefixCache("lru"))
    prefixes, blocks = cached.requests.prefixes, cached.requests.prompt_tokens // 16
    assert prefixes.counts.tolist() == blocks.tolist()
    assert [prefixes.of(row).tolist() for row in (0, 1)] == [list(range(blocks[0]))] * 2
    assert len(set(prefixes.ids.tolist())) == int(blocks[::4].sum())
    assert simulate(cached, "vllm").schedule.results["hit_tokens"] > 0


@pytest.mark.parametrize(("arguments", "field"), [
    ({"prompts": 0}, "prompts"), ({"samples": 2.5}, "samples"), ({"prompts": 10**7}, "samples"),
    ({"longest": 15}, "longest"), ({"seed": -1}, "seed"), ({"workers": 0}, "workers"),
    ({"workers": 10**6}, "workers"), ({"clients": 0}, "clients"),
    ({"prefix_cache": True}, "prefix_cache"), ({"history_sigma": -1}, "sigma"),
    ({"memory_blocks": 0}, "blocks"),
])  # fmt: skip
def test_wrong_arguments_name_their_field(arguments, field):
    assert refusal(generate, "rollouts", **{"prompts": 2, "samples": 2} | arguments).field == field


@pytest.mark.parametrize(("name", "sizes", "turns"), [
    ("chats", {"conversations": 6, "turns": 3, "system": 100, "think_s": 2}, 3),
    ("tool-rollouts", {"trajectories": 4, "turns": 4, "tool_s": 0, "concurrency": 2}, 4),
    ("chats", {"conversations": 5, "turns": 1}, 1),
])  # fmt: skip
def test_conversations_follow_their_own_answers(name, sizes, turns):
    instance = generate(name, seed=3, **sizes)
    assert instance.requests == generate(name, seed=3, **sizes).requests
    assert instance.requests != generate(name, seed=4, **sizes).requests
    found = instance.requests
    if turns == 1:
        assert found.parent is None
        return
    later = np.flatnonzero(found.parent >= 0)
    before = found.parent[later]
    assert len(later) == len(found) * (turns - 1) // turns
    assert (before == later - 1).all()
    assert (found.prompt_tokens[later] > (found.prompt_tokens + found.output_tokens)[before]).all()
    assert (found.delay_ns[later] >= 0).all()
    results = simulate(instance, "vllm").schedule.results  # checked
    assert results["hit_tokens"] > 0


@pytest.mark.parametrize(("name", "arguments", "field"), [
    ("chats", {"conversations": 0}, "conversations"), ("chats", {"turns": 0}, "turns"),
    ("chats", {"think_s": float("nan")}, "think_s"), ("chats", {"think_s": -1}, "think_s"),
    ("chats", {"system": -1}, "system"), ("chats", {"concurrency": 0}, "concurrency"),
    ("tool-rollouts", {"tool_s": "5"}, "tool_s"), ("tool-rollouts", {"seed": -1}, "seed"),
    ("tool-rollouts", {"trajectories": 10**9}, "trajectories"),
])  # fmt: skip
def test_bad_conversations_are_refused_by_field(name, arguments, field):
    assert refusal(generate, name, **arguments).field == field
