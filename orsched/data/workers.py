"""Workers: one model instance on one device with its cost and memory, and when it is available."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.parameters import read_pairs
from orsched.common.scalars import printed, require_bool, require_one_of, set_whole
from orsched.common.units import MAX_TIME_NS, MAX_TOKENS
from orsched.costs import AffineCost, CostModel
from orsched.costs.exact import require_members
from orsched.costs.protocol import read_parameters
from orsched.data.memory import BlockMemory, refused_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Interval = tuple[int, int | None]
"""From a moment up to another in nanoseconds; None: for good."""

FIELD = "available_ns"
_REMEDY = "[start, end] pairs in nanoseconds, in order and apart; the last end null: for good"


def checked_intervals(value: object) -> tuple[Interval, ...]:
    """Return intervals of availability as tuples of whole numbers.

    ``()`` stands for always. Raises ``InputError`` unless each is a pair, none is empty, and each
    begins after the end of the one before.
    """
    if not isinstance(value, (list, tuple)):
        raise InputError(
            f"{printed(value)} is not a list of intervals", field=FIELD, remedy=_REMEDY
        )
    found: list[Interval] = []
    last: int | None = -1
    for item in value:
        if not isinstance(item, (list, tuple)) or len(item) != 2:
            raise InputError(f"{printed(item)} is not an interval", field=FIELD, remedy=_REMEDY)
        if last is None:
            raise InputError("one follows an interval without an end", field=FIELD, remedy=_REMEDY)
        start, end = _moment(item[0]), None if item[1] is None else _moment(item[1])
        if start <= last:
            raise InputError(
                f"{start} is not after {last}, the end before it", field=FIELD, remedy=_REMEDY
            )
        if end is not None and end <= start:
            raise InputError(f"{end} is not after its start {start}", field=FIELD, remedy=_REMEDY)
        found.append((start, end))
        last = end
    return tuple(found)


def _moment(value: object) -> int:
    return whole_number(value, FIELD, minimum=0, maximum=MAX_TIME_NS, remedy=_REMEDY)


def time_within(intervals: Sequence[Interval], until_ns: int) -> int:
    """Return how much of the time up to a moment lies within the intervals; ``()``: all of it."""
    if not intervals:
        return until_ns
    ends = (until_ns if end is None else min(end, until_ns) for _, end in intervals)
    return sum(max(0, end - start) for (start, _), end in zip(intervals, ends, strict=True))


MAX_CLIENTS = 1_000_000
ROLES = ("both", "prefill", "decode")


@dataclass(frozen=True)
class Worker:
    """One model instance: J clients that share prefill stages and decode rounds.

    Attributes:
        clients: J, the number of slots.
        cost: the cost model.
        prefill_cap_tokens: most prompt tokens in one prefill stage, or None.
        memory: the memory model, or None when memory never binds.
        name: a label.
        padding: whether the requests of a stage are padded to the longest of them, and the caches
            in a round to the longest (static batching engines).
        available_ns: when the worker is available: intervals from a start or repair to a failure,
            the last without an end (None) if it stays for good; ``()``: always. What it does and
            holds at a failure is lost (the page *Fleets*).
        role: ``both``, or ``prefill`` or ``decode`` alone; caches then go over the instance's link.
        device: workers that name the same device share it: no two of their steps overlap. Empty:
            the worker has its own.
        engine: what it runs, as ``NAME+setting=value``: policies take it on. Empty: nothing known.
    """

    clients: int
    cost: CostModel = field(default_factory=AffineCost)
    prefill_cap_tokens: int | None = None
    memory: BlockMemory | None = None
    name: str = "worker-0"
    padding: bool = False
    _: KW_ONLY
    available_ns: tuple[Interval, ...] = ()
    role: str = "both"
    device: str = ""
    engine: str = ""

    def __post_init__(self) -> None:
        set_whole(self, "clients", minimum=1, maximum=MAX_CLIENTS)
        set_whole(self, "prefill_cap_tokens", minimum=1, maximum=MAX_TOKENS, optional=True)
        require_members(self.cost)
        if self.memory is not None and not isinstance(self.memory, BlockMemory):
            raise InputError(
                f"{self.memory!r} is not a memory model",
                field="memory",
                remedy="give a BlockMemory, or None",
            )
        if not isinstance(self.name, str) or not self.name:
            raise InputError("must be a text", field="name")
        require_bool(self.padding, "padding")
        object.__setattr__(self, "available_ns", checked_intervals(self.available_ns))
        require_one_of(self.role, "role", ROLES)
        for field_ in ("device", "engine"):
            if not isinstance(getattr(self, field_), str):
                raise InputError("must be a text", field=field_, remedy=f"the name of a {field_}")
        whole_number(self.settings.get("max_model_len", 1), "engine", minimum=1)
        if self.padding and self.caches_prefixes:
            raise refused_pair("prefix cache", "padding")

    @cached_property
    def prefill_limit(self) -> int | None:
        """Most prompt tokens a prefill stage can hold: the cap or the cost model's, the smaller."""
        limits = [x for x in (self.prefill_cap_tokens, self.cost.prefill_limit) if x is not None]
        return min(limits) if limits else None

    @cached_property
    def as_seen(self) -> Worker:
        """The worker as policies see it: without what will become of it."""
        return replace(self, available_ns=()) if self.available_ns else self

    @property
    def caches_prefixes(self) -> bool:
        """Whether freed blocks keep their content for requests with the same prefix."""
        return self.memory is not None and self.memory.prefix_cache is not None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of its engine by name."""
        return read_pairs(self.engine.split("+")[1:], "engine")

    @property
    def prefills(self) -> bool:
        """Whether the worker may prefill."""
        return self.role != "decode"

    @property
    def decodes(self) -> bool:
        """Whether the worker may decode."""
        return self.role != "prefill"

    def to_dict(self) -> dict[str, Any]:
        """Return the worker as plain JSON values."""
        values: dict[str, Any] = {
            "name": self.name,
            "clients": self.clients,
            "prefill_cap_tokens": self.prefill_cap_tokens,
            "memory": None if self.memory is None else self.memory.to_dict(),
            "cost": {"model": self.cost.model, **self.cost.to_dict()},
        }
        if self.padding:
            values["padding"] = True
        if self.available_ns:
            values["available_ns"] = [list(interval) for interval in self.available_ns]
        given = {"role": (self.role, "both"), "device": (self.device, "")}
        given["engine"] = (self.engine, "")
        return values | {name: own for name, (own, usual) in given.items() if own != usual}

    @classmethod
    def from_dict(cls, values: dict[str, Any], cost_of: Callable[[str], Any]) -> Worker:
        """Inverse of ``to_dict``; ``cost_of`` maps a model name to its class."""
        data = read_parameters(values, "worker", ["clients", "cost"], ["memory", *_PLAIN])
        cost = data["cost"]
        if not isinstance(cost, dict) or not isinstance(cost.get("model"), str):
            raise InputError("must be an object with a field 'model'", field="cost")
        parameters = {key: value for key, value in cost.items() if key != "model"}
        memory = data.get("memory")
        return cls(
            clients=data["clients"],
            cost=cost_of(cost["model"]).from_dict(parameters),
            memory=None if memory is None else BlockMemory.from_dict(memory),
            **{name: data[name] for name in _PLAIN if name in data},
        )


_PLAIN = ("name", "prefill_cap_tokens", "padding", "available_ns", "role", "device", "engine")
