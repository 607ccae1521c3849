"""Closed loops: chats in which users think between turns, and rollouts of agents with tool time.

Each prompt is all that was said before, and what is new. The default laws are assumptions, not
measured ones: log-normal lengths of answers and tool results, exponential think time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from orsched.calibration.catalogue import machine
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.data.requests import NONE, Requests
from orsched.data.workers import Worker
from orsched.instances.rollouts import BLOCK_TOKENS, MACHINE, MAX_REQUESTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

MOST_SECONDS = 10**6
MOST_TOKENS = 10**5


def turn_requests(
    first: Numbers, answers: Numbers, messages: Numbers, delay_s: NDArray[np.float64], system: int
) -> Requests:
    """Return requests, conversation by conversation: each prompt is all that was said before.

    ``first``: tokens of the first prompts, of which ``system`` are shared; ``answers``: tokens by
    conversation and turn; ``messages``, ``delay_s``: the same for what a user or a tool adds
    before each later turn, and how long it takes.
    """
    rows = np.arange(answers.size).reshape(answers.shape)
    prompts, parent, delay_ns = rows.copy(), rows - 1, np.full(rows.shape, NONE)
    prompts[:, :1], prompts[:, 1:] = first[:, None], answers[:, :-1] + messages
    parent[:, 0] = NONE
    delay_ns[:, 1:] = np.rint(delay_s * 1e9)
    return Requests(
        prompts.cumsum(axis=1).ravel(),
        answers.ravel(),
        parent=parent.ravel(),
        delay_ns=delay_ns.ravel(),
        prefixes=Prefixes.from_documents(0 * rows.ravel(), system, BLOCK_TOKENS),
    )


def chats(
    seed: int = 0,
    conversations: int = 200,
    turns: int = 5,
    think_s: float = 20.0,
    system: int = 1_024,
    concurrency: int | None = None,
    clients: int = 256,
    prefix_cache: bool = True,
) -> Instance:
    """Return chats behind one system prompt: a user reads, thinks and writes between two turns.

    Args:
        seed: of all lengths and times.
        conversations: how many chats.
        turns: of each chat.
        think_s: mean time from an answer to the next message, in seconds, exponential.
        system: tokens of the system prompt, which all chats share.
        concurrency: chats in flight at most; None: all begin at once.
        clients: J of the worker, an H100 with LLaMA-3 8B by its data sheet.
        prefix_cache: the worker keeps freed blocks for later turns.
    """
    count, each = _sizes(conversations, turns)
    shared = whole_number(system, "system", minimum=0, maximum=MOST_TOKENS)
    rng, later = np.random.default_rng(whole_number(seed, "seed")), (count, each - 1)
    requests = turn_requests(
        shared + rng.integers(20, 200, count),
        rng.lognormal(5.3, 0.7, (count, each)).astype(np.int64) + 1,
        rng.integers(10, 120, later),
        rng.exponential(_seconds(think_s, "think_s"), later),
        shared,
    )
    return _on_worker(requests, f"chats-{count}x{each}-seed{seed}", concurrency, clients,
                      prefix_cache)  # fmt: skip


def tool_rollouts(
    seed: int = 0,
    trajectories: int = 64,
    turns: int = 8,
    tool_s: float = 5.0,
    concurrency: int | None = None,
    clients: int = 256,
    prefix_cache: bool = True,
) -> Instance:
    """Return trajectories of an agent: short calls, long results of tools, tool time.

    Args:
        seed: of all lengths and times.
        trajectories: how many.
        turns: of each trajectory.
        tool_s: median time of a tool, in seconds, log-normal with a deviation of 0.5.
        concurrency: trajectories in flight at most; None: all begin at once.
        clients: J of the worker, an H100 with LLaMA-3 8B by its data sheet.
        prefix_cache: the worker keeps freed blocks for later turns.
    """
    count, each = _sizes(trajectories, turns, "trajectories")
    rng, later = np.random.default_rng(whole_number(seed, "seed")), (count, each - 1)
    requests = turn_requests(
        rng.integers(400, 900, count),
        rng.lognormal(4.5, 0.6, (count, each)).astype(np.int64) + 1,
        rng.lognormal(6.2, 0.8, later).astype(np.int64) + 1,
        rng.lognormal(math.log(_seconds(tool_s, "tool_s") or 1e-9), 0.5, later),
        0,
    )
    return _on_worker(requests, f"tool-rollouts-{count}x{each}-seed{seed}", concurrency, clients,
                      prefix_cache)  # fmt: skip


def _sizes(count: int, turns: int, name: str = "conversations") -> tuple[int, int]:
    found = whole_number(count, name, minimum=1, maximum=MAX_REQUESTS)
    return found, whole_number(turns, "turns", minimum=1, maximum=max(1, MAX_REQUESTS // found))


def _seconds(value: float, name: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not (0 <= value <= MOST_SECONDS)
    ):
        raise InputError(
            f"{value!r} is not a time", field=name, remedy=f"0 to {MOST_SECONDS:,} seconds"
        )
    return float(value)


def _on_worker(
    requests: Requests, name: str, concurrency: int | None, clients: int, prefix_cache: bool
) -> Instance:
    found = machine(MACHINE)
    assert found.memory is not None
    cache = PrefixCache() if prefix_cache else None
    memory = BlockMemory(found.memory.tokens // BLOCK_TOKENS, BLOCK_TOKENS, "paged", cache)
    return Instance(
        requests,
        (Worker(clients, found.cost, memory=memory),),
        concurrency=concurrency,
        name=name,
        description=f"{len(requests)} turns that follow each other's ends, on {clients} clients.",
        source="generated",
        licence="Apache-2.0",
    )
