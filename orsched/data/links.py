"""Links between workers that prefill and that decode, transfers over them, and splits."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from orsched.common.columns import IntColumn, int_column, whole_number
from orsched.common.errors import InputError
from orsched.common.parameters import read_list_of_pairs
from orsched.common.scalars import is_number, printed, set_whole
from orsched.common.units import MAX_TIME_NS, MAX_TOKENS, NEVER, NS_PER_S, seconds_to_ns, set_times
from orsched.costs.protocol import read_parameters

if TYPE_CHECKING:
    from orsched.data.workers import Worker


@dataclass(frozen=True, eq=False, kw_only=True)
class Transfers:
    """One row for each cache that went over a link, in order of start, then source, then request.

    Attributes:
        request: row of the request in the instance.
        stay: number of the stay that the cache begins; the one before it sends the cache.
        source, target: the workers that send and receive it.
        start_ns, end_ns: when the link is busy with it.
        tokens: tokens in the cache.
    """

    request: IntColumn
    stay: IntColumn
    source: IntColumn
    target: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    tokens: IntColumn

    def __post_init__(self) -> None:
        n = len(int_column(self.request, "transfers.request"))
        limits = {
            "request": (0, 2**31),
            "stay": (1, 2**31),
            "source": (0, 2**31),
            "target": (0, 2**31),
            "start_ns": (0, NEVER - 1),
            "end_ns": (0, NEVER - 1),
            "tokens": (1, MAX_TOKENS),
        }
        for name, (low, high) in limits.items():
            column = int_column(
                getattr(self, name), f"transfers.{name}", minimum=low, maximum=high, length=n
            )
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.request)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transfers):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in COLUMNS)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def none(cls) -> Transfers:
        """Return no transfers."""
        return cls(**{item.name: np.zeros(0, np.int64) for item in COLUMNS})


COLUMNS = fields(Transfers)
NAMES = tuple(each.name for each in COLUMNS)
"""The columns by name, in the order of files."""


_OF_TEXT = ("ns_per_token", "latency_ns", "bandwidth", "kv_bytes", "latency")


@dataclass(frozen=True, init=False)
class Link:
    """The link by which each worker sends caches: one each, for all receivers.

    A worker sends one cache after the other. Each takes the latency and the time of its tokens.

    Attributes:
        ns_per_token: time of a token's keys and values on the link, in nanoseconds.
        latency_ns: time that each transfer takes beside; ``latency_s`` gives it in seconds.
    """

    ns_per_token: int = 0
    latency_ns: int = 0

    def __init__(
        self,
        *,
        ns_per_token: int = ns_per_token,
        latency_s: float | None = None,
        latency_ns: int = latency_ns,
    ) -> None:
        object.__setattr__(self, "ns_per_token", ns_per_token)
        set_times(self, latency=(latency_ns, latency_s))
        set_whole(self, "ns_per_token", maximum=MAX_TIME_NS // MAX_TOKENS)
        set_whole(self, "latency_ns", maximum=MAX_TIME_NS // 4)

    def transfer_ns(self, tokens: int) -> int:
        """Return how long the cache of so many tokens takes."""
        return self.latency_ns + tokens * self.ns_per_token

    @classmethod
    def of_bandwidth(
        cls, bytes_per_s: float, kv_bytes_per_token: float, latency_s: float = 0.0
    ) -> Self:
        """Return the link of a bandwidth; the time of a token is rounded up to whole nanoseconds.

        ``orsched.calibration`` knows the bytes that a token of a public model leaves in the cache:
        2 layers x kv_heads x head_size numbers of 2 bytes. Raises ``InputError``.
        """
        for value, name in ((bytes_per_s, "bandwidth"), (kv_bytes_per_token, "kv_bytes")):
            if not is_number(value) or not 0 < value < float("inf"):
                raise InputError(
                    f"{printed(value)} is not a number above 0",
                    field=name,
                    remedy="give a number of bytes",
                )
        exact = Fraction(kv_bytes_per_token) * NS_PER_S / Fraction(bytes_per_s)
        token_ns = -(-exact.numerator // exact.denominator)
        return cls(ns_per_token=token_ns, latency_ns=seconds_to_ns(latency_s, "latency"))

    def to_dict(self) -> dict[str, int]:
        """Return the link as plain JSON values."""
        return {"ns_per_token": self.ns_per_token, "latency_ns": self.latency_ns}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``; raises ``InputError`` that names the field."""
        return cls(**read_parameters(values, "link", ["ns_per_token", "latency_ns"]))


