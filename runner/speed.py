"""How fast a machine is while a worker is measured, and while it runs: looks at a reference."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orsched.runner.devices.device import Device

TOKENS, ROUNDS = 256, 4  # of the request that is looked at

LEAST_NS = 50_000_000  # time of a look on an empty worker: longer than short disturbances
LEAST_STEPS = 4

EVERY_NS = 50_000_000  # CPU time of a run between two looks

PARTS = 10  # of the time, in whose means the speed is told
STEADY = 0.1  # relative change of the speed beyond which a warning is given


class Speed(NamedTuple):
    """How fast a machine was."""

    reference_ns: tuple[int, ...]  # means of looks, from the first part of the time to the last
    reference: str  # what was looked at
    usual_ns: int  # the mean in runs, beside other requests; without such looks the mean of all

    @property
    def moved(self) -> float:
        """By how much the slowest part of the time is above the fastest."""
        return max(self.reference_ns) / min(self.reference_ns) - 1

    def warnings(self) -> list[str]:
        """Say that the speed moved, if it did by more than ``STEADY``."""
        if self.moved <= STEADY:
            return []
        least, most = (f(self.reference_ns) / 1e6 for f in (min, max))
        return [
            f"the machine's speed moved by {100 * self.moved:.0f} % while the worker was measured "
            f"({self.reference} took {least:.3g} to {most:.3g} ms): times are divided by it, but a "
            "run can be off by as much (its --calibration tells)"
        ]

    def beside(self, now: Speed) -> dict[str, Any]:
        """Return the speed at another time; ``drift``: how often as long the same takes then."""
        drift = now.usual_ns / self.usual_ns
        return {**now.to_dict(), "drift": drift}

    def to_dict(self) -> dict[str, Any]:
        """Return the means, and by how much they differ, as a cost-model file has them."""
        return {
            "reference": self.reference,
            "reference_ns": list(self.reference_ns),
            "usual_ns": self.usual_ns,
            "moved": round(self.moved, 4),
        }

    @classmethod
    def read(cls, report: Mapping[str, Any]) -> Self:
        """Read ``speed`` of a calibration's report; raises ``InputError`` where there is none."""
        found: Any = report.get("speed")
        try:
            times = [whole_number(ns, "reference_ns", minimum=1) for ns in found["reference_ns"]]
            usual = whole_number(found["usual_ns"], "usual_ns", minimum=1)
            return cls((times[0], *times[1:]), str(found["reference"]), usual)
        except (TypeError, KeyError, IndexError, InputError):
            raise InputError(
                "holds no speed of a machine",
                field="speed",
                remedy="give a file that orsched calibrate has written",
            ) from None


class Reference:
    """Looks at how long one short request takes: a prompt, and some rounds of it alone.

    On a device that is timed in CPU time one look takes milliseconds, and is possible while other
    requests are on the worker, in a slot that is left for it; its time does not count. Elsewhere
    the worker is empty, and the request is served several times.

    Args:
        device: the worker.
        slot: the slot of the request, free at each look.
        like: what another machine was looked at with; ``InputError`` unless it is the same here.
    """

    def __init__(self, device: Device, slot: int = 0, like: Speed | None = None) -> None:
        self.device, self.slot = device, slot
        self.tokens = max(1, min(TOKENS, device.length // 2))
        self.aside = getattr(device, "aside", None) if getattr(device, "on_cpu", False) else None
        self.every, self.width = (2, 4) if self.aside else (16, 1)
        self.left, self.asked_ns = 0, 0
        self.times_ns: list[int] = []  # at each look on an empty worker, in order
        self.run_ns: list[int] = []  # the same beside other requests
        if like is not None and like.reference != self.name:
            raise InputError(
                f"the machine was looked at by {like.reference}, which is not possible here",
                field="calibration",
                remedy="calibrate with the same length of slots, or leave it out",
            )

    @property
    def name(self) -> str:
        """What is looked at."""
        return f"a prompt of {self.tokens} tokens and {ROUNDS} rounds"

    def look(self) -> None:
        """Look once."""
        self.left = self.asked_ns = 0
        if self.aside:
            self.times_ns.append(self._once(self.aside))
            return
        self._once(self._alone)  # the first time does not count
        found: list[int] = []
        while len(found) < LEAST_STEPS or sum(found) < LEAST_NS:
            found.append(self._once(self._alone))
        self.times_ns.append(sum(found) // len(found))

    def due(self) -> int:
        """Look if that is due, every few calls; return the number of the last look."""
        if self.left == 0:
            self.look()
            self.left = self.every
        self.left -= 1
        return len(self.times_ns) - 1

    def due_in_run(self) -> None:
        """Look in the middle of a run, if that is possible and due."""
        if self.aside and self.device.now_ns() >= self.asked_ns:
            self.run_ns.append(self._once(self.aside))
            self.asked_ns = self.device.now_ns() + EVERY_NS

    def _once(self, step: Callable[[list[Chunk], list[int], int], int]) -> int:
        prompt = [0] * self.tokens
        taken = step([Chunk(self.slot, 0, prompt, True, whole=prompt)], [], 1)
        taken += step([], [self.slot], ROUNDS)
        self.device.release(self.slot, self.tokens)
        return max(1, taken)

    def _alone(self, chunks: list[Chunk], active: list[int], rounds: int) -> int:
        self.device.begin(chunks, active, rounds, 0)
        times = self.device.end()
        return times.end_ns - times.start_ns

    def speed(self) -> Speed:
        """Return what the looks found."""
        parts = np.array_split(np.array(self.times_ns), min(PARTS, len(self.times_ns)))
        usual = max(1, round(fmean(self.run_ns or self.times_ns)))
        return Speed(tuple(round(float(part.mean())) for part in parts), self.name, usual)

    def steady(self, taken_ns: int, look: int) -> int:
        """Return a time, taken after a look and before the next, as at the usual speed."""
        near = self.times_ns[max(0, look + 1 - self.width) : look + self.width + 1]
        return max(1, round(taken_ns * fmean(self.times_ns) / fmean(near)))
