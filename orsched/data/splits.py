"""Splits: how many workers prefill, how many decode, and by which link caches go."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.data.links import Link, read_link

if TYPE_CHECKING:
    from orsched.data.workers import Worker

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
