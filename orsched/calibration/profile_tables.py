"""The rows of a profile's tables: kernels, attention, experts and all-reduce."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.costs.profiled_grid import Grid
from orsched.files import cells
from orsched.files.tables import parsed, read_chosen, read_table
from orsched.files.text import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orsched.costs.profiled_kernels import AttentionRow

KernelRow = tuple[str, int, int]  # kernel, tokens or sequences, picoseconds
_PICOSECONDS = 10**6  # of a microsecond
_SHARE = 10**6  # experts that are activated on average are counted in millionths

_EXACT_BITS = 2**22
"""Bits of a power up to which it is computed exactly: more take minutes, and then all memory."""


picoseconds = partial(cells.seconds, unit_ns=_PICOSECONDS, remedy="give microseconds, 0 or more")
"""Reads microseconds as whole picoseconds: decimals are kept exactly."""


def kernel_rows(path: Path, axis: str) -> list[KernelRow]:
    """Read a table of kernels with the columns ``layer``, ``axis`` and ``time_us``."""
    parsers: dict[str, Any] = {
        "layer": cells.names,
        axis: cells.whole_numbers,
        "time_us": picoseconds,
    }
    table = read_table(path, parsers)
    columns = table.columns
    found: list[KernelRow] = []
    seen: dict[tuple[str, int], int] = {}
    rows = zip(columns["layer"], columns[axis].tolist(), columns["time_us"].tolist(), strict=True)
    for line, (layer, size, time) in zip(table.lines.tolist(), rows, strict=True):
        _once(path, line, seen, (layer, size), f"{layer} at {size} {axis}", "layer")
        found.append((layer, size, time))
    return found


def attention_rows(path: Path) -> list[AttentionRow]:
    """Read a table of attention: of one layer, all kernels of it added up.

    The tokens cached before the prompt tokens are ``kv_prefill``; in newer tables they follow from
    ``prefill_key``, the mean number of keys that a prompt token sees: they are ``prefill_key`` less
    half of ``prefill_chunk``, rounded down. Rows of several query tokens a request
    (``decode_q_len`` over 1, for speculation) are left out; so is a combination that one of several
    kernels was not measured at. Raises ``InputError``: a column is missing or a cell is wrong, a
    row appears twice, or a key length that no prompt of this size has.
    """
    table = read_chosen(path, lambda header: _attention_columns(path, header))
    columns = {name: list(values) for name, values in table.columns.items()}
    kernels = columns.get("layer", [""] * len(table))
    queries = columns.get("decode_q_len", [1] * len(table))
    newer = "prefill_key" in columns
    before = columns["prefill_key" if newer else "kv_prefill"]
    times: dict[str, dict[tuple[int, ...], int]] = {}
    seen: dict[tuple[object, ...], int] = {}
    for row, line in enumerate(table.lines.tolist()):
        if queries[row] != 1:
            continue
        chunk, batch = int(columns["prefill_chunk"][row]), int(columns["n_decode"][row])
        cached = int(before[row])
        if newer:
            if chunk and 2 * cached < chunk:
                raise InputError(
                    f"{cached} keys on average: {chunk} tokens see {-(-chunk // 2)} at least",
                    file=str(path),
                    row=line,
                    field="prefill_key",
                    remedy="name the column kv_prefill if it counts cached tokens",
                )
            cached = (2 * cached - chunk) // 2 if chunk else 0
        context = int(columns["kv_decode"][row]) if batch else 0
        place = (chunk, cached, batch, context)
        _once(path, line, seen, (kernels[row], *place), "this combination", "prefill_chunk")
        times.setdefault(kernels[row], {})[place] = int(columns["time_us"][row])
    first, *others = times.values() if times else ({},)
    shared = [place for place in first if all(place in other for other in others)]
    rows = ((*place, sum(each[place] for each in times.values())) for place in shared)
    return list(rows)  # type: ignore[arg-type]


def _attention_columns(path: Path, header: list[str]) -> Mapping[str, Any]:
    needed = ["prefill_chunk", "n_decode", "kv_decode"]
    needed.append("kv_prefill" if "kv_prefill" in header else "prefill_key")
    for name in (*needed, "time_us"):
        if name not in header:
            raise InputError(
                f"unknown column '{name}'",
                file=str(path),
                row=1,
                field=name,
                remedy="prefill_chunk, prefill_key (or kv_prefill), n_decode, kv_decode, time_us",
            )
    chosen: dict[str, Any] = dict.fromkeys(needed, cells.whole_numbers)
    chosen |= {"decode_q_len": cells.whole_numbers} if "decode_q_len" in header else {}
    chosen |= {"layer": cells.names} if "layer" in header else {}
    return chosen | {"time_us": picoseconds}


def expert_rows(path: Path, expert_parallel: int, activated: int | None) -> list[KernelRow]:
    """Read a table of a mixture of experts, as times of the kernel ``moe`` by tokens.

    Which experts a token goes to is not known. By default each goes to its k experts at random, so
    that of E experts ``E (1 - (1 - k/E)^tokens)`` are activated on average; k is what one token
    activates in the table, E the most there are. ``activated`` takes a fixed number instead, or as
    many as the tokens can reach.
    """
    parsers: dict[str, Any] = {
        "tokens": cells.whole_numbers,
        "activated_experts": cells.whole_numbers,
    }
    table = read_table(path, parsers | {"time_us": picoseconds}, {"ep": cells.whole_numbers})
    columns = table.columns
    degrees = columns["ep"].tolist() if "ep" in columns else [1] * len(table)
    rows: dict[int, dict[int, int]] = {}
    seen: dict[tuple[int, int], int] = {}
    values = (columns[name].tolist() for name in ("tokens", "activated_experts", "time_us"))
    for line, degree, tokens, experts, time in zip(
        table.lines.tolist(), degrees, *values, strict=True
    ):
        if degree == expert_parallel:
            what = f"{experts} experts at {tokens} tokens"
            _once(path, line, seen, (tokens, experts), what, "activated_experts")
            rows.setdefault(tokens, {})[experts] = time
    if not rows:
        there = ", ".join(map(str, sorted(set(degrees)))) or "none"
        raise InputError(
            f"has no rows of ep {expert_parallel}, but {there}",
            file=str(path),
            field="ep",
            remedy="--ep of those",
        )
    one, most = min(rows[min(rows)]), max(max(times) for times in rows.values())
    found = []
    for tokens, times in sorted(rows.items()):
        line = Grid(("experts",), (tuple(sorted(times)),), tuple(times[e] for e in sorted(times)))
        count = _activated(tokens, one, most, activated)
        inside = min(max(count, Fraction(min(times))), Fraction(max(times)))
        found.append(("moe", tokens, round(line.at(inside))))
    return found


def _activated(tokens: int, one: int, most: int, fixed: int | None) -> Fraction:
    """Return how many experts so many tokens activate, in millionths."""
    if fixed is not None:
        return Fraction(fixed)
    if not most or one >= most:
        return Fraction(most)
    if tokens * most.bit_length() > _EXACT_BITS:
        spared = Fraction(math.exp(tokens * math.log1p(-one / most)))
    else:
        spared = Fraction(most - one, most) ** tokens
    return Fraction(round(most * (1 - spared) * _SHARE), _SHARE)


def all_reduce_points(path: Path) -> tuple[str, dict[int, int]]:
    """Return by what all-reduce times go, and picoseconds by it.

    ``path`` is a table with ``time_us`` by ``tokens`` or by ``bytes``, or LLMServingSim's
    ``hardware.yaml`` with samples by bytes. Raises ``InputError`` without such times.
    """
    return ("bytes", _samples(path)) if path.suffix == ".yaml" else _all_reduce_table(path)


def all_reduce_rows(
    path: Path, by: str, points: dict[int, int], tokens: Sequence[int], token_bytes: int | None
) -> list[KernelRow]:
    """Return all-reduce times as those of the kernel ``all_reduce`` at these numbers of tokens.

    By bytes, a token has ``token_bytes`` of them; ``InputError`` where they are not known.
    """
    if by == "bytes" and token_bytes is None:
        raise InputError(
            "all-reduce times go by bytes, and the hidden size is not known",
            file=str(path),
            field="hidden",
            remedy="--hidden N, or --config with the model's config.json",
        )
    line = Grid((by,), (tuple(sorted(points)),), tuple(points[size] for size in sorted(points)))
    scale = 1 if by == "tokens" else token_bytes or 1
    return [("all_reduce", size, round(line.at(size * scale))) for size in tokens]


def _all_reduce_table(path: Path) -> tuple[str, dict[int, int]]:
    whole = cells.whole_numbers
    table = read_table(path, {"time_us": picoseconds}, {"tokens": whole, "bytes": whole})
    by = next((name for name in ("tokens", "bytes") if name in table.columns), None)
    if by is None:
        raise InputError(
            "neither a column 'tokens' nor 'bytes' exists",
            file=str(path),
            row=1,
            field="tokens",
            remedy="tokens,time_us or bytes,time_us",
        )
    found: dict[int, int] = {}
    seen: dict[tuple[int], int] = {}
    sizes, times = table.columns[by].tolist(), table.columns["time_us"].tolist()
    for line, size, time in zip(table.lines.tolist(), sizes, times, strict=True):
        _once(path, line, seen, (size,), f"{size} {by}", by)
        found[size] = time
    return by, found


_COLLECTIVE = re.compile(r"^\s*-\s*collective:\s*(\S+)")
_SAMPLE = re.compile(r"^\s*(?:-\s*)?(bytes|us):\s*([0-9.eE+-]+)\s*$")
_LIST = re.compile(r"^\s*samples:\s*$")


def _samples(path: Path) -> dict[int, int]:
    """Return bytes and picoseconds of all-reduce samples; reads nothing else of the YAML."""
    kind, size, inside = "all_reduce", None, False
    found: dict[int, int] = {}
    seen: dict[int, int] = {}
    for row, line in enumerate(read_text(path).splitlines(), 1):
        inside = inside or bool(_LIST.match(line))
        if match := _COLLECTIVE.match(line):
            kind, size = match[1], None
        elif inside and (match := _SAMPLE.match(line)):
            if kind != "all_reduce":
                continue
            if match[1] == "bytes":
                size = _cell(cells.whole_numbers, match[2], path, row, "bytes")
            elif size is not None:
                time = _cell(picoseconds, match[2], path, row, "us")
                if found.get(size, time) != time:
                    _once(path, row, seen, size, f"{size} bytes", "us")
                found[size] = time
                seen.setdefault(size, row)
    if not found:
        raise InputError(
            "has no samples of all-reduce",
            file=str(path),
            field="samples",
            remedy="put all_reduce.csv with bytes,time_us beside dense.csv",
        )
    return found


def _cell(parse: Any, text: str, path: Path, row: int, field: str) -> int:
    try:
        return int(parsed(parse, [text], [row], field)[0])
    except InputError as error:
        raise error.located(file=str(path)) from None


def _once(path: Path, line: int, seen: dict[Any, int], key: Any, what: str, field: str) -> None:
    if key in seen:
        raise InputError(
            f"{what} appears twice, first in row {seen[key]}",
            file=str(path),
            row=line,
            field=field,
            remedy="keep one",
        )
    seen[key] = line
