"""The formats of traces: their names, how they are recognised, and ``read``."""

from __future__ import annotations

import csv
import json
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched import registry
from orsched.errors import InputError
from orsched.instances.readers import headings
from orsched.instances.readers.spreadsheet import is_spreadsheet
from orsched.instances.readers.table import header_of
from orsched.instances.readers.text import head_of
from orsched.near_names import known_names

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


class Format(NamedTuple):
    """A format: its reader as ``module:function``, its fields, and what it is."""

    reader: str
    kind: str
    fields: tuple[str, ...]
    title: str


_HERE = "orsched.instances.readers"

FORMATS = {
    "azure": Format(
        f"{_HERE}.csv_lengths:read_azure",
        "csv",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        "Azure LLM inference trace, 2023 and 2024",
    ),
    "burstgpt": Format(
        f"{_HERE}.csv_lengths:read_burstgpt",
        "csv",
        ("Timestamp", "Request tokens", "Response tokens"),
        "BurstGPT",
    ),
    "splitwise": Format(
        f"{_HERE}.csv_lengths:read_splitwise",
        "csv",
        ("request_id", "arrival_timestamp", "prompt_size", "token_size"),
        "Splitwise-sim trace",
    ),
    "vidur": Format(
        f"{_HERE}.csv_lengths:read_vidur",
        "csv",
        ("num_prefill_tokens", "num_decode_tokens"),
        "Vidur trace",
    ),
    "measured": Format(
        f"{_HERE}.csv_lengths:read_measured",
        "csv",
        ("id", "arrival_s", "prompt_tokens", "output_tokens"),
        "measured vLLM run",
    ),
    "pairs": Format(
        f"{_HERE}.csv_lengths:read_pairs",
        "csv",
        ("id", "prompt_tokens", "answer_tokens"),
        "length pairs without arrival times (GSM8K, ShareGPT, arXiv)",
    ),
    "llmservingsim": Format(
        f"{_HERE}.jsonl_lengths:read_llmservingsim",
        "jsonl",
        ("input_toks", "output_toks", "arrival_time_ns"),
        "LLMServingSim trace",
    ),
    "llmservingsim-run": Format(
        f"{_HERE}.jsonl_lengths:read_llmservingsim_run",
        "jsonl",
        ("input_toks", "output_toks", "arrival_time"),
        "requests of a run that LLMServingSim recorded",
    ),
    "records": Format(
        f"{_HERE}.jsonl_lengths:read_records",
        "jsonl",
        ("arrival_time_ms", "input_length", "output_length"),
        "per-request records of DynoSim or orsched",
    ),
    "bailian": Format(
        f"{_HERE}.bailian:read_bailian",
        "jsonl",
        ("chat_id", "timestamp", "input_length", "output_length"),
        "Qwen-Bailian usage trace",
    ),
    "mooncake": Format(
        f"{_HERE}.mooncake:read_mooncake",
        "jsonl",
        ("timestamp", "input_length", "output_length"),
        "Mooncake trace",
    ),
    "servegen-offline": Format(
        f"{_HERE}.jsonl_lengths:read_servegen_offline",
        "jsonl",
        ("request_id", "input_length", "output_length", "duration"),
        "ServeGen's trace of a batch task, d to f",
    ),
    "vllm-bench": Format(
        f"{_HERE}.vllm_bench:read_vllm_bench",
        "json",
        ("total_input_tokens", "total_output_tokens"),
        "result of vllm bench serve --save-detailed",
    ),
    "requests": Format(
        f"{_HERE}.own_columns:read_own",
        "csv, jsonl or xlsx",
        headings.REQUIRED,
        "requests of one's own, under names that people use",
    ),
}
"""The built-in formats; the entry points ``orsched.readers`` add further ones."""


def format_names() -> list[str]:
    """Return the names of all formats, the built-in ones first."""
    return list(FORMATS) + [n for n in registry.names("readers") if n not in FORMATS]


def read(
    path: str | PathLike[str],
    format: str | None = None,
    *,
    drop_empty: bool = False,
    **options: Any,
) -> Trace:
    """Read the requests of a trace in a foreign format.

    Args:
        path: the file.
        format: a name of ``format_names()``; None: recognised by the header or the field names.
        drop_empty: leave out, and count, requests without prompt or output tokens (failed ones);
            without it they are an error.
        options: of the format's reader (``block_tokens`` for Mooncake).

    Returns:
        ``Trace(requests, report)``: arrivals in nanoseconds after the earliest one in the file,
        rows in the order of the file.

    Raises:
        InputError: the format is unknown or the file is wrong; names file, row (the line number
            from 1), field and remedy.
    """
    name = detect(path) if format is None else format
    if name in FORMATS:
        module, _, attribute = FORMATS[name].reader.partition(":")
        reader = getattr(import_module(module), attribute)
    elif name in registry.names("readers"):
        reader = registry.resolve("readers", name)
    else:
        raise InputError(
            f"there is no format {name!r}",
            field="format",
            remedy=known_names(name, format_names()),
        )
    trace: Trace = reader(path, drop_empty=drop_empty, **options)
    return trace


