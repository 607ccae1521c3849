"""ServeGen's clients as a mix of sources: from its files, or tables condensed from them."""

from __future__ import annotations

import csv
import json
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from orsched.common.errors import InputError, known_names
from orsched.files.cells import CellError, whole_numbers
from orsched.files.tables import read_table
from orsched.files.text import open_text
from orsched.instances.datasets import DATA_SETS
from orsched.instances.source_mix import SHARES, Lengths, LengthWindow, Source, SourceMix, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orsched.instances.source_mix import Floats


SERVEGEN = ("m_small", "m_mid", "m_large", "deepseek_r1", "mm_image")
"""Mixes of ServeGen: two as tables condensed from its files, all of them as its own files."""

_QUANTILES = ("q01", "q05", *(f"q{p}" for p in range(10, 100, 10)), "q95", "q99")
LEAST_SHAPE = {"Gamma": 0.0025, "Weibull": 0.2}
"""Smallest shapes that are drawn (CV 20 and 16): smaller ones are fits to a few gaps."""


@lru_cache(maxsize=4)
def read_servegen(name: str, rates: Path, lengths: Path) -> SourceMix:
    """Return the known mix in tables of rates and lengths, condensed from ServeGen's files."""
    if name not in SERVEGEN:
        raise InputError(
            f"unknown mix {name!r} of ServeGen",
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


FOLDERS = {
    "m_small": "language/m-small",
    "m_mid": "language/m-mid",
    "m_large": "language/m-large",
    "deepseek_r1": "reason/deepseek-r1",
    "mm_image": "multimodal/mm-image",
}
"""Mixes of ServeGen, and their folders under its ``data``."""

PARTS = ("text_tokens", "image_tokens", "audio_tokens", "video_tokens")
"""A multimodal prompt is the sum of these, drawn independently; each counts a request's tokens."""

MOST_TOKENS = 2**24
"""Most tokens of a law: its shares are held for each number up to there."""

_PAIR = re.compile(r"\s*(\d{1,9})\s*:\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*", re.ASCII)
_CHUNK = re.compile(r"chunk-(\d+)-trace\.csv", re.ASCII)
_COLUMNS = ("window_start_s", "rate_rps", "gap_cv", "family", "param1", "param2")


def folder_of(name: str, base: Path) -> Path | None:
    """Return the folder of a mix below ``base``, which may be ServeGen's ``data`` or hold it."""
    inside = Path(FOLDERS[name])
    for start in (base, base / "data", base / "ServeGen" / "data", base / "servegen"):
        for folder in (start / inside, start / inside.name):
            if files_of(folder):
                return folder
    return None


def files_of(folder: Path) -> list[Path]:
    """Return the files of a folder in ServeGen's layout, in the order of the clients."""
    if not folder.is_dir():
        return []
    numbers = sorted(int(m[1]) for p in folder.iterdir() if (m := _CHUNK.fullmatch(p.name)))
    found = []
    for number in numbers:
        found.append(folder / f"chunk-{number}-trace.csv")
        laws = folder / f"chunk-{number}-dataset.json"
        found += [laws] if laws.is_file() else []
    return found


def read_folder(name: str, folder: Path) -> SourceMix:
    """Return the mix in a folder in ServeGen's layout; errors name file, row and field.

    Windows of lengths in which no request has a token are left out.
    """
    files = files_of(folder)
    if not files:
        raise InputError(
            "holds no chunk-N-trace.csv",
            file=str(folder),
            field="mix",
            remedy=f"a folder of ServeGen's data, such as {FOLDERS['m_mid']}",
        )
    windows: dict[str, list[Window]] = {}
    laws: dict[str, list[LengthWindow]] = {}
    for path in files:
        client = path.name.split("-")[1]
        if path.suffix == ".csv":
            windows[client] = _windows_of_client(path)
        elif found := _laws_of_client(path):
            laws[client] = found
    return mix_of(name, windows, laws, folder)


def _windows_of_client(path: Path) -> list[Window]:
    found = []
    with open_text(path) as (_, stream):
        for line, row in _rows(path, csv.reader(stream)):
            if not row:
                continue
            if len(row) != len(_COLUMNS):
                problem = f"{len(row)} fields where {len(_COLUMNS)} are expected"
                raise InputError(problem, file=str(path), row=line, remedy=", ".join(_COLUMNS))
            start, rate, _, family, shape, _ = (cell.strip() for cell in row)
            if not family:
                continue
            if family not in LEAST_SHAPE:
                _refuse(path, line, "family", f"{family!r:.40} is not a family of gaps")
            numbers = [
                _number(path, line, *pair)
                for pair in (("window_start_s", start), ("rate_rps", rate), ("param1", shape))
            ]
            if numbers[1] > 0:
                law = max(numbers[2], LEAST_SHAPE[family])
                found.append(Window(int(numbers[0]), numbers[1], family, law))
    return sorted(found)


def _rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    line = 0
    try:
        for line, row in enumerate(reader, start=1):
            yield line, row
    except csv.Error as error:
        _refuse(path, line + 1, None, f"is not a CSV table: {error}")


def _laws_of_client(path: Path) -> list[LengthWindow]:
    with open_text(path) as (_, stream):
        try:
            document = json.load(stream)
        except (ValueError, RecursionError) as error:
            _refuse(path, None, None, f"is not JSON: {error}")
    if not isinstance(document, dict):
        _refuse(path, None, None, "is not an object of windows")
    found = []
    for start, fields in document.items():
        if not re.fullmatch(r"\d{1,9}", start) or not isinstance(fields, dict):
            _refuse(path, None, str(start)[:40], "is not a window: seconds, with an object")
        prompt, output = _prompt(path, start, fields), _law(path, start, fields, "output_tokens")
        if prompt is not None and output is not None:
            found.append(LengthWindow(int(start), _condensed(prompt), _condensed(output)))
    return sorted(found, key=lambda window: window.start_s)


def _prompt(path: Path, start: str, fields: Mapping[str, Any]) -> Floats | None:
    """Return the law of a prompt's tokens, as shares by number; None for none."""
    if "input_tokens" in fields:
        return _law(path, start, fields, "input_tokens")
    parts = [
        law for part in PARTS if part in fields for law in [_shares(path, start, fields, part)]
    ]
    if not parts:
        _refuse(path, None, f"{start}/input_tokens", "the field is missing")
    if any(len(law) == 0 for law in parts):
        return None
    total = parts[0]
    for law in parts[1:]:
        size = len(total) + len(law) - 1
        waves = np.fft.rfft(total, size) * np.fft.rfft(law, size)
        total = np.maximum(np.fft.irfft(waves, size), 0.0)
    return total if float(np.arange(len(total)) @ total) >= 0.5 else None


def _law(path: Path, start: str, fields: Mapping[str, Any], name: str) -> Floats | None:
    if name not in fields:
        _refuse(path, None, f"{start}/{name}", "the field is missing")
    shares = _shares(path, start, fields, name)
    return shares if len(shares) and float(np.arange(len(shares)) @ shares) > 0 else None


def _shares(path: Path, start: str, fields: Mapping[str, Any], name: str) -> Floats:
    """Return the shares of 0, 1, 2, ... tokens that a text lists; they sum to 1."""
    value, where = fields[name], f"{start}/{name}"
    if isinstance(value, dict):
        value = "{" + ", ".join(f"{key}: {share}" for key, share in value.items()) + "}"
    if not isinstance(value, str) or not re.fullmatch(r"\s*\{.*\}\s*", value, re.DOTALL):
        _refuse(path, None, where, "is not a text of the form {tokens: share, ...}")
    inside = value.strip()[1:-1]
    pairs = [_PAIR.fullmatch(part) for part in inside.split(",")] if inside.strip() else []
    bad = next((i for i, pair in enumerate(pairs) if pair is None), None)
    if bad is not None:
        part = inside.split(",")[bad].strip()
        _refuse(path, None, where, f"{part!r:.40} is not tokens: share")
    tokens = [int(pair[1]) for pair in pairs if pair]
    if any(token > MOST_TOKENS for token in tokens):
        _refuse(path, None, where, f"more than {MOST_TOKENS} tokens")
    found = np.zeros(max(tokens, default=-1) + 1)
    for pair in pairs:
        if pair:
            found[int(pair[1])] += float(pair[2])
    total = float(found.sum())
    if len(found) and not 0.99 < total < 1.01:
        _refuse(path, None, where, f"the shares sum to {total:.6g}, not 1")
    return found / total if len(found) else found


def _condensed(shares: Floats) -> Lengths:
    """Return quantiles (nearest rank), largest value and mean."""
    sums = np.cumsum(shares)
    sums /= sums[-1]
    at = np.searchsorted(sums, np.array(SHARES) - 1e-12)
    largest = int(np.flatnonzero(shares > 1e-12)[-1])
    values = np.minimum(at, largest).astype(np.float64)
    mean = float(np.arange(len(shares)) @ shares / shares.sum())
    return Lengths(tuple(values.tolist()), float(largest), mean)


def _number(path: Path, line: int, field: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e12:
        _refuse(path, line, field, f"{cell!r:.40} is not a number of at least 0")
    return value


def _refuse(path: Path, row: int | None, field: str | None, problem: str) -> NoReturn:
    remedy = "the files as ServeGen publishes them"
    raise InputError(problem, file=str(path), row=row, field=field, remedy=remedy) from None