def read_link(spec: object) -> Link:
    """Return the link that a text, a table or a ``Link`` describes.

    ``ns_per_token=5243,latency_ns=10000``, or in bytes and seconds
    ``bandwidth=25e9,kv_bytes=131072,latency=1e-5``; ``free`` is a link without cost. Raises
    ``InputError`` if a part is unknown, missing or no number.
    """
    if isinstance(spec, Link):
        return spec
    if isinstance(spec, str):
        if spec == "free":
            return Link()
        spec = read_list_of_pairs(spec, "link")
    if not isinstance(spec, dict):
        raise InputError(
            f"{printed(spec)} is not a link",
            field="link",
            remedy="ns_per_token=5243,latency_ns=10000",
        )
    values = read_parameters(spec, "link", [], list(_OF_TEXT))
    if "bandwidth" in values or "kv_bytes" in values or "latency" in values:
        given = read_parameters(values, "link", ["bandwidth", "kv_bytes"], ["latency"])
        return Link.of_bandwidth(given["bandwidth"], given["kv_bytes"], given.get("latency", 0))
    for name in values:
        whole_number(values[name], name)
    return Link(ns_per_token=values.get("ns_per_token", 0), latency_ns=values.get("latency_ns", 0))


_SPLIT = re.compile(r"((?:[0-9]{1,6}[PBD])+)(?::(.*))?", re.DOTALL)
_PART = re.compile(r"([0-9]+)([PBD])")
_ROLES = {"P": "prefill", "B": "both", "D": "decode"}
_MOST = 100_000


@dataclass(frozen=True)
class Split:
    """So many workers of each role, in this order, and their link.

    ``roles`` are such as ``((2, "prefill"), (2, "decode"))``; ``link`` None: that of the instance.
    """

    roles: tuple[tuple[int, str], ...]
    link: Link | None = None

    def of(self, worker: Worker) -> tuple[Worker, ...]:
        """Return copies of a worker with these roles, each with a name of its own."""
        return tuple(
            replace(worker, role=role, name=f"{role}-{number}") for role, number in self._numbered()
        )

    def _numbered(self) -> list[tuple[str, int]]:
        counts = dict.fromkeys(_ROLES.values(), 0)
        found = []
        for many, role in self.roles:
            found += [(role, counts[role] + number) for number in range(many)]
            counts[role] += many
        return found

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return sum(many for many, _ in self.roles)

    @property
    def name(self) -> str:
        """The split without its link, such as 2P2D."""
        letters = {role: letter for letter, role in _ROLES.items()}
        return "".join(f"{many}{letters[role]}" for many, role in self.roles)

    @property
    def link_values(self) -> dict[str, int]:
        """The numbers of the link by name, none without one."""
        return {} if self.link is None else self.link.to_dict()

    def __str__(self) -> str:
        link = ",".join(f"{name}={value}" for name, value in self.link_values.items())
        return f"{self.name}:{link}" if link else self.name


def read_split(spec: str) -> Split | None:
    """Return the split that a text names, None for a text of another kind.

    ``2P2D``: two that prefill, two that decode (``B``: both), 100,000 workers at most, with a link
    behind a colon as ``read_link`` takes it: ``2P2D:bandwidth=25e9,kv_bytes=131072,latency=1e-5``.
    """
    match = _SPLIT.fullmatch(spec.strip())
    if match is None:
        return None
    roles = tuple((int(many), _ROLES[letter]) for many, letter in _PART.findall(match[1]))
    if any(many == 0 for many, _ in roles):
        raise InputError(
            f"{spec!r} has none of a role", field="workers", remedy="leave that role out"
        )
    whole_number(sum(many for many, _ in roles), "workers", minimum=1, maximum=_MOST)
    return Split(roles, None if match[2] is None else read_link(match[2]))
