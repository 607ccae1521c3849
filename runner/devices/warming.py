"""Steps before time 0: start-up costs of a process's first steps are not part of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.runner.worker.chunk import Chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.runner.devices.device import Device

REPEATS = 2
MOST_ROUNDS = 8


def warm_up(device: Device, slots: int, length: int, prompts: Sequence[int]) -> None:
    """Run stages over one prompt and over several, rounds, and a mixed step.

    Args:
        device: nothing is on it, before and after.
        slots, length: of the device.
        prompts: numbers of prompt tokens, such as the shortest and the longest of an instance.
    """
    sizes = sorted({min(tokens, length) for tokens in prompts})
    for _ in range(REPEATS):
        for size in sizes:
            _do(device, [_prompt(0, size)], [], 1)
            device.release(0, size)
        _rounds(device, slots, length, sizes[0])


def _rounds(device: Device, slots: int, length: int, size: int) -> None:
    """Fill all slots, then run rounds and a mixed step over them."""
    every = list(range(slots))
    _do(device, [_prompt(slot, size) for slot in every], [], 1)
    rounds = min(MOST_ROUNDS, length - size - 1)
    if rounds > 0:
        _do(device, [], every, rounds)
        if slots > 1:
            device.release(slots - 1, size)
            _do(device, [_prompt(slots - 1, size)], every[:-1], 1)
    for slot in every:
        device.release(slot, size)


def _prompt(slot: int, tokens: int) -> Chunk:
    return Chunk(slot, 0, [0] * tokens, True)


def _do(device: Device, chunks: Sequence[Chunk], active: Sequence[int], rounds: int) -> None:
    device.begin(chunks, active, rounds, 0)
    device.end()
