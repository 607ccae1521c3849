"""TTFT of single long prompts in chunks, beside sums of the tables: with contexts and without.

python -m benchmarks.reproductions.prompt_length [--synthetic]

The measured tables are the kernels of an RTX 4090 with Llama-3.1-8B (``ORSCHED_DATA``); they end at
16,384 cached tokens, so that beyond prompts of 18,432 tokens both sides go on along the same line.
The synthetic ones are a formula with noise at the points of a grid up to 131,072 cached tokens, and
need no data. Sums are made here, from rows of the tables, without ``ProfiledCost``.
"""

from __future__ import annotations

import argparse
import random
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.reproductions import fidelity_setting
from benchmarks.speed.section import table
from orsched.checker import check
from orsched.costs import ProfiledCost
from orsched.costs.profiled_kernels import from_kernels
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.continuous.async_scheduling import VLLM
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPTS = (8_192, 16_384, 32_768, 65_536, 131_072)
BUDGET = 2048
"""Tokens of a chunk: max_num_batched_tokens of the measured servers."""

MOST_ERROR = 0.03
"""How far the TTFT may be from the sum of the tables."""

SYNTHETIC_LAYERS = 32
SYNTHETIC_SEED = 0


class Tables(NamedTuple):
    """Times of one layer's attention and of all dense layers, as profilers list them.

    Attributes:
        name: what they are of.
        dense: (kernel, tokens, picoseconds); kernel ``all``.
        attention: ``AttentionRow`` without a round, and enough with one for the other table.
        layers: of the model.
    """

    name: str
    dense: list[tuple[str, int, int]]
    attention: list[tuple[int, int, int, int, int]]
    layers: int

    def cost(self) -> ProfiledCost:
        """Return the cost model of the tables."""
        return from_kernels(self.dense, self.attention, times_a_step={"all": 1}, layers=self.layers)

    def summed_s(self, prompt: int) -> float:
        """Return the time of a prompt in chunks, row by row of the tables.

        Straight lines between rows; beyond the last one, through it and that of half of it.
        """
        sizes, times = np.array([(tokens, time) for _, tokens, time in self.dense], float).T
        alone = {(c, k): time for c, k, n, _, time in self.attention if n == 0}
        lines = {
            c: np.array(sorted((k, t) for (chunk, k), t in alone.items() if chunk == c), float).T
            for c in {chunk for chunk, _ in alone}
        }
        total = 0.0
        for cached in range(0, prompt, BUDGET):
            chunk = min(BUDGET, prompt - cached)
            contexts, of_chunk = lines[chunk]
            total += float(np.interp(chunk, sizes, times))
            total += self.layers * _on_the_line(contexts, of_chunk, cached)
        return total / 1e12


def _on_the_line(points: Any, times: Any, at: int) -> float:
    last = points[-1]
    if at <= last:
        return float(np.interp(at, points, times))
    half = int(np.searchsorted(points, last / 2, side="right")) - 1
    slope = max(0.0, (times[-1] - times[half]) / (last - points[half]))
    return float(times[-1] + slope * (at - last))


class WithoutContexts(ProfiledCost):
    """The same model before the protocol knew contexts: each chunk is its prompt's first."""

    def prefill_ns(self, prompts: Sequence[int]) -> int:  # type: ignore[override]
        """Time of a stage whose chunks have nothing before them."""
        return super().prefill_ns(prompts)

    def mixed_ns(  # type: ignore[override]
        self, prompts: Sequence[int], active: int, context_sum: int, context_max: int
    ) -> int:
        """Time of a step whose chunks have nothing before them."""
        return super().mixed_ns(prompts, active, context_sum, context_max)


def measured_tables() -> Tables:
    """Return the kernels of the RTX 4090, dense ones added up."""
    dense, attention = fidelity_setting.kernel_rows()
    sums: dict[int, int] = {}
    for kernel, tokens, time in dense:
        sums[tokens] = sums.get(tokens, 0) + time * fidelity_setting.TIMES_A_STEP[kernel]
    rows = [("all", tokens, time) for tokens, time in sorted(sums.items())]
    return Tables("RTX 4090, Llama-3.1-8B", rows, attention, fidelity_setting.LAYERS)


def synthetic_tables() -> Tables:
    """Return tables of a made-up device up to 131,072 cached tokens, with 2 % of noise.

    Dense layers: 8 billion parameters at 300 teraflop/s, but at least 5 ms. Attention of a layer:
    10 us, and 4 x 4,096 operations for each attended token at 150 teraflop/s; a round reads 4 KiB
    for each token of context at 2 TB/s.
    """
    rng = random.Random(SYNTHETIC_SEED)
    sizes = [2**k for k in range(12)]
    contexts = [0, *(2**k for k in range(10, 18))]
    dense = [("all", x, _noisy(rng, max(5e9, 2 * 8e9 * x / 300e12 * 1e12))) for x in sizes]
    rows = []
    for chunk, cached in product(sizes[4:], contexts):
        attended = chunk * cached + chunk * (chunk + 1) / 2
        rows.append((chunk, cached, 0, 0, _noisy(rng, 1e7 + 4 * 4096 * attended / 150)))
    for batch, context in product((1, 256), contexts):
        rows.append((0, 0, batch, context, _noisy(rng, 1e7 + batch * context * 4096 / 2)))
    return Tables("synthetic", dense, rows, SYNTHETIC_LAYERS)


def _noisy(rng: random.Random, picoseconds: float) -> int:
    return round(picoseconds * rng.uniform(0.98, 1.02))


def ttft_s(cost: ProfiledCost, prompt: int) -> float:
    """Return the TTFT of one prompt in chunks; the checker accepts the schedule."""
    instance = Instance(Requests([prompt], [1]), Worker(1, cost), "prefill")
    policy, _ = VLLM.build(instance, Information.NONE, {"max_num_batched_tokens": BUDGET}, 0)
    schedule = simulate_policy(instance, policy).schedule
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    return schedule.makespan_ns / 1e9


def rows_of(tables: Tables) -> list[dict[str, Any]]:
    """Return one row a prompt: sum of the tables, simulated, and the errors."""
    cost = tables.cost()
    plain = WithoutContexts(
        fixed_ns=cost.fixed_ns, dense=cost.dense, prefill=cost.prefill, decode=cost.decode
    )
    rows = []
    for prompt in PROMPTS:
        summed = tables.summed_s(prompt)
        found, before = ttft_s(cost, prompt), ttft_s(plain, prompt)
        rows.append({
            "prompt tokens": f"{prompt:,}",
            "tables s": f"{summed:.3f}",
            "simulated s": f"{found:.3f}",
            "error %": f"{100 * (found / summed - 1):+.2f}",
            "without contexts s": f"{before:.3f}",
            "its error %": f"{100 * (before / summed - 1):+.1f}",
        })  # fmt: skip
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table for each set of tables."""
    parser = argparse.ArgumentParser(prog="prompt_length", description=__doc__.splitlines()[0])
    parser.add_argument("--synthetic", action="store_true", help="without the measured tables")
    given = parser.parse_args(arguments)
    for tables in ([] if given.synthetic else [measured_tables()]) + [synthetic_tables()]:
        print(f"\n{tables.name}: chunks of {BUDGET:,} tokens\n")
        print("\n".join(table(rows_of(tables))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
