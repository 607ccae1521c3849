"""Which kernels attend: the fastest that is there and attends as the dense one does.

The operators and compilers behind the fast ones are not what torch promises to keep, so each is
compared with the dense kernel on a few random tokens of this device before it is trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from warnings import warn

from orsched.runner.worker import decode, flash
from orsched.runner.worker.dense import DenseChunks, DenseRounds
from orsched.runner.worker.heads import Heads
from orsched.runner.worker.language_model import Shape
from orsched.runner.worker.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from orsched.runner.worker.layout import Layout

TOLERANCE = 0.05
"""Of means of standard normal values: two units in the last place of bfloat16 between 2 and 4."""


class Kernel(Protocol):
    """Attends in rounds, or in chunks, when keys and values of a step are in the caches.

    Attributes:
        any_reach: whether how far caches reach is no matter to it, and one graph serves all.
    """

    any_reach: bool

    def __init__(self, slots: Slots) -> None:
        """Attend to the caches of these slots."""

    def begin(self, layout: Layout) -> None:
        """Take what is in the step; what all layers need is made here, or once when asked for."""

    def __call__(self, heads: Heads) -> Tensor:
        """Return [tokens of its part of the step, heads, head size]."""


def rounds_kernel(slots: Slots) -> Kernel:
    """Return what attends in rounds: our kernel, torch's flash operator, or the dense one."""
    fast: list[tuple[Callable[[Slots], bool], type[Kernel]]] = [
        (decode.serves, decode.DecodeRounds),
        (flash.serves, flash.FlashRounds),
    ]
    return _first_trusted(slots, fast, DenseRounds)


def chunks_kernel(slots: Slots) -> Kernel:
    """Return what attends in chunks of prompts: torch's flash operator, or the dense kernel."""
    return _first_trusted(slots, [(flash.serves, flash.FlashChunks)], DenseChunks)


def _first_trusted(
    slots: Slots,
    fast: list[tuple[Callable[[Slots], bool], type[Kernel]]],
    dense: type[Kernel],
) -> Kernel:
    for serves, kernel in fast:
        if not serves(slots):
            continue
        cache = slots.keys[0]
        trial = Slots(Shape(1, cache.shape[2], cache.shape[3], 0, 0), 4, 96, cache)
        try:
            if agrees(kernel(trial), dense(trial), trial):
                return kernel(slots)
            reason = "it attends otherwise than the dense kernel on this device"
        except Exception as error:  # a compiler's own, or of an operator that changed
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        warn(f"steps are slower: {kernel.__name__}: {reason}", RuntimeWarning, stacklevel=2)
    return dense(slots)


def agrees(fast: Kernel, dense: Kernel, slots: Slots) -> bool:
    """Return whether two kernels attend alike, with and without a window, in every part of steps.

    Args:
        fast, dense: of the same slots.
        slots: four, of 96 tokens; what is in them is overwritten.
    """
    import torch

    cache = slots.keys[0]
    numbers = torch.Generator().manual_seed(0)
    for each in slots.rows[0]:
        each.copy_(torch.randn(each.shape, generator=numbers))
    for layout in _trials(slots):
        size = (len(layout.places), 4 * cache.shape[2], cache.shape[3])
        query = torch.randn(size, generator=numbers).to(cache)
        if not _has_part(dense, layout):
            continue
        found = []
        for kernel in (fast, dense):
            kernel.begin(layout)
            for window in (None, 4, 40):
                heads = Heads(0, query, cache.shape[3] ** -0.5, window)
                found.append(kernel(heads)[: _counted(dense, layout)].float())
        half = len(found) // 2
        worst = max(
            float((one - other).abs().max())
            for one, other in zip(found[:half], found[half:], strict=True)
        )
        if not worst <= TOLERANCE:  # so that NaN is refused
            return False
    return True


def _has_part(dense: Kernel, layout: Layout) -> bool:
    return layout.rows > 0 if isinstance(dense, DenseRounds) else layout.chunks is not None


def _counted(dense: Kernel, layout: Layout) -> int | None:
    """Return how many rows are read: the last one of a trial's round is nobody's."""
    return layout.rows - 1 if isinstance(dense, DenseRounds) else None


def _trials(slots: Slots) -> Iterator[Layout]:
    """Yield a round over scattered slots and nobody, and chunks beside it: new and continued."""
    import torch

    from orsched.runner.worker.chunk import Chunk
    from orsched.runner.worker.inputs import extent_of, pack, spans_of, unpack
    from orsched.runner.worker.layout import lay_out

    device = slots.lengths.device
    lengths = torch.tensor([25, 13, 90, 0, 0])
    slots.lengths.copy_(lengths)
    slots.order.copy_(torch.tensor([2, 0, slots.nobody, slots.nobody]))
    yield lay_out(slots, 3, 96)
    chunks = [Chunk(3, 0, [0] * 70, True), Chunk(1, 13, [0] * 6, True)]
    packed = torch.from_numpy(pack(slots, chunks, extent_of(chunks))).to(device)
    inputs = unpack(packed, extent_of(chunks), spans_of(chunks))
    yield lay_out(slots, 3, 96, None, inputs)
