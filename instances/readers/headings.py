"""Names of columns as people write them, and which column of requests each of them stands for."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.errors import InputError
from orsched.common.units import NS_PER_MS, NS_PER_S, NS_PER_US
from orsched.files.request_columns import level_of, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROMPT, OUTPUT, ARRIVAL = "prompt_tokens", "output_tokens", "arrival_s"
REQUIRED = (PROMPT, OUTPUT)

_LENGTHS = ("{}_tokens", "{}_len", "{}_length", "{}_size", "{}_toks", "{}_token_count",
            "num_{}_tokens", "n_{}_tokens", "{}_token_len", "{}_token_length")  # fmt: skip
_PROMPTS = ("prompt", "input", "context", "prefill", "request", "in", "query")
_OUTPUTS = ("output", "generated", "generation", "completion", "decode", "response", "answer",
            "out", "gen")  # fmt: skip
_TIMES = (
    "arrival", "arrivals", "arrival_time", "arrival_timestamp", "arrived_at", "timestamp", "time",
    "created", "created_at", "received_at", "request_time", "submit_time", "start_time",
    "started_at", "sent_at", "date", "datetime",
)  # fmt: skip
UNITS = {
    "s": NS_PER_S, "sec": NS_PER_S, "seconds": NS_PER_S,
    "ms": NS_PER_MS, "msec": NS_PER_MS, "us": NS_PER_US, "ns": 1,
}  # fmt: skip
_HINTS = {
    PROMPT: ("prompt", "input", "context", "ctx", "prefill", "query", "in"),
    OUTPUT: ("output", "generat", "completion", "decod", "respon", "answer", "gen", "out", "reply"),
}
"""Parts of a name that make it the likely one, where no name is understood."""

ALIASES: dict[str, frozenset[str]] = {
    PROMPT: frozenset(form.format(word) for word in _PROMPTS for form in _LENGTHS) | {"tokens_in"},
    OUTPUT: frozenset(form.format(word) for word in _OUTPUTS for form in _LENGTHS)
    | {"tokens_out", "token_size"},
    "id": frozenset({"id", "request_id", "req_id", "uuid"}),
    "predicted_tokens": frozenset({"predicted_tokens", "predicted_output_tokens"}),
    "service_class": frozenset({"service_class", "class"}),
    "priority": frozenset({"priority", "request_priority"}),
    "tenant": frozenset({"tenant"}),
    "group": frozenset({"group", "group_id", "prompt_id"}),
    "deadline_ns": frozenset({"deadline_ns"}),
    "deadline_s": frozenset({"deadline_s"}),
    "weight": frozenset({"weight"}),
    "parent": frozenset({"parent", "parent_id"}),
    "delay_ns": frozenset({"delay_ns"}),
    "delay_s": frozenset({"delay_s", "think_time_s", "tool_time_s"}),
}
"""Columns of requests, and the names that stand for them beside the times of arrival."""

_TIME_WORDS = frozenset({
    "t", "ts", "time", "times", "timestamp", "date", "datetime", "arrival", "arrive", "arrived",
    "start", "started", "begin", "begun", "sent", "created", "received", "submit", "submitted",
    "issued", "queued", "enqueued", "epoch", "clock", "when", "at",
})  # fmt: skip
_OTHER_TIMES = frozenset({
    "end", "ended", "finish", "finished", "stop", "stopped", "done", "complete", "completed",
    "completion", "first", "last", "next", "duration", "latency", "elapsed", "took", "wait",
    "waiting", "ttft", "tpot", "itl", "e2e", "jct", "response", "answer", "prefill", "decode",
    "generation", "inference", "processing", "service", "serving", "queue", "queueing", "between",
    "per", "since", "timeout", "zone", "timezone", "delta", "interval", "inter", "token", "tokens",
    "total", "mean", "max", "min", "limit", "deadline", "updated", "expires", "think", "run",
    "wall", "cpu", "gpu", "exec", "execution", "compute", "model", "scheduled",
})  # fmt: skip
_LENGTH_WORDS = frozenset({"tokens", "toks", "len", "length", "size", "output", "outputs"})
_LOOKS = {
    "priority": frozenset({"priority", "priorities", "prio", "urgency", "urgent", "importance"}),
    "predicted_tokens": frozenset({"predicted", "prediction", "pred", "expected", "estimated"}),
}
"""Words of a name that make it look like a column that is read under another name."""

_QUANTILE = re.compile(r"predicted_(?:tokens_|output_tokens_)?p([0-9]{1,2})(?:_([0-9]{1,30}))?")
_OWN = frozenset({*ALIASES, "arrival_s", "arrival_ns", "class"})
_CLOSE = 0.82


class Heading(NamedTuple):
    """A column: its name in the file, and for times of arrival the unit that its name says."""

    name: str
    unit_ns: int | None = None


class Matched(NamedTuple):
    """Which column holds what, and the names that stand for nothing here."""

    found: dict[str, Heading]
    unused: list[str]


def snake(name: str) -> str:
    """Return a name in lower case with underscores: ``ContextTokens`` is ``context_tokens``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")


