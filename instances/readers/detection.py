"""Which format a file is of, by its header or its first object; what is said of one of none."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.instances.readers import headings
from orsched.instances.readers.formats import FORMATS, OWN
from orsched.instances.readers.spreadsheet import is_spreadsheet
from orsched.instances.readers.table import header_of
from orsched.instances.readers.text import head_of

if TYPE_CHECKING:
    from os import PathLike

_MEASURED = frozenset({"queued_s", "scheduled_s"})
_UNTIMED = ("vidur", "pairs")
"""Formats that are read without times where their own column of times is not there."""


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
    if own is not None and "csv" in kinds and not found & _MEASURED and _says_more(own):
        return OWN
    nearest, most = "", 0.0
    for name, form in FORMATS.items():
        if form.kind in kinds:
            share = len(found.intersection(form.fields)) / len(form.fields)
            timed = own is not None and _is_timed(own)
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


def _is_timed(own: headings.Matched) -> bool:
    """Whether a heading has arrivals, or a column that may be meant as such."""
    unread = (headings.looks_like(name, own) or "" for name in own.unused)
    timed = any(name.startswith(("timestamp", "arrival_")) for name in unread)
    return headings.ARRIVAL in own.found or timed


def _says_more(own: headings.Matched) -> bool:
    """Whether a heading has all that requests need, and what formats of traces leave out."""
    plain = {*headings.REQUIRED, headings.ARRIVAL, "id"}
    return own.found.keys() >= {*headings.REQUIRED} and bool(own.found.keys() - plain)


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
