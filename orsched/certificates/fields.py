"""Which fields a certificate of each kind has, and how much work re-deriving it may take.

Whole numbers are ``int`` and not ``bool``; fractions, texts for numbers, numbers beyond their
range and fields that are missing or unknown are refused before anything is computed from them. A
small file can ask for a lot of work and memory: both have a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orsched.certificates.scope import FOR_ALL, SEES_CACHES
from orsched.common.scalars import DEFAULT_BUDGET

STEP = 1_000
"""What a step of a search, in Python, counts for."""
_PART_AT_ONCE = 50


class BudgetError(ValueError):
    """A certificate takes more than its budget to verify."""


class Budget:
    """What may be spent on one certificate, all its parts together, and what is left of it.

    In cells of tables: verdicts are the same everywhere. At one time a hundredth may be held.
    """

    def __init__(self, cells: int | None = DEFAULT_BUDGET) -> None:
        """Take the cells that may be filled; None: any number."""
        self.cells = self.left = cells

    def spend(self, cells: int) -> None:
        """Count work before it is done; ``BudgetError`` where it is too much."""
        if self.left is None:
            return
        self.left -= cells
        if self.left < 0:
            raise BudgetError(self._message("work"))

    def hold(self, cells: int) -> None:
        """Look at a table's size before it is made; ``BudgetError`` where it is too large."""
        if self.cells is not None and cells * _PART_AT_ONCE > self.cells:
            raise BudgetError(self._message("memory"))

    def _message(self, what: str) -> str:
        return (
            f"verifying the certificate takes more {what} than its budget of {self.cells:,} cells "
            "allows; a larger one (budget=, or --budget on the command line) may verify it"
        )


Field = Callable[[object, str], None]
"""Raises ``ValueError`` for a value that the field cannot have; the text names the field."""

_LARGEST = 2**256
"""Sums and products over requests are below it, and short enough to be printed."""
TIME, LENGTH, DUAL, PRICE, WEIGHT, SLOPE = 2**63, 2**62, 2**62, 2**61, 2**40, 2**128
PRICED = 2**160
"""Numbers that a certificate chooses are below these."""


def whole(low: int = 0, below: int = _LARGEST) -> Field:
    """A whole number in a range."""

    def require(value: object, where: str) -> None:
        if type(value) is not int:
            raise ValueError(f"{where} is {_shown(value)}, not a whole number")
        if not low <= value < below:
            raise ValueError(f"{where} is out of range: {_shown(value)}")

    return require


def one_of(*names: str) -> Field:
    """One of some texts."""

    def require(value: object, where: str) -> None:
        if type(value) is not str or value not in names:
            raise ValueError(f"{where} is {_shown(value)}, not one of {', '.join(names)}")

    return require


def listed(item: Field, fewest: int = 0, most: int | None = None) -> Field:
    """A list, each of its items such a field."""

    def require(value: object, where: str) -> None:
        if type(value) is not list:
            raise ValueError(f"{where} is {_shown(value)}, not a list")
        if len(value) < fewest or (most is not None and len(value) > most):
            raise ValueError(f"{where} has {len(value)} items")
        for at, each in enumerate(value):
            item(each, f"{where}[{at}]")

    return require


def table(fields: Mapping[str, Field], optional: Mapping[str, Field] | None = None) -> Field:
    """A table with these fields and no others, of which some may be missing."""
    known = {**fields, **(optional or {})}

    def require(value: object, where: str) -> None:
        if type(value) is not dict:
            raise ValueError(f"{where} is {_shown(value)}, not a table")
        for name in fields:
            if name not in value:
                raise ValueError(f"{where} lacks {name}")
        for name, each in value.items():
            if type(name) is not str or name not in known:
                raise ValueError(f"unknown field {_shown(name)} in {where}")
            known[name](each, f"{where}.{name}")

    return require


def by_kind(field: str, kinds: Mapping[str, Field]) -> Field:
    """A table whose fields depend on one of them."""
    named = one_of(*kinds)

    def require(value: object, where: str) -> None:
        if type(value) is not dict:
            raise ValueError(f"{where} is {_shown(value)}, not a table")
        named(value.get(field), f"{where}.{field}")
        kinds[value[field]](value, where)

    return require


