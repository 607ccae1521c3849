"""How many slots of a length a device holds: predicted from shapes, then found by trying."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.data.memory import BlockMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.runner.worker.language_model import Shape

COUNTER_BYTES = 8
"""A token of a slot has its number beside its cache."""

MOST_SLOTS = 2**20

T = TypeVar("T")

_SIGNS = ("out of memory", "alloc_failed")
"""In messages of libraries that do not ask torch for memory."""


class Footprint(NamedTuple):
    """Bytes that a worker takes.

    Attributes:
        weights: of the model.
        token: of a token in a slot: keys and values of all layers, and the token itself.
    """

    weights: int
    token: int

    @classmethod
    def of(cls, weights: int, cache: int) -> Footprint:
        """Return the footprint by the bytes of the weights and of a token's keys and values."""
        return cls(weights, cache + COUNTER_BYTES)

    def slots(self, length: int, limit: int) -> int:
        """Return how many slots of ``length`` tokens fit beside the weights, by bytes alone."""
        return max(0, (limit - self.weights) // (self.token * (length + 1)))


class Found(NamedTuple):
    """The largest batch of a length.

    Attributes:
        length: tokens of each slot.
        predicted: slots by bytes alone.
        slots: slots with which the largest steps ran.
    """

    length: int
    predicted: int
    slots: int


def cache_bytes(shape: Shape, number_bytes: int) -> int:
    """Return what a token takes in a worker's caches."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * number_bytes


def footprint(worker: Any) -> Footprint:
    """Return the footprint of a torch worker."""
    numbers = list(worker.model.parameters())
    weights = sum(part.nbytes for part in numbers)
    return Footprint.of(weights, cache_bytes(worker.shape, numbers[0].itemsize))


def read_bytes(text: str, field: str = "memory") -> int:
    """Return a number of bytes: digits, with KiB, MiB or GiB after them if wanted.

    Raises:
        InputError: it is none; ``field`` says where.
    """
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "": 1}
    unit = next(name for name in units if text.endswith(name))
    digits = text.removesuffix(unit).strip()
    if not (digits.isascii() and digits.isdigit() and 0 < len(digits) <= 18):
        raise InputError(f"{text!r} is not a number of bytes", field=field, remedy="as in 512MiB")
    return whole_number(int(digits) * units[unit], field, minimum=1)


def largest(fits: Callable[[int], bool], guess: int, most: int = MOST_SLOTS) -> int:
    """Return the largest number up to ``most`` that fits, or 0; tried near a guess first.

    What fits with some slots is taken to fit with fewer. Above 100 slots the answer may be too
    small by one percent.
    """
    low, high, step = 0, most + 1, max(1, guess // 16)
    trial = min(max(1, guess), most)
    while high - low > max(1, low // 100):
        if fits(trial):
            low = trial
            trial = low + step if high > most else (low + high) // 2
        else:
            high = trial
            trial = high - step if low == 0 else (low + high) // 2
        step *= 2
        trial = min(max(trial, low + 1), high - 1)
    return low


def memory_profile(
    lengths: Sequence[int],
    predict: Callable[[int], int],
    fits: Callable[[int, int], bool],
    most: int = MOST_SLOTS,
    report: Callable[[str], None] | None = None,
) -> list[Found]:
    """Return the largest batch for each length.

    Args:
        lengths: tokens of a slot.
        predict: length -> slots by bytes alone.
        fits: (slots, length) -> whether the largest steps of such a worker run.
        most: slots that are enough.
        report: told what is tried.

    Raises:
        InputError: not one slot of a length fits.
    """
    found = []
    for length in lengths:
        whole_number(length, "length", minimum=1)

        def trial(slots: int, length: int = length) -> bool:
            if report is not None:
                report(f"{slots} slots of {length} tokens")
            return fits(slots, length)

        predicted = predict(length)
        slots = largest(trial, predicted, most)
        if slots == 0:
            raise InputError(
                f"no slot of {length} tokens fits into memory",
                field="length",
                remedy="give more memory, or shorter slots",
            )
        found.append(Found(length, predicted, slots))
    return found


def block_memory(found: Sequence[Found], block_tokens: int = 16) -> BlockMemory:
    """Return the memory model of a worker: as many tokens as at the length that holds fewest."""
    tokens = min(item.slots * item.length for item in found)
    blocks = tokens // block_tokens
    if blocks == 0:
        raise InputError(
            f"{tokens} tokens are less than a block",
            field="block_tokens",
            remedy="give shorter blocks, or more memory",
        )
    return BlockMemory(blocks, block_tokens, "whole")


def fits_on(
    model: str,
    device: str,
    dtype: str,
    most_tokens: int,
    bytes_of: Footprint,
    limit: int | None = None,
) -> Callable[[int, int], bool]:
    """Return a test of (slots, length): the largest steps of such a worker run without a crash.

    On a GPU the worker is built, prefills ``most_tokens`` at once and runs a round over full slots;
    running out of memory is an answer. ``limit`` is how many bytes weights and caches may take, on
    a CPU, where running out would stop the machine: a worker that needs more is not built.
    """
    import torch

    from orsched.runner.worker.torch_worker import TorchWorker

    on_gpu = torch.device(device).type == "cuda"

    def fits(slots: int, length: int) -> bool:
        if limit is not None and bytes_of.slots(length, limit) < slots:
            return False
        ran = within_memory(
            lambda: largest_steps(TorchWorker(model, slots, length, device, dtype), most_tokens)
        )
        gc.collect()  # what failed is let go of by now: the error that held it is gone
        if on_gpu:
            torch.cuda.empty_cache()
        return ran is not None

    return fits


def within_memory(action: Callable[[], T]) -> T | None:
    """Return what an action returns, or None if it ran out of a GPU's memory."""
    import torch

    try:
        return action()
    except RuntimeError as error:
        lines = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError) or any(sign in lines for sign in _SIGNS):
            return None
        raise


def largest_steps(worker: Any, most_tokens: int) -> list[int]:
    """Prefill as much as a stage may hold, then run a round over all slots when they are full.

    Returns the slots' lengths, which waits for the device; the slots are free again.
    """
    from orsched.runner.worker.chunk import Chunk

    slots, length = worker.slots.count, worker.slots.length
    chunks: list[Chunk] = []
    left = most_tokens
    while len(chunks) < slots and left > 0:
        size = min(length, left)
        chunks.append(Chunk(len(chunks), 0, [0] * size, True))
        left -= size
    worker.prefill(chunks)
    worker.pretend([length - 1] * slots)
    worker.decode(list(range(slots)), 1)
    lengths: list[int] = worker.slots.lengths.tolist()
    for slot in range(slots):
        worker.release(slot)
    return lengths
