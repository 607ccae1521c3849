"""Chats with think time and rollouts with tool time, in closed loops.

On the command line, for a file of turns (columns parent and delay_s) or any other:

    orsched simulate example-out/chats.json --policy vllm --concurrency 32
"""

from pathlib import Path

import numpy as np

import orsched

BLOCK = 16


def turns(conversations, first, answers, messages, delay_s, system=0):
    """Return requests, conversation by conversation: each prompt is all that was said before.

    ``first``: tokens of the first prompts, the shared system prompt among them; ``answers``: tokens
    by conversation and turn; ``messages``, ``delay_s``: the same for what comes before each later
    turn, of the user or of a tool, and how long it takes.
    """
    many = answers.shape[1]
    said = np.concatenate([np.zeros((conversations, 1), int), answers[:, :-1] + messages], axis=1)
    rows = np.arange(conversations * many).reshape(conversations, many)
    parent = np.where(np.arange(many) > 0, rows - 1, -1)
    delay_ns = np.full(rows.shape, -1)
    delay_ns[:, 1:] = np.rint(delay_s * 1e9)
    return orsched.Requests(
        (np.asarray(first)[:, None] + said.cumsum(axis=1)).ravel(),
        answers.ravel(),
        parent=parent.ravel(),
        delay_ns=delay_ns.ravel(),
        prefixes=orsched.Prefixes.from_documents(0 * rows.ravel(), system, BLOCK),
    )


def chats(conversations=200, many=5, think_s=20.0, system=1_024, seed=0):
    """Return chats behind one system prompt: a user reads, thinks and writes between two turns."""
    rng = np.random.default_rng(seed)
    later = (conversations, many - 1)
    return turns(
        conversations,
        system + rng.integers(20, 200, conversations),
        rng.lognormal(5.3, 0.7, (conversations, many)).astype(int) + 1,
        rng.integers(10, 120, later),
        rng.exponential(think_s, later),
        system,
    )


def tool_rollouts(trajectories=64, many=8, tool_s=5.0, seed=0):
    """Return trajectories of an agent: short calls, long results of tools, tool time."""
    rng = np.random.default_rng(seed)
    later = (trajectories, many - 1)
    return turns(
        trajectories,
        rng.integers(400, 900, trajectories),
        rng.lognormal(4.5, 0.6, (trajectories, many)).astype(int) + 1,
        rng.lognormal(6.2, 0.8, later).astype(int) + 1,
        rng.lognormal(np.log(tool_s), 0.5, later),
    )


def worker(prefix_cache=True):
    """Return an H100 with LLaMA-3 8B by its data sheet, as vLLM runs it."""
    machine = orsched.machine("h100-llama3-8b-sheet")
    cache = orsched.PrefixCache() if prefix_cache else None
    memory = orsched.BlockMemory(machine.memory.tokens // BLOCK, BLOCK, "paged", cache)
    return orsched.Worker(256, machine.cost, memory=memory)


def main():
    """Print how many conversations in flight a server keeps fast, and what its cache finds."""
    folder = Path("example-out")
    folder.mkdir(exist_ok=True)
    for name, requests in (("chats", chats()), ("rollouts", tool_rollouts())):
        print(f"{name}: {len(requests)} turns")
        for concurrency in (8, 32, 128):
            case = orsched.Instance(requests, (worker(),), concurrency=concurrency, name=name)
            result = orsched.simulate(case, "vllm")
            found = result.schedule.results
            print(
                f"  {concurrency:3} in flight: TTFT p99 {found['ttft_ns']['p99'] / 1e9:.3f} s, "
                f"{result.makespan:.1f} s (at least {result.bound:.1f} s), "
                f"{found['hit_rate']:.0%} of the tokens found in the cache"
            )
        orsched.save_instance(case, folder / f"{name}.json")


if __name__ == "__main__":
    main()
