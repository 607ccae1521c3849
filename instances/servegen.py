"""ServeGen's tables of rates and lengths as a mix of sources."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.files.cells import CellError, whole_numbers
from orsched.files.tables import read_table
from orsched.instances.dataset_table import DATA_SETS
from orsched.instances.source_mix import Lengths, LengthWindow, Source, SourceMix, Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orsched.instances.source_mix import Floats

SERVEGEN = ("m_small", "m_mid", "m_large", "deepseek_r1", "mm_image")
"""Mixes of ServeGen: two as tables condensed from its files, all of them as its own files."""

_QUANTILES = ("q01", "q05", *(f"q{p}" for p in range(10, 100, 10)), "q95", "q99")
LEAST_SHAPE = {"Gamma": 0.0025, "Weibull": 0.2}
"""Smallest shapes that are drawn (CV 20 and 16): smaller ones are fits to a few gaps."""


@lru_cache(maxsize=4)
def read_servegen(name: str, rates: Path, lengths: Path) -> SourceMix:
    """Return the mix in a table of rates and one of lengths, condensed from ServeGen's files.

    Raises:
        InputError: orsched knows no mix of this name, or a cell is wrong.
    """
    if name not in SERVEGEN:
        raise InputError(
            f"there is no mix {name!r} of ServeGen",
            field="mix",
            remedy=known_names(name, SERVEGEN),
        )
    return mix_of(name, _windows(rates), _laws(lengths), lengths)


def mix_of(
    name: str,
    windows: Mapping[str, Sequence[Window]],
    laws: Mapping[str, Sequence[LengthWindow]],
    where: Path,
) -> SourceMix:
    """Return the mix of these sources, named by numbers, in their order.

    Sources without laws of lengths get the mean of the others', weighted by traffic. Raises
    ``InputError``, which names ``where``, if none has any.
    """
    if not laws:
        raise InputError(
            "no source has both lengths",
            file=str(where),
            field="field",
            remedy="laws of input_tokens and output_tokens for one source at least",
        )
    traffic = {client: sum(window.rate for window in rows) for client, rows in windows.items()}
    weighted = [
        (law, traffic.get(client, 0.0) / len(rows)) for client, rows in laws.items() for law in rows
    ]
    if not any(weight for _, weight in weighted):
        weighted = [(law, 1.0) for law, _ in weighted]
    pooled = _pooled(*zip(*weighted, strict=True))
    entry = DATA_SETS["servegen_m_small_rates"]  # one origin and licence for all of ServeGen
    return SourceMix(
        name,
        tuple(
            Source(client, tuple(windows[client]), tuple(laws.get(client, [pooled])))
            for client in sorted(windows, key=int)
        ),
        entry.attribution,
        entry.licence,
    )


def _windows(path: Path) -> dict[str, list[Window]]:
    """Return the windows of each client, in the order of time."""
    table = read_table(
        path,
        {
            "client": whole_numbers,
            "window_start_s": whole_numbers,
            "rate_rps": _floats,
            "family": _families,
            "param1": _floats,
        },
    )
    found: dict[str, list[Window]] = {}
    columns = (
        table.columns[n].tolist() for n in ("client", "window_start_s", "rate_rps", "param1")
    )
    rows = zip(*columns, table.columns["family"], strict=True)
    for client, start, rate, shape, family in rows:
        drawn = max(shape, LEAST_SHAPE[family])
        found.setdefault(str(client), []).append(Window(start, rate, family, drawn))
    return {client: sorted(rows) for client, rows in found.items()}


def _laws(path: Path) -> dict[str, list[LengthWindow]]:
    """Return the laws of lengths of each client, in the order of time."""
    numbers = dict.fromkeys(("mean", *_QUANTILES, "max"), _floats)
    table = read_table(
        path, {"client": whole_numbers, "window_start_s": whole_numbers, "field": list, **numbers}
    )
    values = np.column_stack([table.columns[name] for name in numbers]).tolist()
    keys = zip(
        table.columns["client"].tolist(), table.columns["window_start_s"].tolist(), strict=True
    )
    found: dict[tuple[str, int], dict[str, Lengths]] = {}
    for (client, start), field, row in zip(keys, table.columns["field"], values, strict=True):
        law = Lengths(tuple(row[1:-1]), row[-1], row[0])
        found.setdefault((str(client), start), {})[field] = law
    laws: dict[str, list[LengthWindow]] = {}
    for (client, start), both in sorted(found.items()):
        if {"input_tokens", "output_tokens"} <= both.keys():
            window = LengthWindow(start, both["input_tokens"], both["output_tokens"])
            laws.setdefault(client, []).append(window)
    return laws


def _pooled(laws: Sequence[LengthWindow], weights: Sequence[float]) -> LengthWindow:
    """Return the law whose quantiles and mean are the weighted means of those of others."""

    def mean(which: str) -> Lengths:
        each = [getattr(law, which) for law in laws]
        rows = [[*law.quantiles, law.largest, law.mean] for law in each]
        *quantiles, largest, average = np.average(rows, axis=0, weights=weights).tolist()
        return Lengths(tuple(quantiles), largest, average)

    return LengthWindow(0, mean("prompt"), mean("output"))


def _floats(cells: Sequence[str]) -> Floats:
    """Read numbers above 0."""
    values = np.empty(len(cells))
    for index, cell in enumerate(cells):
        try:
            values[index] = float(cell)
        except ValueError:
            raise CellError(index, f"{cell!r:.40} is not a number") from None
        if not 0 < values[index] < math.inf:
            raise CellError(index, f"{cell!r:.40} is not a finite number above 0")
    return values


def _families(cells: Sequence[str]) -> list[str]:
    for index, cell in enumerate(cells):
        if cell not in LEAST_SHAPE:
            raise CellError(index, f"{cell!r:.40} is not a family of gaps", "Gamma or Weibull")
    return list(cells)