def match(names: Sequence[str]) -> Matched:
    """Return the columns of a heading; a name as orsched writes it goes before others."""
    found: dict[str, Heading] = {}
    unused = []
    for name in names:
        target, unit = _target(snake(name))
        if target is None:
            unused += [name] if name.strip() else []
        elif target not in found or (name in _OWN and found[target].name not in _OWN):
            unused += [found[target].name] if target in found else []
            found[target] = Heading(name, unit)
        elif (name in _OWN) == (found[target].name in _OWN):
            raise _ambiguous(target, found[target].name, name)
        else:
            unused.append(name)
    for name in ("deadline", "delay"):
        if f"{name}_s" in found and f"{name}_ns" in found:
            raise _ambiguous(f"{name}_ns", f"{name}_s", f"{name}_ns")
    if "priority" in found and "service_class" in found:
        raise _ambiguous("class", found["service_class"].name, found["priority"].name)
    return Matched(found, unused)


def _target(plain: str) -> tuple[str | None, int | None]:
    for target, aliases in ALIASES.items():
        if plain in aliases:
            return target, None
    if found := _QUANTILE.fullmatch(plain):
        level = level_of(f"predicted_p{found[1]}.{found[2] or 0}")
        return (None if level is None else name_of(level)), None
    stem, _, unit = plain.rpartition("_")
    if stem in _TIMES and unit in UNITS:
        return ARRIVAL, UNITS[unit]
    return (ARRIVAL, None) if plain in _TIMES else (None, None)


def _ambiguous(target: str, first: str, second: str) -> InputError:
    return InputError(
        f'both "{first}" and "{second}" could be the column {target}',
        row=1,
        field=second,
        remedy="keep one of them, or give the other one another name",
    )


def require(matched: Matched) -> None:
    """Raise ``InputError`` where a column is missing or misspelt, with the columns to rename."""
    missing = [target for target in REQUIRED if target not in matched.found]
    if missing:
        raise InputError(
            f"unknown column {' and none for '.join(missing)}",
            row=1,
            field=missing[0],
            remedy=_renaming(missing, matched.unused),
        )
    known = [name for name in (*ALIASES, "arrival_ns", ARRIVAL) if name not in matched.found]
    for name in matched.unused:
        near = get_close_matches(snake(name), known, n=1, cutoff=_CLOSE)
        if near and not (near[0].startswith("arrival") and ARRIVAL in matched.found):
            raise InputError(
                f'is like a column that orsched reads, "{near[0]}", but is not read',
                row=1,
                field=name,
                remedy=f'rename the column "{name}" to "{near[0]}", or remove it',
            )
    for name in matched.unused:
        if ARRIVAL not in matched.found and _GAPS.search(snake(name)):
            raise InputError(
                "looks like times between arrivals, which are not read",
                row=1,
                field=name,
                remedy='add their running sum as the column "arrival_s", or remove the column',
            )
        if target := looks_like(name, matched):
            raise InputError(
                f"looks like {_WHAT.get(target, _TIME)}, but is not read under this name",
                row=1,
                field=name,
                remedy=f'rename the column "{name}" to "{target}", or remove it',
            )


_WHAT = {"priority": "a priority", "predicted_tokens": "a predicted length"}
_TIME = "a time of arrival"
_GAPS = re.compile("inter_?arriv|(^|_)iat(_|$)")


def looks_like(name: str, matched: Matched) -> str | None:
    """Return the name under which a column would be read that looks like a time, priority, length.

    None where it does not, or where another column is read as that.
    """
    words = set(snake(name).split("_"))
    if ARRIVAL not in matched.found and words & _TIME_WORDS and not words & _OTHER_TIMES:
        unit = snake(name).rpartition("_")[2]
        return f"arrival_{unit}" if unit in UNITS else "timestamp"
    if not matched.found.keys() & {"service_class", "priority"} and words & _LOOKS["priority"]:
        return "priority"
    predicted = words & _LOOKS["predicted_tokens"]
    if predicted and (words & _LENGTH_WORDS or predicted == words):
        return None if "predicted_tokens" in matched.found else "predicted_tokens"
    return None


def _renaming(missing: Iterable[str], names: Sequence[str]) -> str:
    pairs = {target: likely(target, names) for target in missing}
    if None in pairs.values() or len(set(pairs.values())) < len(pairs):
        wanted = " and ".join(f'"{target}"' for target in pairs)
        if not names:
            return f"add {wanted}: tokens, in whole numbers"
        listed = ", ".join(f'"{name}"' for name in names[:8])
        return f"rename the column of these to {wanted}: {listed}"
    words = " and ".join(f'"{name}" to "{target}"' for target, name in pairs.items())
    return f"rename the column{'s' if len(pairs) > 1 else ''} {words}"


def likely(target: str, names: Sequence[str]) -> str | None:
    """Return the name that most likely stands for a column, None if nothing hints at one."""
    plain = {snake(name): name for name in names}
    for hint in _HINTS[target]:
        for short, name in plain.items():
            if short.startswith(hint) or (len(hint) > 2 and hint in short):
                return name
    near = get_close_matches(target, plain, n=1, cutoff=0.6)
    return plain[near[0]] if near else None
