"""Kernel tables as AIConfigurator publishes them, as the rows of a profile."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError, known_names
from orsched.costs.profiled_grid import Grid
from orsched.files import cells
from orsched.files.parquet import frame_of
from orsched.files.tables import chosen, table_of_frame

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from orsched.calibration.profile_tables import KernelRow
    from orsched.calibration.shapes import ModelShape
    from orsched.costs.profiled_kernels import AttentionRow

GEMM, CONTEXT = "*gemm_perf.parquet", "*context_attention_perf.parquet"
GENERATION, REDUCE = "*generation_attention_perf.parquet", "*custom_allreduce_perf.parquet"
"""Patterns of the files in a folder."""
_PS = 10**9  # picoseconds in a millisecond, the unit of the tables
_TYPES = {"bf16": "bfloat16", "fp8": "fp8", "int8": "int8", "fp4": "nvfp4"}
_picoseconds = partial(cells.seconds, unit_ns=_PS, remedy="give milliseconds, 0 or more")
_BEHIND = (256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)
"""Tokens cached before a chunk at which its attention is derived."""


def published_file(folder: Path, pattern: str, *, needed: bool = False) -> Path | None:
    """Return the one file of a pattern in a folder; None: not there. Raises ``InputError``."""
    found = sorted(folder.glob(pattern))
    if len(found) > 1:
        raise InputError(
            f"holds {len(found)} tables {pattern}", file=str(folder), remedy="one device a folder"
        )
    if needed and not found:
        raise InputError("is not there", file=str(folder / pattern), remedy="add the table")
    return found[0] if found else None


class Products(NamedTuple):
    """Times of matrix products of one type, m x k times k x n; all but m as logarithms."""

    m: list[int]
    n: NDArray[np.float64]
    k: NDArray[np.float64]
    times: NDArray[np.float64]  # by m, n and k; infinite: not measured

    def row(self, m: int, n: int, k: int) -> int:
        """Return picoseconds: the plane through four points of the grid, all in logarithms."""
        spots = []
        for axis, value in ((self.n, np.log(n)), (self.k, np.log(k))):
            low = min(max(int(np.searchsorted(axis, value, "right")) - 1, 0), len(axis) - 2)
            spots.append((low, (value - axis[low]) / (axis[low + 1] - axis[low])))
        (i, a), (j, b) = spots
        four = self.times[self.m.index(m)][i : i + 2, j : j + 2]
        weights = np.outer((1 - a, a), (1 - b, b))
        value = float((four * weights)[weights != 0].sum())
        if not np.isfinite(value):
            problem = f"no time of {m} x {k} times {k} x {n}"
            raise InputError(problem, field="latency", remedy="add it")
        return round(float(np.exp(value)))


def products(path: Path, kept: str) -> Products:
    """Read the products of a type; of several kernels the fastest. Raises ``InputError``."""
    columns = _columns(path, ("m", "n", "k"), ("gemm_dtype",))
    there, name = np.array(columns["gemm_dtype"], object), _TYPES.get(kept, kept)
    if name not in there:
        names = known_names(name, sorted(set(there.tolist())), "--weights of those: ")
        problem = f"has no products of the type {name!r}"
        raise InputError(problem, file=str(path), field="gemm_dtype", remedy=names)
    rows = there == name
    found = [np.unique(columns[axis][rows], return_inverse=True) for axis in ("m", "n", "k")]
    (m, _), (n, _), (k, _) = found
    if min(len(n), len(k)) < 2:
        raise InputError("has one size alone", file=str(path), field="n", remedy="two at least")
    times = np.full((len(m), len(n), len(k)), np.inf)
    np.minimum.at(times, tuple(place for _, place in found), columns["latency"][rows])
    with np.errstate(divide="ignore"):
        return Products(m.tolist(), np.log(n), np.log(k), np.log(times))


def product_rows(path: Path, shape: ModelShape, tp: int) -> tuple[list[KernelRow], list[KernelRow]]:
    """Return the products of a layer by tokens, and of the output layer by sequences."""
    size, hidden, ffn = shape.head_size, shape.hidden, -(-shape.ffn // tp)
    heads, keys = _heads(shape, tp)
    around, between = shape.formats.attention.product, shape.formats.ffn.product
    sizes = {
        "qkv_proj": (around, (heads + 2 * keys) * size, hidden),
        "o_proj": (around, hidden, heads * size),
        "gate_up_proj": (between, 2 * ffn, hidden),
        "down_proj": (between, hidden, ffn),
        "lm_head": ("bf16", -(-shape.vocabulary // tp), hidden),
    }
    tables = {kept: products(path, kept) for kept in {kept for kept, _, _ in sizes.values()}}
    rows = [
        (kernel, m, tables[kept].row(m, n, k))
        for kernel, (kept, n, k) in sizes.items()
        for m in tables[kept].m
    ]
    last = len(tables["bf16"].m)
    return rows[:-last], rows[-last:]


def _heads(shape: ModelShape, tp: int) -> tuple[int, int]:
    """Return the heads of queries and of keys on a GPU."""
    return -(-shape.heads // tp), max(1, -(-shape.kv_heads // tp))


def attention_of(context: Path, generation: Path, shape: ModelShape, tp: int) -> list[AttentionRow]:
    """Return the attention of one layer: of chunks, and of rounds by requests and context.

    The tables have prompts without cached tokens. A chunk of c tokens behind k cached ones takes
    what c + k tokens take more than k: the work of causal attention, exactly.
    """
    alone = _attention(context, shape, tp, ("batch_size", "isl"))
    prompts = {size: time for (batch, size), time in alone.items() if batch == 1}
    points = sorted(prompts)
    line = Grid(("tokens",), (tuple(points),), tuple(prompts[size] for size in points))
    rows: list[AttentionRow] = [(chunk, 0, 0, 0, prompts[chunk]) for chunk in points]
    rows += [
        (chunk, before, 0, 0, max(prompts[chunk], round(line.at(chunk + before) - line.at(before))))
        for chunk in points
        for before in _BEHIND
        if chunk + before <= points[-1]
    ]
    rounds = _attention(generation, shape, tp, ("batch_size", "step"))
    rows += [(0, 0, batch, step + 1, time) for (batch, step), time in rounds.items()]
    return rows


def _attention(
    path: Path, shape: ModelShape, tp: int, by: tuple[str, str]
) -> dict[tuple[int, ...], int]:
    """Return picoseconds by two columns, of the rows with the heads and caches of a model."""
    names = ("num_heads", "num_key_value_heads", "head_dim", "window_size")
    wanted = dict(zip(names, (*_heads(shape, tp), shape.head_size, 0), strict=True))
    columns = _columns(path, (*names, *by), ("kv_cache_dtype",))
    kept = "fp8" if shape.formats.cache_bits == 8 else "bfloat16"
    rows = np.array(columns["kv_cache_dtype"], object) == kept
    for name, value in wanted.items():
        rows &= columns[name] == value
    if not rows.any():
        said = ", ".join(f"{name} {value}" for name, value in wanted.items())
        raise InputError(
            f"has no rows of {said}, kv_cache_dtype {kept}",
            file=str(path),
            field="num_heads",
            remedy="another --tp or --kv, or a model whose heads were measured",
        )
    return _fastest(columns, rows, by)


def _fastest(
    columns: Mapping[str, Any], rows: NDArray[np.bool_], by: tuple[str, ...]
) -> dict[tuple[int, ...], int]:
    found: dict[tuple[int, ...], int] = {}
    chosen_rows = (columns[name][rows].tolist() for name in (*by, "latency"))
    for *place, time in zip(*chosen_rows, strict=True):
        found[*place,] = min(found.get((*place,), time), time)
    return found


def reduce_points(path: Path, tp: int) -> dict[int, int]:
    """Return picoseconds of all-reduce by bytes, on a number of GPUs, the fastest of its kinds."""
    columns = _columns(path, ("num_gpus", "message_size"), ())
    rows = columns["num_gpus"] == tp
    if not rows.any():
        there = sorted(set(columns["num_gpus"].tolist()))
        raise InputError(
            f"has no times on {tp} GPUs, but {', '.join(map(str, there))}",
            file=str(path),
            field="num_gpus",
            remedy="--tp of those",
        )
    found = _fastest(columns, rows, ("message_size",))
    return {size: time for (size,), time in found.items()}


def _columns(path: Path, numbers: tuple[str, ...], texts: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the columns of a table, numbers as arrays; ``InputError`` names what is wrong."""
    parsers: dict[str, Any] = dict.fromkeys(numbers, cells.whole_numbers)
    parsers |= dict.fromkeys(texts, cells.names) | {"latency": _picoseconds}
    try:
        frame = frame_of(path)
    except InputError as error:
        raise error.located(file=str(path)) from None
    return table_of_frame(frame, lambda header: chosen(header, parsers, {}), path).columns
