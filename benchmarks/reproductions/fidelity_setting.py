"""The measured runs of fidelity.py: the data, the servers' settings and the models' shapes.

Settings are those that the source (casys-kaist/LLMServingSim, MIT) recorded beside its runs, not
chosen here. vLLM keeps one block of its cache for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.calibration import MODELS, MeasuredRun, ModelShape, Server, read_run
from orsched.calibration.profile_tables import picoseconds
from orsched.costs.profiled_kernels import AttentionRow, from_kernels
from orsched.files import cells
from orsched.files.tables import read_table
from orsched.instances.datasets import data_directory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orsched.costs import ProfiledCost

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


@dataclass(frozen=True)
class Recorded:
    """A measured run: its files, the server's settings and the shape of its model."""

    name: str
    file: str
    server: Server
    shape: ModelShape

    def read(self) -> MeasuredRun:
        """Read the run from the data directory."""
        return read_run(data_directory() / f"{self.file}.csv")


QWEN3_32B = ModelShape(
    "qwen3-32b", "Qwen3 32B", 64, 5120, 64, 8, 25_600, 151_936, 128, source="config.json"
)

RTX_4090 = Recorded(
    "RTX 4090, Llama-3.1-8B",
    "vllm_measured_rtx4090_llama31_8b",
    Server(256, 2587, BLOCK_TOKENS, BUDGET),
    MODELS["llama3-8b"],
)
RTX_PRO = Recorded(
    "RTX PRO 6000, Qwen3-32B",
    "vllm_measured_rtxpro6000_qwen3_32b",
    Server(128, None, BLOCK_TOKENS, BUDGET),
    QWEN3_32B,
)
"""Two GPUs. The log has 128 requests running whenever others wait, so memory never limits anything.
(For a later run the source states 462,144 tokens, over twice what 128 of these requests hold.)"""

RECORDED = (RTX_4090, RTX_PRO)


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
        attention,
    )


def _columns(path: Path, axes: Sequence[str]) -> list[Any]:
    table = read_table(path, dict.fromkeys(axes, cells.whole_numbers) | {"time_us": picoseconds})
    return list(zip(*(table.columns[name].tolist() for name in (*axes, "time_us")), strict=True))
