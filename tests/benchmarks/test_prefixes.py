"""Prompts and prefix caches: hits, reuse, lengths, and what reuse saves."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reproductions import prompt_length
from benchmarks.reproductions.prefix_hits import PUBLISHED, SIZES, hit_ratio, rows
from benchmarks.speed.section import Options
from orsched import Instance, Prefixes, Requests, Worker, check, simulate
from orsched.instances.datasets import VARIABLE
from orsched.instances.readers import read


def requests_of(chains, prompts, size=4):
    offsets = np.cumsum([0, *map(len, chains)])
    prefixes = Prefixes(offsets, [key for chain in chains for key in chain], size)
    return Requests(prompts, [1] * len(prompts), prefixes=prefixes)


def test_a_cache_by_hand():
    # Blocks of 4: a whole one and a half; the same again; the whole one alone.
    requests = requests_of([[1, 2], [1, 2], [1]], [6, 6, 4])
    assert hit_ratio(requests, None, by_vllm=False) == (8 + 4) / 16
    assert hit_ratio(requests, None, by_vllm=True) == 4 / 16  # the last one computes its last token
    assert hit_ratio(requests, 2, by_vllm=False) == 12 / 16
    assert hit_ratio(requests, 1, by_vllm=True) <= 4 / 16


def by_a_list(requests, blocks, by_vllm):
    """The same, with a list of names in order of use; a name may be there twice."""
    used, found, number = [], 0, 0
    for request, prompt in enumerate(requests.prompt_tokens.tolist()):
        size = requests.prefixes.block_tokens
        chain = requests.prefixes.of(request).tolist()
        needed = -(-prompt // size)
        names = chain + [("own", request, k) for k in range(needed - len(chain))]
        if by_vllm:
            names[prompt // size :] = [("part", request)] * (needed - prompt // size)
        mine = []
        for name in names[: (prompt - 1) // size if by_vllm else needed]:
            known = [entry for entry in used if entry[0] == name]
            if not known:
                break
            mine.append(min(known, key=lambda entry: entry[1]))
        found += len(mine) * size
        used = [entry for entry in used if entry not in mine]
        while len(used) + needed > blocks and used:
            used.pop(0)
        for name in names[len(mine) :]:
            number += 1
            mine.append((name, number))
        used += [entry for entry in mine[::-1] if entry[0] != ("part", request)]
    return found / requests.prompt_tokens.sum()


@pytest.mark.parametrize("by_vllm", [False, True])
def test_the_ratios_are_those_of_a_list(by_vllm):
    dice = np.random.default_rng(0)
    tree = Prefixes.from_parents([-1, 0, 0, 1, 1, 2], [8, 12, 8, 4, 8, 4], [3, 4, 5], 4)
    leaves = dice.integers(0, 3, 60)
    chains = [tree.of(leaf).tolist()[: dice.integers(1, 7)] for leaf in leaves]
    prompts = [4 * len(chain) - int(dice.integers(0, 4)) for chain in chains]
    requests = requests_of(chains, prompts)
    for blocks in (8, 9, 10, 12, 15, 40):
        assert hit_ratio(requests, blocks, by_vllm) == by_a_list(requests, blocks, by_vllm)


def test_the_published_ratios(data_dir):
    requests = read(data_dir / "mooncake_conversation.jsonl").requests
    lines = rows(requests)
    assert [row["blocks of the trace %"] for row in lines] == [PUBLISHED[b] for b in SIZES]
    by_vllm = [float(row["vLLM's rule %"]) for row in lines]
    assert by_vllm == sorted(by_vllm)
    assert by_vllm[-1] < float(PUBLISHED[None])


@pytest.mark.parametrize("which", ["synthetic", "measured"])
def test_ttft_is_the_sum_of_the_tables_up_to_128k(which):
    if which == "measured" and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} does not name the data sets")
    tables = getattr(prompt_length, f"{which}_tables")()
    cost = tables.cost()
    for prompt in prompt_length.PROMPTS:
        summed = tables.summed_s(prompt)
        assert prompt_length.ttft_s(cost, prompt) == pytest.approx(summed, rel=0.001)
    assert prompt_length.MOST_ERROR == 0.03


@pytest.fixture(scope="module")
def plain():
    cost = prompt_length.synthetic_tables().cost()
    names = ("fixed_ns", "dense", "prefill", "decode")
    return prompt_length.WithoutContexts(**{name: getattr(cost, name) for name in names})


def test_without_contexts_the_error_grows_with_the_prompt(plain):
    tables = prompt_length.synthetic_tables()
    ratios = [prompt_length.ttft_s(plain, p) / tables.summed_s(p) for p in prompt_length.PROMPTS]
    errors = [1 - ratio for ratio in ratios]
    assert errors == sorted(errors)
    assert errors[0] > 0.1
    assert errors[-1] > 0.75


def test_the_checker_refuses_the_times_without_contexts(plain):
    cost = prompt_length.synthetic_tables().cost()
    instance = Instance(Requests([8192], [1]), Worker(1, plain), "prefill")
    schedule = simulate(instance, "vllm@none+max_num_batched_tokens=2048").schedule
    assert check(instance, schedule) == []
    told = instance.replace(workers=replace(instance.worker, cost=cost))
    wrong = check(told, schedule)
    assert sum("a prefill stage, takes" in str(each) for each in wrong) == 3  # all but the first


def test_reuse_is_measured_by_runs_with_and_without():
    pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    from benchmarks.speed import prefix_reuse

    section = prefix_reuse.run_section(Options(Path(), repeats=1, tiny=True), "tiny")
    without, reusing = section.rows
    assert without["hit_rate"] == 0
    # each document of 32 tokens is computed once: 4 of 6 requests hit 32 of their 40 tokens
    assert reusing["hit_rate"] == pytest.approx(4 * 32 / (6 * 40))
    assert min(reusing[name] for name in ("compute_ms", "store_ms", "load_ms")) > 0
    assert section.targets[0].passed
