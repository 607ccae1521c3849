"""What a reader returns: the requests, and an account of every row."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from orsched.data.requests import Requests


@dataclass(frozen=True)
class ReadReport:
    """Account of a file that was read: ``rows == kept + sum(dropped.values())``.

    Attributes:
        file: the file as it was named.
        format: name of its format.
        rows: requests in the file.
        kept: requests that were returned.
        dropped: reason -> number of requests left out, which happens only when asked for.
        notes: what else a reader of the numbers should know, a sentence each.
        priorities: the different values of a column of priorities, smallest first: a request's
            class is the place of its own in them.
    """

    file: str
    format: str
    rows: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    priorities: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {**asdict(self), "notes": list(self.notes), "priorities": list(self.priorities)}

    def __str__(self) -> str:
        lost = "".join(f", {count} left out ({reason})" for reason, count in self.dropped.items())
        notes = "".join(f"; {note}" for note in self.notes)
        count = f"{self.kept} of {self.rows} requests"
        return f"{self.file}, format {self.format}: {count}{lost}{notes}"


class Trace(NamedTuple):
    """Requests from a file, in the order of the file, and the report on reading it."""

    requests: Requests
    report: ReadReport