def _node(value: object, where: str) -> None:
    """A node of a tree: integers, and the two lengths to branch on, if it is not a leaf."""
    listed(_anything, 2, 2)(value, where)
    assert isinstance(value, list)
    _INTEGERS(value[0], f"{where}[0]")
    if value[1] is not None:
        _PAIR(value[1], f"{where}[1]")


def _anything(value: object, where: str) -> None:
    """A field that is looked at elsewhere."""


def _shown(value: object) -> str:
    """Return a short text for any value, however large or strange."""
    if type(value) is int and abs(value) >= _LARGEST:
        return "a number of more than 256 bits"
    if type(value) in (bool, int, float, str, type(None)):
        text = repr(value)
        return text if len(text) <= 80 else text[:77] + "..."
    return f"a {type(value).__name__}"


_ANY = whole()
_INTEGERS = listed(whole(-DUAL, DUAL))
_PAIR = listed(whole(0, LENGTH), 2, 2)
_DUALS = listed(listed(whole(0, DUAL), 2, 2))
_TREE = listed(_node)
_ALLOWS = listed(one_of("chunks", "mixed", "restarts"), 1, 3)

PACKING = {
    "volume": {},
    "longest": {},
    "lifted": {"k": whole(1, LENGTH), "l": whole(1, LENGTH)},
    "dual": {"duals": _DUALS},
    "cover": {"duals": _DUALS},
    "tree": {"duals": _DUALS, "tree": _TREE},
}
"""What proves a bound on a packing, by kind, beside its value."""

_BY_SIZE = {"memory": {}, "large_requests": {"k": whole(1, LENGTH)}}
_STAGES = {"clients": {}, "cap": {}, "large_prompts": {"k": whole(1, LENGTH)}, **_BY_SIZE}


def _reasons(reasons: Mapping[str, Mapping[str, Field]]) -> Field:
    """A count and its reason."""
    both = {"value": _ANY, "reason": one_of(*reasons)}
    return by_kind("reason", {name: table({**both, **more}) for name, more in reasons.items()})


_COUNTS: dict[str, Field] = {
    "released_ns": whole(0, TIME),
    **dict.fromkeys(
        ("requests", "clients", "prompt_tokens", "rounds_needed", "context_sum", "blocks"), _ANY
    ),
    "block_rounds": _ANY,
    "prefill_stages": _reasons(_STAGES),
    "decode_rounds": _reasons({**PACKING, **_BY_SIZE}),
}
_WEIGHTS = listed(whole(0, WEIGHT), 1)
_ENDS = table(
    {
        **dict.fromkeys(("end", "middle", "single", "window"), _WEIGHTS),
        "long": whole(0, WEIGHT),
        "proves": listed(listed(whole(1, LENGTH), 2, 2)),
    }
)
_WORKERS = listed(
    table(
        {
            "worker": whole(0, LENGTH),
            "weight": whole(1, LENGTH),
            "stage_share": one_of("clients", "cap"),
            "round_share": one_of("clients", "memory"),
        },
        {"line": listed(whole(0, SLOPE), 3, 3), "step_line": whole(0, 64)},
    )
)


def _factors(value: object, where: str) -> None:
    """Where an interval begins, and factors on lines, clients and memory."""
    listed(_anything, 4, 4)(value, where)
    assert isinstance(value, list)
    listed(whole(0, SLOPE), 0, 64)(value[1], f"{where}[1]")
    for at, below in ((0, LENGTH), (2, SLOPE), (3, SLOPE)):
        whole(0, below)(value[at], f"{where}[{at}]")


def _kind(
    name: str, fields: Mapping[str, Field], optional: Mapping[str, Field] | None = None
) -> Field:
    cut = {} if name in (*FOR_ALL, *SEES_CACHES) else {"cut_tokens": whole(1)}
    return table({"bound": one_of(name), **fields}, {**cut, **(optional or {})})


