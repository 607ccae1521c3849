"""The measured runs of fidelity.py: the data, the servers' settings, and the two clocks.

Settings are those that the source (casys-kaist/LLMServingSim, MIT) recorded beside its runs, not
chosen here. vLLM keeps one block of its cache for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.costs.profiled_kernels import AttentionRow, from_kernels
from orsched.heuristics.continuous.methods import VLLM
from orsched.instance import Instance
from orsched.instances.datasets import data_directory
from orsched.instances.readers import cells, read
from orsched.instances.readers.table import read_table
from orsched.memory import BlockMemory
from orsched.policy import Information
from orsched.request_times import request_times
from orsched.simulator import simulate_policy
from orsched.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orsched.costs import CostModel, ProfiledCost
    from orsched.requests import Requests
    from orsched.schedule import Schedule

FITTED = 150
"""Requests whose times the fits may see: the first ones to arrive."""

BUDGET = 2048
"""max_num_batched_tokens of both servers; otherwise vLLM's defaults: mixed steps, chunked prefill,
first come first served, a whole prompt must fit."""

BLOCK_TOKENS = 16
CACHE_TOKENS = 2588 * BLOCK_TOKENS
"""Tokens that the RTX 4090's cache holds."""

LAYERS = 32
TIMES_A_STEP = {
    "embedding": 1,
    "layernorm": 2 * LAYERS,
    "qkv_proj": LAYERS,
    "rotary_emb": LAYERS,
    "o_proj": LAYERS,
    "gate_up_proj": LAYERS,
    "act_fn": LAYERS,
    "down_proj": LAYERS,
    "final_layernorm": 1,
}
"""Kernels of a step of Llama-3.1-8B. The profile has no output layer (lm_head) and no sampler."""

MOST_PROFILED = 128
"""Requests in a round up to which attention was profiled beside prompt tokens; rows of 256, there
without prompt tokens only, are left out."""


@dataclass(frozen=True)
class Server:
    """A measured run: its files, and the server's settings."""

    name: str
    file: str
    clients: int
    blocks: int | None


RTX_4090 = Server("RTX 4090, Llama-3.1-8B", "vllm_measured_rtx4090_llama31_8b", 256, 2587)
RTX_PRO = Server("RTX PRO 6000, Qwen3-32B", "vllm_measured_rtxpro6000_qwen3_32b", 128, None)
"""Two GPUs. The log has 128 requests running whenever others wait, so memory never limits anything.
(For a later run the source states 462,144 tokens, over twice what 128 of these requests hold.)"""


@dataclass(frozen=True)
class Times:
    """Arrival, first and last token of each request in nanoseconds, and output tokens."""

    arrival: Any
    first: Any
    last: Any
    tokens: Any

    def figures(self, rows: slice = slice(None)) -> dict[str, float]:
        """Return the figures compared, in seconds, over some requests.

        The makespan is that of all requests. Percentiles are nearest rank.
        """
        ttft = np.sort((self.first - self.arrival)[rows])
        spans, tokens = (self.last - self.first)[rows], self.tokens[rows]
        found = {
            "makespan": int(self.last.max()),
            "mean TPOT": float((spans / (tokens - 1)).mean()),
            "mean TTFT": float(ttft.mean()),
            "mean JCT": float((self.last - self.arrival)[rows].mean()),
        }
        for p in (50, 90, 99):
            found[f"TTFT p{p}"] = int(ttft[-(-p * len(ttft) // 100) - 1])
        return {name: value / 1e9 for name, value in found.items()}


@dataclass(frozen=True)
class Measured:
    """A measured run, on the clock of the arrivals."""

    server: Server
    requests: Requests
    times: Times
    offset_ns: int

    @classmethod
    def load(cls, server: Server) -> Measured:
        """Read a run from the data directory.

        The clocks: ``arrival_s`` starts when the first request was sent, the others when the
        engine queued it. No request is queued before it is sent, so the engine's clock is behind
        by at least the largest ``arrival - queued``; it is taken to be exactly that, so that the
        fastest request took no time from one to the other.
        """
        path = data_directory() / f"{server.file}.csv"
        requests = read(path).requests
        columns = read_table(
            path, dict.fromkeys(("queued_s", "first_token_s", "last_token_s"), cells.seconds)
        ).columns
        arrival = requests.arrival_ns
        offset = int((arrival - columns["queued_s"]).max())
        first, last = (columns[name] + offset for name in ("first_token_s", "last_token_s"))
        return cls(server, requests, Times(arrival, first, last, requests.output_tokens), offset)

    def instance(self, cost: CostModel) -> Instance:
        """Return the run as an instance with this cost model."""
        blocks = self.server.blocks
        memory = None if blocks is None else BlockMemory(blocks, BLOCK_TOKENS, "paged")
        worker = Worker(self.server.clients, cost, None, memory)
        return Instance(self.requests, (worker,), first_token="prefill")

    def simulate(self, cost: CostModel) -> tuple[Instance, Schedule, Times]:
        """Run vLLM's rules on it; no lengths are known."""
        instance = self.instance(cost)
        parameters = {"max_num_batched_tokens": BUDGET}
        policy, _ = VLLM.build(instance, Information.NONE, parameters, seed=0)
        schedule = simulate_policy(instance, policy).schedule
        found = request_times(instance, schedule)
        tokens, arrival = self.requests.output_tokens, self.requests.arrival_ns
        times = Times(arrival, found["first_token_ns"], found["finish_ns"], tokens)
        return instance, schedule, times


def kernel_profile(fixed_ns: int = 0) -> ProfiledCost:
    """Return the profiled cost model of the RTX 4090's kernels."""
    dense, attention = kernel_rows()
    return from_kernels(
        dense, attention, times_a_step=TIMES_A_STEP, layers=LAYERS, fixed_ns=fixed_ns
    )


def kernel_rows() -> tuple[list[tuple[str, int, int]], list[AttentionRow]]:
    """Return the rows of dense kernels and of one layer's attention that the cost is made of."""
    names = [
        data_directory() / f"kernel_profile_rtx4090_llama31_8b_{part}.csv"
        for part in ("dense", "attention")
    ]
    dense = read_table(
        names[0], {"layer": cells.names, "tokens": cells.whole_numbers, "time_us": picoseconds}
    ).columns
    axes = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    attention = _columns(names[1], axes)
    columns = (dense["layer"], dense["tokens"].tolist(), dense["time_us"].tolist())
    return (
        list(zip(*columns, strict=True)),
        [row for row in attention if row[2] <= MOST_PROFILED],
    )


def _columns(path: Path, axes: Sequence[str]) -> list[Any]:
    table = read_table(path, dict.fromkeys(axes, cells.whole_numbers) | {"time_us": picoseconds})
    return list(zip(*(table.columns[name].tolist() for name in (*axes, "time_us")), strict=True))


def picoseconds(texts: Sequence[str]) -> Any:
    """Read microseconds as whole picoseconds: decimals are kept exactly."""
    return cells.seconds([f"{text.strip()}e-3" for text in texts])


def decimals(texts: Sequence[str]) -> Any:
    """Read decimal numbers that are only compared, not added up."""
    return cells.seconds(texts) / 1e9


def timeline(server: Server) -> Any:
    """Return the server's own log, one row a second."""
    names = ("running", "waiting", "prompt_throughput", "gen_throughput", "kv_cache_pct")
    path = data_directory() / f"{server.file}_timeline.csv"
    return read_table(path, dict.fromkeys(names, decimals)).columns
