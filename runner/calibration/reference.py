"""One step repeated while a worker is measured: how far the machine's speed drifts meanwhile."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.measurements import DECODE
from orsched.runner.calibration.profiling import ROUNDS, Point, measured_ns

if TYPE_CHECKING:
    from orsched.runner.devices.device import TorchDevice

LEAST_NS = 50_000_000
"""Time of a look: long enough to see others that take turns on a core."""

LEAST_STEPS = 4

STEADY = 0.1
"""Relative drift of the speed beyond which a warning is given."""


class Speed(NamedTuple):
    """How fast a machine was.

    Attributes:
        reference_ns: mean times of one step, from the first look to the last.
    """

    reference_ns: tuple[int, ...]

    @property
    def moved(self) -> float:
        """By how much the slowest look is above the fastest."""
        return max(self.reference_ns) / min(self.reference_ns) - 1

    def warnings(self) -> list[str]:
        """Say that the speed moved, if it did by more than ``STEADY``."""
        if self.moved <= STEADY:
            return []
        least, most = (f(self.reference_ns) / 1e6 for f in (min, max))
        return [
            f"the machine's speed moved by {100 * self.moved:.0f} % while the worker was measured "
            f"(a round over all slots took {least:.3g} to {most:.3g} ms): a plan can be off by as "
            "much (wait for a calmer moment and measure again)"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the looks, and by how much they differ, as a cost-model file has them."""
        return {"reference_ns": list(self.reference_ns), "moved": round(self.moved, 4)}


class Reference:
    """Looks at the time of a round over all slots, each half full.

    Attributes:
        times_ns: mean time of the round at each look, in order.
    """

    def __init__(self, device: TorchDevice, seed: int = 0) -> None:
        slots = device.worker.slots
        self.device, self.random = device, random.Random(seed)
        self.point = Point(DECODE, slots.count, 0, max(1, slots.length // 2))
        self.times_ns: list[int] = []

    def look(self) -> None:
        """Measure the round for a while, after a first time that does not count."""
        measured_ns(self.device, self.point, self.random)
        found: list[int] = []
        while len(found) < LEAST_STEPS or ROUNDS * sum(found) < LEAST_NS:
            found.append(measured_ns(self.device, self.point, self.random))
        self.times_ns.append(sum(found) // len(found))

    def speed(self) -> Speed:
        """Return what the looks found."""
        return Speed(tuple(self.times_ns))