_VALUE: dict[str, Field] = {"value_ns": _ANY}
_ALONE = {
    "stages_and_rounds": _kind(
        "stages_and_rounds",
        {**_COUNTS, "prefill_ns": _ANY, "decode_ns": _ANY, **_VALUE},
        {"allows": _ALLOWS, "saved_ns": _ANY},
    ),
    "joint": _kind(
        "joint",
        {**_COUNTS, "prices": listed(listed(whole(0, PRICE), 1, 2)), **_VALUE},
        {"long": whole(1, LENGTH), "ends": listed(_ENDS, 1)},
    ),
}
MAKESPAN: dict[str, Field] = {
    "empty": _kind("empty", {}),
    "last_arrival": _kind("last_arrival", _VALUE),
    "longest_request": _kind("longest_request", {"request": whole(0, LENGTH), **_VALUE}),
    **_ALONE,
    "charged": _kind(
        "charged",
        {"released_ns": whole(0, TIME), "workers": _WORKERS, **_VALUE},
        {"allows": _ALLOWS},
    ),
    "fleet_prices": _kind(
        "fleet_prices",
        {
            "released_ns": whole(0, TIME),
            "one": whole(1, DUAL),
            "prices": listed(whole(0, SLOPE), 1),
            "workers": listed(
                table({"worker": whole(0, LENGTH), "intervals": listed(_factors, 1)}), 1
            ),
            **_VALUE,
        },
        {"allows": _ALLOWS},
    ),
    "kv_volume": _kind(
        "kv_volume",
        {
            "released_ns": whole(0, TIME),
            "request": whole(0, LENGTH),
            **dict.fromkeys(
                ("block_rounds", "blocks", "steps", "context_sum", "prompt_tokens"), _ANY
            ),
            **_VALUE,
        },
        {"allows": _ALLOWS},
    ),
    "pools": _kind(
        "pools",
        {
            "released_ns": whole(0, TIME),
            "workers": _WORKERS,
            **dict.fromkeys(("prefill_ns", "decode_ns", "all_ns", "link_ns", "path_ns"), _ANY),
            **_VALUE,
        },
        {"allows": _ALLOWS},
    ),
    "shared": _kind(
        "shared", {"workers": whole(2, LENGTH), "one_worker": by_kind("bound", _ALONE), **_VALUE}
    ),
}
"""Certificates of bounds on the makespan, by kind."""

_SUMS: dict[str, Field] = {
    "objective": one_of("mean_jct", "mean_ttft", "weighted_jct_mean"),
    "sum_ns": _ANY,
    **_VALUE,
}
_RANKS = {"level": whole(0, TIME), "smooth": whole(0, WEIGHT)}
_MEET = whole(0, 2**31)
_WINDOWS: dict[str, Field] = {
    "starts": listed(whole(0, TIME), 1),
    "levels": listed(whole(1, LENGTH)),
    "late": listed(whole(0, 1025), 1),
    "rounds": listed(_MEET, 1),
    "meet": listed(listed(_MEET), 1),
}
LATENCY: dict[str, Field] = {
    "empty": MAKESPAN["empty"],
    "arrivals": _kind("arrivals", _SUMS),
    "alone": _kind("alone", _SUMS, {"allows": _ALLOWS}),
    **{
        name: _kind(name, {**_SUMS, "workers": _WORKERS}, {"allows": _ALLOWS})
        for name in ("ranked", "mean_busy", "queue", "queue_busy", "weighted_busy")
    },
    **{
        name: _kind(name, {**_SUMS, "workers": _WORKERS, **_RANKS}, {"allows": _ALLOWS})
        for name in ("ranks", "queue_ranks")
    },
    "weighted_ranks": _kind(
        "weighted_ranks",
        {**_SUMS, "workers": _WORKERS, **_RANKS, "grain": whole(1, LENGTH)},
        {"allows": _ALLOWS},
    ),
    "shared_rounds": _kind("shared_rounds", {**_SUMS, **_WINDOWS}, {"allows": _ALLOWS}),
}
"""Certificates of bounds on mean JCT and mean TTFT, by kind."""

_SIGNED = whole(1 - _LARGEST)


def _inner(kinds: Mapping[str, Field]) -> Field:
    """A bound on some of the requests."""
    named = {"name": _anything, "value_ns": _ANY, "certificate": by_kind("bound", kinds)}
    return table(named)


