"""What the checker finds, machine readable; whatever is wrong with a certificate proves nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from orsched.certificates.fields import BudgetError
from orsched.common.errors import TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Callable


Arguments = ParamSpec("Arguments")


def proving(verify: Callable[Arguments, list[str]]) -> Callable[Arguments, list[str]]:
    """Let what a verification raises be the one reason why a certificate proves nothing."""

    @wraps(verify)
    def found(*args: Arguments.args, **options: Arguments.kwargs) -> list[str]:
        try:
            return verify(*args, **options)
        except BudgetError as error:
            return [str(error)]
        except TimeLimitError:  # the command's deadline, which may ring anywhere
            raise
        except Exception as error:
            return [f"the certificate is malformed: {error!r}"]

    return found


DEFAULT_LIMIT = 100
"""Violations of one kind that a report spells out; the others are counted."""


class ViolationKind(StrEnum):
    """What is wrong with a schedule; the page *Guarantees* explains each kind."""

    COMPLETENESS = "completeness"
    CLIENT_OVERLAP = "client_overlap"
    CLIENT_RANGE = "client_range"
    WORKER_RANGE = "worker_range"
    STAGE_EXCLUSIVITY = "stage_exclusivity"
    EMPTY_STAGE = "empty_stage"
    PHASE = "phase"
    CONTIGUITY = "contiguity"
    PREFILL_CAP = "prefill_cap"
    MEMORY = "memory"
    PREFIX_CACHE = "prefix_cache"
    TRANSFER = "transfer"
    ROLE = "role"
    ARRIVAL = "arrival"
    AVAILABILITY = "availability"
    TIME = "time"
    ORDER = "order"
    INSTANCE = "instance"
    INFORMATION = "information"
    RESULT = "result"
    BOUND = "bound"


STRUCTURE = (
    ViolationKind.COMPLETENESS, ViolationKind.CLIENT_OVERLAP, ViolationKind.CLIENT_RANGE,
    ViolationKind.WORKER_RANGE, ViolationKind.STAGE_EXCLUSIVITY, ViolationKind.EMPTY_STAGE,
    ViolationKind.PHASE, ViolationKind.CONTIGUITY, ViolationKind.ORDER, ViolationKind.TRANSFER,
)  # fmt: skip
"""Without any of these, what caches hold and every reported number is defined."""


@dataclass(frozen=True)
class Violation:
    """One finding of the checker, in words (``message``); what does not apply is None.

    ``request``, ``client``, ``worker`` and ``step`` are rows and indices, ``field`` is of the
    schedule; ``expected`` and ``found`` are plain JSON values.
    """

    kind: ViolationKind
    message: str
    request: int | None = None
    client: int | None = None
    worker: int | None = None
    step: int | None = None
    field: str | None = None
    expected: Any = None
    found: Any = None

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values; what does not apply is left out."""
        values = {
            "request": self.request,
            "client": self.client,
            "worker": self.worker,
            "step": self.step,
            "field": self.field,
            "expected": plain(self.expected),
            "found": plain(self.found),
        }
        kept = {key: value for key, value in values.items() if value is not None}
        return {"kind": self.kind.value, "message": self.message, **kept}


def plain(value: object) -> Any:
    """Return a JSON value as it is and anything else as text."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if value - value == 0 else repr(value)  # NaN and infinity are no JSON
    if type(value) is list and all(type(item) in (bool, int, str) for item in value):
        return list(value)
    return shown(value)


def shown(value: object) -> str:
    """Return a short ``repr`` of any object, even of one whose ``repr`` fails."""
    try:
        text = repr(value)
    except TimeLimitError:  # the command's deadline, which may ring anywhere
        raise
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


class Findings:
    """Collects violations; of each kind it keeps the first ``limit`` and counts the others."""

    def __init__(self, limit: int | None = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.counts: dict[ViolationKind, int] = {}
        self._kept: list[Violation] = []

    def room(self, kind: ViolationKind) -> int | None:
        """Violations of this kind that may still be spelt out; None: any number."""
        if self.limit is None:
            return None
        return max(0, self.limit - self.counts.get(kind, 0))

    def add(self, kind: ViolationKind, message: str, **where: Any) -> None:
        """Record one violation."""
        if self.room(kind) != 0:
            self._kept.append(Violation(kind, message, **where))
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def add_rows(
        self,
        kind: ViolationKind,
        wrong: np.ndarray[Any, np.dtype[np.bool_]],
        describe: Callable[[int], dict[str, Any]],
    ) -> None:
        """Record one violation for each True row; ``describe`` gives its fields."""
        rows = np.flatnonzero(wrong)
        if len(rows) == 0:
            return
        spelt = rows[: self.room(kind)]
        self._kept += [Violation(kind, **describe(row)) for row in spelt.tolist()]
        self.counts[kind] = self.counts.get(kind, 0) + len(rows)

    def any_of(self, *kinds: ViolationKind) -> bool:
        """Say if a violation of one of the kinds was recorded."""
        return any(self.counts.get(kind) for kind in kinds)

    def violations(self) -> list[Violation]:
        """Return what was recorded; a last entry of a kind counts what was not spelt out."""
        result = list(self._kept)
        for kind, count in self.counts.items():
            limit = count if self.limit is None else self.limit
            if count > limit:
                more = f"{count - limit} further violations of this kind"
                result.append(Violation(kind, more, found=count - limit))
        return result
