"""A day of conversations whose turns share their prefixes, on workers with prefix caches."""

from __future__ import annotations

from time import perf_counter, process_time

import numpy as np

import orsched
from benchmarks.speed.section import Options, Section, Target
from orsched.common import registry
from orsched.costs import AffineCost
from orsched.data.memory import PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

NAME = "prefixes"
DAY_S, BLOCK_TOKENS, BLOCKS, WORKERS, CLIENTS = 86_400, 512, 20_000, 8, 64
LONGEST = 120_000
COST = AffineCost(
    prefill_fixed_ns=8_000_000,
    prefill_token_ns=60_000,
    round_fixed_ns=12_000_000,
    round_client_ns=150_000,
)


def conversations(count: int, seed: int = 0) -> orsched.Instance:
    """Return requests as in Mooncake's trace: about 12,000 prompt tokens, 340 of output.

    Each turn of a conversation begins with the whole prompt of the turn before, and its answer,
    which is another request's output and not found in a cache.
    """
    rng = np.random.default_rng(seed)
    turns = rng.geometric(1 / 1.7, size=count)
    session = np.repeat(np.arange(count), turns)[:count]
    first = np.searchsorted(session, session)
    turn = np.arange(count) - first
    new = np.maximum(rng.lognormal(8.05, 1.3, count), 16).astype(np.int64)
    output = np.clip(rng.lognormal(5.5, 0.8, count), 1, 2000).astype(np.int64)
    sums = np.cumsum(new + output)
    prompt = np.minimum(sums - output - (sums - new - output)[first], LONGEST)
    start = rng.uniform(0, DAY_S, count)[session]
    pause = rng.exponential(60, count) * (turn > 0)
    waited = np.cumsum(pause)
    arrival = ((start + waited - waited[first]) * 1e9).astype(np.int64)
    blocks = -(-prompt // BLOCK_TOKENS)
    most = -(-LONGEST // BLOCK_TOKENS)
    offsets = np.concatenate([[0], np.cumsum(blocks)])
    ids = np.arange(offsets[-1]) - np.repeat(offsets[:-1], blocks)
    ids += np.repeat(session * most, blocks)
    requests = orsched.Requests(
        prompt, output, arrival_ns=arrival, prefixes=Prefixes(offsets, ids, BLOCK_TOKENS)
    )
    memory = orsched.BlockMemory(BLOCKS, BLOCK_TOKENS, "paged", PrefixCache())
    workers = tuple(
        orsched.Worker(CLIENTS, COST, memory=memory, name=f"worker-{index}")
        for index in range(WORKERS)
    )
    return orsched.Instance(requests, workers, "prefill")


def run(options: Options) -> Section:
    """Simulate a day below two dispatchers, and check one of the schedules."""
    count = 300 if options.tiny else 100_000
    instance = conversations(count)
    prompts = instance.requests.prompt_tokens
    section = Section(
        NAME,
        f"{count:,} requests of {int(prompts.mean()):,} prompt tokens that share prefixes, "
        f"{WORKERS} workers of {BLOCKS:,} blocks",
    )
    for dispatch in ("prefix", "round_robin"):
        policy, _ = registry.resolve("methods", "vllm").build(
            instance, Information.NONE, {"dispatch": dispatch}, 0
        )
        wall, cpu = perf_counter(), process_time()
        schedule = simulate_policy(instance, policy).schedule
        row = {
            "program": f"orsched vllm+dispatch={dispatch}",
            "simulate_wall_s": perf_counter() - wall,
            "simulate_cpu_s": process_time() - cpu,
        }
        wall = perf_counter()
        row["violations"] = len(orsched.check(instance, schedule))
        row["check_wall_s"] = perf_counter() - wall
        row["steps"] = len(schedule.steps)
        row["hit_%"] = 100 * int(schedule.work.hit.sum()) / int(prompts.sum())
        row["simulated_s"] = schedule.makespan_ns / 1e9
        section.rows.append(row)
        section.targets += [
            Target(f"{dispatch}, simulate, wall", row["simulate_wall_s"], 60.0, "s"),
            Target(f"{dispatch}, check, wall", row["check_wall_s"], 120.0, "s"),
        ]
    section.notes = [
        "Conversations of some turns over a day: each turn begins with the prompt of the one "
        "before. Lengths and the share of blocks that occur again are near those of Mooncake's "
        "trace; blocks of 512 tokens, evicted by least recent use.",
        "One run each, in this process. hit_% is of all prompt tokens.",
    ]
    return section