DUE: dict[str, Field] = {
    "empty": MAKESPAN["empty"],
    "arrivals": _kind(
        "arrivals",
        {"objective": one_of("lateness_max", "weighted_tardiness_mean"), "value_ns": _SIGNED},
        {"sum_ns": _ANY},
    ),
    "late": _kind(
        "late",
        {"objective": one_of("lateness_max"), "value_ns": _SIGNED},
        {
            "allows": _ALLOWS,
            "released_ns": whole(0, TIME),
            "due_ns": whole(0, TIME),
            "inner": _inner(MAKESPAN),
        },
    ),
    "tardy": _kind(
        "tardy",
        {"objective": one_of("weighted_tardiness_mean"), "sum_ns": _ANY, **_VALUE},
        {"allows": _ALLOWS, "late_ns": whole(-TIME, TIME), "inner": _inner(LATENCY)},
    ),
    "starts": _kind(
        "starts",
        {
            "objective": one_of("weighted_tardiness_mean"),
            **dict.fromkeys(("sum_ns", "value_ns"), _ANY),
            "moments": listed(whole(0, TIME), 1),
            "held": listed(whole(0, LENGTH), 1),
            "one": whole(1, LENGTH),
        },
        {"allows": _ALLOWS},
    ),
}
"""Certificates of bounds on tardiness and lateness, by kind."""

IN_TIME: dict[str, Field] = {
    "empty": MAKESPAN["empty"],
    "arrivals": _kind("arrivals", {"objective": _anything, "value_ns": _ANY}),
    "in_time": _kind(
        "in_time",
        {
            "objective": _anything,
            "workers": _WORKERS,
            "moments": listed(whole(0, TIME), 1),
            "held": listed(whole(0, LENGTH), 1),
            "time": listed(whole(0, LENGTH), 1),
            "one": whole(1, LENGTH),
            "value_ns": whole(0, LENGTH),
        },
        {"allows": _ALLOWS, "requests": _ANY, "missed": _ANY},
    ),
}
"""Certificates of bounds on percentiles, and on how many requests miss their limits, by kind."""

_PROGRAM: dict[str, Field] = {
    "measure": one_of("attained", "in_time"),
    "windows": listed(whole(0, TIME), 2),
    "prices": listed(listed(whole(0, PRICED), 2, 2)),
    "value": _ANY,
}
BULK: dict[str, Field] = {
    "bulk": _kind(
        "bulk",
        {
            "needed": whole(0, LENGTH),
            "weights": listed(whole(0, WEIGHT), 2, 2),
            "credit": one_of("output", "prefill"),
            "pieces": whole(1, 1_000),
            **_PROGRAM,
        },
        {"allows": _ALLOWS, "restarts": whole(0, LENGTH)},
    ),
    "attained": _kind("attained", _PROGRAM, {"allows": _ALLOWS, "restarts": whole(0, LENGTH)}),
}
"""Certificates of bounds on bulk work, and on how many requests meet their limits, by kind."""

_makespan, _latency = by_kind("bound", MAKESPAN), by_kind("bound", LATENCY)
_KINDS_OF = {
    "makespan": _makespan,
    **dict.fromkeys(("weighted_tardiness_mean", "lateness_max"), by_kind("bound", DUE)),
    **dict.fromkeys(("mean_jct", "mean_ttft", "weighted_jct_mean"), _latency),
}
_in_time = by_kind("bound", IN_TIME)
_bulk = by_kind("bound", BULK)
_packing = by_kind(
    "bound", {name: _kind(name, {"value": _ANY, **more}) for name, more in PACKING.items()}
)


def require_bound(document: object, objective: str = "makespan") -> None:
    """Raise ``ValueError`` unless this is a bound: a value, a certificate, the name of its kind."""
    kinds = _KINDS_OF.get(objective, _in_time)
    _require(document, kinds, "value_ns", _SIGNED if objective == "lateness_max" else _ANY)


def require_bulk(document: object) -> None:
    """Raise ``ValueError`` unless this is a bound on bulk work or on attainment."""
    _require(document, _bulk, "value")


def _require(document: object, kinds: Field, value: str, values: Field = _ANY) -> None:
    if type(document) is not dict:
        raise ValueError(f"the bound is {_shown(document)}, not a table")
    for name in ("name", value, "certificate"):
        if name not in document:
            raise ValueError(f"the bound lacks {name}")
    for name in document.keys() - {"name", value, "certificate"}:
        raise ValueError(f"the bound has the unknown field {_shown(name)}")
    kinds(document["certificate"], "certificate")
    one_of(document["certificate"]["bound"])(document["name"], "the bound's name")
    values(document[value], value)


def require_packing(certificate: object) -> None:
    """Raise ``ValueError`` unless this is a certificate of a bound on a packing."""
    _packing(dict(certificate) if isinstance(certificate, Mapping) else certificate, "certificate")
