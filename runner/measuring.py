"""Measuring a worker: a grid of steps, then steps as they come when requests are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.runner.calibration import joined
from orsched.runner.profiling import grid, profile
from orsched.runner.rehearsal import made_up_requests, rehearse

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.costs.measurements import Measurements
    from orsched.requests import Requests
    from orsched.runner.device import TorchDevice

REQUESTS_A_SLOT = 6
"""Requests of a rehearsal for each slot: the first and the last ones run on a half-full worker."""


def measure_worker(
    device: TorchDevice,
    most_tokens: int,
    repeats: int = 5,
    seed: int = 0,
    requests: int | None = None,
    like: Requests | None = None,
    report: Callable[[str], None] | None = None,
) -> Measurements:
    """Measure a worker's steps, for ``calibrate``.

    The grid has sizes that seldom come up in a run, for which a fit would otherwise have to guess;
    the rehearsal has steps in the state in which a run finds them: caches in no order, other
    steps before, decisions between.

    Args:
        device: the worker; nothing may be on it.
        most_tokens: of a prefill stage.
        repeats: of each point of the grid, which stands for their median.
        seed: of the order, the requests and their prompts.
        requests: of the rehearsal; 0 leaves it out; by default six a slot.
        like: requests whose lengths those of the rehearsal are drawn from.
        report: told what is done.
    """
    slots = device.worker.slots
    say = report if report is not None else _nobody
    points = grid(slots.count, slots.length, most_tokens)
    if slots.length > 1:
        _warm_up(device, most_tokens, seed)
    found = profile(
        device, points, repeats, seed, lambda done, of: say(f"{done} of {of} steps of the grid")
    )
    count = REQUESTS_A_SLOT * slots.count if requests is None else requests
    if count == 0 or slots.length < 2:
        return found
    say(f"a rehearsal with {count} requests")
    drawn = made_up_requests(count, slots.length, seed, like)
    return joined(found, rehearse(device, drawn, most_tokens, seed))


def _warm_up(device: TorchDevice, most_tokens: int, seed: int) -> None:
    """Serve a few requests, for what a device does the first time only."""
    few = made_up_requests(device.worker.slots.count, min(64, device.worker.slots.length), seed)
    rehearse(device, few, most_tokens, seed)


def _nobody(_: str) -> None:
    """Tell nobody."""
