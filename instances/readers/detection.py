"""Reading of a trace, whose format its header or its first object says."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any

from orsched.common import registry
from orsched.common.errors import InputError, known_names
from orsched.files.parquet import holds_rows
from orsched.files.sheets import is_spreadsheet
from orsched.files.tables import header_of
from orsched.files.text import head_of
from orsched.instances.readers import headings
from orsched.instances.readers.bench_files import BENCHES, read_bench, tool_of
from orsched.instances.readers.formats import FORMATS, format_names, read_format
from orsched.instances.readers.own_columns import FORMAT as OWN

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.traces import Trace

_MEASURED = frozenset({"queued_s", "scheduled_s"})
_UNTIMED = ("vidur", "pairs")
"""Formats that are read without times where their own column of times is not there."""


def read(
    path: str | PathLike[str],
    format: str | None = None,
    *,
    drop_empty: bool = False,
    **options: Any,
) -> Trace:
    """Read the requests of a trace in a foreign format.

    Arrivals are in nanoseconds after the earliest one in the file, rows in the order of the file.
    ``InputError`` names file, row (the line number from 1), field and remedy.

    Args:
        path: the file.
        format: a name of ``format_names()``, with ``:2`` for the second run in a file of several;
            None: recognised by the header or the field names.
        drop_empty: leave out, and count, requests without prompt or output tokens (failed ones);
            without it they are an error.
        options: of the format's reader (``block_tokens`` for Mooncake).
    """
    name = detect(path) if format is None else format
    form, _, run = name.partition(":")
    if run and form in BENCHES:
        return read_bench(path, name=name, drop_empty=drop_empty, **options)
    if name in FORMATS:
        reader = FORMATS[name].reader
        if reader is None:
            return read_format(name, path, drop_empty=drop_empty, **options)
    elif name in registry.names("readers"):
        reader = registry.resolve("readers", name)
    else:
        raise InputError(
            f"unknown format {name!r}",
            field="format",
            remedy=known_names(name, format_names()),
        )
    trace: Trace = reader(path, drop_empty=drop_empty, **options)
    return trace


def detect(path: str | PathLike[str]) -> str:
    """Return the name of a file's format, by its header or its first object's field names."""
    try:
        return _detect(path)
    except InputError as error:
        raise error.located(file=str(path)) from None


def _detect(path: str | PathLike[str]) -> str:
    if is_spreadsheet(path) or holds_rows(path):
        return OWN
    head = head_of(path).lstrip()
    if str(path).endswith(".toml"):
        raise InputError("is a description, without requests", remedy="give it to orsched study")
    if head.startswith(("[", "{")):
        return _detect_json(head)
    try:
        header = header_of(head)
    except csv.Error:
        header = [head.splitlines()[0]]
    return _match(("csv",), header)


def _detect_json(head: str) -> str:
    line = head.splitlines()[0]
    try:
        keys = list(json.loads(line)) if head[0] == "{" else []
    except (ValueError, RecursionError):
        # One long or indented object (its text is cut here), or a broken line.
        fields = [name for form in FORMATS.values() for name in form.fields]
        keys = [name for name in dict.fromkeys(fields) if f'"{name}"' in head]
    else:
        if {*headings.REQUIRED} <= {*keys}:
            return OWN
    if (name := tool_of(head)) is not None:
        return name
    if head[0] == "[":
        if '"conversations"' in head or '"messages"' in head:
            raise _no_lengths()
        raise _unknown(("json",), _names(head))
    if "conversations" in keys:
        raise _no_lengths()
    _refuse_by_kind(keys)
    return _match(("jsonl", "json"), keys)


_ELSE = (
    ("architectures", "a model's configuration", "give it to orsched cost --config"),
    ("hidden_size", "a model's configuration", "give it to orsched cost --config"),
    ("clients", "a worker", "give it to --workers, beside a file of requests"),
)
"""Fields of JSON that is something else, what that is, and where to give it."""


def _refuse_by_kind(keys: list[str]) -> None:
    """Refuse files whose requests have no arrival or no length, and those of something else."""
    for field, what, remedy in _ELSE:
        if field in keys:
            raise InputError(f"is {what}, without requests", field=field, remedy=remedy)
    if "sub_requests" in keys:
        raise InputError(
            "sessions of calls: each begins when the one before it ends, which no list of "
            "arrivals says",
            row=1,
            field="sub_requests",
            remedy="write every call as a line with input_toks, output_toks and its arrival_time",
        )
    if {"request_id", "input_length", "hash_ids"} <= set(keys) and "output_length" not in keys:
        raise InputError(
            "a batch task without output lengths (ServeGen's traces a to c)",
            row=1,
            field="output_length",
            remedy="take trace d, e or f, or add output_length to each line",
        )


def _match(kinds: tuple[str, ...], names: list[str]) -> str:
    """Return the first format all of whose fields exist, else that of one's own columns."""
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
    if own is not None and _is_own(own):
        return OWN
    if own is None:
        headings.match(names)  # says what is wrong
    if most < 0.5:
        raise _unknown(kinds, sorted(found))
    if own is not None and nearest == "measured":  # whose headings are those of one's own requests
        headings.require(own)
    missing = [field for field in FORMATS[nearest].fields if field not in found]
    raise InputError(
        f"looks like {nearest}, but it lacks the field '{missing[0]}'",
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


def _is_own(own: headings.Matched) -> bool:
    """Whether a heading is one of requests; ``InputError`` for one that needs a renaming."""
    missing = [target for target in headings.REQUIRED if target not in own.found]
    if not missing:
        return True
    hinted = all(headings.likely(target, own.unused) is not None for target in missing)
    if own.unused and (hinted or len(missing) == 1):
        headings.require(own)
    return False


def _no_lengths() -> InputError:
    return InputError(
        "is a JSON list, as ShareGPT's conversations are: it holds text, not token counts",
        remedy="count tokens with the model's tokenizer and write id,prompt_tokens,answer_tokens",
    )


_NEAREST = 3
"""Formats that an error names where none fits."""


def _names(head: str) -> list[str]:
    """Return the names of fields in a JSON text, of all levels."""
    return sorted(set(re.findall(r'"(\w{1,60})"\s*:', head)))


def _unknown(kinds: tuple[str, ...], found: list[str]) -> InputError:
    """Return what to say of a file of no format: the nearest formats, and what they lack."""
    lacks = {
        name: [field for field in form.fields if field not in found]
        for name, form in FORMATS.items()
        if form.kind in kinds or name == OWN
    }
    size = {name: len(FORMATS[name].fields) for name in lacks}
    order = sorted(lacks, key=lambda n: (len(lacks[n]) / size[n], abs(size[n] - len(found))))
    near = "; ".join(f"{name} (lacks {', '.join(lacks[name])})" for name in order[:_NEAREST])
    columns = ", ".join((*headings.REQUIRED, headings.ARRIVAL))
    remedy = f"name the columns {columns}, or name the format; nearest: {near}"
    if kinds == ("csv",) and any(re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", name) for name in found):
        return InputError(
            "the first line holds numbers: the header is missing",
            row=1,
            remedy=f"put the names of the columns into the first line; {remedy}",
        )
    shown = ", ".join(found)
    return InputError(f"the fields {shown[:120]!r} are of no known format", row=1, remedy=remedy)
