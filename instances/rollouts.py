"""Rollouts: groups of samples of one prompt with similar lengths, all at time 0.

The laws are those of heavy-tailed rollout lengths: the logarithm of an answer's length is normal
around a mean of its prompt, and that of the prompt is normal again.
"""

from __future__ import annotations

import math

import numpy as np

from orsched.calibration.catalogue import machine
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances.predictions import noisy_tokens

MACHINE = "h100-llama3-8b-sheet"
BLOCK_TOKENS = 16
MEDIAN, SPREAD, WITHIN, SHORTEST = 1_800, 0.75, 0.45, 16
"""Median length of an answer, deviations between and within groups (of logarithms), least."""

MAX_REQUESTS, MAX_WORKERS = 10_000_000, 100_000


def rollout_requests(
    prompts: int, samples: int, longest: int, seed: int, history_sigma: float | None = None
) -> Requests:
    """Return the samples of ``prompts`` prompts, which are the groups, all at 0.

    A group has one prompt of ``lognormal(ln 180, 0.5)`` tokens, cut to 32..1,024, and a mean
    ``mu ~ N(ln 1800, 0.75)``; its lengths are ``exp(N(mu, 0.45))``, cut to 16..longest.
    ``history_sigma`` predicts each length as that of the last epoch: the true one times
    ``exp(N(0, sigma))``, from a stream of its own. Raises ``InputError`` for wrong sizes.

    Example::

        >>> table = rollout_requests(2, 3, 16_384, seed=1)
        >>> table.group.tolist(), len(set(table.prompt_tokens.tolist()))
        ([0, 0, 0, 1, 1, 1], 2)
    """
    count = whole_number(prompts, "prompts", minimum=1, maximum=MAX_REQUESTS)
    each = whole_number(samples, "samples", minimum=1, maximum=max(1, MAX_REQUESTS // count))
    limit = whole_number(longest, "longest", minimum=SHORTEST, maximum=MAX_TOKENS)
    rng = np.random.default_rng(whole_number(seed, "seed"))
    tokens, lengths = np.empty(count, np.int64), np.empty((count, each), np.int64)
    for place, mean in enumerate(rng.normal(math.log(MEDIAN), SPREAD, count).tolist()):
        tokens[place] = np.clip(rng.lognormal(math.log(180), 0.5), 32, 1024)
        lengths[place] = np.clip(np.exp(rng.normal(mean, WITHIN, each)), SHORTEST, limit)
    outputs = lengths.ravel()
    return Requests(
        tokens.repeat(each),
        outputs,
        group=np.arange(count).repeat(each),
        predicted_tokens=None
        if history_sigma is None
        else noisy_tokens(outputs, history_sigma, seed, limit),
    )


def rollouts(
    seed: int = 0,
    prompts: int = 64,
    samples: int = 16,
    longest: int = 16_384,
    history_sigma: float | None = None,
    workers: int = 4,
    clients: int = 64,
    memory_blocks: int | None = None,
    prefix_cache: bool = False,
) -> Instance:
    """Return a batch of RL rollouts on equal workers, H100s with LLaMA-3 8B by their data sheet.

    Args:
        seed: of all lengths.
        prompts: groups; their samples share the prompt.
        samples: requests of each group.
        longest: most tokens of an answer.
        history_sigma: error of the lengths of the last epoch as predictions; None for none.
        workers: how many.
        clients: J of each worker.
        memory_blocks: paged memory of each worker, in blocks of 16 tokens; None for no limit.
        prefix_cache: samples share the cached blocks of their prompt; needs memory_blocks.
    """
    requests = rollout_requests(prompts, samples, longest, seed, history_sigma)
    count = whole_number(workers, "workers", minimum=1, maximum=MAX_WORKERS)
    cache = None
    if prefix_cache:
        if memory_blocks is None:
            raise InputError(
                "a prefix cache without memory", field="prefix_cache", remedy="give memory_blocks"
            )
        cache = PrefixCache("lru")
        group = np.arange(len(requests)) // samples
        shared = Prefixes.from_documents(group, requests.prompt_tokens, BLOCK_TOKENS)
        requests = requests.replace(prefixes=shared)
    memory = None
    if memory_blocks is not None:
        memory = BlockMemory(memory_blocks, BLOCK_TOKENS, "paged", cache)
    cost = machine(MACHINE).cost
    return Instance(
        requests,
        tuple(Worker(clients, cost, memory=memory, name=f"w{k}") for k in range(count)),
        first_token="decode",
        output_limit_tokens=longest,
        name=f"rollouts-{prompts}x{samples}-seed{seed}",
        description=(
            f"{prompts} prompts, {samples} samples of each, all at time 0 on {count} workers of "
            f"{clients} clients; generator seed {seed}."
        ),
        source="generated",
        licence="Apache-2.0",
    )
