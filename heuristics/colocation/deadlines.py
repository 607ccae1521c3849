"""When the next token of an interactive request is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.common.units import NEVER, seconds_to_ns

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import View


class Deadlines:
    """Token i of a request is due at its arrival + TTFT + i TPOT (Echo, section 5.1), i from 0.

    Args:
        instance: gives the limits of the service classes.
        ttft_s, tpot_s: limits of all interactive requests in place of those of their classes.

    Attributes:
        bulk: whether each request is of a bulk class, by row.
        interactive_kinds: the classes that are not bulk, by number.
        limits: TTFT and TPOT of each class in nanoseconds, None for none.

    Raises:
        InputError: a limit is no time.
    """

    def __init__(
        self, instance: Instance, ttft_s: float | None = None, tpot_s: float | None = None
    ) -> None:
        self.bulk: list[bool] = instance.bulk.tolist()
        self.kind: list[int] = instance.requests.service_class.tolist()
        self.interactive_kinds = [i for i, each in enumerate(instance.classes) if not each.bulk]
        ttft = None if ttft_s is None else seconds_to_ns(ttft_s, "ttft_s")
        tpot = None if tpot_s is None else seconds_to_ns(tpot_s, "tpot_s")
        self.limits = [
            (each.ttft_ns if ttft is None else ttft, each.tpot_ns if tpot is None else tpot)
            for each in instance.classes
        ]

    def due_ns(self, view: View, request: int) -> int:
        """Return when the next token of a request is due; NEVER without a limit.

        A class with a TTFT alone has no limit behind its first token, one with a TPOT alone none
        before; its tokens count from the arrival.
        """
        if self.bulk[request]:
            return NEVER
        ttft, tpot = self.limits[self.kind[request]]
        generated = view.generated(request)
        if (tpot if generated else ttft) is None:
            return NEVER
        return view.arrival_ns[request] + (ttft or 0) + generated * (tpot or 0)


def require_seconds(value: float | None, field: str) -> None:
    """Raise ``InputError`` unless a parameter is None or a time of at least 0 seconds."""
    if value is not None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(
                f"{value!r} is not a number of seconds",
                field=field,
                remedy="give seconds of at least 0",
            )
        seconds_to_ns(value, field)