def detect(path: str | PathLike[str]) -> str:
    """Return the name of a file's format, by its header or its first object's field names.

    Raises:
        InputError: the file is not text, or of no known format.
    """
    if is_spreadsheet(path):
        return OWN
    head = head_of(path).lstrip()
    if head.startswith("["):
        raise _no_lengths(path)
    if head.startswith("{"):
        return _detect_json(path, head)
    try:
        header = header_of(head, str(path))
    except csv.Error:
        header = [head.splitlines()[0]]
    return _match(path, ("csv",), header)


def _detect_json(path: str | PathLike[str], head: str) -> str:
    line = head.splitlines()[0]
    try:
        keys = list(json.loads(line))
    except (ValueError, RecursionError):
        # One long or indented object (its text is cut here), or a broken line.
        fields = [name for form in FORMATS.values() for name in form.fields]
        keys = [name for name in dict.fromkeys(fields) if f'"{name}"' in head]
    if "conversations" in keys:
        raise _no_lengths(path)
    _refuse_by_kind(path, keys)
    return _match(path, ("jsonl", "json"), keys)


def _refuse_by_kind(path: str | PathLike[str], keys: list[str]) -> None:
    """Refuse files whose requests have no arrival or no length, and say what they lack."""
    if "sub_requests" in keys:
        raise InputError(
            "sessions of calls: each begins when the one before it ends, which no list of "
            "arrivals says",
            file=str(path),
            row=1,
            field="sub_requests",
            remedy="write every call as a line with input_toks, output_toks and its arrival_time",
        )
    if {"request_id", "input_length", "hash_ids"} <= set(keys) and "output_length" not in keys:
        raise InputError(
            "a batch task without output lengths (ServeGen's traces a to c)",
            file=str(path),
            row=1,
            field="output_length",
            remedy="take trace d, e or f, or add output_length to each line",
        )


def _match(path: str | PathLike[str], kinds: tuple[str, ...], names: list[str]) -> str:
    """Return the first format all of whose fields are there, else that of one's own columns.

    Own columns go before the formats that would leave some of them out.
    """
    found = set(names)
    own = _own(names)
    if {*headings.REQUIRED} <= found and not found & _MEASURED:
        return OWN
    nearest, most = "", 0.0
    for name, form in FORMATS.items():
        if form.kind in kinds:
            share = len(found.intersection(form.fields)) / len(form.fields)
            timed = own is not None and headings.ARRIVAL in own.found
            if share == 1 and not (timed and name in _UNTIMED and "arrived_at" not in found):
                return name
            if share > most:
                nearest, most = name, share
    if own is not None and _is_own(path, own):
        return OWN
    if own is None:
        _require_clear(path, names)
    if most < 0.5:
        raise _unknown(path, kinds, sorted(found))
    if own is not None and nearest == "measured":  # whose headings are those of one's own requests
        _require_own(path, own)
    missing = [field for field in FORMATS[nearest].fields if field not in found]
    raise InputError(
        f"looks like {nearest}, but there is no field '{missing[0]}'",
        file=str(path),
        row=1,
        field=missing[0],
        remedy=f"{nearest} has the fields {', '.join(FORMATS[nearest].fields)}",
    )


OWN = "requests"
_MEASURED = frozenset({"queued_s", "scheduled_s"})
_UNTIMED = ("vidur", "pairs")
"""Formats that are read without times where their own column of times is not there."""


def _own(names: list[str]) -> headings.Matched | None:
    try:
        return headings.match(names)
    except InputError:  # said if it is of no other format
        return None


def _require_clear(path: str | PathLike[str], names: list[str]) -> None:
    try:
        headings.match(names)
    except InputError as error:
        raise error.located(file=str(path)) from None


def _is_own(path: str | PathLike[str], own: headings.Matched) -> bool:
    """Whether a heading is one of requests; ``InputError`` for one that needs a renaming."""
    missing = [target for target in headings.REQUIRED if target not in own.found]
    if not missing:
        return True
    hinted = all(headings.likely(target, own.unused) is not None for target in missing)
    if own.unused and (hinted or len(missing) == 1):
        _require_own(path, own)
    return False


def _require_own(path: str | PathLike[str], own: headings.Matched) -> None:
    try:
        headings.require(own)
    except InputError as error:
        raise error.located(file=str(path)) from None


def _no_lengths(path: str | PathLike[str]) -> InputError:
    return InputError(
        "is a JSON list, as ShareGPT's conversations are: it holds text, not token counts",
        file=str(path),
        remedy="count tokens with the model's tokenizer and write id,prompt_tokens,answer_tokens",
    )


def _unknown(path: str | PathLike[str], kinds: tuple[str, ...], found: list[str]) -> InputError:
    known = [
        f"{name} ({', '.join(form.fields)})" for name, form in FORMATS.items() if form.kind in kinds
    ]
    columns = ", ".join((*headings.REQUIRED, headings.ARRIVAL))
    remedy = f"name the columns {columns}, or name the format, or use its fields: "
    remedy += "; ".join(known)
    if kinds == ("csv",) and any(re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", name) for name in found):
        return InputError(
            "the first line holds numbers: the header is missing",
            file=str(path),
            row=1,
            remedy=f"put the names of the columns into the first line; {remedy}",
        )
    shown = ", ".join(found)
    return InputError(
        f"the fields {shown[:120]!r} are of no known format", file=str(path), row=1, remedy=remedy
    )
